//! Operators that can be cancelled, and that let others run.
//!
//! A task is cancelled, and its thread turns to other queries, only when the task yields.
//! DataFusion's scans yield after 128 batches, which can be minutes: a join compares each batch
//! with all rows of its other input, and returns nothing meanwhile if no pair fulfils its
//! condition; a function may take a second per batch. So scans, and operators that return more
//! rows than they read, yield by the clock ([`QUANTUM`]), and joins, operators that call functions and
//! those that unnest lists get their input in [`Slices`] that take no longer than they should.
//!
//! Where a stream is polled by a task, it is polled when its query may use a processor
//! ([`scheduling`](super::scheduling)).
//!
//! Exchanges and joins are replaced by those that spill here, filters and the first stage of aggregates by faster
//! ones: this sees each plan where it runs.
//!
//! What the program's own operators do, the caller says: [`OperatorFacts`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{JoinSide, Result, exec_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::Stream;

use super::exchange::with_own_exchange;
use super::partial_groups::with_own_partial_groups;
use super::scheduling::{
    IsOver, RunningQuery, ScheduledStream, is_cancelled, poll_time, task_time,
};
use super::selection::with_own_filter;
use super::slices::{Slices, Target};
use super::spilling_join::{self, Pace, SpillingJoinExec};
use crate::pass_through;

/// A task that has run for this long yields. The clock is read once a batch.
const QUANTUM: Duration = Duration::from_millis(10);

/// Another operator in place of an operator.
pub type Replacement<'a> = &'a dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;

/// Knows the operators of a program's plans that are not DataFusion's.
pub trait OperatorFacts: fmt::Debug + Send + Sync {
    /// Whether what is below `plan` runs on other workers, which make it yield when they have it.
    fn runs_elsewhere(&self, plan: &Arc<dyn ExecutionPlan>) -> bool;

    /// Whether `plan` polls its inputs in tasks of their own.
    fn is_exchange(&self, plan: &dyn ExecutionPlan) -> bool;

    /// How `plan` gets batches of an input with schema `input`: in slices, if it evaluates an
    /// expression on them that may take long.
    fn slices(&self, plan: &dyn ExecutionPlan, input: &Schema) -> Option<Target>;

    /// `plan` with another operator in place of its own. An operator that only observes `plan`
    /// then observes the other one.
    ///
    /// # Errors
    /// Those of `replacement`.
    fn replace(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        replacement: Replacement<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>>;

    /// How the task with this context finds out that nobody wants its rows any more; `None` if
    /// only its query can end it.
    fn end_of_task(&self, context: &TaskContext) -> Option<IsOver>;
}

/// The same plan, whose tasks yield in time and use the processors as `query` may, and whose exchanges
/// are [Skewer's own](super::exchange). `facts` knows the operators that are not DataFusion's.
///
/// # Errors
/// Those of putting other children into an operator.
pub fn cooperative(
    plan: Arc<dyn ExecutionPlan>,
    query: &Arc<RunningQuery>,
    facts: &'static dyn OperatorFacts,
) -> Result<Arc<dyn ExecutionPlan>> {
    let tasks = Tasks {
        query: Arc::clone(query),
        facts,
    };
    let plan = yielding(plan, &tasks)?;
    Ok(Arc::new(PacedExec::new(plan, &tasks, None)))
}

/// The tasks of a plan: their query, and what is known of their operators.
#[derive(Debug, Clone)]
struct Tasks {
    query: Arc<RunningQuery>,
    facts: &'static dyn OperatorFacts,
}

/// The same plan, whose operators yield in time.
fn yielding(plan: Arc<dyn ExecutionPlan>, tasks: &Tasks) -> Result<Arc<dyn ExecutionPlan>> {
    let facts = tasks.facts;
    if facts.runs_elsewhere(&plan) {
        return Ok(plan);
    }
    let probe = probe_input(plan.as_ref());
    let children: Vec<_> = plan.children().into_iter().cloned().collect();
    if children.is_empty() {
        return Ok(Arc::new(PacedExec::new(plan, tasks, None)));
    }
    let children = children
        .into_iter()
        .enumerate()
        .map(|(n, child)| {
            let slices = match Some(n) == probe {
                true => Some(Target::Join),
                false => slices_of(plan.as_ref(), &child, facts),
            };
            let child = yielding(child, tasks)?;
            // An exchange polls its inputs in tasks of their own.
            Ok(match slices.is_some() || facts.is_exchange(plan.as_ref()) {
                true => Arc::new(PacedExec::new(child, tasks, slices)) as _,
                false => child,
            })
        })
        .collect::<Result<_>>()?;
    let mut plan = replace_children_if_necessary(plan, children)?;
    if plan.is::<RepartitionExec>() {
        plan = facts.replace(plan, &|exchange| Ok(with_own_exchange(exchange)))?;
    }
    if plan.is::<FilterExec>() {
        plan = facts.replace(plan, &with_own_filter)?;
    }
    if plan.is::<AggregateExec>() {
        plan = facts.replace(plan, &with_own_partial_groups)?;
    }
    if spilling_join::spills(plan.as_ref()) {
        plan = facts.replace(plan, &|join| {
            Ok(Arc::new(SpillingJoinExec::new(join, in_slices(tasks))?))
        })?;
    }
    Ok(match returns_more_than_it_reads(plan.as_ref()) {
        true => Arc::new(PacedExec::new(plan, tasks, None)),
        false => plan,
    })
}

/// Has the stream that a spilling join probes with yield, and cuts its batches into slices.
fn in_slices(tasks: &Tasks) -> Pace {
    let tasks = tasks.clone();
    Arc::new(move |rows, context| {
        let slices = Some(Target::Join);
        Box::pin(PacedStream::new(rows, &tasks, slices, context))
    })
}

/// How `plan` gets the rows of an input that is no join's probe side: in slices, if it evaluates on them
/// what may take long.
fn slices_of(
    plan: &dyn ExecutionPlan,
    input: &Arc<dyn ExecutionPlan>,
    facts: &dyn OperatorFacts,
) -> Option<Target> {
    if plan.is::<UnnestExec>() {
        return Some(Target::Function);
    }
    facts.slices(plan, &input.schema())
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
    tasks: Tasks,
    /// How batches are cut into slices according to the time that they take, if they are.
    slices: Option<Target>,
}

impl PacedExec {
    fn new(inner: Arc<dyn ExecutionPlan>, tasks: &Tasks, slices: Option<Target>) -> Self {
        Self {
            inner,
            tasks: tasks.clone(),
            slices,
        }
    }

