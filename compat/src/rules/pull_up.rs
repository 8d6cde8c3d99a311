//! What the conditions of a correlated subquery are not to be pulled out of.
//!
//! To make a join of a correlated subquery, DataFusion 55.2 pulls the conditions on columns of the query
//! around it up, out of all operators above them. Out of some the result is another: a window, a LIMIT,
//! an aggregate that has a row of no rows. Such a subquery is refused here rather than a wrong answer, and
//! becomes a join in another way: see [`dependent_join`](crate::logical::decorrelate).

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinType, Result};
use datafusion::logical_expr::logical_plan::{Distinct, Join};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, LogicalPlan, Operator};

/// The place of a subquery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `EXISTS`.
    Exists,
    /// `IN`, `ANY` and `ALL`.
    In,
    /// One value.
    Scalar,
    /// `CROSS JOIN LATERAL`.
    Lateral,
    /// `LEFT JOIN LATERAL`.
    LateralOrNull,
}

/// Checks a `LATERAL` subquery on the right of `join`, if there is one.
///
/// # Errors
/// See [`check_pull_up`].
pub fn check_lateral(join: &Join) -> Result<()> {
    let mut right = join.right.as_ref();
    while let LogicalPlan::SubqueryAlias(alias) = right {
        right = &alias.input;
    }
    match right {
        LogicalPlan::Subquery(subquery) => {
            let kind = match join.join_type {
                JoinType::Inner => Kind::Lateral,
                _ => Kind::LateralOrNull,
            };
            check_pull_up(&subquery.subquery, kind)
        }
        _ => Ok(()),
    }
}

/// Checks that `plan`, a subquery, returns the same when its conditions on columns of the query around it
/// are pulled out of it.
///
/// # Errors
/// [`DataFusionError::NotImplemented`] if not, which names what they would be pulled out of.
pub fn check_pull_up(plan: &LogicalPlan, kind: Kind) -> Result<()> {
    match is_correlated(plan) {
        true => check(plan, kind, !matches!(kind, Kind::Exists | Kind::In)),
        false => Ok(()),
    }
}

/// Whether `plan` refers to columns of a query around it.
pub fn is_correlated(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// `is_row`: joins know of the row that an aggregate here has of no rows.
fn check(plan: &LogicalPlan, kind: Kind, is_row: bool) -> Result<()> {
    let inputs = plan.inputs();
    let correlated: Vec<_> = inputs.iter().map(|input| is_correlated(input)).collect();
    if !correlated.contains(&true) {
        return Ok(());
    }
    let mut is_row_below = false;
    match plan {
        // The row that is left out becomes one of NULLs.
        LogicalPlan::Filter(_) if kind == Kind::Lateral => {}
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Distinct(Distinct::On(_)) => is_row_below = is_row,
        LogicalPlan::Distinct(Distinct::All(input)) => {
            check_distinct(input, kind)?;
            is_row_below = is_row;
        }
        LogicalPlan::Aggregate(aggregate) => match aggregate.group_expr.as_slice() {
            [] if !is_row => return Err(refused("an aggregate without GROUP BY")),
            [Expr::GroupingSet(_), ..] => {
                return Err(refused("GROUPING SETS, ROLLUP or CUBE"));
            }
            _ if aggregate.aggr_expr.is_empty() => check_distinct(&aggregate.input, kind)?,
            _ => {}
        },
        LogicalPlan::Window(_) => return Err(refused("a window function")),
        LogicalPlan::Limit(_) => return Err(refused("LIMIT or OFFSET")),
        LogicalPlan::Union(_) => return Err(refused("UNION")),
        LogicalPlan::RecursiveQuery(_) => return Err(refused("a recursive query")),
        LogicalPlan::Join(join) => check_join(join, &correlated, kind)?,
        _ => {}
    }
    let mut inputs = inputs.into_iter().zip(correlated);
    inputs.try_for_each(|(input, is_correlated)| match is_correlated {
        true => check(input, kind, is_row_below),
        false => Ok(()),
    })
}

/// The columns of conditions become keys of the groups of distinct rows of `input`, of which several may
/// fulfil a condition that is no `=`.
fn check_distinct(input: &LogicalPlan, kind: Kind) -> Result<()> {
    let are_rows_wanted = matches!(kind, Kind::Lateral | Kind::LateralOrNull);
    match are_rows_wanted && !is_by_equality(input)? {
        true => Err(refused("DISTINCT or GROUP BY")),
        false => Ok(()),
    }
}

fn check_join(join: &Join, correlated: &[bool], kind: Kind) -> Result<()> {
    let [left, right] = [0, 1].map(|side| correlated.get(side) == Some(&true));
    let is_padded = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => right,
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => left,
        JoinType::Full => true,
    };
    if is_padded {
        return Err(refused("an outer join"));
    }
    // Of EXISTS, limits that come after such conditions are left out.
    let is_limited = || {
        join.right
            .exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))
    };
    if kind == Kind::Exists && left && is_limited()? {
        return Err(refused("a join with LIMIT"));
    }
    Ok(())
}

/// Whether all conditions on columns of the query around `plan` are that its own columns equal them.
///
/// # Errors
/// None of its own.
pub fn is_by_equality(plan: &LogicalPlan) -> Result<bool> {
    let mut is_by_equality = true;
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            let mut conditions = split_conjunction(&filter.predicate).into_iter();
            is_by_equality &= conditions.all(|part| !part.contains_outer() || is_equality(part));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_by_equality)
}

fn is_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = condition
    else {
        return false;
    };
    let is_column = |side: &Expr| match side {
        Expr::Cast(Cast { expr, .. }) => matches!(expr.as_ref(), Expr::Column(_)),
        side => matches!(side, Expr::Column(_)),
    };
    is_column(left) && !right.any_column_refs() || is_column(right) && !left.any_column_refs()
}

fn refused(operator: &str) -> DataFusionError {
    DataFusionError::NotImplemented(format!(
        "a subquery with {operator} above a condition on a column of the query around it; write it as a \
         join"
    ))
}
