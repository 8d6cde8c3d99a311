//! CREATE SCHEMA.

use datafusion::sql::sqlparser::ast::ObjectName;
use skewer_sql::ObjectKind;

use super::{Context, Outcome};
use crate::catalog::names::{fold, read_only};
use crate::catalog::{CATALOG, INFORMATION_SCHEMA, SYS};
use crate::error::Error;

/// The name of a schema, without the catalog's.
pub(crate) fn schema_name(name: &ObjectName) -> Result<String, Error> {
    let parts: Option<Vec<_>> = name.0.iter().map(|p| p.as_ident().map(fold)).collect();
    match parts.as_deref() {
        Some([schema]) => Ok(schema.clone()),
        Some([catalog, schema]) if catalog == CATALOG => Ok(schema.clone()),
        _ => Err(Error::Invalid(format!(
            "{name} is not the name of a schema"
        ))),
    }
}

/// Creates a schema.
pub(crate) async fn create(
    context: &mut Context,
    name: &ObjectName,
    if_not_exists: bool,
) -> Result<Outcome, Error> {
    let name = schema_name(name)?;
    if name == SYS || name == INFORMATION_SCHEMA {
        return Err(read_only(&name));
    }
    if context.catalog.snapshot().has_schema(&name) {
        if if_not_exists {
            return Ok(Outcome::Done);
        }
        return Err(Error::AlreadyExists {
            kind: ObjectKind::Schema,
            name,
        });
    }
    let mut transaction = context.storage().begin();
    transaction.create_schema(&name)?;
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}
