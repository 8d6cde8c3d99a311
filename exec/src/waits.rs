//! Which operators of a statement wait, and for whom; and queries that wait for ever.
//!
//! Each operator of a plan has a wrapper, [`WaitingExec`], that notes whether a call of it is under way, and
//! how the last one ended. It takes two stores per call, to memory that no other thread writes. A query whose
//! operators are called by nobody, while its consumer waits for it, does not go on: [`StallGuard`] ends it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
};
use futures::Stream;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use skewer_compat::pass_through;

use crate::numbered::NumberedExec;

/// So often in a row a query is found where it was before, until it is ended.
const LOOKS: u32 = 8;

/// What the operators of a statement do now.
#[derive(Debug, Default)]
pub struct Waits(Mutex<Vec<Operator>>);

/// An operator in the plan of a statement, or of one of its tasks on workers of this process.
#[derive(Debug)]
struct Operator {
    name: String,
    inputs: Vec<usize>,
    partitions: Arc<[Calls]>,
}

/// The calls of one partition of an operator, in a cache line that no other thread writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Calls {
    count: AtomicU64,
    state: AtomicU8,
}

/// It has not been called, or has returned something.
const IDLE: u8 = 0;
/// It is being called.
const RUNNING: u8 = 1;
/// It had nothing to return when it was called.
const WAITING: u8 = 2;

/// What operators have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    calls: u64,
    running: bool,
}

impl Waits {
    /// The same plan, whose operators note what they do. Those below an operator that `is_exchange`
    /// are left as they are: it says which operators receive rows from other workers.
    ///
    /// # Errors
    /// Those of putting other children into an operator.
    pub fn watch(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        is_exchange: fn(&Arc<dyn ExecutionPlan>) -> bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut watched = Vec::new();
        let (plan, _) = watch_below(plan, is_exchange, &mut watched)?;
        let mut operators = self.0.lock();
        // Tasks of other fragments come before.
        let before = operators.len();
        for operator in &mut watched {
            for input in &mut operator.inputs {
                *input += before;
            }
        }
        operators.append(&mut watched);
        Ok(plan)
    }

    fn look(&self) -> Look {
        let operators = self.0.lock();
        let all = operators
            .iter()
            .flat_map(|operator| operator.partitions.iter());
        let mut look = Look {
            calls: 0,
            running: false,
        };
        for calls in all {
            look.calls = look.calls.wrapping_add(calls.count.load(Ordering::Relaxed));
            look.running |= calls.state.load(Ordering::Relaxed) == RUNNING;
        }
        look
    }

    /// The statement has ended.
    pub fn forget(&self) {
        self.0.lock().clear();
    }

    /// Which operators wait for which of their inputs, those first that wait for none of them. An operator
    /// is named with its place in the plan, from the top.
    pub fn describe(&self) -> String {
        let operators = self.0.lock();
        let waiting = |operator: &Operator| -> Vec<usize> {
            let partitions = operator.partitions.iter().enumerate();
            let waiting = partitions
                .filter(|(_, calls)| calls.state.load(Ordering::Relaxed) == WAITING)
                .map(|(partition, _)| partition);
            waiting.collect()
        };
        let title = |number: usize| format!("{} {}", operators[number].name, number + 1);
        let (mut for_nobody, mut for_inputs) = (Vec::new(), Vec::new());
        for (number, operator) in operators.iter().enumerate() {
            let partitions = waiting(operator);
            if partitions.is_empty() {
                continue;
            }
            let who = format!("{} ({})", title(number), listed(&partitions));
            let inputs = operator.inputs.iter().copied();
            let inputs = inputs.filter(|input| !waiting(&operators[*input]).is_empty());
            let inputs: Vec<_> = inputs.map(title).collect();
            match inputs.is_empty() {
                true => for_nobody.push(format!("{who} waits, but for none of its inputs")),
                false => for_inputs.push(format!("{who} waits for {}", inputs.join(" and "))),
            }
        }
        for_nobody.append(&mut for_inputs);
        match for_nobody.is_empty() {
            true => "no operator waits".to_owned(),
            false => for_nobody.join("; "),
        }
    }
}

/// The same plan, whose operators note what they do in `operators`, and the place of its root there.
fn watch_below(
    plan: Arc<dyn ExecutionPlan>,
    is_exchange: fn(&Arc<dyn ExecutionPlan>) -> bool,
    operators: &mut Vec<Operator>,
) -> Result<(Arc<dyn ExecutionPlan>, Option<usize>)> {
    // What is below is sent to workers.
    let below = match is_exchange(&plan) {
        true => Vec::new(),
        false => plan.children().into_iter().cloned().collect(),
    };
    // It stands for the operator below, and has to stay what it is.
    let is_number = plan.is::<NumberedExec>();
    let number = (!is_number).then(|| {
        let partitions = plan.output_partitioning().partition_count();
        operators.push(Operator {
            name: plan.name().to_owned(),
            inputs: Vec::new(),
            partitions: std::iter::repeat_with(Calls::default)
                .take(partitions)
                .collect(),
        });
        operators.len() - 1
    });
    let (mut children, mut inputs) = (Vec::new(), Vec::new());
    for child in below {
        let (child, input) = watch_below(child, is_exchange, operators)?;
        children.push(child);
        inputs.extend(input);
    }
    let plan = match children.is_empty() {
        true => plan,
        false => replace_children_if_necessary(plan, children)?,
    };
    let Some(number) = number else {
        return Ok((plan, inputs.pop()));
    };
    operators[number].inputs = inputs;
    let watched = WaitingExec {
        inner: plan,
        partitions: Arc::clone(&operators[number].partitions),
    };
    Ok((Arc::new(watched), Some(number)))
}

