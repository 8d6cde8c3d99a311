//! Counting and timing the calls of an operator.

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::Stream;
use skewer_profiling::{Level, OpenStream, OperatorCall, OperatorStats, Recorder, TuplesSent};

use crate::batch_bytes::{batch_bytes, estimated_batch_bytes};
use crate::key_sample::KeySample;
use crate::position::{self, Position};

/// Calls kept by a stream before it hands them to the recorder: about 3 MB.
const CALLS_PER_FLUSH: usize = 65_536;

/// The wall clock at one instant; every other instant's wall time is derived from it, so that
/// times within a process never run backwards.
static EPOCH: LazyLock<(Instant, i64)> = LazyLock::new(|| {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    (Instant::now(), wall.map_or(0, |d| d.as_nanos() as i64))
});

/// Wall time of `instant` in nanoseconds since the Unix epoch.
pub fn wall_ns(instant: Instant) -> i64 {
    let (base, wall) = *EPOCH;
    match instant.checked_duration_since(base) {
        Some(after) => wall + after.as_nanos() as i64,
        None => wall - base.duration_since(instant).as_nanos() as i64,
    }
}

/// Whether records move to another partition, or another task, in this operator.
pub fn is_exchange(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
}

/// An operator whose calls are observed, and where it has its place.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The operator.
    pub inner: Arc<dyn ExecutionPlan>,
    /// The fragment that it belongs to.
    pub fragment_id: i64,
    /// Its number in `sys.operators`.
    pub operator_id: i64,
    /// Which of the fragment's tasks this is, from 0: every worker runs one of them.
    pub task: usize,
    /// How rows come to it.
    pub exchange: Exchange,
    /// Counts the keys that the exchange above hashes.
    pub keys: Option<Arc<KeySample>>,
    /// Where its calls are reported.
    pub recorder: Arc<Recorder>,
}

/// Whether records move to another partition, or another task, in an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// They do not.
    None,
    /// Between partitions of one worker.
    Local,
    /// Between workers: who sends records what was sent.
    BetweenWorkers,
}

impl Exchange {
    /// What `plan` does, if it is an operator of DataFusion's.
    pub fn of(plan: &dyn ExecutionPlan) -> Self {
        if is_exchange(plan) {
            Self::Local
        } else {
            Self::None
        }
    }
}

impl Observed {
    /// The same place for the operator after a change of its plan node.
    pub(crate) fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            inner,
            ..self.clone()
        }
    }

    /// Executes a partition of the operator and observes its calls.
    ///
    /// # Errors
    /// Those of the operator.
    pub(crate) fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        // Partitions are numbered over all tasks of the fragment.
        let before = match self.task {
            0 => 0,
            task => task * self.inner.output_partitioning().partition_count(),
        };
        let position = Position {
            fragment_id: self.fragment_id,
            operator_id: self.operator_id,
            partition: (before + partition) as i64,
        };
        let entered = position::enter(position);
        let started = Instant::now();
        let stream = self.inner.execute(partition, context)?;
        let elapsed = started.elapsed();
        let inside = entered.leave(elapsed, 0);
        let calls_are_kept = self.recorder.level() >= Level::Calls;
        Ok(Box::pin(ProfiledStream {
            stream,
            plan: Arc::clone(&self.inner),
            recorder: Arc::clone(&self.recorder),
            keys: self.keys.clone(),
            position,
            own_partition: partition as i64,
            exchange: self.exchange,
            calls_are_kept,
            calls: Vec::new(),
            sent: Vec::new(),
            totals: Totals {
                total_ns: elapsed.saturating_sub(inside.in_other_fragments).as_nanos() as i64,
                self_ns: elapsed.saturating_sub(inside.time).as_nanos() as i64,
                ..Totals::default()
            },
            returned: None,
            _open: self.recorder.open_stream(),
        }))
    }
}

/// An operator whose calls are counted and timed. To plan inspection it *is* the operator: its
/// name, children, properties, metrics and downcasts are the operator's.
#[derive(Debug)]
pub struct ProfiledExec {
    observed: Observed,
}

