//! Rules for physical plans, without what they conclude wrongly of the order and the constants of rows:
//! see [`ConservativePropertiesExec`].

use std::sync::Arc;

use crate::operators::conservative_properties::{
    ConservativePropertiesExec, claims_too_much, is_join,
};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, displayable,
};

use super::offsets::GuardedSorts;

/// Puts a [`ConservativePropertiesExec`] on top of aggregates over several sets of keys.
#[derive(Debug)]
pub struct GuardedGroups;

impl PhysicalOptimizerRule for GuardedGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mixes = |plan: &Arc<dyn ExecutionPlan>| {
            plan.downcast_ref::<AggregateExec>()
                .is_some_and(|aggregate| {
                    claims_too_much(plan)
                        && aggregate.mode().input_mode() == AggregateInputMode::Raw
                })
        };
        cover(plan, mixes)
    }

    fn name(&self) -> &str {
        "sound_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rule that adds sorts and exchanges and takes away those that are not needed, run again with a
/// [`ConservativePropertiesExec`] on top of joins where its conclusions may be wrong. What is
/// wrong shows only in a plan that has its sorts: so it is run first, and most plans stay as they are.
#[derive(Debug)]
pub struct GuardedRequirements(pub GuardedSorts);

impl PhysicalOptimizerRule for GuardedRequirements {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let concluded = self.0.optimize(Arc::clone(&plan), config)?;
        if !concluded.exists(|plan| Ok(is_join(plan) && claims_too_much(plan)))? {
            return Ok(concluded);
        }
        let guarded = self.0.optimize(cover(plan, is_join)?, config)?;
        match is_same(&guarded, &concluded) {
            true => Ok(concluded),
            false => uncover(guarded),
        }
    }

    fn name(&self) -> &str {
        "sound_requirements"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// DataFusion's check that each operator gets its rows as it needs them. It refuses plans of which that
/// can no more be seen, because rules have changed what shows it: equal columns, and constants, that came
/// from below. Such plans get their sorts again, of the rows of joins and unions, so that it is seen.
#[derive(Debug)]
pub struct GuardedPlanCheck(pub SanityCheckPlan);

impl PhysicalOptimizerRule for GuardedPlanCheck {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Ok(plan) = self.0.optimize(Arc::clone(&plan), config) {
            return Ok(plan);
        }
        let plan = cover(plan, |plan| is_join(plan) || plan.is::<UnionExec>())?;
        self.0.optimize(sorted_again(plan, config)?, config)
    }

    fn name(&self) -> &str {
        "sound_plan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `plan` as it returns the same where rows lose their order between hash partitions, as they do between
/// workers. Whatever needs it sorts them.
///
/// # Errors
/// Those of the rule that adds sorts.
pub fn with_unordered_exchanges(
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let claims_order = |plan: &Arc<dyn ExecutionPlan>| {
        plan.downcast_ref::<RepartitionExec>()
            .is_some_and(|exchange| {
                matches!(exchange.partitioning(), Partitioning::Hash(..))
                    && plan.output_ordering().is_some()
            })
    };
    if !plan.exists(|plan| Ok(claims_order(plan)))? {
        return Ok(plan);
    }
    sorted_again(cover(plan, claims_order)?, config)
}

/// `plan` with all sorts that it needs. What it returns is in the order that it has now.
fn sorted_again(
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let steps: [&dyn PhysicalOptimizerRule; 3] = [
        &OutputRequirements::new_add_mode(),
        &GuardedSorts(EnsureRequirements::new()),
        &OutputRequirements::new_remove_mode(),
    ];
    steps
        .into_iter()
        .try_fold(plan, |plan, step| step.optimize(plan, config))
}

/// Puts a [`ConservativePropertiesExec`] on top of the operators that `which` names.
fn cover(
    plan: Arc<dyn ExecutionPlan>,
    which: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        Ok(match which(&plan) {
            true => Transformed::yes(Arc::new(ConservativePropertiesExec::new(plan)) as _),
            false => Transformed::no(plan),
        })
    })
    .data()
}

/// Takes it from joins of which nothing wrong can be concluded.
fn uncover(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let input = covered_join(&plan).filter(|join| !claims_too_much(join));
        Ok(match input.cloned() {
            Some(join) => Transformed::yes(join),
            None => Transformed::no(plan),
        })
    })
    .data()
}

fn covered_join(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    let input = plan.downcast_ref::<ConservativePropertiesExec>()?.input();
    is_join(input).then_some(input)
}

/// Whether `guarded`, without what covers its joins, is `concluded`.
fn is_same(guarded: &Arc<dyn ExecutionPlan>, concluded: &Arc<dyn ExecutionPlan>) -> bool {
    let guarded = covered_join(guarded).unwrap_or(guarded);
    let line = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).one_line().to_string();
    let (guarded_inputs, inputs) = (guarded.children(), concluded.children());
    guarded_inputs.len() == inputs.len()
        && line(guarded) == line(concluded)
        && guarded_inputs
            .into_iter()
            .zip(inputs)
            .all(|(guarded, concluded)| is_same(guarded, concluded))
}
