//! What the planner does only if nobody wants to see every row.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{LogicalPlan, Sort};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;

/// Whether the planner may find a shortcut in `plan`: an aggregate of all rows, which statistics may
/// know, or a limit on groups.
pub(crate) fn has_shortcuts(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            LogicalPlan::Limit(limit) => groups(&limit.input),
            LogicalPlan::Sort(Sort {
                fetch: Some(_),
                input,
                ..
            }) => groups(input),
            _ => false,
        })
    })
}

/// Whether the rows of `plan` are groups that may be known before all rows have been seen: they have
/// nothing, or one value, besides their keys.
fn groups(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => plan.inputs().into_iter().all(groups),
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.len() <= 1,
        LogicalPlan::Distinct(_) => true,
        _ => false,
    }
}

/// The shortcuts of `unprofiled` that `profiled`, the same query's plan that records, does without.
pub(crate) fn given_up(
    unprofiled: &Arc<dyn ExecutionPlan>,
    profiled: &Arc<dyn ExecutionPlan>,
) -> Vec<&'static str> {
    let (before, after) = (Shortcuts::of(unprofiled), Shortcuts::of(profiled));
    let each = [
        (
            "counting from statistics",
            before.statistics,
            after.statistics,
        ),
        ("TopK aggregation", before.top_k, after.top_k),
        (
            "DISTINCT that ends at its LIMIT",
            before.distinct,
            after.distinct,
        ),
    ];
    let lost = each.into_iter().filter(|(_, before, after)| before > after);
    lost.map(|(name, ..)| name).collect()
}

/// How often a plan takes each shortcut.
#[derive(Debug, Default)]
struct Shortcuts {
    statistics: usize,
    top_k: usize,
    distinct: usize,
}

impl Shortcuts {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut all = Self::default();
        let walked = plan.apply(|plan| {
            // What statistics answer has no input any more.
            all.statistics += usize::from(plan.is::<PlaceholderRowExec>());
            let aggregate = plan.downcast_ref::<AggregateExec>();
            if let Some(limit) = aggregate.and_then(AggregateExec::limit_options) {
                match limit.descending() {
                    Some(_) => all.top_k += 1,
                    None => all.distinct += 1,
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        debug_assert!(walked.is_ok(), "the walk itself has no errors");
        all
    }
}
