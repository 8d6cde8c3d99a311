//! Sort keys of whose order DataFusion 55.2 loses track.
//!
//! Rows that were sorted by `abs(x) > 1` are not in the order of `abs(x) > 1` for it, and the query is
//! refused: of most functions it knows no range of values, not even their type, and fails to compare
//! that with another one. Such keys become columns before rows are sorted by them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr, create_physical_expr};

use crate::logical::push_expr_below::{Part, push_expr_below, with_columns};

/// Makes columns of such keys, also of those that windows are partitioned by.
#[derive(Debug)]
pub struct GuardedSortKeys;

impl OptimizerRule for GuardedSortKeys {
    fn name(&self) -> &'static str {
        "sound_sort_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        node: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let mut keys: Vec<Expr> = Vec::new();
        match &node {
            LogicalPlan::Sort(sort) => keys.extend(sort.expr.iter().map(|key| key.expr.clone())),
            LogicalPlan::Window(_) | LogicalPlan::Aggregate(_) => {
                node.apply_expressions(|expression| {
                    expression.apply(|part| {
                        keys.extend(sort_keys(part).cloned());
                        Ok(TreeNodeRecursion::Continue)
                    })
                })?;
            }
            _ => return Ok(Transformed::no(node)),
        }
        let schema = merge_schema(&node.inputs());
        let aliases = config.alias_generator();
        let mut lost: Vec<Part> = Vec::new();
        for key in keys {
            if !lost.iter().any(|(known, _)| *known == key) && is_lost(&key, &schema) {
                lost.push((key, aliases.next("__key")));
            }
        }
        match lost.is_empty() {
            true => Ok(Transformed::no(node)),
            false => push_expr_below(node, &lost, |_, _| true, with_columns).map(Transformed::yes),
        }
    }
}

/// What rows are sorted by for a window or an aggregate.
fn sort_keys(expression: &Expr) -> impl Iterator<Item = &Expr> {
    let (partitions, order) = match expression {
        Expr::WindowFunction(window) => (&*window.params.partition_by, &*window.params.order_by),
        Expr::AggregateFunction(aggregate) => (&[][..], &*aggregate.params.order_by),
        _ => (&[][..], &[][..]),
    };
    partitions.iter().chain(order.iter().map(|key| &key.expr))
}

/// Whether DataFusion does not know that rows are in the order of `key` which were sorted by it.
fn is_lost(key: &Expr, schema: &DFSchema) -> bool {
    if matches!(key, Expr::Column(_) | Expr::Literal(..)) {
        return false;
    }
    let context = PhysicalPlanningContext::default();
    // A key that is not planned yet, such as one with a subquery, comes here again.
    let Ok(key) = create_physical_expr(key, schema, &ExecutionProps::new(), &context) else {
        return false;
    };
    let key = PhysicalSortExpr::new_default(key);
    let schema = Arc::clone(schema.inner());
    let sorted = EquivalenceProperties::new_with_orderings(schema, [[key.clone()]]);
    !sorted.ordering_satisfy([key]).unwrap_or(true)
}
