//! Plans that run on several workers.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;

use crate::instrument::StageBoundaries;

/// Who makes distributed plans of plans.
#[async_trait]
pub trait Distribution: fmt::Debug + Send + Sync {
    /// `plan` cut into parts that workers run; `None` if it runs as it is.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        state: &SessionState,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>>;

    /// Whether such plans write their rows where they are made rather than return them.
    fn writes(&self, state: &SessionState) -> bool;

    /// Where such plans are cut.
    fn boundaries(&self) -> &dyn StageBoundaries;

    /// `plan`, whose operators have their numbers now, is going to be executed.
    fn numbered(&self, plan: &Arc<dyn ExecutionPlan>, state: &SessionState);

    /// Such a plan as text, for EXPLAIN.
    fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<String>;
}
