//! CREATE VIEW.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use skewer_sql::ObjectKind;

use super::{Context, Outcome, as_statement};
use crate::catalog::statement::rename_columns;
use crate::error::Error;

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
    let columns: Vec<_> = view
        .columns
        .iter()
        .map(|column| crate::catalog::names::fold(&column.name))
        .collect();
    rename_columns(plan, &columns)?;

    let or_replace = view.or_replace;
    view.or_replace = false;
    view.if_not_exists = false;
    let mut transaction = context.storage().begin();
    transaction.create_view(&name.schema, &name.table, &view.to_string(), or_replace)?;
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}
