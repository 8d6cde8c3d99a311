//! The events of one finished query: compact in memory, rows on demand.

use std::sync::atomic::{AtomicI64, Ordering};

use datafusion::arrow::array::RecordBatch;

use crate::chunk_codec;
use crate::chunk_columns::{self, ChunkError, Column, Expander};
use crate::chunk_filter::ChunkFilter;
use crate::chunks::{LatencyChunk, LatencyKind, LineageChunk, OutputChunk};
use crate::definition::{Origin, SysRow};
use crate::recorder::{Events, Recorder};
use crate::tables::{
    Fragment, ImpactfulSource, KeyFrequency, MicroBatch, Operator, OperatorCall, OperatorMetric,
    OperatorStats, ProfilerOverhead, QueryRow, RemedyRun, Table, TaskStats, TimelineBin,
    TuplesSent, WorkerMetric, WorkerRow,
};
use crate::timeline::RecordedTimeline;

/// The events of one finished query on one worker.
///
/// The rows of a table come in pieces: one for each buffer that an operator handed over. A
/// piece is expanded to a record batch only when it is scanned or written.
#[derive(Debug)]
pub(crate) struct QueryLog {
    origin: Origin,
    /// On the worker that returned the query's rows.
    query: Option<QueryRow>,
    /// Itself, unless it is one of a process of its own: then the master has the row.
    worker: Option<WorkerRow>,
    /// `None` for what was handed over before the query had ended.
    cost: Option<ProfilerOverhead>,
    /// Whether all of the query's events on this worker are here.
    is_whole: bool,
    bytes_written: AtomicI64,
    memory: usize,
    events: Events,
}

impl QueryLog {
    /// Takes the events out of the query's recorder, and out of those of its workers.
    pub(crate) fn of_query(recorder: &Recorder, query: QueryRow) -> Vec<QueryLog> {
        let in_process = |recorder: &Recorder| WorkerRow {
            worker_id: recorder.worker_id(),
            state: "alive".to_owned(),
            address: "in process".to_owned(),
            clock_offset_ns: 0,
            clock_error_ns: 0,
        };
        let mut logs = vec![Self::new(recorder, Some(query), Some(in_process(recorder)))];
        for worker in recorder.workers() {
            logs.push(Self::new(&worker, None, Some(in_process(&worker))));
        }
        logs
    }

    /// Takes the events out of the recorder of a worker in a process of its own, whose clock is
    /// ahead of the master's.
    pub(crate) fn of_worker(recorder: &Recorder, clock_offset_ns: i64) -> QueryLog {
        let mut log = Self::new(recorder, None, None);
        log.events.correct_times(clock_offset_ns);
        log
    }

    fn new(recorder: &Recorder, query: Option<QueryRow>, worker: Option<WorkerRow>) -> QueryLog {
        // First: edges that still wait for others are counted, and may be handed over, as it takes them.
        let events = recorder.take();
        QueryLog {
            origin: recorder.origin(),
            worker,
            cost: Some(recorder.cost()),
            is_whole: !recorder.has_spilled(),
            bytes_written: AtomicI64::new(0),
            memory: recorder.memory()
                + size_of::<QueryLog>()
                + query.as_ref().map_or(0, SysRow::text_bytes),
            events,
            query,
        }
    }

    /// Events of a query that goes on, which take so many bytes.
    pub(crate) fn spilled(recorder: &Recorder, events: Events, bytes: usize) -> QueryLog {
        QueryLog {
            origin: recorder.origin(),
            query: None,
            worker: None,
            cost: None,
            is_whole: false,
            bytes_written: AtomicI64::new(0),
            memory: bytes + size_of::<QueryLog>(),
            events,
        }
    }

    /// Whether all events of the query on its worker are here.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
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
            Table::Queries => one(self.query.iter().len()),
            Table::Workers => one(self.worker.iter().len() + events.workers.len()),
            Table::ProfilerOverhead => one(self.cost.iter().len()),
            Table::Fragments => one(events.fragments.len()),
            Table::Operators => one(events.operators.len()),
            Table::OperatorStats => one(events.operator_stats.len()),
            Table::OperatorTimeline => one(events
                .timelines
                .iter()
                .flatten()
                .map(RecordedTimeline::len)
                .sum()),
            Table::TaskStats => one(events.task_stats.len()),
            Table::OperatorMetrics => one(events.operator_metrics.len()),
            Table::ImpactfulSources => one(events.impactful_sources.len()),
            Table::KeyFrequencies => one(events.key_frequencies.len()),
            Table::RemedyRuns => one(events.remedy_runs.len()),
            Table::MicroBatches => one(events.micro_batches.len()),
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

    /// The [pieces](Self::pieces) of a table that may have wanted rows, each with its number of
    /// rows.
    pub(crate) fn wanted(&self, table: Table, filter: &ChunkFilter) -> Vec<(usize, usize)> {
        let rows = self.pieces(table);
        let wanted: Vec<usize> = if filter.columns().is_empty() {
            (0..rows.len()).collect()
        } else {
            let pieces = 0..rows.len();
            let chunks: Vec<_> = pieces.map_while(|piece| self.chunk(table, piece)).collect();
            match chunk_codec::columns(table, filter.columns(), &chunks) {
                Ok(chunks) => filter.wanted(table, &chunks),
                Err(_) => (0..rows.len()).collect(),
            }
        };
        wanted
            .into_iter()
            .map(|piece| (piece, rows[piece]))
            .collect()
    }

