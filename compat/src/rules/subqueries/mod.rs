//! `IN`, `ANY`, `ALL` and `EXISTS`, in forms of which DataFusion makes the right joins.
//!
//! DataFusion 55.2 makes semi, anti and mark joins of the subqueries in conditions. What they lose:
//!
//! * NULLs. Only of an uncorrelated `NOT IN` with columns on its left it makes a join that knows of them;
//!   a mark is false where `x IN (…)` is unknown (apache/datafusion issues 25336, 25340, 25347, 25474 and
//!   25480). So the three things that decide between true, unknown and false become an `EXISTS` each: a
//!   row that is equal, a row that is NULL and, where x is NULL, any row. Each is true or false, and has
//!   the keys that joins want.
//! * The row that an aggregate without GROUP BY has of no rows, too (issue 24960). So `EXISTS` of it asks
//!   for HAVING alone, and `x IN` of it compares x with its one value: scalar subqueries have that row.
//! * Subqueries that are values: see [`marks`](super::marks).
//! * What conditions are pulled out of: see [`pull_up`](super::pull_up).

mod compared;
mod conditions;
mod existence;
mod only_row;

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Projection;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use self::conditions::{Rewriter, Wanted};
use super::marks::marked;
use super::pull_up::check_lateral;

/// See the [module](self).
#[derive(Debug)]
pub struct GuardedSubqueries;

impl OptimizerRule for GuardedSubqueries {
    fn name(&self) -> &'static str {
        "sound_subqueries"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            guarded(node, config.alias_generator())?.transform_data(|node| marked(node, config))
        })
    }
}

fn guarded(node: LogicalPlan, aliases: &AliasGenerator) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &node {
        check_lateral(join)?;
    }
    // The columns of MERGE are not those of its input alone.
    if matches!(node, LogicalPlan::Dml(_)) || !has_subqueries(&node)? {
        return Ok(Transformed::no(node));
    }
    let scope = merge_schema(&node.inputs());
    let rewriter = Rewriter { scope, aliases };
    let wanted = match node {
        LogicalPlan::Filter(_) => Wanted::Conjunct,
        _ => Wanted::Value,
    };
    let names = NamePreserver::new(&node);
    node.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = rewriter.condition(expression, wanted)?;
        Ok(rewritten.update_data(|expression| name.restore(expression)))
    })
}

/// Whether there are subqueries in the expressions of `node` itself.
///
/// # Errors
/// None of its own; those of walking expressions.
pub fn has_subqueries(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found = found || has_subquery(expression)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether there is a subquery in `expression`.
///
/// # Errors
/// None of its own; those of walking an expression.
pub fn has_subquery(expression: &Expr) -> Result<bool> {
    expression.exists(|part| Ok(subquery_of(part).is_some()))
}

/// The subquery that `expression` itself is, if it is one.
pub fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(membership) => Some(&membership.subquery),
        Expr::SetComparison(comparison) => Some(&comparison.subquery),
        Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// `plan` with this name for its column. It may have that of another of the query around it, or of one
/// that a join needs beside it.
fn with_column_name(plan: &LogicalPlan, name: &str) -> Result<LogicalPlanBuilder> {
    if let LogicalPlan::Projection(Projection { expr, input, .. }) = plan
        && let [expression] = expr.as_slice()
    {
        let expression = expression.clone().unalias_nested().data.alias(name);
        return LogicalPlanBuilder::from(input.as_ref().clone()).project([expression]);
    }
    let column = Column::from(plan.schema().qualified_field(0));
    LogicalPlanBuilder::from(plan.clone()).project([Expr::Column(column).alias(name)])
}

/// `EXISTS` over `rows`, made of `original`.
fn exists(rows: LogicalPlanBuilder, original: &Subquery) -> Result<Expr> {
    let subquery = subquery(rows.build()?, original);
    Ok(Expr::Exists(Exists::new(subquery, false)))
}

/// `plan` in the place of `original`.
fn subquery(plan: LogicalPlan, original: &Subquery) -> Subquery {
    Subquery {
        outer_ref_columns: plan.all_out_ref_exprs(),
        subquery: Arc::new(plan),
        spans: original.spans.clone(),
    }
}
