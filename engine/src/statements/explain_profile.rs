//! EXPLAIN PROFILE: runs its statement, then reads from schema `sys` where the time went.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;
use skewer_diagnosis::excluded_rows::ExcludedPredicate;
use skewer_diagnosis::{Profile, ProfileDiff, RunContext, TableQuarantine, unknown_query};
use skewer_profiling::Level;
use skewer_report::Options;
use skewer_sql::{ExplainProfile, Statement, Without};

use super::untraced::untraced_query;
use super::without::leave_out;
use super::{Context, Outcome, Tracing, as_statement, prepare, run};
use crate::error::Error;
use crate::profile::report_batch;
use crate::query_stream::QueryStream;
use crate::session::Session;
use crate::settings::{ProfileSettings, parse_level};
use crate::tables_read::changes_since;

/// Runs the statement at its level and reports. If the statement fails, its error says where to
/// find what was recorded until then.
pub(crate) async fn execute(
    session: &Session,
    explain: ExplainProfile,
) -> Result<QueryStream, Error> {
    let options = Options {
        format: explain.format,
        as_sql: explain.as_sql,
    };
    if let Statement::Diff { before, after } = *explain.statement {
        if explain.level.is_some() || explain.sample.is_some() || !explain.without.is_empty() {
            return Err(Error::Unsupported(
                "LEVEL, SAMPLE and WITHOUT of EXPLAIN PROFILE DIFF, which runs nothing".to_owned(),
            ));
        }
        let diff = ProfileDiff::read(session, before, after).await?;
        let Some(document) = skewer_report::render_diff(&diff, options) else {
            return Err(Error::Unsupported(
                "EXPLAIN PROFILE (FORMAT graphviz) DIFF; text and json".to_owned(),
            ));
        };
        return Ok(QueryStream::ready(report_batch(session, &document)?, None));
    }
    let profile = profile(session, explain).await?;
    let batch = report_batch(session, &skewer_report::render(&profile, options))?;
    Ok(QueryStream::ready(batch, Some(profile.summary.query_id)))
}

/// Runs the statement at its level and reads its profile.
///
/// # Errors
/// The statement's errors, which say where to find what was recorded before; errors of reading `sys`.
pub(crate) fn profile(
    session: &Session,
    explain: ExplainProfile,
) -> BoxFuture<'_, Result<Profile, Error>> {
    // Its type is erased: callers would exceed the compiler's limit of nested types.
    Box::pin(run_and_read(session, explain))
}

async fn run_and_read(session: &Session, explain: ExplainProfile) -> Result<Profile, Error> {
    let given = explain
        .level
        .as_ref()
        .map(|level| parse_level("LEVEL", level));
    let given = given.transpose()?;
    let of_session = *session.inner().profile.lock();
    let mut settings = ProfileSettings {
        level: given.unwrap_or(Level::Records),
        sample_rate: explain.sample.unwrap_or(of_session.sample_rate),
        budget: None,
        ..of_session
    };
    let mut work = Work {
        sql: explain.sql,
        statement: *explain.statement,
        without: Vec::new(),
    };
    let mut with = None;
    let mut caveats = Vec::new();
    let mut then = None;
    let mut session = session.clone();
    if let Statement::Recorded { query_id } = work.statement {
        let recorded = recorded(&session, query_id).await?;
        caveats = changes_since(&session, query_id).await?;
        work = recorded.work;
        then = Some((query_id, recorded.quarantines));
        if let Some(then) = session.database_inner().snapshots.of_query(query_id) {
            session = session.at_snapshot(then);
            if !caveats.is_empty() {
                caveats.push(format!(
                    "It ran on the tables as query {query_id} saw them."
                ));
            }
        }
        if !explain.without.is_empty() {
            // Beside the time that was recorded: at the level that it was recorded at.
            with = Some(query_id);
            settings.level = given.unwrap_or(recorded.settings.level);
            settings.sample_rate = explain.sample.unwrap_or(recorded.settings.sample_rate);
        }
    } else if !explain.without.is_empty() {
        must_be_query(&work.statement)?;
        check(&session, &work.statement, &explain.without).await?;
        let (query_id, _) = profiled(&session, work.clone(), settings).await?;
        with = Some(query_id);
    }
    work.without.extend(explain.without);
    let (query_id, excluded) = profiled(&session, work, settings).await?;
    let context = RunContext {
        excluded,
        baseline_query_id: with,
        caveats,
    };
    let mut profile = Profile::read(&session, query_id, &context).await?;
    if let Some((recorded_id, quarantines)) = then
        && quarantines != profile.summary.quarantines
    {
        let caveat = other_quarantines(recorded_id, &quarantines);
        profile.summary.run_caveats.push(caveat);
    }
    Ok(profile)
}

