//! The events of one finished query: compact in memory, rows on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::chunks::{LatencyChunk, LatencyKind, LineageChunk, OutputChunk};
use crate::definition::{Origin, SysRow};
use crate::recorder::{Events, Recorder};
use crate::tables::{
    Fragment, KeyFrequency, LINEAGE, OUTPUT_RECORDS, Operator, OperatorCall, OperatorStats,
    ProfilerOverhead, QueryRow, RECORD_LATENCY, Table, TuplesSent, WorkerMetric, WorkerRow,
};

/// The events of one finished query.
///
/// The rows of a table come in pieces: one for each buffer that an operator handed over. A
/// piece is expanded to a record batch only when it is scanned or written.
#[derive(Debug)]
pub(crate) struct QueryLog {
    origin: Origin,
    query: QueryRow,
    worker: WorkerRow,
    cost: ProfilerOverhead,
    bytes_written: AtomicI64,
    memory: usize,
    events: Events,
}

impl QueryLog {
    /// Takes the events out of the query's recorder.
    pub(crate) fn new(recorder: &Recorder, query: QueryRow) -> QueryLog {
        QueryLog {
            origin: recorder.origin(),
            worker: WorkerRow {
                state: "alive".to_owned(),
                address: "in process".to_owned(),
                clock_offset_ns: 0,
                clock_error_ns: 0,
            },
            cost: recorder.cost(),
            bytes_written: AtomicI64::new(0),
            memory: recorder.memory() + size_of::<QueryLog>() + query.text_bytes(),
            events: recorder.take(),
            query,
        }
    }

    pub(crate) fn query_id(&self) -> i64 {
        self.origin.query_id
    }

    /// Bytes that the events take.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Says what the query's rows take in files.
    pub(crate) fn set_bytes_written(&self, bytes: i64) {
        self.bytes_written.store(bytes, Ordering::Relaxed);
    }

    /// Rows of each piece of a table; no piece is empty.
    pub(crate) fn pieces(&self, table: Table) -> Vec<usize> {
        fn one(rows: usize) -> Vec<usize> {
            if rows == 0 { Vec::new() } else { vec![rows] }
        }
        let events = &self.events;
        match table {
            Table::Queries | Table::Workers | Table::ProfilerOverhead => vec![1],
            Table::Fragments => one(events.fragments.len()),
            Table::Operators => one(events.operators.len()),
            Table::OperatorStats => one(events.operator_stats.len()),
            Table::KeyFrequencies => one(events.key_frequencies.len()),
            Table::WorkerMetrics => one(events.worker_metrics.len()),
            Table::OperatorCalls => events.operator_calls.iter().map(Vec::len).collect(),
            Table::TuplesSent => events.tuples_sent.iter().map(Vec::len).collect(),
            Table::RecordLatency => events
                .record_latency
                .iter()
                .map(LatencyChunk::len)
                .collect(),
            Table::Lineage => events.lineage.iter().map(LineageChunk::len).collect(),
            Table::OutputRecords => events.output_records.iter().map(OutputChunk::len).collect(),
        }
    }

    /// Rows of a table.
    pub(crate) fn rows(&self, table: Table) -> usize {
        self.pieces(table).iter().sum()
    }

