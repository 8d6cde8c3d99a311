//! The present: `sys.running`, the statements that run queries now and those that wait for admission;
//! `sys.running_operators`, what their operators did so far.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use skewer_profiling::definition::SysRow;
use skewer_profiling::{OneMoreTable, RunningOperator, nanos_since_epoch};

use crate::admission::{AdmissionQueue, QueuedStatement};

/// `sys` with the statements of `queue`.
pub(crate) fn with_running(
    sys: Arc<dyn SchemaProvider>,
    queue: Arc<AdmissionQueue>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "running", move || rows(&queue.list()).map(Some))
}

/// `sys` with the operators of the statements of `queue`.
pub(crate) fn with_running_operators(
    sys: Arc<dyn SchemaProvider>,
    queue: Arc<AdmissionQueue>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "running_operators", move || {
        let statements = queue.list();
        let recorders = statements
            .iter()
            .filter_map(|(statement, _)| statement.recorder.upgrade());
        let rows: Vec<RecordBatch> = recorders
            .flat_map(|recorder| recorder.running_operators())
            .collect();
        let schema = RunningOperator::TABLE.schema();
        Ok(Some(concat_batches(&schema, &rows)?))
    })
}

fn rows(statements: &[(QueuedStatement, bool)]) -> Result<RecordBatch> {
    let each = || statements.iter().map(|(statement, _)| statement);
    let progress: Vec<_> = each().map(|statement| statement.progress.now()).collect();
    let states = statements.iter().map(|(_, is_admitted)| match is_admitted {
        true => "running",
        false => "waiting",
    });
    let since = each().map(|statement| nanos_since_epoch(statement.since));
    let columns: [(&str, ArrayRef, bool); 6] = [
        (
            "query_id",
            Arc::new(Int64Array::from_iter_values(each().map(|s| s.query_id))),
            false,
        ),
        (
            "sql",
            Arc::new(StringArray::from_iter_values(each().map(|s| &s.sql))),
            false,
        ),
        (
            "state",
            Arc::new(StringArray::from_iter_values(states)),
            false,
        ),
        (
            "since",
            Arc::new(TimestampNanosecondArray::from_iter_values(since).with_timezone("+00:00")),
            false,
        ),
        (
            "rows",
            Arc::new(Int64Array::from_iter_values(
                progress.iter().map(|p| p.rows.cast_signed()),
            )),
            false,
        ),
        (
            "fraction",
            Arc::new(Float64Array::from_iter(progress.iter().map(|p| p.fraction))),
            true,
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