/// Says that query `query_id` saw other rows than the one that ran it again.
fn other_quarantines(query_id: i64, quarantines: &[TableQuarantine]) -> String {
    let names: Vec<&str> = quarantines.iter().map(|q| q.name.as_str()).collect();
    let (left_out, way) = match names.is_empty() {
        true => ("no quarantine".to_owned(), "off"),
        false => (format!("quarantine {}", names.join(", ")), "on"),
    };
    format!(
        "Query {query_id} ran with other rows: {left_out} left rows out of it. SET quarantine = '{way}' before \
         EXPLAIN PROFILE QUERY {query_id} runs it as then, unless quarantines have changed since."
    )
}

/// A statement to run.
#[derive(Debug, Clone)]
struct Work {
    sql: String,
    statement: Statement,
    /// Rows to leave out of it; only of a query.
    without: Vec<Without>,
}

impl Work {
    /// The text under which schema `sys` knows it.
    fn recorded_sql(&self) -> String {
        let mut sql = self.sql.clone();
        for without in &self.without {
            // The text may end in a comment that goes to the end of its line.
            let comments = sql
                .lines()
                .next_back()
                .is_some_and(|line| line.contains("--"));
            sql.push(if comments { '\n' } else { ' ' });
            sql.push_str(&without.clause);
        }
        sql
    }
}

fn must_be_query(statement: &Statement) -> Result<(), Error> {
    match statement {
        Statement::Query(_) => Ok(()),
        _ => Err(Error::Unsupported(
            "WITHOUT of a statement that changes something".to_owned(),
        )),
    }
}

/// Whether rows can be left out as the clauses say, before the query is run with them.
async fn check(session: &Session, statement: &Statement, clauses: &[Without]) -> Result<(), Error> {
    let Statement::Query(query) = statement else {
        return Ok(());
    };
    let catalog = session.catalog();
    let plan = catalog.plan(as_statement(query.clone())).await?;
    leave_out(
        plan,
        clauses,
        &catalog.planning_state(),
        catalog.default_schema(),
    )?;
    Ok(())
}

/// Runs it to its end; gives its id, and what was left out.
async fn profiled(
    session: &Session,
    work: Work,
    settings: ProfileSettings,
) -> Result<(i64, Vec<ExcludedPredicate>), Error> {
    if !work.statement.traits().is_profilable {
        return Err(Error::Unsupported(
            "EXPLAIN PROFILE of a statement that runs no query".to_owned(),
        ));
    }
    if !work.without.is_empty() {
        must_be_query(&work.statement)?;
    }
    session.refuse_if_read_only()?;
    let sql = work.recorded_sql();
    let context = Context::begin(session, session.catalog(), &sql, Tracing::At(settings));
    let query_id = context.record.recorder().query_id();
    match run_to_the_end(context, work).await {
        Ok(excluded) => Ok((query_id, excluded)),
        Err(error) => Err(with_what_was_recorded(session, query_id, error).await),
    }
}

async fn run_to_the_end(mut context: Context, work: Work) -> Result<Vec<ExcludedPredicate>, Error> {
    match work.statement {
        Statement::Query(query) if !work.without.is_empty() => {
            context.admit().await;
            let begun = begin_without(&mut context, query, &work.without);
            match Box::pin(begun).await {
                Ok((stream, excluded)) => {
                    context.drain(Outcome::Rows(stream)).await?;
                    Ok(excluded)
                }
                Err(error) => Err(context.fail(error).await),
            }
        }
        statement => {
            let (context, outcome) = run(context, statement).await?;
            context.drain(outcome).await?;
            Ok(Vec::new())
        }
    }
}

