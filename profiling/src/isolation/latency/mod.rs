//! The SQL of total, source and remediated latency.
//!
//! For an operator `n` that captured lineage, from its inputs up:
//! - `reached_n`, `edges_n`: its records that a result row depends on, found from the result
//!   down, and their edges
//! - `edge_cost_n`: what an edge costs in each partition: time spent aggregating ÷ edges
//! - `totals_n`: of each record the latency of the slowest input
//! - `slowest_n`: the same with total latency, source and shuffle latency
//! - `records_n`: the same with remediated latency, for which the source must be known first
//!
//! The last three are aggregates over the edges, joined with the inputs' own `slowest` or
//! `records`: nothing is sorted, and the edges of an operator are read a fixed number of times,
//! since all steps but `edges` are computed once. (One aggregate that gives the greatest total with
//! its source, such as `first_value(source ORDER BY total_ns DESC, source)`, takes longer than
//! looking for the total first and then for the source.)
//!
//! A source is one number, `row_id * tables + table`, so that one aggregate finds it, and ties
//! go to the smallest row id.

mod arrivals;
mod unlogged;

use std::fmt::Write;

use datafusion::common::Result;

use self::arrivals::slowest_of;
pub(super) use self::unlogged::NOT_CAPTURED;
use self::unlogged::nothing;
pub(crate) use self::unlogged::{of_carried, of_no_log};
use super::shape::{Origin, Shape};
use super::steps::{Step, Stepwise, Use};

/// A question about the latencies of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Of each result row.
    Outputs,
    /// Of each record of operators that captured lineage.
    Intermediates,
    /// Of base records: what they add to the result rows that they are the source of.
    Inputs,
}

/// The query that answers the question for one query, without `ORDER BY`.
pub(crate) fn stepwise(question: Question, query_id: i64, shape: &Shape) -> Result<Stepwise> {
    if shape.is_empty() {
        return Ok(Stepwise::simple(nothing(question, query_id, NOT_CAPTURED)));
    }
    let writer = Writer {
        query_id,
        shape,
        tables: shape.tables(),
    };
    let bottom_up = shape.inputs_first()?;
    let mut steps: Vec<Step> = Vec::new();
    for operator in bottom_up.iter().rev() {
        steps.push(writer.reached(*operator));
        steps.push(writer.edges(*operator));
    }
    for operator in &bottom_up {
        steps.push(writer.edge_cost(*operator));
        steps.push(writer.totals(*operator));
        steps.push(writer.slowest(*operator));
        steps.push(writer.records(*operator));
    }
    let answer = match question {
        Question::Intermediates => writer.intermediates(&bottom_up),
        Question::Outputs => {
            steps.extend(writer.outputs());
            format!(
                "SELECT\n  {query_id} AS query_id, output_row, total_ns,\n  {},\n  {},\n  \
                 coalesce(remediated_ns, 0) AS remediated_ns,\n  \
                 total_ns - shuffle_ns AS computation_ns, shuffle_ns\nFROM outputs",
                writer.source_table("source"),
                writer.source_row_id("source"),
            )
        }
        Question::Inputs => {
            steps.extend(writer.outputs());
            steps.push(writer.impacts());
            steps.push(writer.attributed());
            writer.inputs()
        }
    };
    Ok(Stepwise { steps, answer })
}

pub(super) struct Writer<'a> {
    pub(super) query_id: i64,
    pub(super) shape: &'a Shape,
    tables: Vec<&'a str>,
}

