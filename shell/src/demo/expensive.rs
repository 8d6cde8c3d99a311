//! The most expensive input of the last query, as schema `sys` names it.

use super::stage::Stage;
use crate::error::ShellError;

/// A base record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Its table with the schema.
    pub table: String,
    /// Its `_row_id`.
    pub row_id: i64,
}

/// Asks `sys.expensive_inputs` about the last query and tells the answer.
pub async fn input(stage: &mut Stage) -> Result<Input, ShellError> {
    let answer = stage
        .show(
            "SELECT table_name, row_id, round(max_total_ns / 1e6, 2) AS total_ms,
       round(max_remediated_ns / 1e6, 2) AS without_it_ms, outputs AS result_rows
FROM sys.expensive_inputs WHERE query_id = last_query_id() ORDER BY rank LIMIT 3",
        )
        .await?;
    let row_id = answer.text(1, 0)?;
    Ok(Input {
        table: answer.text(0, 0)?,
        row_id: row_id
            .parse()
            .map_err(|_| ShellError::Demo(format!("{row_id} is not a row id")))?,
    })
}
