//! DataFusion's rules for physical plans, without what they conclude of the rows of several sets of
//! keys: see [`MixedGroupsExec`].

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use skewer_exec::MixedGroupsExec;

/// DataFusion's rules for physical plans, after one that hides from them what is not so above GROUPING
/// SETS, ROLLUP and CUBE.
pub fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    rules.insert(0, Arc::new(HideMixedGroups));
    rules
}

#[derive(Debug)]
struct HideMixedGroups;

impl PhysicalOptimizerRule for HideMixedGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
                return Ok(Transformed::no(plan));
            };
            let mixes = aggregate.group_expr().has_grouping_set()
                && aggregate.mode().input_mode() == AggregateInputMode::Raw;
            match mixes {
                true => Ok(Transformed::yes(Arc::new(MixedGroupsExec::new(plan)))),
                false => Ok(Transformed::no(plan)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "hide_mixed_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