impl Writer<'_> {
    /// The records of an operator that a result row depends on.
    fn reached(&self, operator: i64) -> Step {
        let reached = reached(self.query_id, operator, self.shape);
        Step::new(
            Use::Shared,
            format!("reached_{operator}"),
            format!("Operator {operator}: the records that a result row depends on."),
            format!("  SELECT DISTINCT record_id FROM (\n    {reached}\n  ) AS records"),
        )
    }

    /// The edges of these records.
    fn edges(&self, operator: i64) -> Step {
        let query = self.query_id;
        Step::new(
            Use::Inline,
            format!("edges_{operator}"),
            format!("Operator {operator}: the edges of these records."),
            format!(
                "  SELECT\n    \
                 edge.output_id, edge.partition, edge.input_operator_id, edge.table_name,\n    \
                 edge.input_id, edge.input_latency_ns\n  \
                 FROM reached_{operator} AS reached\n  \
                 JOIN sys.lineage AS edge ON reached.record_id = edge.output_id\n  \
                 WHERE edge.query_id = {query} AND edge.operator_id = {operator}"
            ),
        )
    }

    /// What an edge costs in each partition of an operator.
    fn edge_cost(&self, operator: i64) -> Step {
        let of_operator = format!("query_id = {} AND operator_id = {operator}", self.query_id);
        Step::new(
            Use::Shared,
            format!("edge_cost_{operator}"),
            format!(
                "Operator {operator}: what an edge costs in each partition: time spent aggregating / edges."
            ),
            format!(
                "  SELECT spent.partition, CAST(spent.self_ns AS DOUBLE) / counted.edges AS ns_per_edge\n  \
             FROM (\n    \
             SELECT partition, sum(self_ns) AS self_ns\n    \
             FROM sys.operator_stats WHERE {of_operator} GROUP BY partition\n  \
             ) AS spent JOIN (\n    \
             SELECT partition, count(*) AS edges\n    \
             FROM sys.lineage WHERE {of_operator} GROUP BY partition\n  \
             ) AS counted ON spent.partition = counted.partition"
            ),
        )
    }

    /// Of each record of an operator that is reached: the latency of its slowest input.
    fn totals(&self, operator: i64) -> Step {
        let inputs = self.arriving(operator, &format!("edges_{operator}"), "slowest", false);
        Step::new(
            Use::Shared,
            format!("totals_{operator}"),
            format!("Operator {operator}: the latency of the slowest input of each record."),
            format!(
                "  SELECT\n    \
             output_id AS record_id, min(partition) AS partition, count(*) AS edges,\n    \
             max(total_ns) AS input_ns\n  \
             FROM (\n{inputs}\n  ) AS inputs\n  \
             GROUP BY output_id"
            ),
        )
    }

    /// The edges of an operator. Those that are not reached find no record that they are joined with.
    fn all_edges(&self, operator: i64) -> String {
        format!(
            "(SELECT * FROM sys.lineage WHERE query_id = {} AND operator_id = {operator})",
            self.query_id
        )
    }

    /// Of each record of an operator: total latency, its source, shuffle latency on the way.
    fn slowest(&self, operator: i64) -> Step {
        let inputs = self.arriving(operator, &self.all_edges(operator), "slowest", false);
        let (source, shuffle) = slowest_of(&self.shape.inputs[&operator], self.shape);
        Step::new(
            Use::Shared,
            format!("slowest_{operator}"),
            format!(
                "Operator {operator}: total latency of each record, and the source of its slowest input."
            ),
            format!(
                "  SELECT\n    \
             records.record_id, records.source, records.own_shuffle_ns,\n    \
             records.input_ns + records.own_shuffle_ns AS total_ns,\n    \
             records.input_shuffle_ns + records.own_shuffle_ns AS shuffle_ns\n  \
             FROM (\n    \
             SELECT\n      \
             slowest.record_id, slowest.source, slowest.input_ns, slowest.input_shuffle_ns,\n      \
             CAST(round(slowest.edges * coalesce(cost.ns_per_edge, 0)) AS BIGINT) AS own_shuffle_ns\n    \
             FROM edge_cost_{operator} AS cost RIGHT JOIN (\n      \
             SELECT\n        \
             totals.record_id, min(totals.partition) AS partition, min(totals.edges) AS edges,\n        \
             min(totals.input_ns) AS input_ns,\n        \
             {source} AS source,\n        \
             {shuffle} AS input_shuffle_ns\n      \
             FROM totals_{operator} AS totals JOIN (\n{inputs}\n      ) AS inputs\n      \
             ON totals.record_id = inputs.output_id AND totals.input_ns = inputs.total_ns\n      \
             GROUP BY totals.record_id\n    \
             ) AS slowest ON slowest.partition = cost.partition\n  \
             ) AS records"
            ),
        )
    }

    /// The same with remediated latency.
    fn records(&self, operator: i64) -> Step {
        let inputs = self.arriving(operator, &self.all_edges(operator), "records", true);
        Step::new(
            Use::Shared,
            format!("records_{operator}"),
            format!(
                "Operator {operator}: the same, and what the total would be without that source."
            ),
            format!(
                "  SELECT\n    \
             slowest.record_id, min(slowest.total_ns) AS total_ns, min(slowest.source) AS source,\n    \
             min(slowest.shuffle_ns) AS shuffle_ns,\n    \
             max(CASE WHEN inputs.source = slowest.source THEN inputs.remediated_ns ELSE inputs.total_ns END)\n      \
             + min(slowest.own_shuffle_ns) AS remediated_ns\n  \
             FROM slowest_{operator} AS slowest JOIN (\n{inputs}\n  \
             ) AS inputs ON slowest.record_id = inputs.output_id\n  \
             GROUP BY slowest.record_id"
            ),
        )
    }

    /// The same three steps for result rows, which cost no shuffle of their own.
    fn outputs(&self) -> [Step; 3] {
        let slowest = self.arriving_at_outputs("slowest", false);
        let records = self.arriving_at_outputs("records", true);
        let (source, shuffle) = slowest_of(&self.shape.outputs, self.shape);
        [
            Step::new(
                Use::Shared,
                "totals_outputs".to_owned(),
                "Total latency of each result row: that of its slowest record.",
                format!(
                    "  SELECT output_row, max(total_ns) AS total_ns\n  \
                 FROM (\n{slowest}\n  ) AS records\n  \
                 GROUP BY output_row"
                ),
            ),
            Step::new(
                Use::Shared,
                "slowest_outputs".to_owned(),
                "The same, and the source of its slowest record.",
                format!(
                    "  SELECT\n    \
                 totals.output_row, min(totals.total_ns) AS total_ns,\n    \
                 {source} AS source,\n    \
                 {shuffle} AS shuffle_ns\n  \
                 FROM totals_outputs AS totals JOIN (\n{slowest}\n  ) AS inputs\n  \
                 ON totals.output_row = inputs.output_row AND totals.total_ns = inputs.total_ns\n  \
                 GROUP BY totals.output_row"
                ),
            ),
            Step::new(
                Use::Shared,
                "outputs".to_owned(),
                "The same, and what the total would be without that source.",
                format!(
                    "  SELECT\n    \
                 slowest.output_row, min(slowest.total_ns) AS total_ns, min(slowest.source) AS source,\n    \
                 min(slowest.shuffle_ns) AS shuffle_ns,\n    \
                 max(CASE WHEN records.source = slowest.source THEN records.remediated_ns ELSE records.total_ns END)\n      \
                 AS remediated_ns\n  \
                 FROM slowest_outputs AS slowest JOIN (\n{records}\n  \
                 ) AS records ON slowest.output_row = records.output_row\n  \
                 GROUP BY slowest.output_row"
                ),
            ),
        ]
    }

    fn intermediates(&self, operators: &[i64]) -> String {
        let selects = operators.iter().map(|operator| {
            format!(
                "SELECT\n  {} AS query_id, {operator} AS operator_id, record_id, total_ns,\n  \
                 {},\n  {},\n  coalesce(remediated_ns, 0) AS remediated_ns,\n  \
                 total_ns - shuffle_ns AS computation_ns, shuffle_ns\nFROM records_{operator}",
                self.query_id,
                self.source_table("source"),
                self.source_row_id("source"),
            )
        });
        let all: Vec<String> = selects.collect();
        if all.is_empty() {
            return nothing(Question::Intermediates, self.query_id, NOT_CAPTURED);
        }
        all.join("\nUNION ALL\n")
    }

    /// The number that stands for a base record of a table.
    fn source(&self, table: &str, row_id: &str) -> String {
        match (
            self.tables.len(),
            self.tables.iter().position(|name| *name == table),
        ) {
            (count, Some(index)) if count > 1 => format!("{row_id} * {count} + {index}"),
            _ => row_id.to_owned(),
        }
    }

    pub(super) fn source_row_id(&self, source: &str) -> String {
        match self.tables.len() {
            0 | 1 => format!("{source} AS source_row_id"),
            count => format!("{source} / {count} AS source_row_id"),
        }
    }

    pub(super) fn source_table(&self, source: &str) -> String {
        match self.tables.as_slice() {
            [] => "CAST(NULL AS VARCHAR) AS source_table".to_owned(),
            [table] => format!(
                "CASE WHEN {source} IS NOT NULL THEN {} END AS source_table",
                literal(table)
            ),
            tables => {
                let mut case = format!("CASE {source} % {}", tables.len());
                for (index, table) in tables.iter().enumerate() {
                    let _ = write!(case, " WHEN {index} THEN {}", literal(table));
                }
                format!("{case} END AS source_table")
            }
        }
    }
}

