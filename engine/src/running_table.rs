//! The present: `sys.running`, the statements that run queries now and those that wait for admission;
//! `sys.running_operators`, what their operators did so far; `sys.cache`, which decoded columns are in memory.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use skewer_exec::column_cache::ColumnCache;
use skewer_profiling::{CacheEntry, OneMoreTable, SysTables, nanos_since_epoch};

use crate::admission::{AdmissionQueue, QueuedStatement};

/// `sys` with the statements of `queue`.
pub(crate) fn with_running(
    sys: Arc<dyn SchemaProvider>,
    queue: Arc<AdmissionQueue>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "running", move || rows(&queue.list()).map(Some))
}

/// Lets `sys` have what the operators of the statements of `queue` did so far in this process.
pub(crate) fn report_running_operators(sys: &SysTables, queue: &Arc<AdmissionQueue>) {
    let queue = Arc::downgrade(queue);
    sys.set_running(Arc::new(move || {
        let statements = queue
            .upgrade()
            .map(|queue| queue.list())
            .unwrap_or_default();
        let recorders = statements
            .iter()
            .filter_map(|(statement, _)| statement.recorder.upgrade());
        recorders
            .flat_map(|recorder| recorder.running_operators())
            .collect()
    }));
}

/// Lets `sys` have what `cache` holds.
pub(crate) fn report_cache(sys: &SysTables, cache: &Arc<ColumnCache>) {
    let cache = Arc::downgrade(cache);
    sys.set_cache(Arc::new(move || {
        let columns = cache.upgrade().map(|cache| cache.list());
        let columns = columns.unwrap_or_default().into_iter();
        columns
            .map(|column| CacheEntry {
                table_id: column.table_id.cast_signed(),
                table_name: column.table.as_ref().to_owned(),
                segment_id: column.segment.cast_signed(),
                column_name: column.column.as_ref().to_owned(),
                row_groups: column.row_groups.cast_signed(),
                bytes: column.bytes.cast_signed(),
                hits: column.hits.cast_signed(),
                last_used_at: nanos_since_epoch(column.last_use),
            })
            .collect()
    }));
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