async fn begin_without(
    context: &mut Context,
    query: Box<ast::Query>,
    clauses: &[Without],
) -> Result<(SendableRecordBatchStream, Vec<ExcludedPredicate>), Error> {
    let plan = context.catalog.plan(as_statement(query)).await?;
    let state = context.catalog.planning_state();
    let schema = context.catalog.default_schema();
    let (plan, excluded) = leave_out(plan, clauses, &state, schema)?;
    let stream = context.stream(&plan).await?;
    context.keep_snapshot();
    Ok((stream, excluded))
}

/// A query that ran before.
struct Recorded {
    work: Work,
    /// The ones that left rows out of it.
    quarantines: Vec<TableQuarantine>,
    settings: ProfileSettings,
}

/// What query `query_id` was, if running it again changes nothing.
async fn recorded(session: &Session, query_id: i64) -> Result<Recorded, Error> {
    let ask = format!(
        "SELECT sql, profile_level, sample_rate, imported_from, quarantines \
         FROM sys.queries WHERE query_id = {query_id}"
    );
    let batches = untraced_query(session, &ask).await?;
    let Some(found) = batches.iter().find(|batch| batch.num_rows() > 0) else {
        return Err(unknown_query(session, query_id).await.into());
    };
    let text = |column: usize| {
        let text = cast(found.column(column), &DataType::Utf8);
        text.map(|text| text.as_string::<i32>().value(0).to_owned())
            .map_err(|error| Error::Internal(error.to_string()))
    };
    if found.column(3).is_valid(0) {
        return Err(Error::Unsupported(format!(
            "EXPLAIN PROFILE QUERY {query_id}, since query {query_id} was imported from '{}' and its \
             tables are elsewhere; SHOW PROFILE {query_id} reports on it",
            text(3)?
        )));
    }
    let sample_rate = found.column(2).as_primitive_opt::<Float64Type>();
    let sample_rate = sample_rate.filter(|rate| rate.is_valid(0));
    let settings = ProfileSettings {
        level: parse_level("level", &text(1)?)?.max(Level::Counters),
        sample_rate: sample_rate.map_or(1.0, |rate| rate.value(0)),
        ..ProfileSettings::default()
    };
    let quarantines = match found.column(4).is_valid(0) {
        true => TableQuarantine::parse(&text(4)?),
        false => Vec::new(),
    };
    let sql = text(0)?;
    // It may have been run with rows left out.
    let Statement::ExplainProfile(again) = skewer_sql::parse(&format!("EXPLAIN PROFILE {sql}"))?
    else {
        return Err(Error::Internal(sql));
    };
    if prepare::is_execute(&again.statement) {
        return Err(Error::Unsupported(format!(
            "EXPLAIN PROFILE QUERY {query_id}, since query {query_id} executed a prepared statement that \
             changed something, or of which only the name is kept: {sql}"
        )));
    }
    match prepare::resolve(session, *again.statement)? {
        query @ Statement::Query(_) => Ok(Recorded {
            work: Work {
                sql: again.sql,
                statement: query,
                without: again.without,
            },
            quarantines,
            settings,
        }),
        _ => Err(Error::Unsupported(format!(
            "EXPLAIN PROFILE QUERY {query_id}, since query {query_id} changed something and would \
             do so again; to run it again, write EXPLAIN PROFILE and the statement: {sql}"
        ))),
    }
}

/// The error, with a hint if operators had begun to work.
async fn with_what_was_recorded(session: &Session, query_id: i64, error: Error) -> Error {
    if matches!(error, Error::Cancelled) {
        return error;
    }
    let sql = format!("SELECT operator_id FROM sys.operator_stats WHERE query_id = {query_id}");
    match untraced_query(session, &sql).await {
        Ok(batches) if batches.iter().any(|batch| batch.num_rows() > 0) => Error::Profiled {
            error: Box::new(error),
            query_id,
        },
        _ => error,
    }
}
