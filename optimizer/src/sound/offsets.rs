//! Sorts above OFFSET.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;

use super::guard::optimize_guarded;

/// DataFusion's rule that adds sorts and exchanges and takes away those that are not needed.
///
/// DataFusion 55.2 pushes a sort below `LIMIT n OFFSET m` and has it return `n` rows, of which `m` are
/// then skipped (apache/datafusion pull request 24958). Such sorts stay above it.
#[derive(Debug)]
pub struct SoundSorts(pub EnsureRequirements);

impl PhysicalOptimizerRule for SoundSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let skips = |plan: &Arc<dyn ExecutionPlan>| {
            let limit = plan.downcast_ref::<GlobalLimitExec>()?;
            (limit.skip() > 0).then(HashSet::new)
        };
        optimize_guarded(&self.0, plan, config, skips)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}
