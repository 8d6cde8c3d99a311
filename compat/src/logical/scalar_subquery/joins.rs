//! Scalar subqueries as joins: so workers can run them, and lineage sees them.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

use super::{has_scalar_subqueries, single};

/// Optimizes `plan`, and has the optimizer make joins of scalar subqueries without correlation, as it
/// does of correlated ones, in place of an operator that evaluates them first. Where it cannot, as in
/// conditions of joins, that operator remains, for all of them.
///
/// # Errors
/// Those of optimizing a plan.
pub fn optimize_with_joins(plan: &LogicalPlan, state: &mut SessionState) -> Result<LogicalPlan> {
    if !has_scalar_subqueries(plan)? {
        return state.optimize(plan);
    }
    set_evaluated_first(state, false);
    let optimized = state.optimize(&with_single_values(plan.clone())?)?;
    if !has_scalar_subqueries(&optimized)? {
        return Ok(optimized);
    }
    set_evaluated_first(state, true);
    state.optimize(plan)
}

fn set_evaluated_first(state: &mut SessionState, is_evaluated_first: bool) {
    let options = &mut state.config_mut().options_mut().optimizer;
    options.enable_physical_uncorrelated_scalar_subquery = is_evaluated_first;
}

/// Makes sure that a scalar subquery that may have several rows, and has, is an error, as it is for
/// the operator: the optimizer's join would return each row of the query once for each of them.
fn with_single_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform_up(|expression| match expression {
                Expr::ScalarSubquery(subquery) if may_have_several_rows(&subquery) => {
                    Ok(Transformed::yes(Expr::ScalarSubquery(single(&subquery)?)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })?;
    Ok(rewritten.data)
}

fn may_have_several_rows(subquery: &Subquery) -> bool {
    subquery.outer_ref_columns.is_empty()
        && subquery.subquery.max_rows().is_none_or(|rows| rows > 1)
}
