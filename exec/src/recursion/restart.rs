//! A recursive query that is run again and again.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};

use super::FirstSeen;

/// A recursive query in the recursive term of another: in each iteration of that one it begins anew, and
/// what [`FirstSeen`] has seen in the iteration before is forgotten.
#[derive(Debug)]
pub struct RestartExec {
    query: Arc<dyn ExecutionPlan>,
}

impl RestartExec {
    /// `plan` with one of these on each recursive query within the recursive term of another.
    ///
    /// # Errors
    /// Those of putting changed children into an operator.
    pub fn on_inner_queries(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_down(|node| {
            let Some(query) = node.downcast_ref::<RecursiveQueryExec>() else {
                return Ok(Transformed::no(node));
            };
            let recursive = Arc::clone(query.recursive_term()).transform_up(|inner| {
                Ok(match inner.is::<RecursiveQueryExec>() {
                    true => Transformed::yes(Arc::new(Self { query: inner }) as _),
                    false => Transformed::no(inner),
                })
            })?;
            if !recursive.transformed {
                return Ok(Transformed::no(node));
            }
            let terms = vec![Arc::clone(query.static_term()), recursive.data];
            let node = replace_children_if_necessary(node, terms)?;
            Ok(Transformed::new(node, true, TreeNodeRecursion::Jump))
        })?;
        Ok(plan.data)
    }
}

/// Forgets what functions in `plan` have seen.
fn forget(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    plan.apply(|node| {
        node.apply_expressions(&mut |expression| {
            expression.apply(|part| {
                let function = part.downcast_ref::<ScalarFunctionExpr>();
                if let Some(seen) =
                    function.and_then(|f| f.fun().inner().downcast_ref::<FirstSeen>())
                {
                    seen.forget();
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

impl DisplayAs for RestartExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => write!(f, "RestartExec"),
        }
    }
}

impl ExecutionPlan for RestartExec {
    fn name(&self) -> &'static str {
        "RestartExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.query.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.query]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([query]) = <[_; 1]>::try_from(children) else {
            return internal_err!("RestartExec has one input");
        };
        Ok(Arc::new(Self { query }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        forget(&self.query)?;
        self.query.execute(partition, context)
    }
}
