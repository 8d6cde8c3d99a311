//! Single calls of operators, from level `calls` on.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;

use crate::operator_text::title;

/// The calls of query `$query_id` and what their operators are, outer calls before inner ones.
const SQL: &str = "\
SELECT
  calls.worker_id, calls.fragment_id, calls.partition, calls.operator_id,
  CAST(calls.started_at AS BIGINT) AS started_at, CAST(calls.ended_at AS BIGINT) AS ended_at,
  calls.rows, operators.name, operators.details, operators.table_name
FROM sys.operator_calls AS calls
JOIN sys.operators AS operators
  ON calls.query_id = operators.query_id AND calls.operator_id = operators.operator_id
WHERE calls.query_id = $query_id
ORDER BY worker_id, fragment_id, partition, started_at, ended_at DESC, operator_id";

/// A call of an operator. Times are nanoseconds since the epoch.
#[derive(Debug, Clone)]
pub struct OperatorCall {
    /// The worker that ran it.
    pub worker_id: i64,
    /// The fragment of the operator.
    pub fragment_id: i64,
    /// The partition of the fragment.
    pub partition: i64,
    /// The operator.
    pub operator_id: i64,
    /// When the call began.
    pub started_at: i64,
    /// When the call returned.
    pub ended_at: i64,
    /// Rows that the call returned.
    pub rows: i64,
    /// What the operator does.
    pub title: String,
}

/// Returns the statement whose answer [`read_calls`] reads.
pub fn calls_sql(query_id: i64) -> String {
    SQL.replace("$query_id", &query_id.to_string())
}

/// Reads the calls of a batch of the statement's answer.
pub fn read_calls(batch: &RecordBatch) -> impl Iterator<Item = OperatorCall> + '_ {
    let text = |column: &str, row: usize| {
        let texts = batch.column_by_name(column)?.as_string_opt::<i32>()?;
        texts.is_valid(row).then(|| texts.value(row))
    };
    let columns = [
        "worker_id",
        "fragment_id",
        "partition",
        "operator_id",
        "started_at",
        "ended_at",
        "rows",
    ];
    let columns = columns.map(|column| numbers(batch, column));
    (0..batch.num_rows()).map(move |row| OperatorCall {
        worker_id: columns[0][row],
        fragment_id: columns[1][row],
        partition: columns[2][row],
        operator_id: columns[3][row],
        started_at: columns[4][row],
        ended_at: columns[5][row],
        rows: columns[6][row],
        title: title(
            text("name", row).unwrap_or_default(),
            text("details", row).unwrap_or_default(),
            text("table_name", row),
        ),
    })
}

fn numbers(batch: &RecordBatch, column: &str) -> Vec<i64> {
    let column = batch.column_by_name(column);
    let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.map_or_else(Vec::new, |numbers| numbers.values().to_vec())
}
