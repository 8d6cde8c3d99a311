//! Operators that a rule is not to see through.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Runs `rule` while nothing is pushed below the operators for which `names` has an answer, but filters
/// that refer to none of these columns.
pub fn optimize_guarded(
    rule: &dyn PhysicalOptimizerRule,
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
    names: impl Fn(&Arc<dyn ExecutionPlan>) -> Option<HashSet<String>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let guarded = plan.transform_up(|plan| {
        Ok(match names(&plan) {
            Some(names) => Transformed::yes(Arc::new(Guard { input: plan, names }) as _),
            None => Transformed::no(plan),
        })
    })?;
    optimize(rule, guarded, config)
}

/// Runs `rule` while nothing is known of the inputs of those operators for which `hides` says so.
pub fn optimize_without_inputs(
    rule: &dyn PhysicalOptimizerRule,
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
    hides: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<bool>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let guarded = plan.transform_up(|plan| match hides(&plan)? {
        true => with_guarded_inputs(plan, |_| HashSet::new()),
        false => Ok(Transformed::no(plan)),
    })?;
    optimize(rule, guarded, config)
}

/// Runs `rule` while filters that refer to `above` of an operator do not pass it, and no filter of an operator for
/// which `keeps` says so reaches its inputs.
pub fn optimize_with_filters_kept(
    rule: &dyn PhysicalOptimizerRule,
    plan: Arc<dyn ExecutionPlan>,
    config: &ConfigOptions,
    above: impl Fn(&Arc<dyn ExecutionPlan>) -> Option<HashSet<String>>,
    keeps: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let columns = |input: &Arc<dyn ExecutionPlan>| -> HashSet<String> {
        let schema = input.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        names.collect()
    };
    let guarded = plan.transform_up(|plan| {
        let names = above(&plan);
        let plan = match keeps(&plan) {
            true => with_guarded_inputs(plan, columns)?,
            false => Transformed::no(plan),
        };
        Ok(match names {
            Some(names) => Transformed::yes(Arc::new(Guard {
                input: plan.data,
                names,
            }) as _),
            None => plan,
        })
    })?;
    optimize(rule, guarded, config)
}

fn with_guarded_inputs(
    plan: Arc<dyn ExecutionPlan>,
    names: impl Fn(&Arc<dyn ExecutionPlan>) -> HashSet<String>,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let inputs = plan.children().into_iter().map(|input| {
        Arc::new(Guard {
            names: names(input),
            input: Arc::clone(input),
        }) as _
    });
    let inputs = inputs.collect();
    replace_children_if_necessary(plan, inputs).map(Transformed::yes)
}

/// Runs `rule` and takes the guards away.
fn optimize(
    rule: &dyn PhysicalOptimizerRule,
    guarded: Transformed<Arc<dyn ExecutionPlan>>,
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = rule.optimize(guarded.data, config)?;
    if !guarded.transformed {
        return Ok(optimized);
    }
    let input = |plan: &Arc<dyn ExecutionPlan>| {
        let guard = plan.downcast_ref::<Guard>()?;
        Some(Arc::clone(&guard.input))
    };
    optimized
        .transform_up(|plan| {
            Ok(input(&plan).map_or_else(|| Transformed::no(plan), Transformed::yes))
        })
        .data()
}

/// On top of an operator while a rule runs: lets filters through that refer to none of `names`, and
/// neither projections nor sorts. Nothing is known of its rows.
#[derive(Debug)]
struct Guard {
    input: Arc<dyn ExecutionPlan>,
    names: HashSet<String>,
}

impl DisplayAs for Guard {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.name())
    }
}

impl ExecutionPlan for Guard {
    fn name(&self) -> &str {
        "Guard"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    // No sort is pushed below it, and no exchange is put below it.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("Guard has one input");
        };
        let names = self.names.clone();
        Ok(Arc::new(Self { input, names }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let schema = self.input.schema();
        let columns = schema.fields().iter().enumerate();
        let unambiguous = columns.filter(|(_, field)| !self.names.contains(field.name()));
        let filters = ChildFilterDescription::from_child_with_allowed_indices(
            &parent_filters,
            unambiguous.map(|(place, _)| place).collect(),
            &self.input,
        )?;
        Ok(FilterDescription::new().with_child(filters))
    }
}
