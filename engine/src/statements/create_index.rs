//! CREATE INDEX.

use datafusion::sql::sqlparser::ast::{self, SetExpr};
use skewer_sql::Statement;

use super::{Context, Outcome, as_statement};
use crate::error::Error;

/// Looks whether the table and what is to be indexed are there, and does nothing: segments are read by their
/// statistics. A unique index would be a promise that is not kept.
pub(crate) async fn execute(
    context: &mut Context,
    index: &ast::CreateIndex,
) -> Result<Outcome, Error> {
    if index.unique {
        return Err(Error::Unsupported(
            "UNIQUE INDEX; Skewer does not enforce it".to_owned(),
        ));
    }
    context.catalog.writable_table(&index.table_name)?;
    let Statement::Query(mut query) = skewer_sql::parse("SELECT 1 FROM t")? else {
        return Err(Error::Internal("SELECT is another statement".to_owned()));
    };
    if let SetExpr::Select(select) = &mut *query.body {
        let columns = index.columns.iter();
        let columns =
            columns.map(|column| ast::SelectItem::UnnamedExpr(column.column.expr.clone()));
        select.projection = columns.collect();
        select.selection.clone_from(&index.predicate);
        if let Some(from) = select.from.first_mut()
            && let ast::TableFactor::Table { name, .. } = &mut from.relation
        {
            *name = index.table_name.clone();
        }
    }
    context.catalog.plan(as_statement(query)).await?;
    Ok(Outcome::Done)
}
