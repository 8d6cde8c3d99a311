//! SHOW of settings, tables, schemas and definitions.

use std::sync::atomic::Ordering;

use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::ObjectName;
use skewer_sql::quote::identifier;
use skewer_sql::{ObjectKind, Statement};
use skewer_storage::{Partitioning, TableMeta};

use super::{Context, Outcome, as_statement, refresh, text_batch};
use crate::catalog::{Name, SYS};
use crate::error::Error;
use crate::session::Session;
use crate::settings::{
    self, CACHE_SIZE, CARDINALITY_FEEDBACK, JOIN_ORDER, MAX_RUNNING_QUERIES,
    MAX_TEMP_DIRECTORY_SIZE, MEMORY_LIMIT, OWN_SETTINGS, PLAN_CACHE, QUARANTINE, REMEDIES,
    SNAPSHOT_BYTES, STALL_TIMEOUT, TRACE_PARENT, UNLIMITED, canonical, show_bytes, show_retention,
};
use skewer_sql::sql_name;

/// SHOW name, or ALL: `name`, `value`, and for ALL `description`.
pub(crate) fn setting(session: &Session, name: Option<&str>) -> Result<Outcome, Error> {
    let profile = *session.inner().profile.lock();
    let database = session.database_inner();
    let (bytes, age) = show_retention(*database.retention.lock());
    let mut all: Vec<Vec<Option<String>>> = OWN_SETTINGS
        .iter()
        .map(|(name, description)| {
            let value = match *name {
                "profile.level" => profile.level.to_string(),
                "profile.lineage" => profile.lineage.to_string(),
                "profile.sample_rate" => profile.sample_rate.to_string(),
                "profile.memory_bytes" => show_bytes(profile.spill_bytes as u64),
                "profile.report_styles" => profile.report_styles.to_string(),
                "profile.budget" => settings::show_budget(profile.budget),
                "profile.retention_bytes" => bytes.clone(),
                SNAPSHOT_BYTES => show_bytes(database.snapshots.limit()),
                MAX_RUNNING_QUERIES => match database.admission.limit() {
                    Some(limit) => limit.to_string(),
                    None => UNLIMITED.to_owned(),
                },
                CARDINALITY_FEEDBACK => match *session.inner().cardinality_feedback.lock() {
                    true => "on".to_owned(),
                    false => "off".to_owned(),
                },
                PLAN_CACHE => match *session.inner().plan_cache.lock() {
                    true => "on".to_owned(),
                    false => "off".to_owned(),
                },
                REMEDIES => session.inner().remedies.lock().to_string(),
                QUARANTINE => {
                    let rows_seen = *session.inner().rows_seen.lock();
                    settings::show_rows_seen(rows_seen).to_owned()
                }
                JOIN_ORDER => settings::show_join_order(*session.inner().join_order.lock()),
                STALL_TIMEOUT => settings::show_age(*session.inner().stall_timeout.lock()),
                TRACE_PARENT => settings::show_trace_parent(*session.inner().trace_parent.lock()),
                MEMORY_LIMIT => match database.memory.limit() {
                    Some(limit) => show_bytes(limit as u64),
                    None => UNLIMITED.to_owned(),
                },
                CACHE_SIZE => show_bytes(database.cache.size() as u64),
                MAX_TEMP_DIRECTORY_SIZE => {
                    let disk = &database.runtime_env.disk_manager;
                    show_bytes(disk.max_temp_directory_size())
                }
                _ => age.clone(),
            };
            vec![
                Some((*name).to_owned()),
                Some(value),
                Some((*description).to_owned()),
            ]
        })
        .collect();
    let config = session.context().copied_config();
    // Without those that are ours.
    let runtime = database.runtime_env.config_entries();
    let runtime = runtime
        .into_iter()
        .filter(|entry| canonical(&entry.key) == entry.key);
    for entry in config.options().entries().into_iter().chain(runtime) {
        let description = entry.description.trim().replace('\n', " ");
        all.push(vec![Some(entry.key), entry.value, Some(description)]);
    }
    all.sort();
    let Some(name) = name else {
        return Ok(Outcome::Batch(text_batch(
            &["name", "value", "description"],
            all,
        )?));
    };
    let name = canonical(name);
    all.retain(|row| row[0].as_deref() == Some(name));
    if all.is_empty() {
        return Err(settings::unknown(name, config.options()));
    }
    Ok(Outcome::Batch(text_batch(&["name", "value"], all)?))
}

