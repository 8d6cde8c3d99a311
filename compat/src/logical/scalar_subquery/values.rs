//! Scalar subqueries that SQL allows and DataFusion 55.2 takes for something else, or refuses.
//!
//! * A subquery without rows is NULL, whatever its column is. DataFusion takes the value for NOT NULL if
//!   the column is, and simplifies by that.
//! * A correlated subquery need not be an aggregate: it is an error at run time that it has several rows
//!   for a row of the query around it.
//! * With `ORDER BY … LIMIT 1` it is its first value.
//! * It may stand in GROUP BY, in arguments of aggregates, and in ORDER BY.

use std::sync::Arc;

use crate::functions::scalar_or_error::ScalarOrError;
use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Limit, Projection, Sort};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, ScalarUDF, SkipType, Subquery, when};

use super::rows::RowWise;
use super::schemas::with_schemas;
use super::{aggregated, around, has_scalar_subqueries, in_place_of, single};
use crate::logical::push_expr_below::{Part, push_expr_below, with_columns};
use crate::rules::has_subquery;

/// `plan`, as SQL was planned, with its scalar subqueries in forms of which DataFusion knows what their
/// value may be.
///
/// # Errors
/// Those of building a plan.
pub fn with_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_scalar_subqueries(&plan)? {
        return Ok(plan);
    }
    let aliases = AliasGenerator::new();
    let with_values = plan.transform_up_with_subqueries(|node| in_node(node, &aliases))?;
    match with_values.transformed {
        true => with_schemas(with_values.data, &[]),
        false => Ok(with_values.data),
    }
}

fn in_node(node: LogicalPlan, aliases: &AliasGenerator) -> Result<Transformed<LogicalPlan>> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found |= expression.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    // The columns of what writes are not those of its input alone.
    if !found || matches!(node, LogicalPlan::Dml(_)) {
        return Ok(Transformed::no(node));
    }
    let names = NamePreserver::new(&node);
    let scope = merge_schema(&node.inputs());
    let node = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = expression.transform_up(|part| match part {
            Expr::ScalarSubquery(subquery) => value(subquery, &scope, aliases),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.update_data(|expression| name.restore(expression)))
    })?;
    node.transform_data(|node| match node {
        // What it has here reads both sides, or may be another value each time.
        LogicalPlan::Join(_) => Ok(Transformed::no(node)),
        node => below_node(node, aliases),
    })
}

fn is_correlated(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty())
}

/// The value of `subquery` in a query over the columns of `scope`.
fn value(
    subquery: Subquery,
    scope: &DFSchema,
    aliases: &AliasGenerator,
) -> Result<Transformed<Expr>> {
    let plan = subquery.subquery.as_ref();
    let [field] = plan.schema().fields().as_ref() else {
        return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
    };
    if subquery.outer_ref_columns.is_empty() {
        return match field.is_nullable() || has_one_row(plan) {
            true => Ok(Transformed::no(Expr::ScalarSubquery(subquery))),
            false => Ok(Transformed::yes(Expr::ScalarSubquery(single(&subquery)?))),
        };
    }
    if is_aggregate(plan) {
        let is_known = field.is_nullable() || has_one_row(plan);
        let value = Expr::ScalarSubquery(subquery);
        return Ok(match is_known {
            true => Transformed::no(value),
            false => Transformed::yes(only_value(make_array(vec![value]))),
        });
    }
    if let Some(value) = of_no_table(plan, scope)? {
        return Ok(Transformed::yes(value));
    }
    // Beside it are the columns that a join needs: it may not have the name of one.
    let name = aliases.next("__value");
    if let Some(first) = first(plan, &name)? {
        let first = in_place_of(&subquery, first);
        return Ok(Transformed::yes(Expr::ScalarSubquery(first)));
    }
    let column = Expr::from(plan.schema().qualified_field(0));
    let input = Arc::clone(&subquery.subquery);
    let values = aggregated(array_agg_udaf(), column, Vec::new(), input, &name)?;
    let values = in_place_of(&subquery, values);
    let value = only_value(Expr::ScalarSubquery(values));
    Ok(Transformed::yes(value))
}

/// The only value of a list, or NULL: it may be NULL, whatever its elements are.
pub fn only_value(values: Expr) -> Expr {
    ScalarUDF::from(ScalarOrError::default()).call(vec![values])
}

/// Whether `plan` has a row in all cases.
fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Sort(Sort {
            input, fetch: None, ..
        }) => has_one_row(input),
        _ => false,
    }
}

/// Whether `plan` is an aggregate without GROUP BY, or what HAVING leaves of it.
pub fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => is_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_aggregate(&alias.input),
        LogicalPlan::Filter(filter) => is_aggregate(&filter.input),
        LogicalPlan::Sort(Sort {
            input, fetch: None, ..
        }) => is_aggregate(input),
        _ => false,
    }
}

