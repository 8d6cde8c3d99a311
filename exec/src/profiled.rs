//! Counting and timing the calls of an operator.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
};
use futures::Stream;
use skewer_profiling::ticks::Ticks;
use skewer_profiling::{Level, OpenStream, OperatorCall, Recorder, Timeline, TuplesSent};

use crate::call_stack::{self, Position, StreamClock};
use crate::key_sample::KeySample;
use crate::operator_memory::{OpenMetrics, Streams};
use crate::stream_totals::{EndedCall, StreamTotals, Totals};
use crate::thread_use::TaskClock;
use skewer_compat::operators::batch_bytes::{batch_bytes, estimated_batch_bytes};
use skewer_compat::operators::materialized::SharedRowsExec;
use skewer_compat::pass_through;

/// Calls kept by a stream before it hands them to the recorder: about 3 MB.
const CALLS_PER_FLUSH: usize = 65_536;

/// Whether records move to another partition, or another task, in this operator.
pub fn is_exchange(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan
            .downcast_ref::<SharedRowsExec>()
            .is_some_and(SharedRowsExec::has_input)
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
    pub fn of_operator(plan: &dyn ExecutionPlan) -> Self {
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

    /// The partition from which all rows of an exchange within a worker come, if it is one. The
    /// partitions of the input are numbered over all tasks, too.
    fn source_partition(&self) -> Option<i64> {
        let is_local = self.exchange == Exchange::Local;
        match self.inner.children().as_slice() {
            [input] if is_local && input.output_partitioning().partition_count() == 1 => {
                Some(self.task as i64)
            }
            _ => None,
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
        streams: &Arc<Streams>,
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
        let timeline_start = self.recorder.timeline_start();
        let started = Ticks::now();
        let time = StreamClock::begin();
        let entered = call_stack::enter(position, started, time);
        let stream = self.inner.execute(partition, context)?;
        let elapsed = Ticks::now().since(started);
        let nested = entered.leave(elapsed, 0);
        let calls_are_kept = self.recorder.level() >= Level::Calls;
        let totals = Totals {
            total: elapsed.saturating_sub(nested.in_other_fragments),
            self_ticks: elapsed.saturating_sub(nested.ticks),
            ..Totals::default()
        };
        let is_exchange = self.exchange != Exchange::None;
        let mut timeline = Timeline::new(timeline_start, self.recorder.level());
        if let Some(timeline) = &mut timeline {
            timeline.add_work(started, started.after(totals.self_ticks));
        }
        let totals = StreamTotals::new(position, is_exchange, calls_are_kept, totals, timeline);
        let totals = Arc::new(totals);
        self.recorder
            .stream_began(time.number, Arc::clone(&totals) as _);
        Ok(Box::pin(ProfiledStream {
            stream,
            metrics: Streams::opened(streams, &self.inner),
            recorder: Arc::clone(&self.recorder),
            keys: self.keys.clone(),
            position,
            time,
            own_partition: partition as i64,
            exchange: self.exchange,
            source_partition: self.source_partition(),
            calls_are_kept,
            calls: Vec::new(),
            sent: Vec::new(),
            totals,
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
    streams: Arc<Streams>,
}

impl ProfiledExec {
    /// Reports the calls of `inner` to `recorder` as those of operator `operator_id`.
    pub fn new(
        inner: Arc<dyn ExecutionPlan>,
        fragment_id: i64,
        operator_id: i64,
        recorder: Arc<Recorder>,
    ) -> Self {
        let exchange = Exchange::of_operator(inner.as_ref());
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
        Self {
            observed,
            streams: Arc::default(),
        }
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
    pub(crate) fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::observing(self.observed.around(inner)))
    }
}

impl DisplayAs for ProfiledExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.observed.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for ProfiledExec {
    pass_through!(observed.inner);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.observed.execute(partition, context, &self.streams)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.observed.inner.metrics()
    }
}

/// `plan` with another operator that does the work of its own; if it is observed, the other is.
///
/// # Errors
/// Those of `replace`.
pub fn replace_operator(
    plan: Arc<dyn ExecutionPlan>,
    replace: impl FnOnce(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let any: &dyn Any = plan.as_ref();
    match any.downcast_ref::<ProfiledExec>() {
        Some(profiled) => Ok(profiled.around(replace(Arc::clone(&profiled.observed.inner))?)),
        None => replace(plan),
    }
}

/// What a stream returned last, and when.
#[derive(Debug, Clone, Copy)]
enum Returned {
    /// Nothing yet: it waits for its input.
    Pending(Ticks),
    /// A batch: the consumer has to ask for the next one.
    Batch(Ticks),
}

/// A call, before its ticks are times.
#[derive(Debug, Clone, Copy)]
struct Call {
    started: Ticks,
    ended: Ticks,
    rows: i64,
}

/// A batch that went through an exchange.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Ticks,
    tuples: i64,
    bytes: i64,
}

struct ProfiledStream {
    stream: SendableRecordBatchStream,
    /// If the operator tells its metrics. All that is below lives as long, and to drop a plan takes
    /// long enough that it should not be left to the last stream.
    metrics: Option<OpenMetrics>,
    recorder: Arc<Recorder>,
    keys: Option<Arc<KeySample>>,
    position: Position,
    /// What the stream has taken before the call under way.
    time: StreamClock,
    /// The number of the partition in its own task.
    own_partition: i64,
    exchange: Exchange,
    /// The partition that an exchange reads, if there is one.
    source_partition: Option<i64>,
    calls_are_kept: bool,
    calls: Vec<Call>,
    sent: Vec<Sent>,
    totals: Arc<StreamTotals>,
    returned: Option<Returned>,
    /// Dropped last, when all has been reported.
    _open: OpenStream,
}

impl ProfiledStream {
    fn hand_over_calls(&mut self) {
        let scale = self.recorder.scale();
        let Position {
            fragment_id,
            operator_id,
            partition,
        } = self.position;
        let calls = self.calls.drain(..).map(|call| OperatorCall {
            fragment_id,
            operator_id,
            partition,
            started_at: scale.wall_ns(call.started),
            ended_at: scale.wall_ns(call.ended),
            rows: call.rows,
        });
        self.recorder.operator_calls(calls.collect());
    }

    fn hand_over_sent(&mut self) {
        let scale = self.recorder.scale();
        let worker = self.recorder.worker_id();
        let sent = self.sent.drain(..).map(|sent| TuplesSent {
            exchange_id: self.position.operator_id,
            source_worker: worker,
            destination_worker: worker,
            partition: self.position.partition,
            tuples: sent.tuples,
            bytes: sent.bytes,
            sent_at: Some(scale.wall_ns(sent.at)),
            source_partition: self.source_partition,
        });
        self.recorder.tuples_sent(sent.collect());
    }
}

impl Stream for ProfiledStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Joins can turn one input batch into batches for minutes without ever waiting for
        // anything: without a budget their task would never yield, and could not be cancelled.
        let budget = ready!(tokio::task::coop::poll_proceed(cx));
        let this = &mut *self;
        let task = call_stack::begins_task(this.position.fragment_id)
            .then(|| TaskClock::start(this.calls_are_kept));
        let started = Ticks::now();
        let (input_wait, output_wait) = match this.returned {
            Some(Returned::Pending(at)) => (started.since(at), 0),
            Some(Returned::Batch(at)) => (0, started.since(at)),
            None => (0, 0),
        };
        this.time.self_before = this.totals.begin(started, input_wait, output_wait);
        let observer = Arc::clone(&this.totals) as _;
        let entered = call_stack::enter_observed(this.position, started, this.time, observer);
        let polled = this.stream.as_mut().poll_next(cx);
        let ended = Ticks::now();
        let task = task.map(TaskClock::elapsed);
        if polled.is_ready() {
            budget.made_progress();
        }
        let rows = match &polled {
            Poll::Ready(Some(Ok(batch))) => batch.num_rows(),
            _ => 0,
        };
        let used = task.flatten().unwrap_or_default();
        let nested = entered.leave_task(ended.since(started), rows as u64, used);
        let mut bytes = 0;
        if let Poll::Ready(Some(Ok(batch))) = &polled {
            bytes = match this.exchange {
                Exchange::None => estimated_batch_bytes(batch),
                Exchange::Local | Exchange::BetweenWorkers => batch_bytes(batch),
            } as i64;
            if let Some(keys) = &this.keys {
                keys.observe(batch);
            }
            if this.exchange == Exchange::Local && this.calls_are_kept {
                this.sent.push(Sent {
                    at: ended,
                    tuples: rows as i64,
                    bytes,
                });
            }
        }
        this.totals.end(EndedCall {
            began: started,
            ended,
            nested,
            rows: rows as i64,
            bytes,
            task,
        });
        if this.calls_are_kept {
            this.calls.push(Call {
                started,
                ended,
                rows: rows as i64,
            });
            if this.calls.len() >= CALLS_PER_FLUSH {
                this.hand_over_calls();
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
        let totals = self.totals.totals();
        let position = self.position;
        if let Some(at) = totals.last_call
            && self.exchange == Exchange::Local
            && !self.calls_are_kept
        {
            self.sent.push(Sent {
                at,
                tuples: totals.rows_out,
                bytes: totals.bytes_out,
            });
        }
        let record = self.totals.record(self.recorder.scale());
        self.recorder.stream_ended(self.time.number, record);
        if let Some(metrics) = &self.metrics {
            metrics.closed(self.own_partition, position, &self.recorder);
        }
        if !self.calls.is_empty() {
            self.hand_over_calls();
        }
        if !self.sent.is_empty() {
            self.hand_over_sent();
        }
    }
}