    /// The rows of one of the [pieces](Self::pieces) of a table.
    pub(crate) fn expand(&self, table: Table, piece: usize) -> RecordBatch {
        let (origin, events) = (&self.origin, &self.events);
        match table {
            Table::Queries => QueryRow::batch(origin, std::slice::from_ref(&self.query)),
            Table::Workers => WorkerRow::batch(origin, std::slice::from_ref(&self.worker)),
            Table::ProfilerOverhead => {
                let cost = ProfilerOverhead {
                    bytes_written: self.bytes_written.load(Ordering::Relaxed),
                    ..self.cost.clone()
                };
                ProfilerOverhead::batch(origin, &[cost])
            }
            Table::Fragments => Fragment::batch(origin, &events.fragments),
            Table::Operators => Operator::batch(origin, &events.operators),
            Table::OperatorStats => OperatorStats::batch(origin, &events.operator_stats),
            Table::KeyFrequencies => KeyFrequency::batch(origin, &events.key_frequencies),
            Table::WorkerMetrics => WorkerMetric::batch(origin, &events.worker_metrics),
            Table::OperatorCalls => OperatorCall::batch(origin, &events.operator_calls[piece]),
            Table::TuplesSent => TuplesSent::batch(origin, &events.tuples_sent[piece]),
            Table::RecordLatency => record_latency(origin, &events.record_latency[piece]),
            Table::Lineage => lineage(origin, &events.lineage[piece]),
            Table::OutputRecords => output_records(origin, &events.output_records[piece]),
        }
    }

    /// The distinct (operator, input operator, table) of the query's edges of lineage.
    pub(crate) fn lineage_steps(&self) -> impl Iterator<Item = (i64, i64, Option<&str>)> {
        self.events.lineage.iter().map(|chunk| {
            let table = chunk.table_name.as_deref();
            (chunk.operator_id, chunk.input_operator_id, table)
        })
    }

    /// The (operator, table) whose records the query's result rows are made from.
    pub(crate) fn output_steps(&self) -> impl Iterator<Item = (i64, Option<&str>)> {
        let chunks = self.events.output_records.iter();
        chunks.map(|chunk| (chunk.operator_id, chunk.table_name.as_deref()))
    }

    /// Whether latencies of base records were recorded by themselves.
    pub(crate) fn has_latency_of_base_records(&self) -> bool {
        let mut chunks = self.events.record_latency.iter();
        chunks.any(|chunk| chunk.table_name.is_some() && chunk.kind == LatencyKind::Computation)
    }
}

fn integer(value: i64, rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from_value(value, rows))
}

fn text(value: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
        value, rows,
    )))
}

fn optional_text(value: Option<&str>, rows: usize) -> ArrayRef {
    match value {
        Some(value) => text(value, rows),
        None => Arc::new(StringArray::new_null(rows)),
    }
}

fn lineage(origin: &Origin, chunk: &LineageChunk) -> RecordBatch {
    let rows = chunk.len();
    LINEAGE.batch(vec![
        integer(origin.query_id, rows),
        integer(chunk.fragment_id, rows),
        integer(chunk.operator_id, rows),
        integer(origin.worker_id, rows),
        integer(chunk.partition, rows),
        Arc::new(chunk.output_ids.decode()),
        integer(chunk.input_operator_id, rows),
        optional_text(chunk.table_name.as_deref(), rows),
        Arc::new(chunk.input_ids.decode()),
        Arc::new(chunk.latency.decode_ns()),
    ])
}

fn record_latency(origin: &Origin, chunk: &LatencyChunk) -> RecordBatch {
    let rows = chunk.len();
    RECORD_LATENCY.batch(vec![
        integer(origin.query_id, rows),
        integer(chunk.fragment_id, rows),
        integer(chunk.operator_id, rows),
        integer(origin.worker_id, rows),
        integer(chunk.partition, rows),
        optional_text(chunk.table_name.as_deref(), rows),
        Arc::new(chunk.row_ids.decode()),
        Arc::new(chunk.latency.decode_ns()),
        text(chunk.kind.name(), rows),
        text(chunk.method.name(), rows),
    ])
}

fn output_records(origin: &Origin, chunk: &OutputChunk) -> RecordBatch {
    let rows = chunk.len();
    let first = chunk.first_output_row;
    OUTPUT_RECORDS.batch(vec![
        integer(origin.query_id, rows),
        Arc::new(Int64Array::from_iter_values(first..first + rows as i64)),
        integer(chunk.operator_id, rows),
        optional_text(chunk.table_name.as_deref(), rows),
        Arc::new(chunk.record_ids.decode()),
        Arc::new(chunk.latency.decode_ns()),
    ])
}
