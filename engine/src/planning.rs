//! From an optimised logical plan to operators.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use skewer_cluster::write::SegmentDestination;
use skewer_cluster::{Distributed, PrepareTask, Workers, cooperative, is_exchange_between_workers};
use skewer_compat::functions::guarded::planning;
use skewer_compat::operators::materialized::SharedRowsExec;
use skewer_compat::operators::scheduling::RunningQuery;
use skewer_exec::waits::Waits;
use skewer_optimizer::PlanRequest;
use skewer_optimizer::distribution::Distribution;
use skewer_profiling::{Recorder, SysTables};

use crate::progress::ProgressHandle;

/// Plans a query whose operators record into `recorder` at its level, and whose tasks can be
/// cancelled, share the processors as `query`, and note in `waits` what they do: for several workers if the
/// session is theirs and the query can be distributed. `request` has what else the plan is to have.
pub(crate) async fn plan_query(
    optimized: &LogicalPlan,
    state: &SessionState,
    recorder: &Arc<Recorder>,
    query: &Arc<RunningQuery>,
    waits: &Arc<Waits>,
    request: PlanRequest<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let distributed = Distributed::of_session(state.config());
    let on = distributed.as_ref().map(|on| on as &dyn Distribution);
    let request = PlanRequest {
        distribution: on,
        ..request
    };
    let planned = skewer_optimizer::plan_query_on(optimized, state, recorder, request);
    let mut planned = pin!(planned);
    let plan = poll_fn(|context| planning(|| planned.as_mut().poll(context))).await?;
    let plan = waits.watch(cooperative(plan, query)?, is_exchange_between_workers)?;
    SharedRowsExec::link(&plan)?;
    Ok(plan)
}

/// The session of one query for `workers`, whose tasks `progress` watches and that are tasks of `query`. What they write here
/// goes to `place`, what they read of schema `sys` here is in `sys`.
#[expect(
    clippy::too_many_arguments,
    reason = "they are parts of the database and the statement that have no other common owner"
)]
pub(crate) fn on_workers(
    workers: &Workers,
    mut state: SessionState,
    place: &Arc<SegmentDestination>,
    sys: &Arc<SysTables>,
    store: ObjectStoreUrl,
    recorder: &Arc<Recorder>,
    progress: &ProgressHandle,
    query: &Arc<RunningQuery>,
) -> Result<SessionState> {
    let (progress, query) = (progress.clone(), Arc::clone(query));
    let prepare: PrepareTask = Arc::new(move |plan| {
        let plan = cooperative(plan, &query)?;
        let plan = progress
            .operators()
            .watch(plan, is_exchange_between_workers)?;
        progress.watch_task(&plan);
        Ok(plan)
    });
    state.config_mut().set_extension(Arc::clone(place));
    state.config_mut().set_extension(Arc::clone(sys));
    workers.query(state, store, recorder, prepare)
}
