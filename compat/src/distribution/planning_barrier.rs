//! Operators that `datafusion-distributed` must not cut off.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, replace_children_if_necessary};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Stands for an operator while a plan is cut: below a hash repartition, or the side of a join that
/// is collected, there would otherwise be an exchange between workers. It is
/// [taken away](without_barriers) before anyone executes the plan.
#[derive(Debug)]
pub struct BarrierExec {
    inner: Arc<dyn ExecutionPlan>,
}

impl BarrierExec {
    /// Hides `inner`.
    pub fn wrap(inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { inner })
    }
}

/// `plan` with its operators as they are.
///
/// # Errors
/// Those of putting an operator on other inputs.
pub fn without_barriers(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<BarrierExec>() {
            Some(barrier) => Transformed::yes(Arc::clone(&barrier.inner)),
            None => Transformed::no(node),
        })
    })?;
    Ok(plan.data)
}

impl DisplayAs for BarrierExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "BarrierExec: ")?;
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for BarrierExec {
    fn name(&self) -> &'static str {
        "BarrierExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = replace_children_if_necessary(Arc::clone(&self.inner), children)?;
        Ok(Self::wrap(inner))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a plan is executed that has not been cut to its end")
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner.cardinality_effect()
    }
}
