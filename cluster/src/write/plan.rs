//! Plans of statements that write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::NetworkBoundaryExt;
use skewer_exec::NumberedExec;
use skewer_storage::MASTER;
use url::Url;

use super::apply::{ApplyChangesExec, Changes};
use super::entry::EntryExec;
use super::place::{Entered, SegmentPlace};
use super::route::RouteExec;
use super::segments::{RowsHave, WriteSegmentsExec};
use super::target::Target;
use crate::distributed::cut_at_exchanges;
use crate::workers::Workers;

/// Asks for the rows of a query to be written by those that make them: an extension of the
/// session that the query is planned in.
#[derive(Debug)]
pub struct Writing {
    target: Arc<Target>,
    is_planned: AtomicBool,
}

impl Writing {
    /// The query's rows go into `target`.
    pub fn new(target: Arc<Target>) -> Arc<Self> {
        Arc::new(Self {
            target,
            is_planned: AtomicBool::new(false),
        })
    }

    /// Whether the query's plan returns [descriptions](super::descriptions) of what it wrote
    /// rather than its rows. A query that stays in one place does not write.
    pub fn is_planned(&self) -> bool {
        self.is_planned.load(Ordering::Acquire)
    }

    pub(crate) fn planned(&self) {
        self.is_planned.store(true, Ordering::Release);
    }

    pub(crate) fn of(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }
}

/// `plan`, and then its rows are written.
pub(crate) fn wrap(
    plan: Arc<dyn ExecutionPlan>,
    writing: &Writing,
    workers: &Workers,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let target = &writing.target;
    let all_write = workers
        .list()
        .iter()
        .all(|worker| target.writers.contains(&worker.number));
    let is_divided = plan.output_partitioning().partition_count() > 1;
    if all_write && is_divided && target.keys.is_empty() {
        let written = WriteSegmentsExec::new(plan, Arc::clone(target), RowsHave::Columns);
        return Ok(Arc::new(CoalescePartitionsExec::new(Arc::new(written))));
    }
    routed(plan, target, false, partitions)
}

fn routed(
    rows: Arc<dyn ExecutionPlan>,
    target: &Arc<Target>,
    has_ids: bool,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let route = RouteExec::new(rows, Arc::clone(target), has_ids, partitions);
    let by_route = Partitioning::Hash(vec![route.route()], partitions);
    let sent = RepartitionExec::try_new(Arc::new(route), by_route)?;
    let written = WriteSegmentsExec::new(Arc::new(sent), Arc::clone(target), RowsHave::Routes);
    Ok(Arc::new(CoalescePartitionsExec::new(Arc::new(written))))
}

/// Writes `rows`, which have the table's columns and their ids and enter here, in a session made
/// by [`Workers::query`]. The plan gives descriptions of the segments; rows enter as long as the
/// second part of the result is there.
///
/// # Errors
/// Those of planning.
pub async fn entered(
    rows: SendableRecordBatchStream,
    target: &Arc<Target>,
    state: &SessionState,
) -> Result<(Arc<dyn ExecutionPlan>, Entered)> {
    let place = SegmentPlace::of(state.config())?;
    let schema = rows.schema();
    let entered = place.enter(rows);
    let entry = Arc::new(EntryExec::new(entered.number(), schema));
    // One stream feeds them.
    let plan = routed(entry, target, true, 1)?;
    Ok((cut_at_exchanges(&plan, state).await?, entered))
}

/// Writes the rows of `scan`, which have their ids, anew where they are, with `changes`, in a
/// session made by [`Workers::query`]. Gives descriptions of the segments.
///
/// # Errors
/// Those of planning.
pub async fn rewritten(
    scan: Arc<dyn ExecutionPlan>,
    changes: Changes,
    target: &Arc<Target>,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = ApplyChangesExec::new(scan, Arc::new(changes));
    let written = WriteSegmentsExec::new(Arc::new(changed), Arc::clone(target), RowsHave::Ids);
    let plan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(Arc::new(written)));
    cut_at_exchanges(&plan, state).await
}

/// How many tasks an operator that writes wants.
pub(crate) fn tasks_of(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let segments = plan.downcast_ref::<WriteSegmentsExec>()?;
    (segments.have() == RowsHave::Routes).then(|| segments.target().tasks())
}

/// Who runs the tasks of the stage that `plan` is the head of, if it is not all workers in their
/// order: who writes, and where rows enter.
pub(crate) fn routes_to(
    plan: &Arc<dyn ExecutionPlan>,
    tasks: usize,
    workers: &Workers,
) -> Result<Option<Vec<Url>>> {
    let url_of = |number: u32| match workers.list().iter().find(|w| w.number == number) {
        Some(worker) => Ok(worker.url.clone()),
        None => exec_err!("worker {number} takes no part in the query"),
    };
    let plan = inner(plan);
    if tasks_of(plan).is_some() {
        let Some(segments) = plan.downcast_ref::<WriteSegmentsExec>() else {
            return internal_err!("{} writes no segments", plan.name());
        };
        let writers = segments.target().writers.iter().cycle().take(tasks);
        return writers
            .map(|number| url_of(*number))
            .collect::<Result<_>>()
            .map(Some);
    }
    if has_entry(plan) {
        return Ok(Some(vec![url_of(MASTER)?]));
    }
    Ok(None)
}

fn inner(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<NumberedExec>() {
        Some(numbered) => inner(&numbered.observed().inner),
        None => plan,
    }
}

/// Whether rows enter in a stage.
fn has_entry(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let plan = inner(plan);
    if plan.is_network_boundary() {
        return false;
    }
    plan.is::<EntryExec>() || plan.children().into_iter().any(has_entry)
}
