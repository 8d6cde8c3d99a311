//! DESCRIBE of a table or a query, and SHOW COLUMNS.

use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{ObjectName, Query};
use skewer_sql::Statement;

use super::{Context, Outcome, as_statement, text_batch};
use crate::catalog::planned::shown_columns;
use crate::error::Error;
use skewer_sql::sql_name;

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

/// What DESCRIBE calls its columns.
const COLUMNS: [&str; 3] = ["column_name", "data_type", "is_nullable"];

fn columns(schema: &Schema) -> Result<Outcome, Error> {
    let rows = description(schema);
    let rows = rows.map(|row| row.map(Some).to_vec()).collect();
    Ok(Outcome::Batch(text_batch(&COLUMNS, rows)?))
}

/// For each column name, type and whether it may be NULL.
fn description(schema: &Schema) -> impl Iterator<Item = [String; 3]> {
    schema.fields().iter().map(|field| {
        let nullable = if field.is_nullable() { "YES" } else { "NO" };
        [
            field.name().clone(),
            sql_name(field.data_type()),
            nullable.to_owned(),
        ]
    })
}

/// The query of the rows that DESCRIBE has, for DESCRIBE in FROM.
pub(crate) fn as_query(schema: &Schema) -> Result<Query, Error> {
    let rows = description(schema).map(|row| {
        let values = row.map(|value| format!("'{}'", value.replace('\'', "''")));
        format!("({})", values.join(", "))
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    let sql = match rows.is_empty() {
        true => {
            let columns = COLUMNS.map(|name| format!("'' AS {name}"));
            format!("SELECT {} WHERE false", columns.join(", "))
        }
        false => format!(
            "SELECT * FROM (VALUES {rows}) AS t ({})",
            COLUMNS.join(", ")
        ),
    };
    match skewer_sql::parse(&sql)? {
        Statement::Query(query) => Ok(*query),
        _ => Err(Error::Internal(sql)),
    }
}
