//! What one query leaves in schema `sys`, on the master and on each worker.
//!
//! The recorder is the database's own, and so are the files it is written to. What streams of a
//! query hand to it is simulated after the query's plan: a worker's operators in all their
//! partitions, what each partition received of each sender, and from level `calls` on a call for
//! each batch of 8,192 rows or part of it.

use std::path::Path;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use skewer_profiling::tables::{OperatorCall, OperatorStats, TuplesSent};
use skewer_profiling::{
    Ids, Latencies, Level, LineageChunk, Recorder, RecorderLimits, Retention, SysTables,
};

use super::plans::{Findings as Plan, Stage};
use crate::error::BenchError;

/// Rows of a batch.
const BATCH: u64 = 8192;

/// So many rows of a table are in a group.
const ROWS_OF_GROUP: u64 = 10;

/// What is in schema `sys` of one process after one query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Volume {
    /// Rows of all tables.
    pub rows: u64,
    /// Rows of `sys.operator_stats`.
    pub operator_stats: u64,
    /// Rows of `sys.tuples_sent`.
    pub tuples_sent: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// What is found of one query at one level.
#[derive(Debug, Clone, Copy)]
pub struct Findings {
    /// On the master.
    pub master: Volume,
    /// On each worker.
    pub worker: Volume,
}

/// Writes what a query leaves behind; `recorder` is that of the master, which has planned it.
///
/// # Errors
/// If it cannot be written or read.
pub async fn simulate(plan: &Plan, recorder: &Arc<Recorder>) -> Result<Findings, BenchError> {
    let level = recorder.level();
    let home = tempfile::tempdir()?;
    let master = {
        stage(recorder, &plan.stages, 0, plan.size.rows);
        let directory = home.path().join("master");
        let sys = SysTables::open(Some(&directory), Retention::default());
        // But for its row of `sys.queries`.
        sys.finish_on_worker(recorder, 0);
        volume(&sys, &directory).await?
    };
    let worker = {
        let limits = RecorderLimits::default();
        let recorder = Recorder::on_worker(1, recorder.query_id(), level, 1.0, limits);
        let directory = home.path().join("worker");
        let sys = SysTables::open(Some(&directory), Retention::default());
        for number in 1..plan.stages.len() {
            stage(&recorder, &plan.stages, number, plan.size.rows);
        }
        sys.finish_on_worker(&recorder, 0);
        volume(&sys, &directory).await?
    };
    Ok(Findings { master, worker })
}

/// When everything happened, in nanoseconds since 1970.
const START: i64 = 1_700_000_000_000_000_000;

/// Hands over what one task of a stage records.
fn stage(recorder: &Recorder, stages: &[Stage], number: usize, rows: u64) {
    let stage = &stages[number];
    // A partition that is gathered is one of one sender's.
    let streams = stage.reads.iter().map(|read| match read.is_shuffle {
        true => read.senders,
        false => 1,
    });
    let streams: usize = streams.sum();
    let fragment_id = number as i64;
    for (operator, partitions) in stage.operators.iter().copied().enumerate() {
        let operator_id = (number * 100 + operator) as i64;
        let rows_of_partition = rows.div_ceil(partitions as u64);
        let batches = batches(rows_of_partition, streams);
        for partition in 0..partitions as i64 {
            let took = 1_000_000 + partition * 7_919;
            recorder.operator_stats(OperatorStats {
                fragment_id,
                operator_id,
                partition,
                calls: batches as i64,
                rows_in: rows_of_partition as i64,
                rows_out: rows_of_partition as i64,
                bytes_out: (rows_of_partition * 16) as i64,
                self_ns: took,
                total_ns: took * 3,
                input_wait_ns: took / 2,
                output_wait_ns: took / 5,
                peak_memory_bytes: 0,
                spilled_bytes: 0,
                first_call_at: Some(START + partition * 1_013),
                last_call_at: Some(START + took * 10),
            });
            if recorder.level() >= Level::Calls {
                let call = |batch: u64| {
                    let started_at = START + (batch as i64) * 104_729 + partition * 1_013;
                    OperatorCall {
                        fragment_id,
                        operator_id,
                        partition,
                        started_at,
                        ended_at: started_at + 50_021 + (batch as i64 * 7_919) % 9_973,
                        rows: (rows_of_partition / batches) as i64,
                    }
                };
                recorder.operator_calls((0..batches).map(call).collect());
            }
        }
    }
    let partitions = partitions_of(stage);
    let rows_of_partition = rows.div_ceil(partitions as u64);
    for (exchange, read) in stage.reads.iter().enumerate() {
        let each = match recorder.level() >= Level::Calls {
            true => batches(rows_of_partition / read.senders as u64, 1),
            false => 1,
        };
        for sender in 1..=read.senders as i64 {
            for partition in 0..read.streams as i64 {
                let sent = |batch: u64| TuplesSent {
                    exchange_id: (number * 100 + exchange) as i64,
                    source_worker: sender,
                    destination_worker: recorder.worker_id(),
                    partition,
                    tuples: (rows_of_partition / read.senders as u64) as i64,
                    bytes: (rows_of_partition / read.senders as u64 * 16) as i64,
                    sent_at: Some(START + (sender * 1_009 + batch as i64 * 50_021)),
                    source_partition: None,
                };
                recorder.tuples_sent((0..each).map(sent).collect());
            }
        }
    }
    if recorder.level() >= Level::Records && number > 0 {
        lineage(
            recorder,
            number,
            stage.reads.is_empty(),
            partitions as u64,
            rows,
        );
    }
}

