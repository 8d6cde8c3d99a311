//! SET and RESET.

use datafusion::logical_expr::{
    LogicalPlan, ResetVariable, SetVariable, Statement as PlanStatement,
};
use skewer_compat::suggest::suggest;
use skewer_optimizer::join_order::JoinOrder;

use super::Outcome;
use crate::catalog::quarantine::RowsSeen;
use crate::error::Error;
use crate::remedies::RemedyMode;
use crate::session::Session;
use crate::settings::{
    self, CACHE_SIZE, CARDINALITY_FEEDBACK, DEFAULT_STALL_TIMEOUT, JOIN_ORDER, MAX_RUNNING_QUERIES,
    MAX_TEMP_DIRECTORY_SIZE, MEMORY_LIMIT, OWN_SETTINGS, PLAN_CACHE, ProfileSettings, QUARANTINE,
    REMEDIES, SNAPSHOT_BYTES, STALL_TIMEOUT, TRACE_PARENT, canonical,
};

/// The schema of names without schema.
const DEFAULT_SCHEMA: &str = "datafusion.catalog.default_schema";

/// SET name = value.
pub(crate) async fn set(session: &Session, name: &str, value: &str) -> Result<Outcome, Error> {
    let name = canonical(name);
    let database = session.database_inner();
    match name {
        "profile.level" => {
            let level = settings::parse_level(name, value)?;
            session.inner().profile.lock().level = level;
        }
        "profile.lineage" => {
            let mode = settings::parse_lineage_mode(name, value)?;
            session.inner().profile.lock().lineage = mode;
        }
        "profile.sample_rate" => {
            let rate = settings::parse_sample_rate(name, value)?;
            session.inner().profile.lock().sample_rate = rate;
        }
        "profile.budget" => {
            let budget = settings::parse_budget(name, value)?;
            session.inner().profile.lock().budget = budget;
        }
        "profile.memory_bytes" => {
            let bytes = settings::parse_bytes(name, value)?;
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            session.inner().profile.lock().spill_bytes = bytes;
        }
        "profile.report_styles" => {
            let styles = settings::parse_switch(name, value)?;
            session.inner().profile.lock().report_styles = styles;
        }
        "profile.retention_bytes" => {
            let bytes = settings::parse_bytes(name, value)?;
            let mut retention = database.retention.lock();
            retention.bytes = bytes;
            database.sys.set_retention(*retention);
        }
        "profile.retention_age" => {
            let age = settings::parse_age(name, value)?;
            let mut retention = database.retention.lock();
            retention.age = age;
            database.sys.set_retention(*retention);
        }
        SNAPSHOT_BYTES => {
            let bytes = settings::parse_bytes(name, value)?;
            let now = database.storage.snapshot();
            database.snapshots.set_limit(bytes, &now);
        }
        MAX_RUNNING_QUERIES => {
            let limit = settings::parse_running_queries(value)?;
            database.admission.set_limit(limit);
        }
        STALL_TIMEOUT => {
            *session.inner().stall_timeout.lock() = settings::parse_age(name, value)?;
        }
        QUARANTINE => *session.inner().rows_seen.lock() = settings::parse_rows_seen(value)?,
        JOIN_ORDER => *session.inner().join_order.lock() = settings::parse_join_order(value)?,
        CARDINALITY_FEEDBACK => {
            let heeds = settings::parse_switch(name, value)?;
            *session.inner().cardinality_feedback.lock() = heeds;
        }
        PLAN_CACHE => *session.inner().plan_cache.lock() = settings::parse_switch(name, value)?,
        REMEDIES => *session.inner().remedies.lock() = settings::parse_remedies(value)?,
        TRACE_PARENT => {
            *session.inner().trace_parent.lock() = settings::parse_trace_parent(value)?;
        }
        MEMORY_LIMIT => database
            .memory
            .set_limit(settings::parse_memory_limit(value)?),
        CACHE_SIZE => database.cache.set_size(settings::parse_cache_size(value)?),
        MAX_TEMP_DIRECTORY_SIZE => {
            database.set_temp_limit(settings::parse_bytes(name, value)?)?;
        }
        _ => {
            if name == DEFAULT_SCHEMA {
                let known = session.catalog().schema_names();
                if !known.iter().any(|schema| schema == value) {
                    return Err(Error::UnknownSchema {
                        name: value.to_owned(),
                        suggestions: suggest(value, known.iter().map(String::as_str)),
                    });
                }
            }
            let spelled = settings::spelled(name, value);
            let value = spelled.as_str();
            // Tried on a copy, for a better message than DataFusion's.
            let mut copy = session.context().copied_config();
            settings::set_option(copy.options_mut(), name, value)?;
            let plan = LogicalPlan::Statement(PlanStatement::SetVariable(SetVariable {
                variable: name.to_owned(),
                value: value.to_owned(),
            }));
            session.context().execute_logical_plan(plan).await?;
        }
    }
    Ok(Outcome::Done)
}

