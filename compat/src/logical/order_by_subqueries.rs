//! Subqueries in ORDER BY, of which DataFusion 55.2 makes joins only in some other places.
//!
//! They become columns below the sort: of the SELECT list, where they ask for columns of FROM that are not
//! selected.
//!
//! ```text
//! Sort: EXISTS (… t.b)               Projection: t.a
//!   Projection: t.a            →       Sort: __sorted_1
//!     TableScan: t                       Projection: t.a, EXISTS (… t.b) AS __sorted_1
//!                                          TableScan: t
//! ```

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use crate::logical::push_expr_below::{Part, push_expr_below, with_columns};
use crate::rules::{has_subqueries, subquery_of};

/// `plan` without subqueries in ORDER BY.
///
/// # Errors
/// Those of building a plan.
pub fn with_sorted_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let aliases = AliasGenerator::new();
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(_) if has_subqueries(&node)? => {
            let parts = parts(&node, &aliases)?;
            push_expr_below(node, &parts, |_, _| true, extended).map(Transformed::yes)
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(rewritten.data)
}

/// The subqueries that a sort's keys are made of.
fn parts(sort: &LogicalPlan, aliases: &AliasGenerator) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    sort.apply_expressions(|key| {
        key.apply(|part| {
            if subquery_of(part).is_none() {
                return Ok(TreeNodeRecursion::Continue);
            }
            if parts.iter().all(|(known, _)| known != part) {
                parts.push((part.clone(), aliases.next("__sorted")));
            }
            Ok(TreeNodeRecursion::Jump)
        })
    })?;
    Ok(parts)
}

/// `input` with these `parts`, each made where the columns are that it asks for.
fn extended(input: LogicalPlan, parts: &[&Part]) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(projection) = &input else {
        return with_columns(input, parts);
    };
    let (selected, read) = (projection.schema.as_ref(), projection.input.schema());
    let asks_below = |part: &Expr| -> Result<bool> {
        let columns = asked(part)?;
        Ok(columns
            .iter()
            .any(|column| !selected.has_column(column) && read.has_column(column)))
    };
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    for part in parts {
        match asks_below(&part.0)? {
            true => inner.push(*part),
            false => outer.push(*part),
        }
    }
    if inner.is_empty() {
        return with_columns(input, &outer);
    }
    let made = inner.iter().map(|(part, name)| part.clone().alias(name));
    let columns = projection.expr.iter().cloned().chain(made);
    let input = LogicalPlanBuilder::from(projection.input.as_ref().clone());
    let input = input.project(columns.collect::<Vec<_>>())?.build()?;
    with_columns(input, &outer)
}

/// The columns of the rows around that `part` asks for; those of a query further out may be among them.
fn asked(part: &Expr) -> Result<Vec<Column>> {
    let mut columns: Vec<_> = part.column_refs().into_iter().cloned().collect();
    if let Some(subquery) = subquery_of(part) {
        for outer in &subquery.outer_ref_columns {
            outer.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part {
                    columns.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
    }
    Ok(columns)
}