impl ProfiledExec {
    /// Reports the calls of `inner` to `recorder` as those of operator `operator_id`.
    pub fn new(
        inner: Arc<dyn ExecutionPlan>,
        fragment_id: i64,
        operator_id: i64,
        recorder: Arc<Recorder>,
    ) -> Self {
        let exchange = Exchange::of(inner.as_ref());
        Self::observing(Observed {
            inner,
            fragment_id,
            operator_id,
            task: 0,
            exchange,
            keys: None,
            recorder,
        })
    }

    /// Reports the calls of an operator at its place.
    pub fn observing(observed: Observed) -> Self {
        Self { observed }
    }

    /// The operator, and its place.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Counts the keys of what the operator returns.
    #[must_use]
    pub fn with_keys(mut self, keys: Option<KeySample>) -> Self {
        self.observed.keys = keys.map(Arc::new);
        self
    }

    /// The same operator after a change of its plan node.
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::observing(self.observed.around(inner)))
    }
}

impl DisplayAs for ProfiledExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.observed.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for ProfiledExec {
    fn name(&self) -> &str {
        self.observed.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.observed.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.observed.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.observed.inner.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.observed.inner.children()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.observed.inner).replace_children(children, options)?;
        Ok(self.around(inner))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.observed.inner.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.observed.execute(partition, context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.observed.inner.metrics()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.observed.inner.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.observed
            .inner
            .statistics_from_inputs(input_stats, args)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.observed.inner).reset_state()?;
        Ok(self.around(inner))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.around(self.observed.inner.with_new_state(state)?))
    }

    fn fetch(&self) -> Option<usize> {
        self.observed.inner.fetch()
    }
}

/// What a stream returned last, and when.
#[derive(Debug, Clone, Copy)]
enum Returned {
    /// Nothing yet: it waits for its input.
    Pending(Instant),
    /// A batch: the consumer has to ask for the next one.
    Batch(Instant),
}

#[derive(Debug, Default)]
struct Totals {
    calls: i64,
    rows_in: i64,
    rows_out: i64,
    bytes_out: i64,
    self_ns: i64,
    total_ns: i64,
    input_wait_ns: i64,
    output_wait_ns: i64,
    first_call: Option<Instant>,
    last_call: Option<Instant>,
}

struct ProfiledStream {
    stream: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    recorder: Arc<Recorder>,
    keys: Option<Arc<KeySample>>,
    position: Position,
    /// The number of the partition in its own task.
    own_partition: i64,
    exchange: Exchange,
    calls_are_kept: bool,
    calls: Vec<OperatorCall>,
    sent: Vec<TuplesSent>,
    totals: Totals,
    returned: Option<Returned>,
    /// Dropped last, when all has been reported.
    _open: OpenStream,
}

