//! Limits that aggregates cannot keep to.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// Takes the limit from aggregates that cannot keep to it any more.
///
/// DataFusion 55.2 tells the aggregate of `SELECT DISTINCT … LIMIT n` to stop after `n` groups. When rows come in an
/// order that a later rule has found, as that of a window's sort, the aggregate looks for the order that groups are
/// to be returned in, and fails: "Ordering direction required" (apache/datafusion issue 25350). The limit above it
/// holds anyway.
#[derive(Debug)]
pub struct GuardedGroupLimits;

impl PhysicalOptimizerRule for GuardedGroupLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let without = |plan: &Arc<dyn ExecutionPlan>| -> Option<Arc<dyn ExecutionPlan>> {
            let aggregate = plan.downcast_ref::<AggregateExec>()?;
            let has_order = aggregate.limit_options()?.descending().is_some();
            let keeps = has_order || aggregate.is_unordered_unfiltered_group_by_distinct();
            match keeps {
                true => None,
                false => Some(Arc::new(aggregate.with_new_limit_options(None))),
            }
        };
        plan.transform_up(|plan| {
            Ok(without(&plan).map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "sound_group_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
