//! Queries that leave no trace in schema `sys`: the ones that a report reads it with.

use datafusion::arrow::array::RecordBatch;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::TryStreamExt;
use skewer_sql::Statement;

use super::{Context, Outcome, Tracing, as_statement};
use crate::catalog::quarantine::RowsSeen;
use crate::error::Error;
use crate::session::Session;

/// Runs a query and returns all its rows.
///
/// # Errors
/// The errors of planning and running it.
pub(crate) async fn untraced_query(
    session: &Session,
    sql: &str,
) -> Result<Vec<RecordBatch>, Error> {
    Ok(untraced_stream(session, sql).await?.try_collect().await?)
}

/// Runs a query whose rows are too many to be held at once.
///
/// # Errors
/// The errors of planning it.
pub(crate) async fn untraced_stream(
    session: &Session,
    sql: &str,
) -> Result<SendableRecordBatchStream, Error> {
    let Statement::Query(query) = skewer_sql::parse(sql)? else {
        return Err(Error::Internal(format!("not a query: {sql}")));
    };
    // A report tells of rows that a quarantine hides by now.
    let catalog = session.catalog_seeing(RowsSeen::All);
    let mut context = Context::begin(session, catalog, sql, Tracing::None);
    match context.query(as_statement(query)).await? {
        Outcome::Rows(stream) => Ok(stream),
        _ => Err(Error::Internal(format!("no rows: {sql}"))),
    }
}
