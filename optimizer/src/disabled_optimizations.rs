//! What the planner does only if nobody wants to see every row.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Sort};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;

/// Whether the planner may find a shortcut in `plan`: an aggregate of all rows, which statistics may
/// know, or a limit on groups. Looking whether it does takes planning the query once more, which is for
/// nothing where it cannot.
pub(crate) fn has_shortcuts(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Aggregate(aggregate) => {
                aggregate.group_expr.is_empty() && may_be_known(&aggregate.input)
            }
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

/// Whether statistics may know the number of `plan`'s rows exactly, as they do of whole tables: of rows
/// that were left out or matched they only estimate it, and then nothing is taken from them.
fn may_be_known(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(_) => false,
        LogicalPlan::Join(join) => join.on.is_empty() && join.filter.is_none(),
        LogicalPlan::TableScan(scan) => scan.filters.is_empty(),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().all(may_be_known)
        }
        _ => true,
    }
}

/// Whether the rows of `plan` are groups that may be known before all rows have been seen: they have
/// nothing besides their keys, or, of one key, a minimum or maximum.
fn groups(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_) => plan.inputs().into_iter().all(groups),
        LogicalPlan::Aggregate(aggregate) => match &aggregate.aggr_expr[..] {
            [] => true,
            [function] => aggregate.group_expr.len() == 1 && is_extreme(function),
            _ => false,
        },
        LogicalPlan::Union(_) => plan.inputs().into_iter().any(groups),
        LogicalPlan::Distinct(_) => true,
        _ => false,
    }
}

/// Whether it is a minimum or maximum.
fn is_extreme(function: &Expr) -> bool {
    match function {
        Expr::Alias(alias) => is_extreme(&alias.expr),
        Expr::AggregateFunction(function) => matches!(function.func.name(), "min" | "max"),
        _ => false,
    }
}

/// The shortcuts of `unprofiled` that `profiled`, the same query's plan that records, does without.
pub(crate) fn disabled_optimizations(
    unprofiled: &Arc<dyn ExecutionPlan>,
    profiled: &Arc<dyn ExecutionPlan>,
) -> Vec<&'static str> {
    let (before, after) = (Shortcuts::of_plan(unprofiled), Shortcuts::of_plan(profiled));
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
    fn of_plan(plan: &Arc<dyn ExecutionPlan>) -> Self {
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

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;
    use skewer_compat::rules::physical_rules;

    /// Queries that the planner finds a shortcut in.
    const TAKEN: [&str; 8] = [
        "SELECT count(*) FROM t",
        "SELECT count(*) AS n FROM (SELECT a + 1 AS c FROM t) AS q",
        "SELECT a, max(b) FROM t GROUP BY a ORDER BY max(b) DESC LIMIT 3",
        "SELECT a AS k, min(b) AS m FROM t GROUP BY a ORDER BY m LIMIT 3",
        "SELECT a FROM t GROUP BY a ORDER BY a LIMIT 3",
        "SELECT DISTINCT a FROM t LIMIT 3",
        "SELECT DISTINCT a, b FROM t WHERE a > 1 LIMIT 3",
        "SELECT count(*) FROM (SELECT a, max(b) AS m FROM t GROUP BY a ORDER BY m DESC LIMIT 3) AS q",
    ];

    /// Queries in which there is none, and which need not be planned to know that.
    const NONE: [&str; 12] = [
        "SELECT sum(q.x) FROM (SELECT a, 7 AS x FROM t) AS q JOIN t ON q.a = t.a",
        "SELECT sum(q.x) FROM t LEFT JOIN (SELECT a, 1 AS x FROM t) AS q ON q.a = t.a",
        "SELECT count(DISTINCT a), count(DISTINCT b) FROM t WHERE a = 5 AND b = 3",
        "SELECT a, count(*) OVER () AS n FROM t GROUP BY a ORDER BY a LIMIT 1",
        "SELECT count(*) FROM t WHERE a > 1",
        "SELECT max(t.b) FROM t JOIN t AS u ON t.a = u.a",
        "SELECT count(*) FROM t WHERE a IN (SELECT b FROM t)",
        "SELECT a, sum(b) FROM t GROUP BY a ORDER BY sum(b) DESC LIMIT 3",
        "SELECT a, b, max(b) FROM t GROUP BY a, b ORDER BY max(b) DESC LIMIT 3",
        "SELECT a, min(b), max(b) FROM t GROUP BY a ORDER BY max(b) DESC LIMIT 3",
        "SELECT a, b FROM t ORDER BY a LIMIT 3",
        "SELECT a, count(*) FROM t GROUP BY a",
    ];

    /// Whether the query may have a shortcut, and how many its plan takes.
    async fn looked_for(sql: &str) -> (bool, usize) {
        let config = SessionConfig::new().with_target_partitions(2);
        let state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_physical_optimizer_rules(physical_rules());
        let context = SessionContext::new_with_state(state.build());
        let rows = "CREATE TABLE t AS SELECT * FROM (VALUES (1, 2), (3, 4), (1, 5)) AS v(a, b)";
        context.sql(rows).await.unwrap();
        let plan = context.sql(sql).await.unwrap().into_optimized_plan();
        let plan = plan.unwrap();
        let physical = context.state().create_physical_plan(&plan).await.unwrap();
        let Shortcuts {
            statistics,
            top_k,
            distinct,
        } = Shortcuts::of_plan(&physical);
        let taken = statistics + top_k + distinct;
        (has_shortcuts(&plan).unwrap(), taken)
    }

    #[tokio::test]
    async fn shortcuts_are_looked_for_where_the_planner_takes_them() {
        for sql in TAKEN {
            let (looked_for, taken) = looked_for(sql).await;
            assert!(looked_for && taken > 0, "{sql}: {taken}");
        }
        for sql in NONE {
            assert_eq!(looked_for(sql).await, (false, 0), "{sql}");
        }
    }
}