impl Stream for ProfiledStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Joins can turn one input batch into batches for minutes without ever waiting for
        // anything: without a budget their task would never yield, and could not be cancelled.
        let budget = ready!(tokio::task::coop::poll_proceed(cx));
        let this = &mut *self;
        let started = Instant::now();
        match this.returned {
            Some(Returned::Pending(at)) => {
                this.totals.input_wait_ns += started.duration_since(at).as_nanos() as i64;
            }
            Some(Returned::Batch(at)) => {
                this.totals.output_wait_ns += started.duration_since(at).as_nanos() as i64;
            }
            None => {}
        }
        let entered = position::enter(this.position);
        let polled = this.stream.as_mut().poll_next(cx);
        let ended = Instant::now();
        if polled.is_ready() {
            budget.made_progress();
        }
        let elapsed = ended.duration_since(started);
        let rows = match &polled {
            Poll::Ready(Some(Ok(batch))) => batch.num_rows(),
            _ => 0,
        };
        let inside = entered.leave(elapsed, rows as u64);
        let totals = &mut this.totals;
        totals.calls += 1;
        totals.rows_in += inside.rows as i64;
        totals.rows_out += rows as i64;
        totals.total_ns += elapsed.saturating_sub(inside.in_other_fragments).as_nanos() as i64;
        totals.self_ns += elapsed.saturating_sub(inside.time).as_nanos() as i64;
        totals.first_call.get_or_insert(started);
        totals.last_call = Some(ended);
        if let Poll::Ready(Some(Ok(batch))) = &polled {
            let bytes = match this.exchange {
                Exchange::None => estimated_batch_bytes(batch),
                Exchange::Local | Exchange::BetweenWorkers => batch_bytes(batch),
            } as i64;
            if let Some(keys) = &this.keys {
                keys.observe(batch);
            }
            totals.bytes_out += bytes;
            if this.exchange == Exchange::Local && this.calls_are_kept {
                this.sent.push(TuplesSent {
                    exchange_id: this.position.operator_id,
                    source_worker: this.recorder.worker_id(),
                    destination_worker: this.recorder.worker_id(),
                    partition: this.position.partition,
                    tuples: rows as i64,
                    bytes,
                    sent_at: Some(wall_ns(ended)),
                });
            }
        }
        if this.calls_are_kept {
            this.calls.push(OperatorCall {
                fragment_id: this.position.fragment_id,
                operator_id: this.position.operator_id,
                partition: this.position.partition,
                started_at: wall_ns(started),
                ended_at: wall_ns(ended),
                rows: rows as i64,
            });
            if this.calls.len() >= CALLS_PER_FLUSH {
                this.recorder
                    .operator_calls(std::mem::take(&mut this.calls));
            }
        }
        this.returned = Some(match &polled {
            Poll::Pending => Returned::Pending(ended),
            Poll::Ready(_) => Returned::Batch(ended),
        });
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl RecordBatchStream for ProfiledStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Drop for ProfiledStream {
    /// Reports what happened, also if the consumer stopped early or the query failed.
    fn drop(&mut self) {
        let (peak_memory_bytes, spilled_bytes) =
            memory_and_spill(self.plan.as_ref(), self.own_partition);
        let totals = &self.totals;
        let position = self.position;
        if self.exchange == Exchange::Local && !self.calls_are_kept && totals.calls > 0 {
            self.sent.push(TuplesSent {
                exchange_id: position.operator_id,
                source_worker: self.recorder.worker_id(),
                destination_worker: self.recorder.worker_id(),
                partition: position.partition,
                tuples: totals.rows_out,
                bytes: totals.bytes_out,
                sent_at: totals.last_call.map(wall_ns),
            });
        }
        self.recorder.operator_stats(OperatorStats {
            fragment_id: position.fragment_id,
            operator_id: position.operator_id,
            partition: position.partition,
            calls: totals.calls,
            // An exchange reads its input in other tasks: what comes out of it went into it.
            rows_in: match self.exchange {
                Exchange::None => totals.rows_in,
                Exchange::Local | Exchange::BetweenWorkers => totals.rows_out,
            },
            rows_out: totals.rows_out,
            bytes_out: totals.bytes_out,
            self_ns: totals.self_ns,
            total_ns: totals.total_ns,
            input_wait_ns: totals.input_wait_ns,
            output_wait_ns: totals.output_wait_ns,
            peak_memory_bytes,
            spilled_bytes,
            first_call_at: totals.first_call.map(wall_ns),
            last_call_at: totals.last_call.map(wall_ns),
        });
        if !self.calls.is_empty() {
            self.recorder
                .operator_calls(std::mem::take(&mut self.calls));
        }
        if !self.sent.is_empty() {
            self.recorder.tuples_sent(std::mem::take(&mut self.sent));
        }
    }
}

/// Peak memory and spilled bytes that an operator's own metrics tell of one partition.
fn memory_and_spill(plan: &dyn ExecutionPlan, partition: i64) -> (i64, i64) {
    let (mut memory, mut spilled) = (0, 0);
    let Some(metrics) = plan.metrics() else {
        return (0, 0);
    };
    for metric in metrics.iter() {
        // Metrics without a partition are the whole operator's: told once, by partition 0.
        if metric.partition().map_or(0, |p| p as i64) != partition {
            continue;
        }
        match metric.value() {
            MetricValue::SpilledBytes(count) => spilled += count.value() as i64,
            MetricValue::PeakMemoryUsage { gauge, .. } => memory += gauge.value() as i64,
            MetricValue::Gauge { name, gauge } if name.contains("mem") => {
                memory += gauge.value() as i64;
            }
            _ => {}
        }
    }
    (memory, spilled)
}
