//! VALUES with subqueries, which DataFusion 55.2 plans, but does not run.
//!
//! A row with subqueries is that of a SELECT without FROM. The rows stay in order.
//!
//! ```text
//! VALUES (1, 2), ((SELECT max(a) FROM t), 3), (4, 5)
//!
//! SELECT column1, column2 FROM (
//!   VALUES (0, 1, 2), (2, 4, 5) UNION ALL SELECT 1, (SELECT max(a) FROM t), 3
//! ) AS rows (place, column1, column2) ORDER BY place
//! ```

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::logical_plan::Values;
use datafusion::logical_expr::{
    DmlStatement, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit,
};

use crate::rules::has_subquery;

/// `plan` without subqueries in VALUES; those that INSERT has remain, so that it may see what type each of its
/// values had.
///
/// # Errors
/// Those of building a plan.
pub fn with_selected_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    let aliases = AliasGenerator::new();
    let rewritten = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Dml(insert) if inserts_values(&insert) => Ok(Transformed::new(
            LogicalPlan::Dml(insert),
            false,
            TreeNodeRecursion::Jump,
        )),
        LogicalPlan::Values(values) if has_subqueries(values.values.iter().flatten())? => {
            selected(values, &aliases).map(Transformed::yes)
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(rewritten.data)
}

fn inserts_values(statement: &DmlStatement) -> bool {
    match statement.input.as_ref() {
        LogicalPlan::Projection(projection) => {
            matches!(projection.input.as_ref(), LogicalPlan::Values(_))
        }
        _ => false,
    }
}

fn has_subqueries<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Result<bool> {
    for expression in expressions {
        if has_subquery(expression)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn selected(values: Values, aliases: &AliasGenerator) -> Result<LogicalPlan> {
    let place = aliases.next("__place");
    let columns = values.schema.columns();
    let mut names = vec![place.clone()];
    names.extend(columns.iter().map(|column| column.name.clone()));
    let (mut plain, mut selected) = (Vec::new(), Vec::new());
    for (number, mut row) in values.values.into_iter().enumerate() {
        let is_selected = has_subqueries(&row)?;
        row.insert(0, lit(number as u64));
        match is_selected {
            true => selected.push(row),
            false => plain.push(row),
        }
    }
    let mut rows: Option<LogicalPlanBuilder> = None;
    if !plain.is_empty() {
        let plain = LogicalPlanBuilder::values(plain)?;
        let own = plain.schema().columns().into_iter().map(Expr::Column);
        let named = own.zip(&names).map(|(column, name)| column.alias(name));
        let named: Vec<Expr> = named.collect();
        rows = Some(plain.project(named)?);
    }
    for row in selected {
        let one = LogicalPlanBuilder::empty(true);
        let named = row.into_iter().zip(&names);
        let named = named.map(|(value, name)| value.alias(name));
        let one = one.project(named.collect::<Vec<_>>())?;
        rows = Some(match rows {
            None => one,
            Some(rows) => rows.union(one.build()?)?,
        });
    }
    let rows = rows.unwrap_or(LogicalPlanBuilder::empty(false));
    let place = Expr::Column(Column::new_unqualified(place));
    let rows = rows.sort([place.sort(true, true)])?;
    let schema = Arc::clone(rows.schema());
    // Together with others a row may have had another type.
    let typed = columns.iter().zip(values.schema.fields());
    let typed = typed.map(|(column, field)| {
        let value = Expr::Column(Column::new_unqualified(&column.name));
        let value = value.cast_to(field.data_type(), schema.as_ref())?;
        Ok(value.alias(&column.name))
    });
    rows.project(typed.collect::<Result<Vec<_>>>()?)?.build()
}
