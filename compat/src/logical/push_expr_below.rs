//! Parts of expressions as columns of a projection below the operator that has them.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

/// A part of expressions, and the name of the column that it becomes.
pub type Part = (Expr, String);

/// `node` with these `parts` of its expressions as columns of its inputs, each of the first one of which
/// `is_of` holds, `extended` by them. It returns the same columns as before.
///
/// # Errors
/// Those of building a plan, and of `extended`.
pub fn push_expr_below(
    node: LogicalPlan,
    parts: &[Part],
    is_of: impl Fn(&Expr, &LogicalPlan) -> bool,
    mut extended: impl FnMut(LogicalPlan, &[&Part]) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    let names = NamePreserver::new(&node);
    let is_sort = matches!(node, LogicalPlan::Sort(_));
    let node = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let with_columns = expression.transform_down(|part| {
            match parts.iter().find(|(known, _)| *known == part) {
                Some((_, column)) => {
                    let column = Column::new_unqualified(column);
                    Ok(Transformed::yes(Expr::Column(column)))
                }
                None => Ok(Transformed::no(part)),
            }
        })?;
        Ok(match is_sort {
            true => with_columns,
            false => with_columns.update_data(|expression| name.restore(expression)),
        })
    })?;
    let node = node.data;
    let columns = node.schema().columns();
    let mut rest: Vec<&Part> = parts.iter().collect();
    let node = node.map_children(|input| {
        let (own, others) = rest.iter().partition(|(part, _)| is_of(part, &input));
        let own: Vec<&Part> = own;
        rest = others;
        if own.is_empty() {
            return Ok(Transformed::no(input));
        }
        extended(input, &own).map(Transformed::yes)
    })?;
    let node = node.data.recompute_schema()?;
    if node.schema().fields().len() == columns.len() {
        return Ok(node);
    }
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(node).project(columns)?.build()
}

/// `input` with a projection that has its columns and these `parts`.
///
/// # Errors
/// Those of building a plan.
pub fn with_columns(input: LogicalPlan, parts: &[&Part]) -> Result<LogicalPlan> {
    if parts.is_empty() {
        return Ok(input);
    }
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let parts = parts.iter().map(|(part, name)| part.clone().alias(name));
    let columns: Vec<_> = columns.chain(parts).collect();
    LogicalPlanBuilder::from(input).project(columns)?.build()
}
