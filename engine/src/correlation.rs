//! Subqueries that refer to a query further out than the one around them, which the optimizer
//! cannot make joins of.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::error::Error;

/// Says of a plan that could not be optimized whether it is for such a subquery; otherwise `error`
/// says why.
pub(crate) fn explained(plan: &LogicalPlan, error: Error) -> Error {
    match further_out(plan, None) {
        Ok(Some(column)) => Error::Unsupported(format!(
            "a subquery that uses {column} of a query further out than the one around it; write one \
             of them as a join"
        )),
        Ok(None) | Err(_) => error,
    }
}

/// A column that `plan`, a subquery if something is `around` it, has from further out.
fn further_out(plan: &LogicalPlan, around: Option<&[DFSchemaRef]>) -> Result<Option<Column>> {
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::Subquery(_) = node {
            // LATERAL: around it is what stands to its left.
            return Ok(TreeNodeRecursion::Jump);
        }
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                found = match part {
                    Expr::OuterReferenceColumn(_, column) => around
                        .is_some_and(|around| !around.iter().any(|has| has.has_column(column)))
                        .then(|| column.clone()),
                    Expr::Exists(exists) => within(&exists.subquery.subquery, node)?,
                    Expr::InSubquery(within_it) => within(&within_it.subquery.subquery, node)?,
                    Expr::ScalarSubquery(scalar) => within(&scalar.subquery, node)?,
                    Expr::SetComparison(compared) => within(&compared.subquery.subquery, node)?,
                    _ => None,
                };
                Ok(going_on(&found))
            })
        })?;
        Ok(going_on(&found))
    })?;
    Ok(found)
}

/// The same of a subquery in an expression of `node`.
fn within(subquery: &LogicalPlan, node: &LogicalPlan) -> Result<Option<Column>> {
    let inputs = node.inputs().into_iter();
    let around: Vec<DFSchemaRef> = inputs.map(|input| input.schema().clone()).collect();
    further_out(subquery, Some(&around))
}

fn going_on(found: &Option<Column>) -> TreeNodeRecursion {
    match found {
        Some(_) => TreeNodeRecursion::Stop,
        None => TreeNodeRecursion::Continue,
    }
}
