//! Takes over rows of tables: of the plan, of calls and exchanges, and of the process.

use std::sync::atomic::Ordering;

use super::Recorder;
use crate::definition::SysRow;
use crate::tables::{
    Fragment, ImpactfulSource, KeyFrequency, MicroBatch, Operator, OperatorCall, RemedyRun,
    TuplesSent, WorkerMetric, WorkerRow,
};

impl Recorder {
    /// Records a fragment of the plan.
    pub fn fragment(&self, fragment: Fragment) {
        self.reserve(size_of::<Fragment>() + fragment.text_bytes());
        self.events.lock().fragments.push(fragment);
    }

    /// Records an operator of the plan.
    pub fn operator(&self, operator: Operator) {
        self.reserve(size_of::<Operator>() + operator.text_bytes());
        self.events.lock().operators.push(operator);
    }

    /// Notes the relations of which operators have returned all rows.
    pub fn name_relations(&self, name: impl Fn(i64) -> Option<String>) {
        let mut bytes = 0;
        for operator in &mut self.events.lock().operators {
            operator.relation = name(operator.operator_id);
            bytes += operator.relation.as_ref().map_or(0, String::len);
        }
        self.reserve(bytes);
    }

    /// Takes over the calls that one stream has buffered.
    pub fn operator_calls(&self, calls: Vec<OperatorCall>) {
        let bytes = calls.capacity() * size_of::<OperatorCall>();
        if self.admit(calls.len(), bytes) {
            self.events.lock().operator_calls.push(calls);
        }
    }

    /// Takes over what one stream has buffered about batches that crossed an exchange.
    pub fn tuples_sent(&self, sent: Vec<TuplesSent>) {
        let bytes = sent.capacity() * size_of::<TuplesSent>();
        if self.admit(sent.len(), bytes) {
            self.events.lock().tuples_sent.push(sent);
        }
    }

    /// Takes over the sources of result rows, and how many result rows' sources were forgotten.
    pub fn impactful_sources(&self, sources: Vec<ImpactfulSource>, forgotten: u64) {
        let texts: usize = sources.iter().map(SysRow::text_bytes).sum();
        let bytes = sources.capacity() * size_of::<ImpactfulSource>() + texts;
        self.dropped.fetch_add(forgotten, Ordering::Relaxed);
        if self.admit(sources.len(), bytes) {
            self.events.lock().impactful_sources.extend(sources);
        }
    }

    /// Records a heavy key of an exchange.
    pub fn key_frequency(&self, key: KeyFrequency) {
        self.reserve(size_of::<KeyFrequency>() + key.text_bytes());
        self.events.lock().key_frequencies.push(key);
    }

    /// Records a remedy that was considered.
    pub fn remedy_run(&self, run: RemedyRun) {
        self.reserve(size_of::<RemedyRun>() + run.text_bytes());
        self.events.lock().remedy_runs.push(run);
    }

    /// Records that the query is a micro-batch.
    pub fn micro_batch(&self, batch: MicroBatch) {
        self.reserve(size_of::<MicroBatch>() + batch.text_bytes());
        self.events.lock().micro_batches.push(batch);
    }

    /// Records a reading of the process.
    pub fn worker_metric(&self, metric: WorkerMetric) {
        self.reserve(size_of::<WorkerMetric>() + metric.text_bytes());
        self.events.lock().worker_metrics.push(metric);
    }

    /// Records a worker that took part in a process of its own.
    pub(crate) fn worker(&self, worker: WorkerRow) {
        self.reserve(size_of::<WorkerRow>() + worker.text_bytes());
        self.events.lock().workers.push(worker);
    }
}
