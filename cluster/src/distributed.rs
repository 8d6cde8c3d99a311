//! From a physical plan to a distributed one.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{DistributedExec, SessionStateBuilderExt};
use skewer_compat::rules::with_unordered_exchanges;
use skewer_optimizer::distribution::Distribution;
use skewer_optimizer::instrument::StageBoundaries;

use crate::distributability::{NotDistributable, can_be_cut, can_be_sent};
use crate::explain;
use crate::placement::Placement;
use crate::stage_boundaries::DistributedBoundaries;
use crate::task::WorkerTask;
use crate::workers::Probe;
use crate::write::Writing;
use skewer_compat::distribution::planning_barrier::without_barriers;
use skewer_compat::distribution::window_order::{sorted_by_name, windows_know_their_order};

/// Distributes the plans of a session made by [`Workers::query`](crate::Workers::query).
#[derive(Debug, Clone)]
pub struct Distributed {
    /// The numbers of the workers, in the order of their tasks.
    numbers: Vec<u32>,
}

impl Distributed {
    /// For the plans of a session; `None` if it has no workers.
    pub fn of_session(config: &SessionConfig) -> Option<Self> {
        let placement = Placement::of_session(config)?;
        let workers = placement.workers().list().iter();
        Some(Self {
            numbers: workers.map(|worker| worker.number).collect(),
        })
    }
}

#[async_trait]
impl Distribution for Distributed {
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        state: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(placement) = Placement::of_session(state.config()) else {
            return Ok(None);
        };
        match cut_for(plan, state, &placement).await {
            Ok(cut) => Ok(Some(cut)),
            Err(stays) => {
                tracing::debug!("a query runs on one worker: {stays}");
                Ok(None)
            }
        }
    }

    fn writes(&self, state: &SessionState) -> bool {
        Writing::of_session(state.config()).is_some()
    }

    fn boundaries(&self) -> &dyn StageBoundaries {
        &DistributedBoundaries
    }

    fn numbered(&self, plan: &Arc<dyn ExecutionPlan>, state: &SessionState) {
        if let Some(place) = WorkerTask::of_session(state.config()) {
            place.register_exchanges(plan);
        }
    }

    fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<String> {
        explain::as_text(plan, &self.numbers)
    }
}

/// The plan as workers run it; why not, if they cannot.
async fn cut_for(
    plan: &Arc<dyn ExecutionPlan>,
    state: &SessionState,
    placement: &Placement,
) -> Result<Arc<dyn ExecutionPlan>, NotDistributable> {
    let refused = |error| NotDistributable::refused(&error);
    if let Some(analyze) = plan.downcast_ref::<AnalyzeExec>() {
        // Around a plan that is cut, it shows the metrics of all tasks.
        let input = Box::pin(cut_for(analyze.input(), state, placement)).await?;
        let around = replace_children_if_necessary(Arc::clone(plan), vec![input]);
        return cut_at_exchanges(&around.map_err(refused)?, state)
            .await
            .map_err(refused);
    }
    let unordered = with_unordered_exchanges(Arc::clone(plan), state.config_options());
    let plan = &sorted_by_name(&unordered.map_err(refused)?).map_err(refused)?;
    can_be_cut(plan, placement.store())?;
    let writing = Writing::of_session(state.config());
    let plan = match &writing {
        Some(writing) => &placement.written(plan, writing, state).map_err(refused)?,
        None => plan,
    };
    let cut = match cut_where_rows_meet(plan, state, placement).await {
        Ok(Some(cut)) => cut,
        Ok(None) => {
            let cut = cut_at_exchanges(plan, state).await.map_err(refused)?;
            match placement.with_scans_apart(plan).map_err(refused)? {
                Some(apart) => cut_at_exchanges(&apart, state).await.map_err(refused)?,
                None => cut,
            }
        }
        Err(error) => return Err(refused(error)),
    };
    if !cut.is::<DistributedExec>() {
        return Err(NotDistributable::NoExchange);
    }
    if !windows_know_their_order(&cut).map_err(refused)? {
        return Err(NotDistributable::Operator(
            "a window over what is equal".to_owned(),
        ));
    }
    can_be_sent(&cut, &Probe::context(state))?;
    if let Some(writing) = writing {
        writing.planned();
    }
    Ok(cut)
}

/// The same where some rows are on one worker already that would be sent to each other. `None` if
/// none are, or if one task reads all of them, which is better done close to the scans.
async fn cut_where_rows_meet(
    plan: &Arc<dyn ExecutionPlan>,
    state: &SessionState,
    placement: &Placement,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(hidden) = placement.without_needless_exchanges(plan)? else {
        return Ok(None);
    };
    let cut = cut_at_exchanges(&hidden, state).await?;
    if !placement.has_none_alone() || !cut.is::<DistributedExec>() {
        return Ok(None);
    }
    without_barriers(cut).map(Some)
}

/// What `datafusion-distributed` makes of a plan.
pub(crate) async fn cut_at_exchanges(
    plan: &Arc<dyn ExecutionPlan>,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = SessionStateBuilder::new()
        .with_query_planner(Arc::new(Planned(Arc::clone(plan))))
        .with_distributed_planner()
        .build();
    let planner = planner.query_planner();
    planner
        .create_physical_plan(&LogicalPlan::default(), state)
        .await
}

/// A planner for a plan that is there already: `datafusion-distributed` cuts what its
/// predecessor has planned.
struct Planned(Arc<dyn ExecutionPlan>);

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planned")
    }
}

#[async_trait]
impl QueryPlanner for Planned {
    async fn create_physical_plan(
        &self,
        _: &LogicalPlan,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::clone(&self.0))
    }
}
