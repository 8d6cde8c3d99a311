//! Exchanges within a process that spill without waiting for each other.
//!
//! A `RepartitionExec` of DataFusion 55.2 whose inputs spill at the same time may wait for ever
//! ([datafusion#24883](https://github.com/apache/datafusion/issues/24883)): its reader waits for the oldest
//! of several open files, while the batch that it was told of is in another, and the writers wait until it
//! has read that. So does one whose spill file cannot be written. [`ExchangeExec`] moves rows in its place.

mod queues;
mod run;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce::LimitedBatchCoalescer;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, SpillMetrics, Time,
};
use datafusion::physical_plan::repartition::{BatchPartitioner, RepartitionExec};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, SpillManager,
};
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use self::queues::{Entry, Queues};
use self::run::Spills;
use crate::operators::batch_bytes::batch_bytes;
use crate::pass_through;

/// Replaces a `RepartitionExec` by an [`ExchangeExec`]; returns any other operator as it is.
pub fn with_own_exchange(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let operator: &dyn Any = plan.as_ref();
    if operator.is::<RepartitionExec>() {
        return Arc::new(ExchangeExec::new(plan));
    }
    plan
}

/// A `RepartitionExec` whose rows are moved, and spilled, by Skewer.
///
/// To plan inspection it *is* the `RepartitionExec`. Each input has a task, which puts its rows into the
/// queues of the outputs. A batch that does not fit into memory is appended to the file at the end of its
/// queue. An output seals a file when it comes to it, and only then reads it. Nobody waits for a file.
#[derive(Debug)]
pub struct ExchangeExec {
    /// The `RepartitionExec`, which is not executed.
    inner: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
    state: Arc<Mutex<State>>,
}

/// How far the exchange is.
#[derive(Default)]
enum State {
    #[default]
    New,
    /// No input has been asked for rows yet.
    Opened(Vec<Rows>),
    Running {
        /// What each output reads, until it is executed.
        outputs: Vec<Option<Output>>,
        tasks: Tasks,
    },
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "New",
            Self::Opened(_) => "Opened",
            Self::Running { .. } => "Running",
        })
    }
}

type Rows = SendableRecordBatchStream;

/// The tasks of the inputs; they end when nobody holds them.
type Tasks = Arc<Vec<SpawnedTask<()>>>;

/// What an output reads: a queue of all inputs, or, where order is preserved, one of each.
struct Output {
    queues: Vec<(Arc<Queues>, usize)>,
    memory: Arc<MemoryReservation>,
    spills: Arc<Spills>,
}

/// What is known of an exchange wherever its rows are.
#[derive(Clone)]
struct Plan {
    inner: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
    context: Arc<TaskContext>,
}

impl Plan {
    fn operator(&self) -> Result<&RepartitionExec> {
        self.inner
            .downcast_ref::<RepartitionExec>()
            .ok_or_else(|| internal_datafusion_err!("{} is no exchange", self.inner.name()))
    }

    /// Opens all inputs.
    fn open(&self) -> Result<Vec<Rows>> {
        let input = self.operator()?.input();
        let partitions = 0..input.output_partitioning().partition_count();
        partitions
            .map(|partition| input.execute(partition, Arc::clone(&self.context)))
            .collect()
    }

