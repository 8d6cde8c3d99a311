//! Plans and tasks whose operators yield in time: what [`skewer_compat::operators::cooperation`] has to know of
//! Skewer's operators.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use skewer_compat::operators::cooperation::{self, OperatorFacts, Replacement};
use skewer_compat::operators::scheduling::{Cancellation, IsOver, RunningQuery, Scheduler};
use skewer_compat::operators::slices::Target;
use skewer_exec::profiled::replace_operator;
use skewer_exec::{TimedEvaluationExec, is_exchange};
use skewer_net::TaskEnd;
use skewer_optimizer::evaluates_costly;

use crate::stage_boundaries::is_exchange_between_workers;
use crate::workers::PrepareTask;

/// The same plan, whose tasks yield in time and use the processors as `query` may.
///
/// # Errors
/// Those of putting other children into an operator.
pub fn cooperative(
    plan: Arc<dyn ExecutionPlan>,
    query: &Arc<RunningQuery>,
) -> Result<Arc<dyn ExecutionPlan>> {
    cooperation::cooperative(plan, query, &SkewerOperators)
}

/// [`cooperative`] for tasks of queries that another process plans. A task is a query of its own to
/// `scheduler`, and is over when it is told so.
pub fn cooperative_tasks(scheduler: &Arc<Scheduler>) -> PrepareTask {
    let scheduler = Arc::clone(scheduler);
    Arc::new(move |plan| cooperative(plan, &scheduler.query(Cancellation::default())))
}

/// Knows the operators of Skewer's plans.
#[derive(Debug)]
struct SkewerOperators;

impl OperatorFacts for SkewerOperators {
    fn runs_elsewhere(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        is_exchange_between_workers(plan)
    }

    fn is_exchange(&self, plan: &dyn ExecutionPlan) -> bool {
        is_exchange(plan)
    }

    fn slices(&self, plan: &dyn ExecutionPlan, input: &Schema) -> Option<Target> {
        if plan.is::<TimedEvaluationExec>() {
            return Some(Target::Timed);
        }
        evaluates_costly(plan, input).then_some(Target::Function)
    }

    fn replace(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        replacement: Replacement<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        replace_operator(plan, replacement)
    }

    fn end_of_task(&self, context: &TaskContext) -> Option<IsOver> {
        let end = context.session_config().get_extension::<TaskEnd>()?;
        Some(Arc::new(move || end.is_over()))
    }
}