    /// The same after a change of its plan node.
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(inner, &self.tasks, self.slices))
    }
}

impl DisplayAs for PacedExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for PacedExec {
    pass_through!(inner);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.inner.execute(partition, Arc::clone(&context))?;
        let paced = PacedStream::new(rows, &self.tasks, self.slices, &context);
        Ok(Box::pin(paced))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }
}

struct PacedStream {
    inner: SendableRecordBatchStream,
    scheduled: ScheduledStream,
    slices: Option<Slices>,
}

impl PacedStream {
    fn new(
        inner: SendableRecordBatchStream,
        tasks: &Tasks,
        slices: Option<Target>,
        context: &TaskContext,
    ) -> Self {
        let is_over = tasks.facts.end_of_task(context);
        Self {
            inner,
            scheduled: ScheduledStream::new(Arc::clone(&tasks.query), is_over),
            slices: slices.map(Slices::new),
        }
    }
}

impl Stream for PacedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self {
            inner,
            scheduled,
            slices,
        } = &mut *self;
        scheduled.poll(cx, |cx| poll_paced(inner, slices.as_mut(), cx))
    }
}

/// Polls `inner`, unless the task has run for long enough or its query is over: then the stream ends with
/// an error that nobody reads.
fn poll_paced(
    inner: &mut SendableRecordBatchStream,
    mut slices: Option<&mut Slices>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<RecordBatch>>> {
    if is_cancelled() {
        return Poll::Ready(Some(exec_err!("the query is over")));
    }
    let now = Instant::now();
    if let Some(slices) = &mut slices {
        slices.asked_again(task_time(now));
    }
    if poll_time(now) >= QUANTUM {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    let Some(slices) = slices else {
        return inner.as_mut().poll_next(cx);
    };
    if slices.is_empty() {
        match ready!(inner.as_mut().poll_next(cx)) {
            Some(Ok(batch)) => slices.take(batch),
            end => return Poll::Ready(end),
        }
    }
    Poll::Ready(slices.next(task_time(Instant::now())).map(Ok))
}

impl RecordBatchStream for PacedStream {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;

    use super::super::scheduling::{Cancellation, Scheduler, inherit_queries};
    use super::*;

    /// Knows no operators but DataFusion's.
    #[derive(Debug)]
    struct Plain;

    impl OperatorFacts for Plain {
        fn runs_elsewhere(&self, _plan: &Arc<dyn ExecutionPlan>) -> bool {
            false
        }

        fn is_exchange(&self, plan: &dyn ExecutionPlan) -> bool {
            plan.is::<RepartitionExec>() || plan.is::<CoalescePartitionsExec>()
        }

        fn slices(&self, _plan: &dyn ExecutionPlan, _input: &Schema) -> Option<Target> {
            None
        }

        fn replace(
            &self,
            plan: Arc<dyn ExecutionPlan>,
            replacement: Replacement<'_>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            replacement(plan)
        }

        fn end_of_task(&self, _context: &TaskContext) -> Option<IsOver> {
            None
        }
    }

    async fn plan(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
        let frame = context.sql(sql).await.unwrap();
        frame.create_physical_plan().await.unwrap()
    }

    /// A join of so many pairs that it takes minutes, and finds none.
    const NO_PAIRS: &str = "SELECT count(*) FROM generate_series(1, 10000000) AS a(x) \
                            JOIN generate_series(1, 100000) AS b(y) ON a.x + b.y < 0";

    #[tokio::test(flavor = "multi_thread")]
    async fn a_join_that_returns_nothing_ends_when_its_query_is_cancelled() {
        inherit_queries();
        let context = SessionContext::new();
        let cancellation = Cancellation::default();
        let query = Scheduler::new(2).query(cancellation.clone());
        let plan = plan(&context, NO_PAIRS).await;
        let plan = cooperative(plan, &query, &Plain).unwrap();
        let running = tokio::spawn(collect(plan, context.task_ctx()));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!running.is_finished());
        let cancelled = Instant::now();
        cancellation.cancel();
        assert!(running.await.unwrap().is_err());
        assert!(cancelled.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_plan_that_yields_looks_and_computes_as_before() {
        inherit_queries();
        let context = SessionContext::new();
        let query = Scheduler::new(2).query(Cancellation::default());
        let plan = plan(
            &context,
            "SELECT a.x FROM generate_series(1, 9) AS a(x) CROSS JOIN generate_series(1, 3) AS b(y)",
        )
        .await;
        let shown = |plan: &Arc<dyn ExecutionPlan>| {
            datafusion::physical_plan::displayable(plan.as_ref())
                .indent(false)
                .to_string()
        };
        let yielding = cooperative(Arc::clone(&plan), &query, &Plain).unwrap();
        assert_eq!(shown(&plan), shown(&yielding));
        let batches = collect(yielding, context.task_ctx()).await.unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 27);
    }
}