    /// Starts a task for each input.
    fn start(&self, inputs: Vec<Rows>) -> Result<State> {
        let operator = self.operator()?;
        let (count, partitioning) = (inputs.len(), operator.partitioning());
        let output_count = partitioning.partition_count();
        // An order is preserved by a merge, which needs the rows of each input by themselves.
        let ordered = operator.preserve_order();
        let queues: Vec<_> = match ordered {
            true => (0..count).map(|_| Queues::new(output_count, 1)).collect(),
            false => vec![Queues::new(output_count, count)],
        };
        let queues: Vec<_> = queues.into_iter().map(Arc::new).collect();
        let coalesces = !ordered && !operator.input().boundedness().is_unbounded();
        let shared: Vec<_> = (0..output_count)
            .map(|output| self.shared(output, coalesces.then_some(count)))
            .collect();
        let mut tasks = Vec::with_capacity(count);
        for (number, input) in inputs.into_iter().enumerate() {
            let queues = &queues[if ordered { number } else { 0 }];
            let senders = shared.iter().cloned().enumerate();
            let senders = senders.map(|(queue, output)| {
                Some(Sender {
                    queues: Arc::clone(queues),
                    queue,
                    output,
                })
            });
            let times = Times::new(&self.metrics, number);
            // Rows that are dealt out begin with another output for each input, unless the order of
            // outputs is that of the inputs.
            let first = if ordered { 0 } else { number };
            let partitioner = BatchPartitioner::try_new(
                partitioning.clone(),
                times.repartition.clone(),
                first,
                count,
            )?;
            let task = SpawnedTask::spawn(send_all(input, senders.collect(), partitioner, times));
            let queues = Arc::clone(queues);
            tasks.push(SpawnedTask::spawn(end(task, queues, output_count)));
        }
        let outputs = shared.into_iter().enumerate().map(|(queue, shared)| {
            Some(Output {
                queues: queues.iter().map(|of| (Arc::clone(of), queue)).collect(),
                memory: shared.memory,
                spills: shared.spills,
            })
        });
        Ok(State::Running {
            outputs: outputs.collect(),
            tasks: Arc::new(tasks),
        })
    }

    /// What all inputs need that send to an output. `coalesced`: from how many inputs batches are put
    /// together, if they are.
    fn shared(&self, output: usize, coalesced: Option<usize>) -> Shared {
        let schema = self.inner.schema();
        let batch_size = self.context.session_config().batch_size();
        let memory = MemoryConsumer::new(format!("{}[{output}]", self.inner.name()))
            .with_can_spill(true)
            .register(self.context.memory_pool());
        let spills = Spills::new(
            self.context.runtime_env(),
            SpillMetrics::new(&self.metrics, output),
            SchemaRef::clone(&schema),
        );
        Shared {
            memory: Arc::new(memory),
            spills: Arc::new(spills),
            coalescer: coalesced.map(|senders| {
                Arc::new(Coalescer {
                    batches: Mutex::new(LimitedBatchCoalescer::new(schema, batch_size, None)),
                    senders: AtomicUsize::new(senders),
                })
            }),
        }
    }

    /// The rows of an output.
    fn read(&self, partition: usize, output: Output, tasks: Tasks) -> Result<Rows> {
        let operator = self.operator()?;
        let Output {
            queues,
            memory,
            spills,
        } = output;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let order = operator.input().output_ordering();
        let order = order.filter(|_| operator.preserve_order());
        let mut streams: Vec<_> = queues
            .into_iter()
            .map(|(queues, queue)| ReadStream {
                schema: self.inner.schema(),
                queues,
                queue,
                memory: Arc::clone(&memory),
                spills: Arc::clone(&spills),
                run: None,
                // A merge counts its rows itself.
                metrics: order.is_none().then(|| baseline.clone()),
                _tasks: Arc::clone(&tasks),
            })
            .collect();
        let Some(order) = order else {
            let stream = streams.pop();
            let stream =
                stream.ok_or_else(|| internal_datafusion_err!("an exchange without a queue"))?;
            return Ok(Box::pin(stream));
        };
        let reservation = MemoryConsumer::new(format!("{}[Merge {partition}]", self.inner.name()))
            .register(self.context.memory_pool());
        let reader = SpillManager::new(
            self.context.runtime_env(),
            SpillMetrics::new(&self.metrics, partition),
            self.inner.schema(),
        );
        let streams = streams.into_iter().map(|stream| Box::pin(stream) as Rows);
        StreamingMergeBuilder::new()
            .with_streams(streams.collect())
            .with_schema(self.inner.schema())
            .with_expressions(order)
            .with_metrics(baseline)
            .with_batch_size(self.context.session_config().batch_size())
            .with_reservation(reservation)
            .with_spill_manager(reader)
            .build()
    }
}

