//! The SQL of tracing: from a result row back to the base records it was computed from, and
//! from a base record to the result rows that were computed from it.

use datafusion::common::Result;

use super::latency::literal;
use super::shape::{Origin, Shape};

/// The base records that a result row was computed from, and what each took on its way there
/// (on the slowest of its ways), without shuffle latency.
pub(crate) fn backward_sql(query_id: i64, output_row: i64, shape: &Shape) -> Result<String> {
    let outputs = "query_id = ".to_owned()
        + &format!("{query_id} AND output_row = {output_row} AND record_id IS NOT NULL");
    let mut steps: Vec<String> = Vec::new();
    let mut found: Vec<String> = Vec::new();
    let base = |origin: &&Origin| origin.table.is_some();
    if shape.outputs.iter().any(|origin| base(&origin)) {
        found.push(format!(
            "SELECT table_name, record_id AS row_id, latency_ns\n  \
             FROM sys.output_records WHERE {outputs} AND table_name IS NOT NULL"
        ));
    }
    for operator in shape.inputs_first()?.into_iter().rev() {
        let mut reached = vec![format!(
            "SELECT record_id, latency_ns FROM sys.output_records\n    \
             WHERE {outputs} AND operator_id = {operator} AND table_name IS NULL"
        )];
        reached.extend(shape.consumers(operator).map(|consumer| {
            format!(
                "SELECT input_id AS record_id, latency_ns FROM edges_{consumer}\n    \
                 WHERE input_operator_id = {operator} AND table_name IS NULL"
            )
        }));
        steps.push(format!(
            "-- Operator {operator}: the edges to the records that the row was computed from.\n\
             edges_{operator} AS (\n  \
             SELECT edge.input_operator_id, edge.table_name, edge.input_id,\n    \
             edge.input_latency_ns + record.latency_ns AS latency_ns\n  \
             FROM (\n    \
             SELECT record_id, max(latency_ns) AS latency_ns FROM (\n    {}\n    ) AS reached\n    \
             GROUP BY record_id\n  \
             ) AS record JOIN sys.lineage AS edge ON record.record_id = edge.output_id\n  \
             WHERE edge.query_id = {query_id} AND edge.operator_id = {operator}\n)",
            reached.join("\n    UNION ALL\n    ")
        ));
        if shape.inputs[&operator].iter().any(|origin| base(&origin)) {
            found.push(format!(
                "SELECT table_name, input_id AS row_id, latency_ns\n  \
                 FROM edges_{operator} WHERE table_name IS NOT NULL"
            ));
        }
    }
    if found.is_empty() {
        return Ok(
            "SELECT CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,\n  \
             CAST(NULL AS BIGINT) AS latency_ns\nWHERE false"
                .to_owned(),
        );
    }
    Ok(format!(
        "{}SELECT table_name, row_id, max(latency_ns) AS latency_ns\nFROM (\n  {}\n) AS found\n\
         GROUP BY table_name, row_id",
        with(&steps),
        found.join("\n  UNION ALL\n  ")
    ))
}

/// The result rows that were computed from a base record.
pub(crate) fn forward_sql(
    query_id: i64,
    table: &str,
    row_id: i64,
    shape: &Shape,
) -> Result<String> {
    let record = format!("table_name = {}", literal(table));
    let mut steps: Vec<String> = Vec::new();
    let mut found: Vec<String> = Vec::new();
    let is_record = |origin: &Origin| origin.table.as_deref() == Some(table);
    for operator in shape.inputs_first()? {
        let mut reached = Vec::new();
        for origin in &shape.inputs[&operator] {
            let edges = format!(
                "query_id = {query_id} AND operator_id = {operator} AND input_operator_id = {}",
                origin.operator_id
            );
            if is_record(origin) {
                reached.push(format!(
                    "SELECT output_id FROM sys.lineage\n  \
                     WHERE {edges} AND {record} AND input_id = {row_id}"
                ));
            } else if shape.captures(origin) {
                reached.push(format!(
                    "SELECT output_id FROM sys.lineage\n  \
                     WHERE {edges} AND table_name IS NULL\n    \
                     AND input_id IN (SELECT record_id FROM reached_{})",
                    origin.operator_id
                ));
            }
        }
        if reached.is_empty() {
            reached.push("SELECT CAST(NULL AS BIGINT) AS output_id WHERE false".to_owned());
        }
        steps.push(format!(
            "-- Operator {operator}: the records that were computed from the base record.\n\
             reached_{operator} AS (\n  SELECT DISTINCT output_id AS record_id FROM (\n  {}\n  ) AS edges\n)",
            reached.join("\n  UNION ALL\n  ")
        ));
    }
    for origin in &shape.outputs {
        let operator = origin.operator_id;
        let outputs = format!("query_id = {query_id} AND operator_id = {operator}");
        if is_record(origin) {
            found.push(format!(
                "SELECT output_row FROM sys.output_records\n  \
                 WHERE {outputs} AND {record} AND record_id = {row_id}"
            ));
        } else if shape.captures(origin) {
            found.push(format!(
                "SELECT output_row FROM sys.output_records\n  \
                 WHERE {outputs} AND table_name IS NULL\n    \
                 AND record_id IN (SELECT record_id FROM reached_{operator})"
            ));
        }
    }
    if found.is_empty() {
        return Ok("SELECT CAST(NULL AS BIGINT) AS output_row WHERE false".to_owned());
    }
    Ok(format!(
        "{}SELECT DISTINCT output_row\nFROM (\n  {}\n) AS found",
        with(&steps),
        found.join("\n  UNION ALL\n  ")
    ))
}

fn with(steps: &[String]) -> String {
    if steps.is_empty() {
        String::new()
    } else {
        format!("WITH\n{}\n", steps.join(",\n"))
    }
}
