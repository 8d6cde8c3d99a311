//! References of subqueries to columns of queries around them, however far out.
//!
//! Of a plan DataFusion knows the references of its own operators, but not those of subqueries in their
//! expressions. A name is that of the innermost query around it that has such a column.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, ExprSchema, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};

use crate::rules::subquery_of;

/// The columns around `plan` that it refers to, each once.
///
/// # Errors
/// None of its own; those of walking a plan.
pub fn references(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    in_plan(plan, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Those that its own expressions refer to, and what is LATERAL beside its left side.
///
/// # Errors
/// None of its own; those of walking a plan.
pub fn own_references(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    if let LogicalPlan::Join(join) = plan
        && lateral(&join.right).is_some()
    {
        let mut scopes = vec![Arc::clone(join.left.schema())];
        in_plan(&join.right, &mut scopes, &mut found)?;
    }
    in_expressions(plan, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// The columns of the query that `subquery` stands in, or of one further out, that it refers to.
pub fn references_of_subquery(subquery: &Subquery) -> Result<Vec<Column>> {
    references(&subquery.subquery)
}

fn in_plan(
    plan: &LogicalPlan,
    scopes: &mut Vec<DFSchemaRef>,
    found: &mut Vec<Column>,
) -> Result<()> {
    let left = lateral_scope(plan);
    for (place, input) in plan.inputs().into_iter().enumerate() {
        let scope = left.as_ref().filter(|_| place == 1);
        scopes.extend(scope.cloned());
        in_plan(input, scopes, found)?;
        scopes.truncate(scopes.len() - usize::from(scope.is_some()));
    }
    in_expressions(plan, scopes, found)
}

fn in_expressions(
    plan: &LogicalPlan,
    scopes: &mut Vec<DFSchemaRef>,
    found: &mut Vec<Column>,
) -> Result<()> {
    let inputs = Arc::new(merge_schema(&plan.inputs()));
    plan.apply_expressions(|expression| {
        in_expression(expression, &inputs, scopes, found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn in_expression(
    expression: &Expr,
    inputs: &DFSchemaRef,
    scopes: &mut Vec<DFSchemaRef>,
    found: &mut Vec<Column>,
) -> Result<()> {
    expression.apply(|part| {
        if let Expr::OuterReferenceColumn(_, column) = part
            && !scopes.iter().any(|scope| scope.has_column(column))
            && !found.contains(column)
        {
            found.push(column.clone());
        }
        if let Some(subquery) = subquery_of(part) {
            scopes.push(Arc::clone(inputs));
            in_plan(&subquery.subquery, scopes, found)?;
            scopes.pop();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The columns of the left side that a LATERAL subquery on the right of `plan` sees, if there is one.
fn lateral_scope(plan: &LogicalPlan) -> Option<DFSchemaRef> {
    match plan {
        LogicalPlan::Join(join) => lateral(&join.right).map(|_| Arc::clone(join.left.schema())),
        _ => None,
    }
}

/// The LATERAL subquery that the right side of a join is.
pub fn lateral(right: &LogicalPlan) -> Option<&Subquery> {
    match right {
        LogicalPlan::Subquery(subquery) => Some(subquery),
        LogicalPlan::SubqueryAlias(alias) => lateral(&alias.input),
        _ => None,
    }
}

/// What columns around a plan are called in it.
pub type Renamed<'a> = &'a dyn Fn(&Column) -> Option<Column>;

/// `expression` of an operator over `inputs`, whose references to columns around it are to columns of the
/// inputs, as `renamed` says. Its subqueries refer to those.
///
/// # Errors
/// None of its own; those of rewriting a plan.
pub fn within(expression: Expr, inputs: &DFSchemaRef, renamed: Renamed<'_>) -> Result<Expr> {
    let own = expression.transform_up(|part| match part {
        Expr::OuterReferenceColumn(field, column) => Ok(match renamed(&column) {
            Some(own) => Transformed::yes(Expr::Column(own)),
            None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        }),
        other => Ok(Transformed::no(other)),
    })?;
    below_expression(own.data, inputs, &mut Vec::new(), renamed)
}

/// A LATERAL subquery beside `left`, whose references to columns further out are to columns of `left`.
pub fn within_lateral(
    right: LogicalPlan,
    left: &DFSchemaRef,
    renamed: Renamed<'_>,
) -> Result<LogicalPlan> {
    below_plan(right, &mut vec![Arc::clone(left)], renamed)
}

fn below_plan(
    plan: LogicalPlan,
    scopes: &mut Vec<DFSchemaRef>,
    renamed: Renamed<'_>,
) -> Result<LogicalPlan> {
    let left = lateral_scope(&plan);
    let mut place = 0;
    let plan = plan.map_children(|input| {
        let scope = left.as_ref().filter(|_| place == 1);
        place += 1;
        scopes.extend(scope.cloned());
        let input = below_plan(input, scopes, renamed)?;
        scopes.truncate(scopes.len() - usize::from(scope.is_some()));
        Ok(Transformed::yes(input))
    })?;
    let plan = plan.data;
    let inputs = Arc::new(merge_schema(&plan.inputs()));
    let names = NamePreserver::new(&plan);
    let plan = plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let own = expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => {
                let is_between = scopes.iter().any(|scope| scope.has_column(&column));
                let other = renamed(&column).filter(|_| !is_between);
                Ok(match other {
                    Some(other) => Transformed::yes(Expr::OuterReferenceColumn(field, other)),
                    None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
                })
            }
            other => Ok(Transformed::no(other)),
        })?;
        let below = below_expression(own.data, &inputs, scopes, renamed)?;
        Ok(Transformed::yes(name.restore(below)))
    })?;
    Ok(match plan.data {
        LogicalPlan::Subquery(subquery) => LogicalPlan::Subquery(with_plan(subquery, Ok)?),
        plan => plan,
    })
}

fn below_expression(
    expression: Expr,
    inputs: &DFSchemaRef,
    scopes: &mut Vec<DFSchemaRef>,
    renamed: Renamed<'_>,
) -> Result<Expr> {
    let below = expression.transform_up(|part| {
        map_subquery(part, |subquery| {
            with_plan(subquery, |plan| {
                scopes.push(Arc::clone(inputs));
                let plan = below_plan(plan, scopes, renamed);
                scopes.pop();
                plan
            })
        })
    })?;
    Ok(below.data)
}

/// `expression` within a subquery of a query whose columns are `around`: those are columns around it.
///
/// # Errors
/// None of its own; those of rewriting an expression.
pub fn referring_to(expression: Expr, around: &DFSchema) -> Result<Expr> {
    let referring = expression.transform_up(|part| match part {
        Expr::Column(column) if around.has_column(&column) => {
            let field = Arc::clone(around.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(referring.data)
}

/// `expression` with another subquery, if it is one.
///
/// # Errors
/// Those of `map`.
pub fn map_subquery(
    expression: Expr,
    map: impl FnOnce(Subquery) -> Result<Subquery>,
) -> Result<Transformed<Expr>> {
    Ok(Transformed::yes(match expression {
        Expr::Exists(Exists { subquery, negated }) => {
            Expr::Exists(Exists::new(map(subquery)?, negated))
        }
        Expr::InSubquery(InSubquery {
            expr,
            subquery,
            negated,
        }) => Expr::InSubquery(InSubquery::new(expr, map(subquery)?, negated)),
        Expr::SetComparison(SetComparison {
            expr,
            subquery,
            op,
            quantifier,
        }) => Expr::SetComparison(SetComparison::new(expr, map(subquery)?, op, quantifier)),
        Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(map(subquery)?),
        other => return Ok(Transformed::no(other)),
    }))
}

/// `subquery` with what `map` makes of its plan.
///
/// # Errors
/// Those of `map`.
pub fn with_plan(
    subquery: Subquery,
    map: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<Subquery> {
    let plan = map(Arc::unwrap_or_clone(subquery.subquery))?;
    Ok(Subquery {
        outer_ref_columns: plan.all_out_ref_exprs(),
        subquery: Arc::new(plan),
        spans: subquery.spans,
    })
}
