//! Joins whose keys are equal where both are NULL, without conditions `=` among their keys.
//!
//! DataFusion 55.2 makes such joins of `IS NOT DISTINCT FROM`. A condition `a = b` beside it that becomes a
//! key of the same join, when it is looked at a second time, would be true of two NULLs.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::logical_plan::Join;

use super::dependencies::Guard;

fn compares_nulls(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty()
}

/// For `ExtractEquijoinPredicate`, which adds conditions to the keys that there are.
pub fn keep_conditions(plan: LogicalPlan) -> Result<Guard> {
    Ok(match &plan {
        LogicalPlan::Join(join) if compares_nulls(join) => Guard::Leave(plan),
        _ => Guard::Rewrite(plan),
    })
}

/// For `EliminateCrossJoin`, which puts the keys of several joins, and conditions above them, together.
pub fn keep_apart(plan: LogicalPlan) -> Result<Guard> {
    let mut are_some = false;
    plan.apply_with_subqueries(|node| {
        are_some |= matches!(node, LogicalPlan::Join(join)
            if join.join_type == JoinType::Inner && compares_nulls(join));
        Ok(match are_some {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(match are_some {
        true => Guard::Leave(plan),
        false => Guard::Rewrite(plan),
    })
}
