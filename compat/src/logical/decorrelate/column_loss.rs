//! Subqueries of which DataFusion's rules lose columns.
//!
//! They do not say so: of some, DataFusion 55.2 makes plans that name columns which are not there, of others
//! it panics. In the joins that it makes, columns of a subquery have their names without that of their table:
//! of two with the same name one is taken for the other, and the rows are wrong. So it is with the marks of
//! further subqueries.

use std::collections::HashMap;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};

use super::references::{lateral, references_of_subquery};
use crate::rules::{has_subquery, subquery_of};

/// Whether a subquery in `plan` refers to a query further out than the one around it, or has conditions that
/// cannot be pulled out of it.
///
/// # Errors
/// None of its own; those of walking a plan.
pub fn decorrelator_loses_columns(plan: &LogicalPlan) -> Result<bool> {
    let mut loses_columns = false;
    plan.apply_with_subqueries(|node| {
        let around = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            loses_columns |= expression.exists(|part| match subquery_of(part) {
                Some(subquery) => {
                    let references = references_of_subquery(subquery)?;
                    let is_near = references.iter().all(|column| around.has_column(column));
                    Ok(!is_near || pulled(&subquery.subquery)?.loses_columns)
                }
                None => Ok(false),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if let LogicalPlan::Join(join) = node
            && let Some(subquery) = lateral(&join.right)
        {
            let references = references_of_subquery(subquery)?;
            let left = join.left.schema();
            loses_columns |= !references.iter().all(|column| left.has_column(column));
            loses_columns |= pulled(&subquery.subquery)?.loses_columns;
        }
        Ok(match loses_columns {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(loses_columns)
}

/// Whether one of `columns` has the name of another, or of a column of another table in `schema`.
pub fn is_ambiguous(columns: &[Column], schema: &DFSchema) -> bool {
    let mut tables = HashMap::new();
    columns.iter().any(|column| {
        let table = tables.entry(&column.name).or_insert(&column.relation);
        let named = schema.qualified_fields_with_unqualified_name(&column.name);
        *table != &column.relation || named.len() > 1
    })
}

/// What becomes of the conditions in a plan that are pulled out of it.
#[derive(Debug, Default)]
struct Pulled {
    /// The columns that they have.
    columns: Vec<Column>,
    /// Whether an operator has to return more columns for their sake.
    is_wider: bool,
    /// Whether that is below a derived table, of which DataFusion does not know that it has them, too; or two
    /// of them have the same name there, or one asks for a subquery.
    loses_columns: bool,
}

fn pulled(plan: &LogicalPlan) -> Result<Pulled> {
    let mut all = Pulled::default();
    for input in plan.inputs() {
        let input = pulled(input)?;
        all.columns.extend(input.columns);
        all.is_wider |= input.is_wider;
        all.loses_columns |= input.loses_columns;
    }
    match plan {
        LogicalPlan::Filter(filter) => {
            for condition in split_conjunction(&filter.predicate) {
                if condition.contains_outer() {
                    all.loses_columns |= has_subquery(condition)?;
                    all.columns
                        .extend(condition.column_refs().into_iter().cloned());
                }
            }
        }
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => {
            let schema = plan.schema();
            all.is_wider |= !all.columns.iter().all(|column| schema.has_column(column));
        }
        LogicalPlan::SubqueryAlias(alias) => {
            all.loses_columns |= all.is_wider;
            for column in &mut all.columns {
                *column = Column::new(Some(alias.alias.clone()), column.name.clone());
            }
        }
        _ => {}
    }
    all.loses_columns |= is_ambiguous(&all.columns, plan.schema());
    Ok(all)
}
