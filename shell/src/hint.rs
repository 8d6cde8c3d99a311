//! One line after a statement whose diagnosis says something.

use std::slice;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use skewer::diagnosis::source::{Row, rows};
use skewer::diagnosis::verdict::readable;

/// Statements that took less need no hint, and asking for one would make them slower.
pub const LEAST: Duration = Duration::from_millis(100);

/// The id of the session's last query, in words that leave no trace: it reads schema `sys`.
pub const LAST_QUERY: &str = "SELECT last_query_id() AS query_id FROM sys.queries LIMIT 1";

/// The verdict of `sys.diagnoses`. It names a record only if `EXPLAIN PROFILE` does: both read the decisions of
/// `sys.anomaly_candidates`.
pub fn sql(query_id: i64) -> String {
    format!(
        "SELECT rule, subject, cause, zoom_sql, evidence_sql FROM sys.diagnoses \
         WHERE query_id = {query_id} AND severity IN ('critical', 'warning') AND place = 1"
    )
}

/// The line about the answer's first row.
pub fn line(answer: &RecordBatch) -> Option<String> {
    let row = first_row(answer)?;
    let (rule, subject, cause) = (row.text("rule")?, row.text("subject")?, row.text("cause")?);
    let look = row.text("zoom_sql").or_else(|| row.text("evidence_sql"))?;
    let cause = readable(&cause);
    Some(format!(
        "{rule} in {subject}: {cause} {look};  (.hints off)"
    ))
}

/// The first row of an answer.
pub fn first_row(answer: &RecordBatch) -> Option<Row<'_>> {
    rows(slice::from_ref(answer)).next()
}

#[cfg(test)]
mod tests;
