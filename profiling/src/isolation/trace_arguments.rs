//! Whether a trace asks for a result row and a table that its query has.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, plan_err};

use super::expanded::run;
use super::shape::Shape;
use super::trace::logged_name;
use crate::planner::Planner;

/// Whether a query may have returned the row.
///
/// # Errors
/// If it has returned others alone, it says which.
pub(super) async fn of_a_result_row(
    planner: &Planner,
    query_id: i64,
    output_row: i64,
) -> Result<()> {
    let returned = format!(
        "SELECT coalesce(rows_returned, 0), status FROM sys.queries
         WHERE query_id = {query_id}
           AND (status <> 'finished' OR {output_row} NOT BETWEEN 0 AND coalesce(rows_returned, 0) - 1)
           AND NOT EXISTS (
             SELECT 1 FROM sys.output_records
             WHERE query_id = {query_id} AND output_row = {output_row}
           )"
    );
    let answer = run(planner, &returned).await?;
    let Some(batch) = answer.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(());
    };
    let rows = cast(batch.column(0), &DataType::Int64)?;
    let rows = rows.as_primitive::<Int64Type>().value(0);
    let status = cast(batch.column(1), &DataType::Utf8)?;
    let status = status.as_string::<i32>().value(0);
    match rows {
        _ if status == "cancelled" => {
            plan_err!("query {query_id} was cancelled, and had returned no row {output_row}")
        }
        _ if status != "finished" => {
            plan_err!("query {query_id} failed, and had returned no row {output_row}")
        }
        0 => plan_err!("query {query_id} returned no row: there is nothing to trace back"),
        1 => plan_err!("query {query_id} returned one row, number 0; there is no row {output_row}"),
        _ => plan_err!(
            "query {query_id} returned {rows} rows, number 0 to {}; there is no row {output_row}",
            rows - 1
        ),
    }
}

/// Whether a query has read the table.
///
/// # Errors
/// If it has read others alone, it says which.
pub(super) async fn of_a_table(
    planner: &Planner,
    query_id: i64,
    table: &str,
    shape: &Shape,
) -> Result<()> {
    let scanned = format!(
        "SELECT DISTINCT table_name FROM sys.operators
         WHERE query_id = {query_id} AND table_name IS NOT NULL"
    );
    let answer = run(planner, &scanned).await?;
    let mut read: Vec<String> = Vec::new();
    for batch in &answer {
        let names = cast(batch.column(0), &DataType::Utf8)?;
        read.extend(names.as_string::<i32>().iter().flatten().map(str::to_owned));
    }
    read.extend(shape.tables().into_iter().map(str::to_owned));
    read.sort();
    read.dedup();
    let read: Vec<&str> = read.iter().map(String::as_str).collect();
    let is_read = |tables: &[&str]| read.contains(&logged_name(table, tables));
    if read.is_empty() || is_read(&shape.tables()) || is_read(&read) {
        return Ok(());
    }
    plan_err!(
        "query {query_id} has not read a table '{table}', but {}",
        read.join(", ")
    )
}
