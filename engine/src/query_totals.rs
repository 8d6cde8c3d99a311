//! Totals of the statements that have ended since the database was opened, as `sys.query_totals`.
//!
//! Rows of `sys.queries` go when they are too old or too many. These totals never fall while the database is open,
//! so a program that reads them again and again can tell what happened in between.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use parking_lot::Mutex;
use skewer_profiling::OneMoreTable;

use crate::record::Status;

const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MILLISECOND;

/// The greatest execution time of each bucket, in nanoseconds; the last bucket has none.
const BOUNDS: [i64; 16] = [
    MILLISECOND,
    5 * MILLISECOND / 2,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    5 * SECOND / 2,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    300 * SECOND,
];

const BUCKETS: usize = BOUNDS.len() + 1;

/// What statements took and returned.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Total {
    pub(crate) queries: i64,
    pub(crate) rows: i64,
    pub(crate) queued_ns: i64,
    pub(crate) planning_ns: i64,
    pub(crate) execution_ns: i64,
}

impl Total {
    fn add(&mut self, more: &Self) {
        self.queries += more.queries;
        self.rows = self.rows.saturating_add(more.rows);
        self.queued_ns = self.queued_ns.saturating_add(more.queued_ns);
        self.planning_ns = self.planning_ns.saturating_add(more.planning_ns);
        self.execution_ns = self.execution_ns.saturating_add(more.execution_ns);
    }
}

/// Totals by status and execution time.
#[derive(Debug, Default)]
pub(crate) struct QueryTotals(Mutex<[[Total; BUCKETS]; Status::ALL.len()]>);

impl QueryTotals {
    /// Adds a statement that has ended.
    pub(crate) fn add(&self, status: Status, one: &Total) {
        let bucket = BOUNDS.partition_point(|bound| *bound < one.execution_ns);
        self.0.lock()[status as usize][bucket].add(one);
    }

    /// A row for each status and bucket, also where no statement is in it.
    fn rows(&self) -> Result<RecordBatch> {
        let totals = *self.0.lock();
        let each = || totals.iter().flatten();
        let statuses = Status::ALL
            .iter()
            .flat_map(|status| std::iter::repeat_n(status.name(), BUCKETS));
        let statuses: Vec<&str> = statuses.collect();
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        let bounds = std::iter::repeat_n(bounds, totals.len()).flatten();
        let numbers = |get: fn(&Total) -> i64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(each().map(get)))
        };
        let columns: [(&str, ArrayRef, bool); 7] = [
            (
                "status",
                Arc::new(StringArray::from_iter_values(statuses)),
                false,
            ),
            (
                "execution_up_to_ns",
                Arc::new(Int64Array::from_iter(bounds)),
                true,
            ),
            ("queries", numbers(|total| total.queries), false),
            ("rows_returned", numbers(|total| total.rows), false),
            ("queued_ns", numbers(|total| total.queued_ns), false),
            ("planning_ns", numbers(|total| total.planning_ns), false),
            ("execution_ns", numbers(|total| total.execution_ns), false),
        ];
        Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
    }
}

/// `sys` with the totals.
pub(crate) fn with_query_totals(
    sys: Arc<dyn SchemaProvider>,
    totals: Arc<QueryTotals>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "query_totals", move || totals.rows().map(Some))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn a_statement_is_in_the_first_bucket_that_its_time_fits_in() {
        let totals = QueryTotals::default();
        for (status, execution_ns) in [
            (Status::Finished, 0),
            (Status::Finished, MILLISECOND),
            (Status::Finished, MILLISECOND + 1),
            (Status::Cancelled, 301 * SECOND),
        ] {
            let one = Total {
                queries: 1,
                rows: 2,
                execution_ns,
                ..Total::default()
            };
            totals.add(status, &one);
        }
        let rows = totals.rows().unwrap();
        assert_eq!(rows.num_rows(), 3 * BUCKETS);
        let column = |name: &str| {
            let column = rows.column_by_name(name).unwrap();
            column.as_primitive::<Int64Type>().clone()
        };
        let (bounds, queries) = (column("execution_up_to_ns"), column("queries"));
        assert_eq!((bounds.value(0), queries.value(0)), (MILLISECOND, 2));
        assert_eq!(queries.value(1), 1);
        let last = rows.num_rows() - 1;
        assert!(bounds.is_valid(last - 1) && bounds.is_null(last));
        assert_eq!(queries.value(last), 1);
        assert_eq!(column("rows_returned").value(0), 4);
    }
}
