//! ALTER TABLE … RENAME TO and ADD COLUMN.

use datafusion::arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{self, AlterTableOperation, RenameTableNameKind};
use skewer_sql::ObjectKind;

use super::create_table::columns_schema;
use super::{Context, Outcome};
use crate::error::Error;

/// Carries out all operations or none.
pub(crate) async fn execute(
    context: &mut Context,
    alter: ast::AlterTable,
) -> Result<Outcome, Error> {
    let table = match context.catalog.writable_table(&alter.name) {
        Ok(table) => table,
        Err(Error::UnknownTable { .. }) if alter.if_exists => return Ok(Outcome::Done),
        Err(error) => return Err(error),
    };
    let schema = table.schema_name.clone();
    let mut name = table.name.clone();
    let mut transaction = context.storage().begin();
    for operation in alter.operations {
        match operation {
            AlterTableOperation::RenameTable {
                table_name: RenameTableNameKind::To(to) | RenameTableNameKind::As(to),
            } => {
                let to = match to.0.len() {
                    // The new name is in the table's schema, not in the session's.
                    1 => crate::catalog::Name::resolve(&to, &schema)?,
                    _ => context.catalog.resolve(&to)?,
                };
                if to.schema != schema {
                    return Err(Error::Unsupported(
                        "moving a table to another schema".to_owned(),
                    ));
                }
                let current = transaction.current();
                if current.view(&schema, &to.table).is_some() {
                    return Err(Error::AlreadyExists {
                        kind: ObjectKind::View,
                        name: to.to_string(),
                    });
                }
                transaction.rename_table(&schema, &name, &to.table)?;
                name = to.table;
            }
            AlterTableOperation::AddColumn {
                if_not_exists,
                column_def,
                column_position: None,
                ..
            } => {
                let columns = columns_schema(&context.catalog, &[column_def]).await?;
                let column: Field = columns.field(0).clone();
                let exists = transaction
                    .current()
                    .table(&schema, &name)
                    .is_some_and(|t| t.schema.column_with_name(column.name()).is_some());
                if exists && if_not_exists {
                    continue;
                }
                transaction.add_column(&schema, &name, column)?;
            }
            other => {
                return Err(Error::Unsupported(format!("ALTER TABLE … {other}")));
            }
        }
    }
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}
