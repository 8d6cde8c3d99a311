//! Operators that can be cancelled, and that let others run.
//!
//! A task is cancelled, and its thread turns to other queries, only when the task yields.
//! DataFusion's scans yield after 128 batches, which can be minutes: a join compares each batch
//! with all rows of its other input, and returns nothing meanwhile if no pair fulfils its
//! condition; a function may take a second per batch. So scans, and operators that return more
//! rows than they read, yield by the clock ([`QUANTUM`]), and joins get their input in slices
//! that take no longer than [`SLICE`].
//!
//! Joins become such that spill here, too: this sees each plan where it runs.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, Result, Statistics, exec_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::Stream;
use skewer_cluster::is_exchange_between_workers;
use skewer_exec::profiled::replace_operator;
use skewer_exec::spilling_join::{self, SpillingJoinExec};
use skewer_net::TaskEnd;

/// A task that has run for this long yields. The clock is read once a batch.
const QUANTUM: Duration = Duration::from_millis(10);

/// A join should be done with a slice of its input after this time: what is cancelled ends within
/// 200 ms then.
const SLICE: Duration = Duration::from_millis(150);

/// Rows of the first slice, before anything is known of their cost: a nested loop join compares
/// each with all rows of its other input.
const FIRST_SLICE: usize = 1;

/// Slices grow by this factor as long as they take less than [`SLICE`] divided by it.
const GROWTH: u32 = 8;

/// The same plan, whose tasks yield in time.
///
/// # Errors
/// Those of putting other children into an operator.
pub(crate) fn cooperative(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    // What is below is sent to workers, which make it yield when they have it.
    if is_exchange_between_workers(&plan) {
        return Ok(plan);
    }
    let probe = probe_input(plan.as_ref());
    let children: Vec<_> = plan.children().into_iter().cloned().collect();
    if children.is_empty() {
        return Ok(Arc::new(PacedExec::new(plan, false)));
    }
    let children = children
        .into_iter()
        .enumerate()
        .map(|(n, child)| {
            let child = cooperative(child)?;
            Ok(match Some(n) == probe {
                true => Arc::new(PacedExec::new(child, true)) as _,
                false => child,
            })
        })
        .collect::<Result<_>>()?;
    let mut plan = replace_children_if_necessary(plan, children)?;
    if spilling_join::spills(plan.as_ref()) {
        plan = replace_operator(plan, |join| {
            Ok(Arc::new(SpillingJoinExec::new(join, in_slices)?))
        })?;
    }
    Ok(match returns_more_than_it_reads(plan.as_ref()) {
        true => Arc::new(PacedExec::new(plan, false)),
        false => plan,
    })
}

/// The same rows, for a join to probe with: their stream yields, and cuts batches into slices.
fn in_slices(rows: SendableRecordBatchStream, context: &TaskContext) -> SendableRecordBatchStream {
    Box::pin(PacedStream::new(rows, true, context))
}

/// The input of which a join takes a batch and does not return before it is done with it, unless
/// there is a batch of results.
fn probe_input(plan: &dyn ExecutionPlan) -> Option<usize> {
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        let probe = SortMergeJoinExec::probe_side(&join.join_type());
        return Some(usize::from(probe == JoinSide::Right));
    }
    let right = plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>();
    right.then_some(1)
}

fn returns_more_than_it_reads(plan: &dyn ExecutionPlan) -> bool {
    probe_input(plan).is_some()
        || plan.is::<CrossJoinExec>()
        || plan.is::<UnnestExec>()
        || plan.is::<RecursiveQueryExec>()
}

/// An operator whose streams yield. To plan inspection it *is* the operator.
#[derive(Debug)]
struct PacedExec {
    inner: Arc<dyn ExecutionPlan>,
    /// Whether batches are cut into slices according to the time that they take.
    slices: bool,
}

impl PacedExec {
    fn new(inner: Arc<dyn ExecutionPlan>, slices: bool) -> Self {
        Self { inner, slices }
    }

    /// The same after a change of its plan node.
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(inner, self.slices))
    }
}

impl DisplayAs for PacedExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for PacedExec {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).replace_children(children, options)?;
        Ok(self.around(inner))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
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
        let rows = self.inner.execute(partition, Arc::clone(&context))?;
        Ok(Box::pin(PacedStream::new(rows, self.slices, &context)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.inner.statistics_from_inputs(input_stats, args)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).reset_state()?;
        Ok(self.around(inner))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(self.around(self.inner.with_new_state(state)?))
    }

    fn fetch(&self) -> Option<usize> {
        self.inner.fetch()
    }
}

