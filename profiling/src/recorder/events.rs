//! The events of a query, as they wait until it ends.

use datafusion::common::HashMap;

use crate::chunks::{LatencyChunk, LineageChunk, OutputChunk};
use crate::tables::{
    Fragment, ImpactfulSource, KeyFrequency, MicroBatch, Operator, OperatorCall, OperatorMetric,
    OperatorStats, RemedyRun, TaskStats, TuplesSent, WorkerMetric, WorkerRow,
};
use crate::timeline::RecordedTimeline;

/// The events of a query, in the order in which they were handed over.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) operator_stats: Vec<OperatorStats>,
    /// Where in them those of a fragment's operator and partition are.
    pub(super) tasks: HashMap<(i64, i64, i64), usize>,
    /// When the operators worked, in the order of `operator_stats`; of several runs until they are added up.
    pub(crate) timelines: Vec<Vec<RecordedTimeline>>,
    pub(crate) task_stats: Vec<TaskStats>,
    /// Where in them those of a fragment and partition are.
    pub(super) task_places: HashMap<(i64, i64), usize>,
    pub(crate) operator_metrics: Vec<OperatorMetric>,
    /// Where in them those of an operator, a partition and a name are.
    pub(super) metric_places: HashMap<(i64, Option<i64>, String), usize>,
    pub(crate) operator_calls: Vec<Vec<OperatorCall>>,
    pub(crate) tuples_sent: Vec<Vec<TuplesSent>>,
    pub(crate) lineage: Vec<LineageChunk>,
    pub(crate) record_latency: Vec<LatencyChunk>,
    pub(crate) output_records: Vec<OutputChunk>,
    pub(crate) impactful_sources: Vec<ImpactfulSource>,
    pub(crate) key_frequencies: Vec<KeyFrequency>,
    pub(crate) remedy_runs: Vec<RemedyRun>,
    /// The micro-batch that the query is, if it is one.
    pub(crate) micro_batches: Vec<MicroBatch>,
    pub(crate) worker_metrics: Vec<WorkerMetric>,
    /// Workers in processes of their own.
    pub(crate) workers: Vec<WorkerRow>,
}

impl Events {
    /// Takes out the chunks of records.
    pub(super) fn take_chunks(&mut self) -> Events {
        Events {
            lineage: std::mem::take(&mut self.lineage),
            record_latency: std::mem::take(&mut self.record_latency),
            output_records: std::mem::take(&mut self.output_records),
            ..Events::default()
        }
    }

    /// What the chunks of records take.
    pub(super) fn chunk_bytes(&self) -> usize {
        let lineage = self.lineage.iter().map(LineageChunk::memory);
        let latencies = self.record_latency.iter().map(LatencyChunk::memory);
        let outputs = self.output_records.iter().map(OutputChunk::memory);
        lineage.chain(latencies).chain(outputs).sum()
    }

    /// Sets all times back by `offset_ns`, from the worker's clock to the master's. Each time column of
    /// `profiling/src/tables` must be listed here.
    pub(crate) fn correct_times(&mut self, offset_ns: i64) {
        if offset_ns == 0 {
            return;
        }
        let back = |time: &mut i64| *time = time.saturating_sub(offset_ns);
        for stats in &mut self.operator_stats {
            let times = [&mut stats.first_call_at, &mut stats.last_call_at];
            times.into_iter().flatten().for_each(back);
        }
        for timeline in self.timelines.iter_mut().flatten() {
            timeline.set_back(offset_ns);
        }
        for task in &mut self.task_stats {
            back(&mut task.started_at);
            back(&mut task.ended_at);
        }
        for call in self.operator_calls.iter_mut().flatten() {
            back(&mut call.started_at);
            back(&mut call.ended_at);
        }
        for sent in self.tuples_sent.iter_mut().flatten() {
            sent.sent_at.iter_mut().for_each(back);
        }
        for metric in &mut self.worker_metrics {
            back(&mut metric.at);
        }
    }
}