/// The records of an operator that a result row depends on, given the edges of the operators
/// that consume them.
fn reached(query_id: i64, operator: i64, shape: &Shape) -> String {
    let mut reached: Vec<String> = Vec::new();
    let direct = Origin {
        operator_id: operator,
        table: None,
    };
    if shape.outputs.contains(&direct) {
        reached.push(format!(
            "SELECT record_id FROM sys.output_records WHERE query_id = {query_id} \
             AND operator_id = {operator} AND table_name IS NULL"
        ));
    }
    reached.extend(shape.consumers(operator).map(|consumer| {
        format!(
            "SELECT input_id AS record_id FROM edges_{consumer} \
             WHERE input_operator_id = {operator} AND table_name IS NULL"
        )
    }));
    if reached.is_empty() {
        return "SELECT CAST(NULL AS BIGINT) AS record_id WHERE false".to_owned();
    }
    reached.join("\n    UNION ALL\n    ")
}

fn union(selects: impl Iterator<Item = String>, indent: usize) -> String {
    let all = selects.collect::<Vec<_>>().join("\nUNION ALL\n");
    let indent = " ".repeat(indent);
    let lines: Vec<String> = all.lines().map(|line| format!("{indent}{line}")).collect();
    lines.join("\n")
}

/// A text as a literal in SQL.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