struct PacedStream {
    inner: SendableRecordBatchStream,
    /// Of a task on a worker, whether it is over: then the stream ends with an error that nobody
    /// reads.
    end: Option<Arc<TaskEnd>>,
    /// When the task last yielded, as far as this stream knows.
    running_since: Option<Instant>,
    slices: Option<Slices>,
}

impl PacedStream {
    fn new(inner: SendableRecordBatchStream, slices: bool, context: &TaskContext) -> Self {
        Self {
            inner,
            end: context.session_config().get_extension::<TaskEnd>(),
            running_since: None,
            slices: slices.then(Slices::default),
        }
    }
}

impl Stream for PacedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.end.as_ref().is_some_and(|end| end.is_over()) {
            return Poll::Ready(Some(exec_err!("the query is over")));
        }
        let now = Instant::now();
        if let Some(slices) = &mut this.slices {
            slices.asked_again(now);
        }
        if now.duration_since(*this.running_since.get_or_insert(now)) >= QUANTUM {
            this.running_since = Some(now);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(slices) = &mut this.slices else {
            return this.inner.as_mut().poll_next(cx);
        };
        if slices.rest.is_none() {
            match ready!(this.inner.as_mut().poll_next(cx)) {
                Some(Ok(batch)) => slices.rest = Some(batch),
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(slices.next().map(Ok))
    }
}

impl RecordBatchStream for PacedStream {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

/// Cuts batches into slices that take about [`SLICE`] each, or leaves them whole.
#[derive(Debug)]
struct Slices {
    /// What is left of a batch.
    rest: Option<RecordBatch>,
    /// Rows of the next slice, at most.
    rows: usize,
    /// When the last slice was given, and its rows.
    given: Option<(Instant, usize)>,
}

impl Default for Slices {
    fn default() -> Self {
        Self {
            rest: None,
            rows: FIRST_SLICE,
            given: None,
        }
    }
}

impl Slices {
    /// The consumer is done with the last slice.
    fn asked_again(&mut self, now: Instant) {
        let Some((at, rows)) = self.given.take() else {
            return;
        };
        let took = now.duration_since(at);
        if took > SLICE {
            let share = SLICE.as_secs_f64() / took.as_secs_f64();
            self.rows = ((rows as f64 * share) as usize).max(1);
        } else if took * GROWTH < SLICE {
            self.rows = self.rows.max(rows.saturating_mul(GROWTH as usize));
        }
    }

    fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.rest.take()?;
        let rows = batch.num_rows().min(self.rows);
        self.given = Some((Instant::now(), rows));
        if rows == batch.num_rows() {
            return Some(batch);
        }
        self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        Some(batch.slice(0, rows))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    /// Rows of the slices of a batch whose slices take `time`.
    fn slices(rows: i64, time: impl Fn(usize) -> Duration) -> Vec<usize> {
        let mut slices = Slices {
            rest: Some(batch(rows)),
            ..Slices::default()
        };
        let mut lengths = vec![];
        while let Some(slice) = slices.next() {
            lengths.push(slice.num_rows());
            let (given, rows) = slices.given.unwrap();
            slices.asked_again(given + time(rows));
        }
        lengths
    }

    #[test]
    fn slices_grow_as_long_as_they_are_quick() {
        assert_eq!(
            slices(20_000, |_| Duration::from_micros(10)),
            [1, 8, 64, 512, 4096, 15319]
        );
        assert_eq!(slices(10, |_| Duration::ZERO), [1, 8, 1]);
    }

    #[test]
    fn slices_take_no_longer_than_they_should() {
        let slow = |rows| Duration::from_millis(10 * rows as u64);
        let mut expected = [8; 26];
        (expected[0], expected[25]) = (1, 7);
        assert_eq!(slices(200, slow), expected);
        let slower = |rows| Duration::from_secs(rows as u64);
        assert_eq!(slices(4, slower), [1, 1, 1, 1]);
        let well = |rows| Duration::from_micros(250 * rows as u64);
        assert_eq!(slices(1500, well), [1, 8, 64, 512, 512, 403]);
        let in_the_end_slow = |rows| Duration::from_micros(200 * (rows * rows) as u64);
        assert_eq!(slices(90, in_the_end_slow), [1, 8, 64, 11, 6]);
    }
}
