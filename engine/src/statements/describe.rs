//! DESCRIBE of a table or a query, and SHOW COLUMNS.

use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{ObjectName, Query};
use skewer_sql::Statement;

use super::{Context, Outcome, as_statement, text_batch};
use crate::catalog::planned::shown_columns;
use crate::catalog::types::sql_name;
use crate::error::Error;

/// The columns of a table, view or file.
pub(crate) async fn table(context: &mut Context, name: &ObjectName) -> Result<Outcome, Error> {
    let sql = format!("SELECT * FROM {name}");
    let Statement::Query(query) = skewer_sql::parse(&sql)? else {
        return Err(Error::Internal(sql));
    };
    self::query(context, query).await
}

/// The columns of a query's result.
pub(crate) async fn query(context: &mut Context, query: Box<Query>) -> Result<Outcome, Error> {
    let plan = context.catalog.plan(as_statement(query)).await?;
    columns(&shown_columns(plan.schema().inner()))
}

fn columns(schema: &Schema) -> Result<Outcome, Error> {
    let rows = schema
        .fields()
        .iter()
        .map(|field| {
            let nullable = if field.is_nullable() { "YES" } else { "NO" };
            vec![
                Some(field.name().clone()),
                Some(sql_name(field.data_type())),
                Some(nullable.to_owned()),
            ]
        })
        .collect();
    let batch = text_batch(&["column_name", "data_type", "is_nullable"], rows)?;
    Ok(Outcome::Batch(batch))
}