/// Batches of so many rows that come over so many streams: one that is not empty has at least one.
fn batches(rows: u64, streams: usize) -> u64 {
    rows.div_ceil(BATCH).max(streams as u64).max(1)
}

/// Partitions of a task, but for those that it sends to others.
fn partitions_of(stage: &Stage) -> usize {
    stage.operators.iter().copied().min().unwrap_or(1).max(1)
}

/// An aggregate's edges: one per row of a table, or per group that the senders have made.
fn lineage(recorder: &Recorder, number: usize, is_leaf: bool, partitions: u64, rows: u64) {
    let groups = (rows / ROWS_OF_GROUP).max(1);
    let edges = if is_leaf { rows } else { groups };
    let of_partition = edges.div_ceil(partitions);
    for partition in 0..partitions {
        let mut from = 0;
        while from < of_partition {
            let until = of_partition.min(from + BATCH);
            let first = partition * of_partition + from;
            // Groups in no order.
            let output = |edge: u64| (edge.wrapping_mul(2_654_435_761) % groups) as i64;
            let outputs: Vec<i64> = (first..first + (until - from)).map(output).collect();
            recorder.lineage(LineageChunk {
                fragment_id: number as i64,
                operator_id: number as i64 * 100,
                partition: partition as i64,
                input_operator_id: number as i64 * 100 + 1,
                table_name: is_leaf.then(|| "main.facts".into()),
                output_ids: Ids::encode(&outputs),
                input_ids: Ids::range(first as i64, outputs.len()),
                latency: Latencies::constant(12_000, outputs.len()),
            });
            from = until;
        }
    }
}

/// What there is, once it is written.
async fn volume(sys: &SysTables, directory: &Path) -> Result<Volume, BenchError> {
    let wrong = |error: String| BenchError::Unexpected(error);
    sys.flush().map_err(|error| wrong(error.to_string()))?;
    let context = SessionContext::new();
    let catalog = context
        .catalog("datafusion")
        .ok_or_else(|| wrong("no catalog".to_owned()))?;
    catalog.register_schema("sys", sys.schema_provider())?;
    let mut volume = Volume::default();
    for table in TABLES {
        let counted = context
            .sql(&format!("SELECT count(*) FROM sys.{table}"))
            .await?;
        let counted = counted.collect().await?;
        let column = counted[0].column(0);
        let rows = datafusion::common::cast::as_int64_array(column)?.value(0) as u64;
        volume.rows += rows;
        match table {
            "operator_stats" => volume.operator_stats = rows,
            "tuples_sent" => volume.tuples_sent = rows,
            _ => {}
        }
    }
    volume.bytes = bytes_below(directory)?;
    Ok(volume)
}

/// The tables that are not views.
const TABLES: [&str; 15] = [
    "queries",
    "fragments",
    "operators",
    "operator_stats",
    "operator_calls",
    "operator_timeline",
    "task_stats",
    "operator_metrics",
    "tuples_sent",
    "record_latency",
    "lineage",
    "output_records",
    "key_frequencies",
    "worker_metrics",
    "profiler_overhead",
];

fn bytes_below(directory: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    let Ok(entries) = std::fs::read_dir(directory) else {
        // Nothing was written.
        return Ok(0);
    };
    for entry in entries {
        let entry = entry.map_err(BenchError::file(directory))?;
        let metadata = entry.metadata().map_err(BenchError::file(entry.path()))?;
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::plans::{self, QUERIES, Size};
    use super::*;

    async fn read_with(workers: u32, level: Level) -> (Plan, Findings) {
        let size = Size {
            workers,
            partitions: 2,
            segments: 2,
            rows: 100_000,
        };
        let (plan, recorder) = plans::simulate(size, QUERIES[0].1, level).await.unwrap();
        let found = simulate(&plan, &recorder).await.unwrap();
        (plan, found)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_s_rows_are_its_operators_and_its_streams() {
        let (plan, found) = read_with(4, Level::Counters).await;
        let operators = plan.stages[1..].iter().flat_map(|stage| &stage.operators);
        let streams: usize = operators.sum();
        assert_eq!(found.worker.operator_stats, streams as u64, "{plan:?}");
        assert_eq!(found.worker.tuples_sent, plan.streams_of_worker() as u64);
        assert_eq!(found.worker.tuples_sent, 8);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_level_leaves_more_than_the_one_below() {
        let mut before = 0;
        for level in [Level::Counters, Level::Calls, Level::Records] {
            let (_, found) = read_with(3, level).await;
            let rows = found.worker.rows + found.master.rows;
            assert!(rows > before, "{level}: {found:?}");
            before = rows;
        }
    }
}
