//! CREATE VIEW.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use skewer_sql::ObjectKind;

use super::{Context, Outcome, as_statement};
use crate::catalog::names::Name;
use crate::catalog::planned::refuse_repeated;
use crate::catalog::statement::rename_columns;
use crate::error::Error;

/// Whether a query reads the view that it is to define, which OR REPLACE would make a circle.
fn refers_to(context: &Context, query: &ast::Query, view: &Name) -> Result<bool, Error> {
    let found = ast::visit_relations(query, |relation| match context.catalog.resolve(relation) {
        Ok(name) if name == *view => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    Ok(found.is_break())
}

/// Names a query, after it has been seen to make sense.
pub(crate) async fn execute(
    context: &mut Context,
    mut view: ast::CreateView,
) -> Result<Outcome, Error> {
    if view.materialized || view.temporary {
        return Err(Error::Unsupported(
            "materialized and temporary views".to_owned(),
        ));
    }
    let name = context.catalog.resolve(&view.name)?;
    name.must_be_writable()?;
    let snapshot = Arc::clone(context.catalog.snapshot());
    if !snapshot.has_schema(&name.schema) {
        return Err(context.catalog.unknown_table(&name));
    }
    let exists = |kind| Error::AlreadyExists {
        kind,
        name: name.to_string(),
    };
    if snapshot.table(&name.schema, &name.table).is_some() {
        return Err(exists(ObjectKind::Table));
    }
    if snapshot.view(&name.schema, &name.table).is_some() && !view.or_replace {
        if view.if_not_exists {
            return Ok(Outcome::Done);
        }
        return Err(exists(ObjectKind::View));
    }
    let plan = context
        .catalog
        .plan(as_statement(view.query.clone()))
        .await?;
    if let Some(table) = context.catalog.touched().registered.first() {
        return Err(Error::Invalid(format!(
            "view {name} cannot read {table}: the program registered it for this session alone; \
             create a table from it"
        )));
    }
    let columns: Vec<_> = view
        .columns
        .iter()
        .map(|column| crate::catalog::names::fold(&column.name))
        .collect();
    let plan = rename_columns(plan, &columns)?;
    refuse_repeated(plan.schema().inner())?;
    if refers_to(context, &view.query, &name)? {
        return Err(Error::Invalid(format!(
            "view {name} cannot be defined by itself; write its definition in place of its name"
        )));
    }

    let or_replace = view.or_replace;
    view.or_replace = false;
    view.if_not_exists = false;
    let mut transaction = context.storage().begin();
    transaction.create_view(&name.schema, &name.table, &view.to_string(), or_replace)?;
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}
