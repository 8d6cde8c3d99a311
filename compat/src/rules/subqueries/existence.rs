//! `EXISTS`, and subqueries that are one value.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::logical_plan::Distinct;
use datafusion::logical_expr::{
    Expr, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, Subquery, lit, not, when,
};

use super::only_row::only_row;
use super::subquery;
use crate::rules::pull_up::{Kind, check_pull_up};

/// One value. Of HAVING, DataFusion does not always know that what it leaves out is NULL then.
pub(super) fn value(original: Subquery) -> Result<Transformed<Expr>> {
    let is_correlated = !original.outer_ref_columns.is_empty();
    if is_correlated
        && let Some(row) = only_row(&original.subquery, &original)?
        && let Some(exists) = row.exists
    {
        let value = Expr::ScalarSubquery(subquery(row.plan, &original));
        return Ok(Transformed::yes(when(exists, value).end()?));
    }
    check_pull_up(&original.subquery, Kind::Scalar)?;
    Ok(Transformed::no(Expr::ScalarSubquery(original)))
}

pub(super) fn existence(exists: Exists) -> Result<Transformed<Expr>> {
    let Exists {
        subquery: original,
        negated,
    } = exists;
    if original.outer_ref_columns.is_empty() {
        if is_constant(&original.subquery) {
            return Ok(Transformed::no(Expr::Exists(Exists::new(
                original, negated,
            ))));
        }
        // A mark is named after a column of its rows. Of others none may be left when a join is left out.
        let rows = LogicalPlanBuilder::from(original.subquery.as_ref().clone());
        let one = subquery(rows.project([lit(1)])?.build()?, &original);
        return Ok(Transformed::yes(Expr::Exists(Exists::new(one, negated))));
    }
    let plan = any_row(&original.subquery)?;
    if let Some(row) = only_row(plan, &original)? {
        let exists = row.exists.unwrap_or(lit(true));
        return Ok(Transformed::yes(match negated {
            false => exists,
            true => not(exists),
        }));
    }
    check_pull_up(plan, Kind::Exists)?;
    let subquery = subquery(plan.clone(), &original);
    Ok(Transformed::yes(Expr::Exists(Exists::new(
        subquery, negated,
    ))))
}

fn is_constant(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            matches!(projection.expr.as_slice(), [Expr::Literal(..)])
        }
        _ => false,
    }
}

/// The plan below `plan` that has rows if it has: their values, number and order do not matter.
fn any_row(plan: &LogicalPlan) -> Result<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => any_row(&projection.input),
        LogicalPlan::Distinct(Distinct::All(input)) => any_row(input),
        LogicalPlan::Sort(sort) if sort.fetch != Some(0) => any_row(&sort.input),
        LogicalPlan::Limit(limit) => {
            let skips = !matches!(limit.get_skip_type()?, SkipType::Literal(0));
            let may_be_none = match limit.get_fetch_type()? {
                FetchType::Literal(fetch) => fetch == Some(0),
                FetchType::UnsupportedExpr => true,
            };
            match skips || may_be_none {
                true => Ok(plan),
                false => any_row(&limit.input),
            }
        }
        _ => Ok(plan),
    }
}
