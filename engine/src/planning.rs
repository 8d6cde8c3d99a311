//! From an optimised logical plan to operators.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use skewer_profiling::Recorder;

use crate::cooperation::cooperative;

/// Plans a query whose operators record into `recorder` at its level, and whose tasks can be
/// cancelled.
pub(crate) async fn plan_query(
    optimized: &LogicalPlan,
    state: &SessionState,
    recorder: &Arc<Recorder>,
) -> Result<Arc<dyn ExecutionPlan>> {
    cooperative(skewer_optimizer::plan_query(optimized, state, recorder).await?)
}
