//! EXPLAIN PROFILE: runs its statement, then reads from schema `sys` where the time went.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use futures::TryStreamExt;
use skewer_profiling::Level;
use skewer_sql::{ExplainProfile, Statement};

use super::{Context, Outcome, Tracing, as_statement, prepare, run};
use crate::error::Error;
use crate::query_stream::QueryStream;
use crate::report;
use crate::session::Session;
use crate::settings::{ProfileSettings, parse_level};

/// Runs the statement at its level and reports. If the statement fails, its error says where to
/// find what was recorded until then.
pub(crate) async fn execute(
    session: &Session,
    explain: ExplainProfile,
) -> Result<QueryStream, Error> {
    let settings = ProfileSettings {
        level: match &explain.level {
            Some(level) => parse_level("LEVEL", level)?,
            None => Level::Records,
        },
        sample_rate: explain
            .sample
            .unwrap_or(session.inner().profile.lock().sample_rate),
        budget: None,
    };
    let (sql, statement) = match *explain.statement {
        Statement::Recorded { query_id } => recorded(session, query_id).await?,
        statement => (explain.sql, statement),
    };
    let can_be_profiled = matches!(
        statement,
        Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::CreateTable(_)
            | Statement::CopyFrom(_)
            | Statement::CopyTo(_)
    );
    if !can_be_profiled {
        return Err(Error::Unsupported(
            "EXPLAIN PROFILE of a statement that runs no query".to_owned(),
        ));
    }
    let context = Context::begin(session, session.catalog(), &sql, Tracing::At(settings));
    let query_id = context.record.recorder().query_id();
    if let Err(error) = run_to_the_end(context, statement).await {
        return Err(with_what_was_recorded(session, query_id, error).await);
    }
    let options = report::Options {
        format: explain.format,
        as_sql: explain.as_sql,
    };
    let batch = report::explain_profile(session, query_id, options).await?;
    Ok(QueryStream::ready(batch, Some(query_id)))
}

/// What query `query_id` was, if running it again changes nothing.
async fn recorded(session: &Session, query_id: i64) -> Result<(String, Statement), Error> {
    let ask = format!("SELECT sql FROM sys.queries WHERE query_id = {query_id}");
    let batches = untraced_query(session, &ask).await?;
    let Some(found) = batches.iter().find(|batch| batch.num_rows() > 0) else {
        return Err(Error::Invalid(format!(
            "sys.queries has no query {query_id}; SELECT query_id, sql FROM sys.queries lists those \
             that it has"
        )));
    };
    let text = cast(found.column(0), &DataType::Utf8)
        .map_err(|error| Error::Internal(error.to_string()))?;
    let sql = text.as_string::<i32>().value(0).to_owned();
    match prepare::resolve(session, skewer_sql::parse(&sql)?)? {
        query @ Statement::Query(_) => Ok((sql, query)),
        _ => Err(Error::Unsupported(format!(
            "EXPLAIN PROFILE QUERY {query_id}, since query {query_id} changed something and would \
             do so again; to run it again, write EXPLAIN PROFILE and the statement: {sql}"
        ))),
    }
}

async fn run_to_the_end(context: Context, statement: Statement) -> Result<(), Error> {
    let (context, outcome) = run(context, statement).await?;
    context.drain(outcome).await?;
    Ok(())
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

/// Runs a query that leaves no trace, as those that a report reads schema `sys` with.
pub(crate) async fn untraced_query(
    session: &Session,
    sql: &str,
) -> Result<Vec<RecordBatch>, Error> {
    let Statement::Query(query) = skewer_sql::parse(sql)? else {
        return Err(Error::Internal(format!("not a query: {sql}")));
    };
    let mut context = Context::begin(session, session.catalog(), sql, Tracing::None);
    match context.query(as_statement(query)).await? {
        Outcome::Rows(stream) => Ok(stream.try_collect().await?),
        _ => Ok(Vec::new()),
    }
}