/// RESET name, or ALL.
pub(crate) async fn reset(session: &Session, name: Option<&str>) -> Result<Outcome, Error> {
    let Some(name) = name else {
        for (name, _) in OWN_SETTINGS {
            reset_own(session, name)?;
        }
        let fresh = Session::new(session.database().clone(), None);
        let defaults = fresh.context().copied_config().options().entries();
        let current = session.context().copied_config().options().entries();
        for (default, current) in defaults.into_iter().zip(current) {
            if default.key == current.key && default.value != current.value {
                reset_option(session, &default.key, default.value).await?;
            }
        }
        return Ok(Outcome::Done);
    };
    let name = canonical(name);
    if reset_own(session, name)? {
        return Ok(Outcome::Done);
    }
    // Our defaults are not all DataFusion's: a fresh session knows them.
    let fresh = Session::new(session.database().clone(), None);
    let options = fresh.context().copied_config();
    let default = options
        .options()
        .entries()
        .into_iter()
        .find(|e| e.key == name);
    match default {
        Some(default) => reset_option(session, name, default.value).await?,
        None => return Err(settings::unknown(name, options.options())),
    }
    Ok(Outcome::Done)
}

/// Whether `name` is one of ours.
fn reset_own(session: &Session, name: &str) -> Result<bool, Error> {
    let default = ProfileSettings::default();
    let database = session.database_inner();
    match name {
        "profile.level" => session.inner().profile.lock().level = default.level,
        "profile.lineage" => session.inner().profile.lock().lineage = default.lineage,
        "profile.sample_rate" => session.inner().profile.lock().sample_rate = default.sample_rate,
        "profile.budget" => session.inner().profile.lock().budget = default.budget,
        "profile.report_styles" => {
            session.inner().profile.lock().report_styles = default.report_styles;
        }
        "profile.memory_bytes" => session.inner().profile.lock().spill_bytes = default.spill_bytes,
        "profile.retention_bytes" | "profile.retention_age" => {
            let mut retention = database.retention.lock();
            if name == "profile.retention_bytes" {
                retention.bytes = database.opened_retention.bytes;
            } else {
                retention.age = database.opened_retention.age;
            }
            database.sys.set_retention(*retention);
        }
        SNAPSHOT_BYTES => {
            let now = database.storage.snapshot();
            let bytes = skewer_storage::kept_snapshots::DEFAULT_LIMIT;
            database.snapshots.set_limit(bytes, &now);
        }
        MAX_RUNNING_QUERIES => database.admission.set_limit(database.opened_limit),
        STALL_TIMEOUT => *session.inner().stall_timeout.lock() = DEFAULT_STALL_TIMEOUT,
        QUARANTINE => *session.inner().rows_seen.lock() = RowsSeen::default(),
        JOIN_ORDER => *session.inner().join_order.lock() = JoinOrder::default(),
        CARDINALITY_FEEDBACK => *session.inner().cardinality_feedback.lock() = true,
        PLAN_CACHE => *session.inner().plan_cache.lock() = true,
        REMEDIES => *session.inner().remedies.lock() = RemedyMode::default(),
        TRACE_PARENT => *session.inner().trace_parent.lock() = None,
        MEMORY_LIMIT => database.memory.set_limit(database.opened_memory_limit),
        CACHE_SIZE => database.cache.set_size(database.opened_cache_size),
        MAX_TEMP_DIRECTORY_SIZE => database.set_temp_limit(database.opened_temp_limit)?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn reset_option(session: &Session, name: &str, default: Option<String>) -> Result<(), Error> {
    let plan = LogicalPlan::Statement(match default {
        Some(value) => PlanStatement::SetVariable(SetVariable {
            variable: name.to_owned(),
            value,
        }),
        None => PlanStatement::ResetVariable(ResetVariable {
            variable: name.to_owned(),
        }),
    });
    session.context().execute_logical_plan(plan).await?;
    Ok(())
}
