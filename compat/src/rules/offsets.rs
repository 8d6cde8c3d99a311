//! Sorts above OFFSET and above groups.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::guard::optimize_guarded;

/// DataFusion's rule that adds sorts and exchanges and takes away those that are not needed.
///
/// DataFusion 55.2 pushes a sort below `LIMIT n OFFSET m` and has it return `n` rows, of which `m` are
/// then skipped (apache/datafusion pull request 24958). Such sorts stay above it.
///
/// It also pushes the first rows of a sort below the second step of an aggregate whose groups come in that order.
/// There a group has several rows yet, and groups are lost: `SELECT DISTINCT x … ORDER BY x LIMIT 3` returned two of
/// three (apache/datafusion issue 24927). Such sorts stay above, too.
#[derive(Debug)]
pub struct GuardedSorts(pub EnsureRequirements);

impl PhysicalOptimizerRule for GuardedSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let takes_first = plan.exists(|plan| Ok(plan.fetch().is_some()))?;
        let keeps = |plan: &Arc<dyn ExecutionPlan>| {
            let skips = plan
                .downcast_ref::<GlobalLimitExec>()
                .is_some_and(|limit| limit.skip() > 0);
            (skips || takes_first && has_ordered_groups(plan)).then(HashSet::new)
        };
        optimize_guarded(&self.0, plan, config, keeps)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether `plan` makes groups of rows that are in some order.
fn has_ordered_groups(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<AggregateExec>()
        .is_some_and(|aggregate| {
            let is_partial = matches!(
                aggregate.mode(),
                AggregateMode::Partial | AggregateMode::PartialReduce
            );
            !is_partial
                && !aggregate.group_expr().is_empty()
                && aggregate.input().output_ordering().is_some()
        })
}