    /// Columns `projection` of the rows of one of the [pieces](Self::pieces) of a table;
    /// `expander` makes rows of these columns of chunks.
    pub(crate) fn expand(
        &self,
        table: Table,
        piece: usize,
        projection: &[usize],
        expander: &mut Expander,
    ) -> Result<RecordBatch, ChunkError> {
        match self.chunk(table, piece) {
            Some((records, columns)) => {
                let wanted = projection.iter().map(|index| columns[*index].clone());
                expander.expand(records, wanted)
            }
            None => Ok(self.rows_of(table, piece).project(projection)?),
        }
    }

    /// How many batches there are to write into a table's file.
    pub(crate) fn stored_batches(&self, table: Table) -> usize {
        let pieces = self.pieces(table).len();
        match chunk_codec::schema(table) {
            Some(_) => pieces.div_ceil(chunk_codec::BATCH_CHUNKS),
            None => pieces,
        }
    }

    /// One of the batches to write into a table's file: chunks as they are, or rows.
    pub(crate) fn stored(&self, table: Table, batch: usize) -> RecordBatch {
        let Some(schema) = chunk_codec::schema(table) else {
            return self.rows_of(table, batch);
        };
        let first = batch * chunk_codec::BATCH_CHUNKS;
        let chunks: Vec<(usize, Vec<Column<'_>>)> = (first..first + chunk_codec::BATCH_CHUNKS)
            .map_while(|piece| self.chunk(table, piece))
            .collect();
        chunk_codec::pack(&schema, &chunks)
    }

    /// Number of records and columns of a piece of a table whose rows come in chunks; `None` if
    /// they do not, or if there is no such piece.
    fn chunk(&self, table: Table, piece: usize) -> Option<(usize, Vec<Column<'_>>)> {
        let (origin, events) = (&self.origin, &self.events);
        match table {
            Table::Lineage => {
                let chunk = events.lineage.get(piece)?;
                Some((chunk.len(), chunk_columns::lineage(origin, chunk)))
            }
            Table::RecordLatency => {
                let chunk = events.record_latency.get(piece)?;
                Some((chunk.len(), chunk_columns::record_latency(origin, chunk)))
            }
            Table::OutputRecords => {
                let chunk = events.output_records.get(piece)?;
                Some((chunk.len(), chunk_columns::output_records(origin, chunk)))
            }
            _ => None,
        }
    }

    /// The rows of a piece of a table whose rows do not come in chunks.
    fn rows_of(&self, table: Table, piece: usize) -> RecordBatch {
        let (origin, events) = (&self.origin, &self.events);
        match table {
            Table::Queries => QueryRow::batch(origin, self.query.as_slice()),
            Table::Workers => {
                let workers = self.worker.iter().chain(&events.workers);
                let workers: Vec<WorkerRow> = workers.cloned().collect();
                WorkerRow::batch(origin, &workers)
            }
            Table::ProfilerOverhead => {
                let cost = self.cost.clone().map(|cost| ProfilerOverhead {
                    bytes_written: self.bytes_written.load(Ordering::Relaxed),
                    ..cost
                });
                ProfilerOverhead::batch(origin, cost.as_slice())
            }
            Table::Fragments => Fragment::batch(origin, &events.fragments),
            Table::Operators => Operator::batch(origin, &events.operators),
            Table::OperatorStats => OperatorStats::batch(origin, &events.operator_stats),
            Table::OperatorTimeline => {
                let tasks = events.operator_stats.iter().zip(&events.timelines);
                let bins =
                    tasks.flat_map(|(stats, runs)| runs.iter().flat_map(|run| run.rows(stats)));
                TimelineBin::batch(origin, &bins.collect::<Vec<_>>())
            }
            Table::TaskStats => TaskStats::batch(origin, &events.task_stats),
            Table::OperatorMetrics => OperatorMetric::batch(origin, &events.operator_metrics),
            Table::ImpactfulSources => ImpactfulSource::batch(origin, &events.impactful_sources),
            Table::KeyFrequencies => KeyFrequency::batch(origin, &events.key_frequencies),
            Table::RemedyRuns => RemedyRun::batch(origin, &events.remedy_runs),
            Table::MicroBatches => MicroBatch::batch(origin, &events.micro_batches),
            Table::WorkerMetrics => WorkerMetric::batch(origin, &events.worker_metrics),
            Table::OperatorCalls => OperatorCall::batch(origin, &events.operator_calls[piece]),
            Table::TuplesSent => TuplesSent::batch(origin, &events.tuples_sent[piece]),
            Table::RecordLatency | Table::Lineage | Table::OutputRecords => {
                RecordBatch::new_empty(table.definition().schema())
            }
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
