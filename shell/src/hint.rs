//! One line after a statement whose diagnosis says something.

use std::time::Duration;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};

use crate::units;

/// Statements that took less need no hint, and asking for one would make them slower.
pub const LEAST: Duration = Duration::from_millis(100);

/// The id of the session's last query, in words that leave no trace: it reads schema `sys`.
pub const LAST_QUERY: &str = "SELECT last_query_id() FROM sys.queries LIMIT 1";

/// The worst of what is conspicuous about a query. It names a record only if `EXPLAIN PROFILE` does:
/// both go by `sys.anomalies`.
pub fn sql(query_id: i64) -> String {
    format!(
        "SELECT rule, subject, wasted_ns, zoom_sql, evidence_sql FROM sys.diagnoses \
         WHERE query_id = {query_id} AND severity IN ('critical', 'warning') \
         ORDER BY severity, zoom_sql IS NULL, wasted_ns DESC NULLS LAST, rule LIMIT 1"
    )
}

/// The line about the answer's first row.
pub fn line(answer: &RecordBatch) -> Option<String> {
    let text = |column: &str| text(answer, column);
    let (rule, subject) = (text("rule")?, text("subject")?);
    let look = text("zoom_sql").or_else(|| text("evidence_sql"))?;
    let costs = match number(answer, "wasted_ns") {
        Some(wasted) => format!(
            " costs {}",
            units::duration(Duration::from_nanos(wasted.unsigned_abs()))
        ),
        None => String::new(),
    };
    Some(format!("{rule} in {subject}{costs}: {look};  (.hints off)"))
}

/// The first value of a column of numbers.
pub fn number(answer: &RecordBatch, column: &str) -> Option<i64> {
    let cell = cell(
        answer,
        answer.schema().index_of(column).ok()?,
        &DataType::Int64,
    )?;
    Some(cell.as_primitive::<Int64Type>().value(0))
}

/// The first number of an answer.
pub fn first_number(answer: &RecordBatch) -> Option<i64> {
    let cell = cell(answer, 0, &DataType::Int64)?;
    Some(cell.as_primitive::<Int64Type>().value(0))
}

fn text(answer: &RecordBatch, column: &str) -> Option<String> {
    let cell = cell(
        answer,
        answer.schema().index_of(column).ok()?,
        &DataType::Utf8,
    )?;
    Some(cell.as_string::<i32>().value(0).to_owned())
}

fn cell(
    answer: &RecordBatch,
    column: usize,
    data_type: &DataType,
) -> Option<datafusion::arrow::array::ArrayRef> {
    let column = answer.columns().get(column)?;
    let cell = cast(&column.slice(0, column.len().min(1)), data_type).ok()?;
    (cell.len() == 1 && cell.is_valid(0)).then_some(cell)
}

#[cfg(test)]
mod tests;
