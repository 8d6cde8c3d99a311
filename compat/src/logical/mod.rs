//! Rewrites of logical plans, before DataFusion's optimizer runs.
//!
//! * [`with_movable_subqueries`]: subqueries in places where DataFusion makes joins of them
//! * [`values_subqueries`], [`order_by_subqueries`], [`join_conditions`]: subqueries in VALUES, in ORDER BY and in
//!   ON of joins
//! * [`scalar_subquery`]: checks of scalar subqueries, and joins in their place
//! * [`decorrelate`]: joins in place of correlated subqueries
//! * [`bag_set_operations`]: INTERSECT ALL and EXCEPT ALL
//! * [`explicit_casts`]: casts between times with and without zone, and of array literals
//! * [`common_subplan`]: the logical node of rows that several places read
//! * [`constant_folding`]: optimization that may call slow functions of constants
//! * [`push_expr_below`]: parts of expressions as columns of the input

pub mod bag_set_operations;
pub mod common_subplan;
pub mod constant_folding;
pub mod decorrelate;
pub mod explicit_casts;
pub mod join_conditions;
pub mod order_by_subqueries;
pub mod push_expr_below;
pub mod scalar_subquery;
pub mod values_subqueries;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::LogicalPlan;

use crate::rules::has_subqueries;

/// `plan`, as SQL was planned, with its subqueries in places and forms of which DataFusion 55.2 makes the right
/// joins.
///
/// # Errors
/// Those of building a plan;
/// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) of conditions of
/// joins that cannot be moved.
pub fn with_movable_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let has_subqueries = plan.exists(has_subqueries)?;
    let is_lateral = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Subquery(_)));
    if !has_subqueries && !plan.exists(is_lateral)? {
        return Ok(plan);
    }
    let plan = decorrelate::without_lone_lateral(plan)?;
    if !has_subqueries {
        return Ok(plan);
    }
    let plan = values_subqueries::with_selected_values(plan)?;
    let plan = order_by_subqueries::with_sorted_columns(plan)?;
    let plan = join_conditions::with_join_conditions(plan)?;
    scalar_subquery::with_values(plan)
}