/// `partition 3`, `partitions 0, 1 and 5`.
fn listed(partitions: &[usize]) -> String {
    let names: Vec<_> = partitions.iter().map(usize::to_string).collect();
    match &names[..] {
        [one] => format!("partition {one}"),
        [most @ .., last] => format!("partitions {} and {last}", most.join(", ")),
        [] => "no partition".to_owned(),
    }
}

/// An operator that notes what it does. To plan inspection it *is* the operator.
#[derive(Debug)]
struct WaitingExec {
    inner: Arc<dyn ExecutionPlan>,
    partitions: Arc<[Calls]>,
}

impl WaitingExec {
    /// The same after a change of its plan node.
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self {
            inner,
            partitions: Arc::clone(&self.partitions),
        })
    }
}

impl DisplayAs for WaitingExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for WaitingExec {
    pass_through!(inner);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let stream = self.inner.execute(partition, context)?;
        if partition >= self.partitions.len() {
            return Ok(stream);
        }
        Ok(Box::pin(WaitingStream {
            stream,
            partitions: Arc::clone(&self.partitions),
            partition,
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }
}

struct WaitingStream {
    stream: SendableRecordBatchStream,
    partitions: Arc<[Calls]>,
    partition: usize,
}

impl Stream for WaitingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let calls = &this.partitions[this.partition];
        // Nobody else writes: streams are called by one task at a time.
        let count = calls.count.load(Ordering::Relaxed);
        calls.count.store(count.wrapping_add(1), Ordering::Relaxed);
        calls.state.store(RUNNING, Ordering::Relaxed);
        let polled = this.stream.as_mut().poll_next(cx);
        let state = match polled {
            Poll::Pending => WAITING,
            Poll::Ready(_) => IDLE,
        };
        calls.state.store(state, Ordering::Relaxed);
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl RecordBatchStream for WaitingStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

impl Drop for WaitingStream {
    fn drop(&mut self) {
        self.partitions[self.partition]
            .state
            .store(IDLE, Ordering::Relaxed);
    }
}

/// None of the operators of a query has done anything for a time.
#[derive(Debug, Clone)]
pub struct Stalled {
    /// How long.
    pub timeout: Duration,
    /// Which operators wait, and for which of their inputs.
    pub waits: String,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeout, waits } = self;
        write!(f, "no operator has done anything for {timeout:?}; {waits}")
    }
}

impl std::error::Error for Stalled {}

/// The rows of a query, which fails where it does not go on.
///
/// It goes on while any operator of its statement is called. If its consumer does not ask for rows, nothing
/// is looked at. A task of its own looks: rows may be an input of other operators of the statement, which a
/// timer among them would call.
pub struct StallGuard {
    rows: SendableRecordBatchStream,
    consumer: Arc<Consumer>,
    /// Ends with this.
    _watching: SpawnedTask<()>,
}

/// What a guard and the task that looks tell each other.
#[derive(Debug, Default)]
struct Consumer {
    /// It has asked for rows that are not there.
    waits: AtomicBool,
    stalled: Mutex<Option<Stalled>>,
    waker: AtomicWaker,
}

impl StallGuard {
    /// Ends `rows` with [`Stalled`] when no operator that `waits` knows has been called for `timeout`. Has to be called on
    /// the runtime of the database.
    pub fn new(rows: SendableRecordBatchStream, waits: Arc<Waits>, timeout: Duration) -> Self {
        let consumer = Arc::new(Consumer::default());
        let watching = SpawnedTask::spawn(watch(Arc::clone(&consumer), waits, timeout));
        Self {
            rows,
            consumer,
            _watching: watching,
        }
    }
}

/// Looks until nothing has gone on for `timeout`, then tells the consumer. Looks are counted: time may pass
/// in which the threads of the runtime are busy with something else.
async fn watch(consumer: Arc<Consumer>, waits: Arc<Waits>, timeout: Duration) {
    let (mut seen, mut still) = (None, 0);
    while still < LOOKS {
        tokio::time::sleep(timeout / LOOKS).await;
        let look = waits.look();
        let is_still = consumer.waits.load(Ordering::Relaxed) && !look.running;
        still = match is_still && seen == Some(look) {
            true => still + 1,
            false => 0,
        };
        seen = Some(look);
    }
    *consumer.stalled.lock() = Some(Stalled {
        timeout,
        waits: waits.describe(),
    });
    consumer.waker.wake();
}

impl Stream for StallGuard {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let polled = this.rows.as_mut().poll_next(cx);
        this.consumer
            .waits
            .store(polled.is_pending(), Ordering::Relaxed);
        if polled.is_pending() {
            // First registers, then asks: so it does not miss the end.
            this.consumer.waker.register(cx.waker());
            if let Some(error) = this.consumer.stalled.lock().take() {
                return Poll::Ready(Some(Err(DataFusionError::External(Box::new(error)))));
            }
        }
        polled
    }
}

impl RecordBatchStream for StallGuard {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
