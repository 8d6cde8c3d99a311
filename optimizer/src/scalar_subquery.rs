//! Scalar subqueries as joins: so workers can run them, and lineage sees them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, Subquery};
use skewer_exec::SingleValue;

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

fn has_scalar_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.exists(|e| Ok(matches!(e, Expr::ScalarSubquery(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
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
                    Ok(Transformed::yes(Expr::ScalarSubquery(single(subquery)?)))
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

fn single(subquery: Subquery) -> Result<Subquery> {
    let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
    let column = Expr::from((qualifier, field));
    let name = field.name().clone();
    let value = AggregateFunction::new_udf(
        Arc::new(AggregateUDF::from(SingleValue::default())),
        vec![column],
        false,
        None,
        vec![],
        None,
    );
    let value = Expr::AggregateFunction(value).alias(name);
    let aggregate = Aggregate::try_new(Arc::clone(&subquery.subquery), vec![], vec![value])?;
    Ok(subquery.with_plan(Arc::new(LogicalPlan::Aggregate(aggregate))))
}
