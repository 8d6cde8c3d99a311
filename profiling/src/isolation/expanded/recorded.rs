//! What there is of a query's records, as `sys.queries` tells.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::Result;
use datafusion::physical_plan::collect;

use crate::level::Level;
use crate::lineage_mode::LineageMode;
use crate::planner::Planner;
use crate::query_ids::QueryIds;

/// Without a filter on `query_id` the views show so many of the newest queries of level
/// `records`: each costs about as much as asking for it alone.
const QUERIES_WITHOUT_FILTER: usize = 16;

/// What there is of a query's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Lineage, as far as there was any.
    Logged,
    /// They carried their latencies instead of being logged.
    Carried,
    /// The query ran at another level.
    NotAtRecords,
    /// There is no such query.
    Nothing {
        /// The least and the greatest id that there is.
        known: Option<(i64, i64)>,
    },
}

impl Recorded {
    pub(super) async fn of_query(planner: &Planner, query_id: i64) -> Result<Recorded> {
        let sql = format!(
            "SELECT profile_level = '{}', coalesce(lineage = '{}', false)
             FROM sys.queries WHERE query_id = {query_id}",
            Level::Records,
            LineageMode::Piggyback
        );
        let batches = run(planner, &sql).await?;
        let Some(row) = batches.iter().find(|batch| batch.num_rows() > 0) else {
            let sql = "SELECT min(query_id), max(query_id) FROM sys.queries";
            let ids = integers(&run(planner, sql).await?);
            let known = ids
                .first()
                .copied()
                .flatten()
                .zip(ids.last().copied().flatten());
            return Ok(Recorded::Nothing { known });
        };
        let [at_records, carried] = [0, 1].map(|index| row.column(index).as_boolean().value(0));
        Ok(match (at_records, carried) {
            (false, _) => Recorded::NotAtRecords,
            (true, true) => Recorded::Carried,
            (true, false) => Recorded::Logged,
        })
    }
}

/// The newest queries of level `records` in a range, up to a limit.
pub(super) async fn newest_traced(planner: &Planner, ids: &QueryIds) -> Result<Vec<i64>> {
    let range = match ids {
        QueryIds::Range(range) => format!("BETWEEN {} AND {}", range.start(), range.end()),
        QueryIds::Listed(_) => "IS NOT NULL".to_owned(),
    };
    let sql = format!(
        "SELECT query_id FROM sys.queries WHERE profile_level = 'records' AND query_id {range}
         ORDER BY query_id DESC LIMIT {QUERIES_WITHOUT_FILTER}"
    );
    let ids = integers(&run(planner, &sql).await?);
    Ok(ids.into_iter().flatten().collect())
}

/// The values of columns of integers, row by row.
fn integers(batches: &[RecordBatch]) -> Vec<Option<i64>> {
    let rows = batches.iter().flat_map(|batch| {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| column.as_primitive::<Int64Type>())
            .collect();
        (0..batch.num_rows()).flat_map(move |row| {
            let values = columns.clone().into_iter();
            values.map(move |column| column.is_valid(row).then(|| column.value(row)))
        })
    });
    rows.collect()
}

pub(in crate::isolation) async fn run(planner: &Planner, sql: &str) -> Result<Vec<RecordBatch>> {
    let plan = planner.physical(&planner.logical(sql).await?).await?;
    collect(plan, planner.task_context()).await
}
