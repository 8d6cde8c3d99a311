//! What a task knows of itself.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::{ConfigNonZeroUsize, ConfigOptions};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{DistributedExt, NetworkBoundaryExt, NetworkCoalesceExec};
use parking_lot::Mutex;
use skewer_exec::NumberedExec;
use skewer_profiling::Recorder;

use crate::codec::SkewerCodec;
use crate::records::QueryRecords;

/// A query on one worker: what all its tasks there have in common.
#[derive(Debug, Clone)]
pub struct WorkerQuery {
    /// The worker's recorder of the query.
    pub recorder: Arc<Recorder>,
    /// What the plans of the tasks say of records.
    pub(crate) records: Arc<QueryRecords>,
}

impl WorkerQuery {
    /// A query without tasks yet, which report to `recorder`.
    pub fn new(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            records: Arc::default(),
        }
    }

    /// Has reported what otherwise is when plans are dropped: the query has ended, but its plans
    /// may be kept.
    pub fn report(&self) {
        self.records.report_keys();
    }
}

/// A task's place in its query, an extension of its session.
#[derive(Debug)]
pub struct WorkerTask {
    /// The recorder of the worker that runs the task.
    pub recorder: Arc<Recorder>,
    /// What the plans of the query say of records, on this worker.
    pub(crate) records: Arc<QueryRecords>,
    /// The number of the task in its stage.
    pub task: usize,
    /// The exchange through which each stage is read, by the stage's number.
    exchanges: Mutex<HashMap<usize, ReadingExchange>>,
}

/// An exchange through which a task reads another stage.
#[derive(Debug, Clone, Copy)]
pub struct ReadingExchange {
    /// Its number in `sys.operators`.
    pub operator_id: i64,
    /// Whether its partitions are those of the other stage, as they are.
    pub gathers: bool,
}

impl WorkerTask {
    /// The place of task number `task` of a query on its worker.
    pub fn new(query: &WorkerQuery, task: usize) -> Arc<Self> {
        Arc::new(Self {
            recorder: Arc::clone(&query.recorder),
            records: Arc::clone(&query.records),
            task,
            exchanges: Mutex::default(),
        })
    }

    /// The place of the task whose session this is.
    pub fn of_session(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }

    /// Makes the session whose `config` this is the task's: plans that are decoded in it report to
    /// the task's recorder.
    pub fn register(self: &Arc<Self>, config: &mut SessionConfig) {
        config.set_extension(Arc::clone(self));
        config.set_distributed_user_codec(SkewerCodec::of_task(Arc::clone(self)));
    }

    /// Remembers `numbered` if it is an exchange through which the task reads another stage.
    pub fn register_exchange(&self, numbered: &NumberedExec) {
        let observed = numbered.observed();
        if let Some(boundary) = observed.inner.as_network_boundary() {
            let stage = boundary.input_stage().num();
            let exchange = ReadingExchange {
                operator_id: observed.operator_id,
                gathers: observed.inner.is::<NetworkCoalesceExec>(),
            };
            self.exchanges.lock().insert(stage, exchange);
        }
    }

    /// Remembers all exchanges of a plan.
    pub fn register_exchanges(&self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(numbered) = plan.downcast_ref::<NumberedExec>() {
            self.register_exchange(numbered);
        }
        for child in plan.children() {
            self.register_exchanges(child);
        }
    }

    /// The exchange through which a stage is read.
    pub fn exchange_of(&self, stage: usize) -> Option<ReadingExchange> {
        self.exchanges.lock().get(&stage).copied()
    }
}

/// Makes exchanges of DataFusion's write each batch that they spill to a file of its own.
///
/// What a task sends to others goes through a `RepartitionExec` that `datafusion-distributed` puts on top of
/// the task's plan, out of our reach. It waits for ever when it has two files to which batches are still
/// appended ([datafusion#24883](https://github.com/apache/datafusion/issues/24883)). Files of one batch are
/// complete when the reader is told of the batch.
pub(crate) fn one_batch_per_spill_file(options: &mut ConfigOptions) {
    if let Ok(bytes) = ConfigNonZeroUsize::try_new(1) {
        options.execution.max_spill_file_size_bytes = bytes;
    }
}
