//! CREATE EXTERNAL TABLE: a name for files, kept in the catalog as its statement.

use std::sync::Arc;

use datafusion::sql::parser::CreateExternalTable;
use skewer_sql::ObjectKind;

use super::{Context, Outcome};
use crate::error::Error;
use skewer_files::FileTable;

/// Names files, after they have been seen to be readable.
pub(crate) async fn execute(
    context: &mut Context,
    mut table: CreateExternalTable,
) -> Result<Outcome, Error> {
    if table.temporary || table.unbounded || !table.constraints.is_empty() {
        return Err(Error::Unsupported(
            "external tables that are temporary, unbounded or constrained".to_owned(),
        ));
    }
    if !table.table_partition_cols.is_empty() || !table.order_exprs.is_empty() {
        return Err(Error::Unsupported(
            "PARTITIONED BY and WITH ORDER of external tables".to_owned(),
        ));
    }
    let name = context.catalog.resolve(&table.name)?;
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
    if snapshot.view(&name.schema, &name.table).is_some() && !table.or_replace {
        if table.if_not_exists {
            return Ok(Outcome::Done);
        }
        return Err(exists(ObjectKind::Table));
    }
    // The catalog outlives the directory that the process happens to run in.
    for location in &mut table.locations {
        if !location.contains("://") {
            let folder = location.ends_with('/');
            let absolute = std::path::absolute(&*location).map_err(|e| Error::from_io(&e))?;
            *location = absolute.display().to_string();
            if folder && !location.ends_with('/') {
                location.push('/');
            }
        }
    }
    let files = FileTable::external(&table)?;
    context.catalog.touch_file(files.clone());
    files.provider(context.catalog.base(), false).await?;

    let or_replace = table.or_replace;
    let sql = definition(&table);
    let mut transaction = context.storage().begin();
    transaction.create_view(&name.schema, &name.table, &sql, or_replace)?;
    context.commit(transaction).await?;
    Ok(Outcome::Done)
}

/// The statement that would create the table again. (DataFusion's own text of it leaves out
/// columns and options.)
fn definition(table: &CreateExternalTable) -> String {
    let mut sql = format!("CREATE EXTERNAL TABLE {}", table.name);
    if !table.columns.is_empty() {
        let columns: Vec<_> = table.columns.iter().map(ToString::to_string).collect();
        sql.push_str(&format!(" ({})", columns.join(", ")));
    }
    sql.push_str(&format!(" STORED AS {}", table.file_type));
    if !table.options.is_empty() {
        let options: Vec<_> = table
            .options
            .iter()
            .map(|(name, value)| format!("'{}' {value}", name.replace('\'', "''")))
            .collect();
        sql.push_str(&format!(" OPTIONS ({})", options.join(", ")));
    }
    let quoted: Vec<_> = table
        .locations
        .iter()
        .map(|location| format!("'{}'", location.replace('\'', "''")))
        .collect();
    match quoted.as_slice() {
        [one] => sql.push_str(&format!(" LOCATION {one}")),
        many => sql.push_str(&format!(" LOCATION ({})", many.join(", "))),
    }
    sql
}