/// The value of `plan` as one of the query around it, over the columns of `scope`, if it is a SELECT without FROM.
fn of_no_table(plan: &LogicalPlan, scope: &DFSchema) -> Result<Option<Expr>> {
    let LogicalPlan::Projection(Projection { expr, input, .. }) = plan else {
        return Ok(None);
    };
    let (condition, input) = match input.as_ref() {
        LogicalPlan::Filter(filter) => (Some(&filter.predicate), filter.input.as_ref()),
        input => (None, input),
    };
    let LogicalPlan::EmptyRelation(relation) = input else {
        return Ok(None);
    };
    let [value] = expr.as_slice() else {
        return Ok(None);
    };
    let mut has_subqueries = false;
    for part in condition.into_iter().chain([value]) {
        has_subqueries |= has_subquery(part)?;
    }
    if has_subqueries || !relation.produce_one_row {
        return Ok(None);
    }
    let value = around(value.clone().unalias(), scope)?;
    Ok(Some(match condition {
        None => value,
        Some(condition) => when(around(condition.clone(), scope)?, value).end()?,
    }))
}

/// The first value of `plan` as an aggregate, if it has `LIMIT 1`.
fn first(plan: &LogicalPlan, name: &str) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Limit(limit) = plan else {
        return Ok(None);
    };
    if !is_first(limit)? {
        return Ok(None);
    }
    let (value, input) = match limit.input.as_ref() {
        LogicalPlan::Projection(Projection { expr, input, .. })
            if matches!(input.as_ref(), LogicalPlan::Sort(_)) =>
        {
            (expr[0].clone().unalias(), input)
        }
        input => (Expr::from(input.schema().qualified_field(0)), &limit.input),
    };
    let (order_by, input) = match input.as_ref() {
        LogicalPlan::Sort(Sort {
            expr,
            input,
            fetch: None,
        }) => (expr.clone(), input),
        _ => (Vec::new(), input),
    };
    let input = Arc::clone(input);
    aggregated(first_value_udaf(), value, order_by, input, name).map(Some)
}

fn is_first(limit: &Limit) -> Result<bool> {
    let skips = !matches!(limit.get_skip_type()?, SkipType::Literal(0));
    let is_one = matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1)));
    Ok(is_one && !skips)
}

/// `node` with its correlated subqueries, where DataFusion makes no joins of them, as columns that its
/// input has.
fn below_node(node: LogicalPlan, aliases: &AliasGenerator) -> Result<Transformed<LogicalPlan>> {
    let is_value = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Projection(_));
    let mut correlated: Vec<(Expr, bool)> = Vec::new();
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            if is_correlated(part) {
                correlated.push((part.clone(), !is_value));
            }
            let Some(compared) = compared(part) else {
                return Ok(TreeNodeRecursion::Continue);
            };
            compared.apply(|part| {
                if is_correlated(part) {
                    correlated.push((part.clone(), true));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let around = Arc::new(merge_schema(&node.inputs()));
    let mut row_wise: Vec<(String, RowWise)> = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    for (part, is_moved) in correlated {
        let is_known = parts.iter().any(|(known, _)| *known == part);
        if is_known {
            continue;
        }
        let rows = match &part {
            Expr::ScalarSubquery(subquery) if refers_only_to(&part, &around) => {
                RowWise::for_subquery(subquery, &around, aliases)?
            }
            _ => None,
        };
        if rows.is_some() || is_moved {
            let name = aliases.next("__value");
            row_wise.extend(rows.map(|rows| (name.clone(), rows)));
            parts.push((part, name));
        }
    }
    if parts.is_empty() {
        return Ok(Transformed::no(node));
    }
    let node = push_expr_below(
        node,
        &parts,
        |_, _| true,
        |mut input, parts| {
            let (rows, columns): (Vec<_>, Vec<_>) = parts
                .iter()
                .partition(|(_, name)| row_wise.iter().any(|(known, _)| known == name));
            input = with_columns(input, &columns)?;
            for (_, name) in rows {
                if let Some(at) = row_wise.iter().position(|(known, _)| known == name) {
                    let (name, rows) = row_wise.swap_remove(at);
                    input = rows.append_to(input, &name, aliases)?;
                }
            }
            Ok(input)
        },
    )?;
    Ok(Transformed::yes(node))
}

/// What `part` compares with the rows of a subquery.
fn compared(part: &Expr) -> Option<&Expr> {
    match part {
        Expr::InSubquery(membership) => Some(&membership.expr),
        Expr::SetComparison(comparison) => Some(&comparison.expr),
        _ => None,
    }
}

/// Whether a subquery refers to no columns around it but those of `schema`.
fn refers_only_to(subquery: &Expr, schema: &DFSchemaRef) -> bool {
    let Expr::ScalarSubquery(subquery) = subquery else {
        return false;
    };
    subquery
        .outer_ref_columns
        .iter()
        .all(|column| match column {
            Expr::OuterReferenceColumn(_, column) => schema.has_column(column),
            _ => false,
        })
}