impl ExchangeExec {
    /// Moves the rows of `inner`, which is a `RepartitionExec`.
    fn new(inner: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            inner,
            metrics: ExecutionPlanMetricsSet::new(),
            state: Arc::default(),
        }
    }

    /// A new exchange in place of another `RepartitionExec`.
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(inner))
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for ExchangeExec {
    pass_through!(inner);

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<Rows> {
        let plan = Plan {
            inner: Arc::clone(&self.inner),
            metrics: self.metrics.clone(),
            context,
        };
        let mut state = self.state.lock();
        if matches!(*state, State::New) {
            *state = State::Opened(plan.open()?);
        }
        drop(state);
        // Rows move from when the first output is asked for some.
        let state = Arc::clone(&self.state);
        let read = async move {
            let mut state = state.lock();
            if let State::Opened(inputs) = &mut *state {
                *state = plan.start(std::mem::take(inputs))?;
            }
            let State::Running { outputs, tasks } = &mut *state else {
                return Err(internal_datafusion_err!("an exchange that was not opened"));
            };
            let output = outputs.get_mut(partition).and_then(Option::take);
            let output = output.ok_or_else(|| {
                internal_datafusion_err!("output {partition} of an exchange was executed twice")
            })?;
            plan.read(partition, output, Arc::clone(tasks))
        };
        let stream = futures::stream::once(read).try_flatten();
        let stream = RecordBatchStreamAdapter::new(self.inner.schema(), stream);
        Ok(Box::pin(stream))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Times of an input's task, as DataFusion names them.
struct Times {
    fetch: Time,
    repartition: Time,
    send: Time,
}

impl Times {
    fn new(metrics: &ExecutionPlanMetricsSet, input: usize) -> Self {
        let time = |name: &'static str| MetricBuilder::new(metrics).subset_time(name, input);
        Self {
            fetch: time("fetch_time"),
            repartition: time("repartition_time"),
            send: time("send_time"),
        }
    }
}

/// What the inputs share that send to one output.
#[derive(Clone)]
struct Shared {
    memory: Arc<MemoryReservation>,
    spills: Arc<Spills>,
    /// Puts the small batches of all inputs together.
    coalescer: Option<Arc<Coalescer>>,
}

struct Coalescer {
    batches: Mutex<LimitedBatchCoalescer>,
    /// Inputs that have not ended.
    senders: AtomicUsize,
}

impl Coalescer {
    /// The batches that are complete with another one.
    fn push(&self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut batches = self.batches.lock();
        batches.push_batch(batch)?;
        Ok(std::iter::from_fn(|| batches.next_completed_batch()).collect())
    }

    /// An input has ended: what is left if it was the last.
    fn end(&self) -> Result<Vec<RecordBatch>> {
        if self.senders.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(Vec::new());
        }
        let mut batches = self.batches.lock();
        batches.finish()?;
        Ok(std::iter::from_fn(|| batches.next_completed_batch()).collect())
    }
}

/// One input's way to one output.
struct Sender {
    queues: Arc<Queues>,
    queue: usize,
    output: Shared,
}

impl Sender {
    /// Sends rows; `false` if nobody reads the output any more.
    async fn send(&self, batch: RecordBatch) -> Result<bool> {
        let batches = match &self.output.coalescer {
            Some(coalescer) => coalescer.push(batch)?,
            None => vec![batch],
        };
        self.send_batches(batches).await
    }

    /// The input has ended.
    async fn end(&self) -> Result<()> {
        if let Some(coalescer) = &self.output.coalescer {
            self.send_batches(coalescer.end()?).await?;
        }
        Ok(())
    }

    async fn send_batches(&self, batches: Vec<RecordBatch>) -> Result<bool> {
        for batch in batches {
            self.queues.gate(self.queue).await;
            if !self.hand_over(batch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts a batch into the queue, or where it spills to.
    fn hand_over(&self, batch: RecordBatch) -> Result<bool> {
        // Behind a run batches go to disk too, until the run is read: so there is one file for many
        // batches, and order is kept.
        if let Some(run) = self.queues.last_run(self.queue)
            && run.append(&batch)?
        {
            return Ok(true);
        }
        let bytes = match self.output.coalescer {
            Some(_) => batch.get_array_memory_size(),
            // It shares its buffers with the batches of other outputs.
            None => batch_bytes(&batch),
        };
        let memory = &self.output.memory;
        if memory.try_grow(bytes).is_err() {
            let run = Arc::new(self.output.spills.begin(&batch)?);
            return Ok(self.queues.push(self.queue, Entry::Run(run)).is_ok());
        }
        let pushed = self.queues.push(self.queue, Entry::Batch(batch, bytes));
        if pushed.is_err() {
            memory.shrink(bytes);
        }
        Ok(pushed.is_ok())
    }
}

/// Sends the rows of an input to all outputs that are read.
async fn send_all(
    mut input: Rows,
    mut senders: Vec<Option<Sender>>,
    mut partitioner: BatchPartitioner,
    times: Times,
) -> Result<()> {
    let outputs = senders.len();
    let mut batches = 0;
    while senders.iter().any(Option::is_some) {
        let timer = times.fetch.timer();
        let batch = input.next().await;
        timer.done();
        let Some(batch) = batch.transpose()? else {
            break;
        };
        if batch.num_rows() == 0 {
            continue;
        }
        for part in partitioner.partition_iter(batch)? {
            let (output, part) = part?;
            let _timer = times.send.timer();
            if let Some(sender) = &senders[output]
                && !sender.send(part).await?
            {
                senders[output] = None;
            }
        }
        // An input that always has rows would keep the thread.
        batches += 1;
        if batches > outputs {
            batches = 0;
            tokio::task::yield_now().await;
        }
    }
    for sender in senders.into_iter().flatten() {
        sender.end().await?;
    }
    Ok(())
}

/// Tells all outputs how the task of an input has ended.
async fn end(task: SpawnedTask<Result<()>>, queues: Arc<Queues>, outputs: usize) {
    let failed = match task.join().await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(error) => Some(DataFusionError::ExecutionJoin(Box::new(error))),
    };
    let failed = failed.map(Arc::new);
    for output in 0..outputs {
        if let Some(error) = &failed {
            // Nobody has to hear of it who does not read.
            let _ = queues.push(output, Entry::Failed(Arc::clone(error)));
        }
        queues.sender_ended(output);
    }
}

/// Rows of a queue.
struct ReadStream {
    schema: SchemaRef,
    queues: Arc<Queues>,
    queue: usize,
    memory: Arc<MemoryReservation>,
    spills: Arc<Spills>,
    /// The run that it reads.
    run: Option<Rows>,
    metrics: Option<BaselineMetrics>,
    _tasks: Tasks,
}

impl ReadStream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            if let Some(run) = &mut self.run {
                match ready!(run.poll_next_unpin(cx)) {
                    Some(batch) => return Poll::Ready(Some(batch)),
                    None => self.run = None,
                }
            }
            match ready!(self.queues.poll_pop(self.queue, cx)) {
                None => return Poll::Ready(None),
                Some(Entry::Batch(batch, bytes)) => {
                    self.memory.shrink(bytes);
                    return Poll::Ready(Some(Ok(batch)));
                }
                Some(Entry::Run(run)) => match self.spills.read(&run) {
                    Ok(run) => self.run = Some(run),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Some(Entry::Failed(error)) => {
                    return Poll::Ready(Some(Err(DataFusionError::Shared(error))));
                }
            }
        }
    }
}

impl Stream for ReadStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.poll(cx);
        match &self.metrics {
            Some(metrics) => metrics.record_poll(polled),
            None => polled,
        }
    }
}

impl RecordBatchStream for ReadStream {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

impl Drop for ReadStream {
    fn drop(&mut self) {
        let bytes = self.queues.receiver_gone(self.queue);
        self.memory.shrink(bytes);
    }
}

#[cfg(test)]
mod tests;
