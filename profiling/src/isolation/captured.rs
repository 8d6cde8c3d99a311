//! Reads which operators of a query captured lineage: from its events if they are in memory, from
//! the files, and from what workers have. Records are stored in chunks, of which each is of one
//! operator; so that is known without looking at single edges.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};

use super::expanded::run;
use super::shape::Shape;
use crate::chunk_codec;
use crate::chunks::LatencyKind;
use crate::operator_kind::CapturedRecords;
use crate::planner::Planner;
use crate::query_ids::QueryIds;
use crate::query_log::QueryLog;
use crate::remote_cache::{AtMost, RemoteCache, chunk_numbers};
use crate::segment::{Segment, SegmentError};
use crate::store::Store;
use crate::tables::Table;

/// Which operators of a query captured lineage. It never changes, so it is remembered.
pub(super) async fn shape(planner: &Planner, query_id: i64) -> Result<Arc<Shape>> {
    let store = planner.store();
    if let Some(shape) = store.known_shape(query_id) {
        return Ok(shape);
    }
    let mut shape = Shape::default();
    let mut complete = true;
    // Each worker has a log of its own.
    let mut logs = store.snapshot().buffered;
    logs.retain(|log| log.query_id() == query_id);
    for log in &logs {
        of_log(log, &mut shape);
    }
    if logs.is_empty() || !logs.iter().all(|log| log.is_whole()) {
        // Of a query that runs, more may come.
        let ended = format!("SELECT 1 FROM sys.queries WHERE query_id = {query_id}");
        let ended = run(planner, &ended).await?;
        complete = ended.iter().any(|batch| batch.num_rows() > 0);
        let store = Arc::clone(store);
        let written = SpawnedTask::spawn_blocking(move || written(&store, query_id, shape));
        let written = written.join_unwind().await;
        shape = written.map_err(|error| DataFusionError::External(Box::new(error)))?;
    }
    if let Some(fetched) = store.fetched() {
        complete &= of_workers(fetched, query_id, &mut shape).await;
    }
    if !shape.is_empty() && !shape.record_latency {
        shape.recursive = recursive(planner, query_id).await?;
    }
    let shape = Arc::new(shape);
    if !shape.is_empty() && complete {
        store.remember_shape(query_id, Arc::clone(&shape));
    }
    Ok(shape)
}

/// The operators that make records of the rows of recursive queries.
async fn recursive(planner: &Planner, query_id: i64) -> Result<BTreeSet<i64>> {
    let sql = format!(
        "SELECT operator_id FROM sys.operators \
         WHERE query_id = {query_id} AND captured_records = '{}'",
        CapturedRecords::RecursiveRows.name()
    );
    let mut operators = BTreeSet::new();
    for batch in run(planner, &sql).await? {
        operators.extend(batch["operator_id"].as_primitive::<Int64Type>().values());
    }
    Ok(operators)
}

fn of_log(log: &QueryLog, shape: &mut Shape) {
    for (operator, input, table) in log.lineage_steps() {
        shape.add_input(operator, input, table);
    }
    for (operator, table) in log.output_steps() {
        shape.add_output(operator, table);
    }
    shape.record_latency |= log.has_latency_of_base_records();
}

/// The stored columns that say which operators captured what, and what is learned from them.
type Columns = (
    Table,
    &'static [&'static str],
    fn(&RecordBatch, i64, &mut Shape),
);

const COLUMNS: [Columns; 3] = [
    (
        Table::Lineage,
        &["query_id", "operator_id", "input_operator_id", "table_name"],
        add_edges,
    ),
    (
        Table::OutputRecords,
        &["query_id", "operator_id", "table_name"],
        add_outputs,
    ),
    (
        Table::RecordLatency,
        &["query_id", "table_name", "kind"],
        add_latencies,
    ),
];

/// Adds what the files have. What is damaged is skipped with a warning, as scans do.
fn written(store: &Store, query_id: i64, mut shape: Shape) -> Shape {
    let ids = QueryIds::Listed([query_id].into());
    for part in &store.snapshot().parts {
        for (table, names, add) in COLUMNS {
            let Some(segment) = part.segment(table, &ids) else {
                continue;
            };
            let read = each_chunk(segment, table, &ids, names, |chunks| {
                add(chunks, query_id, &mut shape);
            });
            if let Err(error) = read {
                store.warn(format!("skipped the rest of {error}"));
            }
        }
    }
    shape
}

/// Reads columns of the chunks that may be of a query, as they are stored.
fn each_chunk(
    segment: &Segment,
    table: Table,
    ids: &QueryIds,
    names: &[&str],
    mut read: impl FnMut(&RecordBatch),
) -> Result<(), SegmentError> {
    let fields = chunk_codec::schema(table);
    let fields = fields.iter().flat_map(|schema| schema.fields().iter());
    let wanted = fields
        .enumerate()
        .filter(|(_, field)| names.contains(&field.name().as_str()));
    let columns: Vec<usize> = wanted.map(|(column, _)| column).collect();
    for (group, _) in segment.row_groups(ids)? {
        for batch in segment.read_stored(group, Some(&columns))? {
            read(&batch?);
        }
    }
    Ok(())
}

/// Adds what the workers in processes of their own captured of a query; whether all of them were
/// reached.
async fn of_workers(fetched: &RemoteCache, query_id: i64, shape: &mut Shape) -> bool {
    let query = QueryIds::Listed([query_id].into());
    let mut complete = true;
    for (table, _, add) in COLUMNS {
        let rows = fetched.rows(table, &query, AtMost::All).await;
        complete &= rows.missing.is_empty();
        for batch in &rows.batches {
            add(batch, query_id, shape);
        }
    }
    complete
}

fn add_edges(batch: &RecordBatch, query_id: i64, shape: &mut Shape) {
    let names = ["query_id", "operator_id", "input_operator_id"];
    for ([of, operator, input], table) in chunk_numbers(batch, names) {
        if of == query_id {
            shape.add_input(operator, input, table);
        }
    }
}

fn add_outputs(batch: &RecordBatch, query_id: i64, shape: &mut Shape) {
    for ([of, operator], table) in chunk_numbers(batch, ["query_id", "operator_id"]) {
        if of == query_id {
            shape.add_output(operator, table);
        }
    }
}

fn add_latencies(batch: &RecordBatch, query_id: i64, shape: &mut Shape) {
    let kinds = batch["kind"].as_string::<i32>().iter();
    let computation = LatencyKind::Computation.name();
    for (([of], table), kind) in chunk_numbers(batch, ["query_id"]).zip(kinds) {
        shape.record_latency |= of == query_id && table.is_some() && kind == Some(computation);
    }
}
