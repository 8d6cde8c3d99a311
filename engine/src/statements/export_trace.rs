//! EXPORT PROFILE (FORMAT perfetto): a query's calls of operators as a trace file.

use std::path::Path;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use skewer_diagnosis::operator_calls::{calls_sql, read_calls};
use skewer_report::trace_events::TraceEvents;
use tokio::io::AsyncWriteExt;

use super::export_profile::{Unfinished, io_error};
use super::untraced::{untraced_query, untraced_stream};
use crate::error::Error;
use crate::session::Session;

/// Writes the file and returns the number of calls.
///
/// # Errors
/// If no calls were recorded, `sys` cannot be read, or the file cannot be written.
pub(super) async fn write(session: &Session, query_id: i64, target: &Path) -> Result<u64, Error> {
    let first = format!(
        "SELECT CAST(min(started_at) AS BIGINT) AS started_at \
         FROM sys.operator_calls WHERE query_id = {query_id}"
    );
    let first = untraced_query(session, &first).await?;
    let Some(origin) = first.first().and_then(first_number) else {
        return Err(Error::Invalid(format!(
            "no calls of operators were recorded of query {query_id}, as from level calls on: \
             EXPLAIN PROFILE (LEVEL calls) QUERY {query_id} runs it again at that level"
        )));
    };
    let mut batches = untraced_stream(session, &calls_sql(query_id)).await?;
    let unfinished = Unfinished::beside(target);
    let path = unfinished.path();
    let failed = |error: std::io::Error| io_error(path, &error);
    let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
    let mut events = TraceEvents::new(query_id, origin);
    while let Some(batch) = batches.try_next().await? {
        let text = events.calls(read_calls(&batch));
        file.write_all(text.as_bytes()).await.map_err(failed)?;
    }
    file.write_all(events.end().as_bytes())
        .await
        .map_err(failed)?;
    file.sync_all().await.map_err(failed)?;
    let written = events.written();
    unfinished.finish()?;
    Ok(written)
}

fn first_number(batch: &RecordBatch) -> Option<i64> {
    let numbers = batch.column(0).as_primitive_opt::<Int64Type>()?;
    numbers.iter().next()?
}
