//! Subqueries that refer to a query further out than the one around them.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, Result, SchemaError};
use datafusion::logical_expr::{Expr, LogicalPlan};
use skewer_optimizer::subquery_of;

use crate::error::Error;

/// What to say if `plan` cannot be optimized, or not be turned into operators. All names in a plan are
/// known; one that is not found then is that of a column that cannot be brought from so far out.
pub(crate) fn explained(plan: &LogicalPlan, error: DataFusionError) -> Error {
    let DataFusionError::SchemaError(schema_error, _) = error.find_root() else {
        return error.into();
    };
    let SchemaError::FieldNotFound { field, .. } = schema_error.as_ref() else {
        return error.into();
    };
    let is_further_out = further_out(plan).is_ok_and(|columns| columns.contains(field));
    if !is_further_out {
        return error.into();
    }
    Error::Unsupported(format!(
        "a subquery that refers to {field}, a column of a query further out than the one around it; \
         write it as a join"
    ))
}

/// The columns that subqueries refer to and the query around them does not have.
fn further_out(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    plan.apply_with_subqueries(|node| {
        let inputs = node.inputs();
        let is_near = |column: &Column| {
            let mut schemas = inputs.iter().map(|input| input.schema());
            schemas.any(|schema| schema.has_column(column))
        };
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                let outer = subquery_of(part).map(|subquery| &subquery.outer_ref_columns);
                for reference in outer.into_iter().flatten() {
                    if let Expr::OuterReferenceColumn(_, column) = reference
                        && !is_near(column)
                    {
                        columns.push(column.clone());
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(columns)
}
