//! UPDATE t SET … [FROM …] [WHERE …].

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    self, AssignmentTarget, Ident, SelectItem, SetExpr, UpdateTableFromKind,
};
use skewer_cluster::write::Changes;
use skewer_compat::suggest::suggest;
use skewer_storage::TableMeta;

use super::delete::Target;
use super::{Context, Outcome, as_statement};
use crate::catalog::names::fold;
use crate::catalog::types::{must_be_assignable, rounded};
use crate::error::Error;

/// Gives rows for which the condition is true new values; their ids stay.
pub(crate) async fn execute(context: &mut Context, update: ast::Update) -> Result<Outcome, Error> {
    if update.returning.is_some() || update.limit.is_some() || !update.order_by.is_empty() {
        return Err(Error::Unsupported(
            "UPDATE with RETURNING, ORDER BY or LIMIT".to_owned(),
        ));
    }
    let target = Target::from_table(&update.table)?;
    let locked = context.lock(&target.name).await?;
    let table = &locked.table;
    let assigned = assigned_columns(table, &update.assignments)?;

    let others = match update.from {
        Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) => from,
        None => Vec::new(),
    };
    let mut query = target.matching_rows(others, update.selection)?;
    if let SetExpr::Select(select) = &mut *query.body {
        for (n, assignment) in update.assignments.into_iter().enumerate() {
            select.projection.push(SelectItem::ExprWithAlias {
                expr: assignment.value,
                alias: Ident::with_quote('"', format!("new value {n}")),
            });
        }
    }
    let plan = context.catalog.plan(as_statement(query)).await?;
    let plan = cast_values(plan, table, &assigned)?;
    let stream = context.stream(&plan).await?;
    let (rows, _memory) = context.collect_by_id(stream).await?;
    let ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    let mut columns = Vec::with_capacity(assigned.len());
    for (n, column) in assigned.into_iter().enumerate() {
        let field = table.schema.field(column);
        let values = rows.column(n + 1);
        if !field.is_nullable() && values.null_count() > 0 {
            let row = (0..values.len()).find(|row| values.is_null(*row));
            return Err(Error::NotNull {
                table: table.name.clone(),
                column: field.name().clone(),
                row: row.unwrap_or(0) as u64 + 1,
            });
        }
        let values = if values.data_type() == field.data_type() {
            Arc::clone(values)
        } else {
            cast(values, field.data_type())?
        };
        columns.push((column, values));
    }
    context
        .rewrite(table, Changes::Update { ids, columns })
        .await
}

/// The places of the columns that are assigned to, in the order of the assignments.
fn assigned_columns(
    table: &TableMeta,
    assignments: &[ast::Assignment],
) -> Result<Vec<usize>, Error> {
    let mut columns = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(Error::Unsupported(
                "SET (a, b) = …; assign one by one".to_owned(),
            ));
        };
        let Some(column) = name.0.last().and_then(|part| part.as_ident()).map(fold) else {
            return Err(Error::Invalid(format!("{name} is not a column")));
        };
        let Ok(place) = table.schema.index_of(&column) else {
            let known = table.schema.fields().iter().map(|f| f.name().as_str());
            return Err(Error::UnknownColumn {
                suggestions: suggest(&column, known),
                name: column,
            });
        };
        if columns.contains(&place) {
            return Err(Error::Invalid(format!("column {column} is assigned twice")));
        }
        columns.push(place);
    }
    Ok(columns)
}

/// Casts the new values, which follow the row id, to the types of their columns.
fn cast_values(
    plan: LogicalPlan,
    table: &TableMeta,
    assigned: &[usize],
) -> Result<LogicalPlan, Error> {
    let mut expressions = Vec::with_capacity(assigned.len() + 1);
    for (n, column) in plan.schema().columns().into_iter().enumerate() {
        let name = column.name.clone();
        let expression = Expr::Column(column);
        expressions.push(match n.checked_sub(1) {
            None => expression,
            Some(value) => {
                let field = table.schema.field(assigned[value]);
                let from = expression.get_type(plan.schema())?;
                must_be_assignable(field, &from)?;
                rounded(expression, &from, field.data_type())
                    .cast_to(field.data_type(), plan.schema())?
                    .alias(name)
            }
        });
    }
    Ok(LogicalPlanBuilder::from(plan)
        .project(expressions)?
        .build()?)
}
