//! One line after a statement whose diagnosis says something.

use std::slice;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use skewer::diagnosis::source::{Row, rows};

use crate::units;

/// Statements that took less need no hint, and asking for one would make them slower.
pub const LEAST: Duration = Duration::from_millis(100);

/// The id of the session's last query, in words that leave no trace: it reads schema `sys`.
pub const LAST_QUERY: &str = "SELECT last_query_id() AS query_id FROM sys.queries LIMIT 1";

/// The query's worst diagnosis. It names a record only if `EXPLAIN PROFILE` does: both read the
/// decisions of `sys.anomaly_candidates`.
pub fn sql(query_id: i64) -> String {
    format!(
        "SELECT rule, subject, wasted_ns, zoom_sql, evidence_sql FROM sys.diagnoses \
         WHERE query_id = {query_id} AND severity IN ('critical', 'warning') \
         ORDER BY severity, zoom_sql IS NULL, wasted_ns DESC NULLS LAST, rule LIMIT 1"
    )
}

/// The line about the answer's first row.
pub fn line(answer: &RecordBatch) -> Option<String> {
    let row = first_row(answer)?;
    let (rule, subject) = (row.text("rule")?, row.text("subject")?);
    let look = row.text("zoom_sql").or_else(|| row.text("evidence_sql"))?;
    let costs = match row.integer("wasted_ns") {
        Some(wasted) => format!(
            " costs {}",
            units::duration(Duration::from_nanos(wasted.unsigned_abs()))
        ),
        None => String::new(),
    };
    Some(format!("{rule} in {subject}{costs}: {look};  (.hints off)"))
}

/// The first row of an answer.
pub fn first_row(answer: &RecordBatch) -> Option<Row<'_>> {
    rows(slice::from_ref(answer)).next()
}

#[cfg(test)]
mod tests;
