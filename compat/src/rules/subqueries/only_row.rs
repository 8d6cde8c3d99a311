//! The row that an aggregate without GROUP BY has, of no rows, too.

use datafusion::common::Result;
use datafusion::logical_expr::logical_plan::{Distinct, Projection, SubqueryAlias};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::{has_subqueries, subquery};
use crate::rules::pull_up::is_correlated;

/// A plan that has one row, and under what condition the original has it, too.
pub(super) struct OnlyRow {
    pub(super) plan: LogicalPlan,
    pub(super) exists: Option<Expr>,
}

/// The row of an aggregate without GROUP BY, and its HAVING.
pub(super) fn only_row(plan: &LogicalPlan, original: &Subquery) -> Result<Option<OnlyRow>> {
    let input = match plan {
        // It has its row for all rows of the query around it if its own are the same for all.
        LogicalPlan::Aggregate(aggregate)
            if aggregate.group_expr.is_empty() && is_correlated(plan) =>
        {
            return Ok(Some(OnlyRow {
                plan: plan.clone(),
                exists: None,
            }));
        }
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Distinct(Distinct::All(input)) => input,
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
        LogicalPlan::Filter(filter) if !has_subqueries(plan)? => &filter.input,
        _ => return Ok(None),
    };
    let Some(row) = only_row(input, original)? else {
        return Ok(None);
    };
    let OnlyRow {
        plan: input,
        exists,
    } = row;
    if let LogicalPlan::Filter(filter) = plan {
        let holds = LogicalPlanBuilder::from(input.clone())
            .project([filter.predicate.clone()])?
            .build()?;
        let holds = Expr::ScalarSubquery(subquery(holds, original)).is_true();
        return Ok(Some(OnlyRow {
            plan: input,
            exists: conjunction(exists.into_iter().chain([holds])),
        }));
    }
    let plan = plan.with_new_exprs(plan.expressions(), vec![input])?;
    Ok(Some(OnlyRow { plan, exists }))
}
