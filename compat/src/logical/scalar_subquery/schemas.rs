//! Schemas of plans whose expressions have become nullable.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchemaRef, ExprSchema, Result};
use datafusion::logical_expr::logical_plan::Union;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// `plan` with schemas that say what may be NULL in it. Its subqueries are in queries whose columns are
/// `around`, the innermost last.
///
/// # Errors
/// Those of building a plan.
pub fn with_schemas(plan: LogicalPlan, around: &[DFSchemaRef]) -> Result<LogicalPlan> {
    let is_join = matches!(plan, LogicalPlan::Join(_));
    let mut scopes = around.to_vec();
    let plan = plan.map_children(|input| {
        let input = with_schemas(input, &scopes)?;
        // A LATERAL subquery on the right refers to it.
        if is_join {
            scopes.push(Arc::clone(input.schema()));
        }
        Ok(Transformed::yes(input))
    })?;
    let plan = plan.data.map_expressions(|expression| {
        expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => {
                let schema = around
                    .iter()
                    .rev()
                    .find(|schema| schema.has_column(&column));
                let field = match schema {
                    Some(schema) => Arc::clone(schema.field_from_column(&column)?),
                    None => field,
                };
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })
    })?;
    let mut scopes = around.to_vec();
    scopes.push(Arc::new(merge_schema(&plan.data.inputs())));
    let plan = plan.data.map_subqueries(|subquery| {
        let subquery = with_schemas(subquery, &scopes)?;
        Ok(Transformed::yes(subquery))
    })?;
    match plan.data {
        // Otherwise its schema stays as it is.
        LogicalPlan::Union(union) => {
            let union = Union::try_new_with_loose_types(union.inputs)?;
            Ok(LogicalPlan::Union(union))
        }
        plan => plan.recompute_schema(),
    }
}
