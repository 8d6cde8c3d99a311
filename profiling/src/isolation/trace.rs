//! The SQL of tracing: from a result row back to the base records it was computed from, and
//! from a base record to the result rows that were computed from it.

use datafusion::common::Result;

use super::latency::literal;
use super::shape::{Origin, Shape};
use super::steps::{Step, Stepwise, Use};

/// The base records that a result row was computed from, and what each took on its way there
/// (on the slowest of its ways), without shuffle latency.
pub(crate) fn backward(query_id: i64, output_row: i64, shape: &Shape) -> Result<Stepwise> {
    let outputs = "query_id = ".to_owned()
        + &format!("{query_id} AND output_row = {output_row} AND record_id IS NOT NULL");
    let mut steps: Vec<Step> = Vec::new();
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
        steps.push(Step::new(
            Use::Shared,
            format!("reached_{operator}"),
            format!("Operator {operator}: the records that the row was computed from."),
            format!(
                "  SELECT record_id, max(latency_ns) AS latency_ns FROM (\n    {}\n  ) AS reached\n  \
                 GROUP BY record_id",
                reached.join("\n    UNION ALL\n    ")
            ),
        ));
        steps.push(Step::new(
            Use::Inline,
            format!("edges_{operator}"),
            format!(
                "Operator {operator}: the edges to these records, with the latency from there on."
            ),
            format!(
                "  SELECT edge.input_operator_id, edge.table_name, edge.input_id,\n    \
                 edge.input_latency_ns + reached.latency_ns AS latency_ns\n  \
                 FROM reached_{operator} AS reached\n  \
                 JOIN sys.lineage AS edge ON reached.record_id = edge.output_id\n  \
                 WHERE edge.query_id = {query_id} AND edge.operator_id = {operator}"
            ),
        ));
        if shape.inputs[&operator].iter().any(|origin| base(&origin)) {
            found.push(format!(
                "SELECT table_name, input_id AS row_id, latency_ns\n  \
                 FROM edges_{operator} WHERE table_name IS NOT NULL"
            ));
        }
    }
    if found.is_empty() {
        let nothing = "SELECT CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,\n  \
             CAST(NULL AS BIGINT) AS latency_ns\nWHERE false";
        return Ok(Stepwise::simple(nothing.to_owned()));
    }
    let answer = format!(
        "SELECT table_name, row_id, max(latency_ns) AS latency_ns\nFROM (\n  {}\n) AS found\n\
         GROUP BY table_name, row_id",
        found.join("\n  UNION ALL\n  ")
    );
    Ok(Stepwise { steps, answer })
}

/// The one of `tables` that is meant by a name with or without its schema, as the log calls it.
pub(super) fn logged_name<'a>(table: &'a str, tables: &[&'a str]) -> &'a str {
    // A Parquet file is called by its path, which has no schema.
    let bare = |logged: &&str| {
        let parts = logged.split_once('.');
        parts.is_some_and(|(schema, bare)| bare == table && !schema.contains('/'))
    };
    let of_that_name: Vec<&str> = tables.iter().copied().filter(bare).collect();
    match of_that_name[..] {
        [logged] if !tables.contains(&table) => logged,
        _ => table,
    }
}

/// The result rows that were computed from a base record.
pub(crate) fn forward(query_id: i64, table: &str, row_id: i64, shape: &Shape) -> Result<Stepwise> {
    let table = logged_name(table, &shape.tables());
    let record = format!("table_name = {}", literal(table));
    let mut steps: Vec<Step> = Vec::new();
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
                    "SELECT output_id FROM sys.lineage\n    \
                     WHERE {edges} AND {record} AND input_id = {row_id}"
                ));
            } else if shape.captures(origin) {
                reached.push(format!(
                    "SELECT edge.output_id FROM reached_{} AS reached\n    \
                     JOIN sys.lineage AS edge ON reached.record_id = edge.input_id\n    \
                     WHERE {edges} AND table_name IS NULL",
                    origin.operator_id
                ));
            }
        }
        if reached.is_empty() {
            reached.push("SELECT CAST(NULL AS BIGINT) AS output_id WHERE false".to_owned());
        }
        steps.push(Step::new(
            Use::Shared,
            format!("reached_{operator}"),
            format!("Operator {operator}: the records that were computed from the base record."),
            format!(
                "  SELECT DISTINCT output_id AS record_id FROM (\n    {}\n  ) AS edges",
                reached.join("\n    UNION ALL\n    ")
            ),
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
                "SELECT output.output_row FROM reached_{operator} AS reached\n  \
                 JOIN sys.output_records AS output ON reached.record_id = output.record_id\n  \
                 WHERE {outputs} AND table_name IS NULL"
            ));
        }
    }
    if found.is_empty() {
        let nothing = "SELECT CAST(NULL AS BIGINT) AS output_row WHERE false";
        return Ok(Stepwise::simple(nothing.to_owned()));
    }
    let answer = format!(
        "SELECT DISTINCT output_row\nFROM (\n  {}\n) AS found",
        found.join("\n  UNION ALL\n  ")
    );
    Ok(Stepwise { steps, answer })
}