/// SHOW TABLES: the user's, unless a schema is named.
pub(crate) async fn tables(
    context: &mut Context,
    schema: Option<String>,
    like: Option<String>,
) -> Result<Outcome, Error> {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut filter = match &schema {
        Some(schema) => {
            let known = context.catalog.schema_names();
            if !known.contains(schema) {
                return Err(Error::UnknownSchema {
                    name: schema.clone(),
                    suggestions: skewer_compat::suggest::suggest(
                        schema,
                        known.iter().map(String::as_str),
                    ),
                });
            }
            format!("table_schema = {}", literal(schema))
        }
        None => format!("table_schema NOT IN ('{SYS}', 'information_schema')"),
    };
    if let Some(like) = &like {
        filter.push_str(&format!(" AND table_name LIKE {}", literal(like)));
    }
    let sql = format!(
        "SELECT table_schema, table_name, table_type FROM information_schema.tables \
         WHERE {filter} ORDER BY table_schema, table_name"
    );
    let Statement::Query(query) = skewer_sql::parse(&sql)? else {
        return Err(Error::Internal(sql));
    };
    context.query(as_statement(query)).await
}

/// SHOW SCHEMAS.
pub(crate) fn schemas(context: &Context) -> Result<Outcome, Error> {
    let names = context.catalog.schema_names();
    let rows = names.into_iter().map(|name| vec![Some(name)]).collect();
    Ok(Outcome::Batch(text_batch(&["schema_name"], rows)?))
}

/// SHOW CREATE TABLE, VIEW, STREAM or CONTINUOUS QUERY: the statement that would create it again.
pub(crate) async fn create(
    context: &mut Context,
    kind: ObjectKind,
    name: &ObjectName,
) -> Result<Outcome, Error> {
    let (name, is, definition) = match kind {
        ObjectKind::ContinuousQuery => {
            let query = refresh::continuous_query(&context.catalog, name)?;
            (context.catalog.resolve(name)?, kind, query.sql.clone())
        }
        _ => {
            let name = context.catalog.resolve(name)?;
            let (is, definition) = definition(context, &name).await?;
            (name, is, definition)
        }
    };
    if is != kind {
        return Err(Error::Invalid(format!(
            "{name} is a {is}: write SHOW CREATE {}",
            is.to_string().to_uppercase()
        )));
    }
    let rows = vec![vec![Some(name.to_string()), Some(definition)]];
    let column = format!("{kind}_name").replace(' ', "_");
    Ok(Outcome::Batch(text_batch(&[&column, "definition"], rows)?))
}

async fn definition(context: &Context, name: &Name) -> Result<(ObjectKind, String), Error> {
    let snapshot = context.catalog.snapshot();
    if let Some(table) = snapshot.table(&name.schema, &name.table) {
        if let Some(stream) = snapshot.stream(table.id) {
            return Ok((ObjectKind::Stream, stream.sql.clone()));
        }
        let definition = table_definition(name, &table.schema);
        return Ok((ObjectKind::Table, definition + &divided(&table)));
    }
    if let Some(view) = snapshot.view(&name.schema, &name.table) {
        let kind = match view.sql.starts_with("CREATE EXTERNAL") {
            true => ObjectKind::Table,
            false => ObjectKind::View,
        };
        return Ok((kind, view.sql.clone()));
    }
    if name.schema == SYS
        && let Some(provider) = context.catalog.sys().table(&name.table).await?
    {
        // Views that follow a query's plan: their SQL for the session's last query.
        let session = &context.session;
        let query_id = session.inner().last_query_id.load(Ordering::Acquire);
        let sys = &session.database_inner().sys;
        if let Ok(sql) = sys.expanded_sql(&name.table, query_id).await {
            return Ok((ObjectKind::View, sql));
        }
        return Ok(match provider.get_table_definition() {
            Some(sql) => (ObjectKind::View, sql.to_owned()),
            None => (
                ObjectKind::Table,
                table_definition(name, &provider.schema()),
            ),
        });
    }
    Err(context.catalog.unknown_table(name))
}

/// How the rows of a table are divided among workers, if it says so.
fn divided(table: &TableMeta) -> String {
    match &table.partitioning {
        Partitioning::RoundRobin => String::new(),
        Partitioning::Hash(keys) => {
            let keys: Vec<_> = keys.iter().map(|key| identifier(key)).collect();
            format!("\nPARTITION BY HASH ({})", keys.join(", "))
        }
    }
}

fn table_definition(name: &Name, schema: &Schema) -> String {
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| {
            let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
            format!(
                "  {} {}{not_null}",
                identifier(field.name()),
                sql_name(field.data_type())
            )
        })
        .collect();
    let schema = match name.schema.as_str() {
        crate::catalog::MAIN => String::new(),
        other => format!("{}.", identifier(other)),
    };
    format!(
        "CREATE TABLE {schema}{} (\n{}\n)",
        identifier(&name.table),
        columns.join(",\n")
    )
}
