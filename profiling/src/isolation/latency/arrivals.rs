//! What arrives at records and at result rows: from each origin its latencies, by way of the edges.

use std::collections::BTreeSet;

use super::{Writer, literal, union};
use crate::isolation::shape::{Origin, Shape};

/// Of inputs that are equally slow: the smallest source, and its shuffle latency.
pub(super) fn slowest_of(
    origins: &BTreeSet<Origin>,
    shape: &Shape,
) -> (&'static str, &'static str) {
    if origins.iter().any(|origin| shape.captures(origin)) {
        return (
            "min(inputs.source)",
            "first_value(inputs.shuffle_ns ORDER BY inputs.source, inputs.shuffle_ns)",
        );
    }
    // Nothing has been shuffled yet.
    ("min(inputs.source)", "CAST(0 AS BIGINT)")
}

impl Writer<'_> {
    /// The inputs of an operator's records as they arrive: with their total latency there.
    pub(super) fn arriving(
        &self,
        operator: i64,
        edges: &str,
        step: &str,
        remediated: bool,
    ) -> String {
        let origins = self.shape.inputs[&operator].iter().map(|origin| {
            let from = Arrival {
                edges,
                key: "output_id, partition",
                origin_column: "input_operator_id",
                record: "input_id",
                latency: "input_latency_ns",
            };
            self.arrival(&from, origin, step, remediated)
        });
        union(origins, 8)
    }

    /// The records that result rows are made of, as they arrive.
    pub(super) fn arriving_at_outputs(&self, step: &str, remediated: bool) -> String {
        let edges = format!(
            "(SELECT * FROM sys.output_records WHERE query_id = {})",
            self.query_id
        );
        let origins = self.shape.outputs.iter().map(|origin| {
            let from = Arrival {
                edges: &edges,
                key: "output_row",
                origin_column: "operator_id",
                record: "record_id",
                latency: "latency_ns",
            };
            self.arrival(&from, origin, step, remediated)
        });
        union(origins, 8)
    }

    fn arrival(&self, from: &Arrival<'_>, origin: &Origin, step: &str, remediated: bool) -> String {
        let Arrival {
            edges,
            key,
            origin_column,
            record,
            latency,
        } = from;
        let operator = origin.operator_id;
        if self.shape.captures(origin) {
            let key = key.split(", ").map(|key| format!("edge.{key}"));
            let key = key.collect::<Vec<_>>().join(", ");
            let remediated = if remediated {
                format!(",\n  edge.{latency} + input.remediated_ns AS remediated_ns")
            } else {
                String::new()
            };
            return format!(
                "SELECT\n  {key}, edge.{latency} + coalesce(input.total_ns, 0) AS total_ns,\n  \
                 input.source, coalesce(input.shuffle_ns, 0) AS shuffle_ns{remediated}\n\
                 FROM {step}_{operator} AS input RIGHT JOIN (\n  \
                 SELECT * FROM {edges} AS edge\n  \
                 WHERE {origin_column} = {operator} AND table_name IS NULL\n\
                 ) AS edge ON input.record_id = edge.{record}"
            );
        }
        let (source, table) = match &origin.table {
            Some(table) => (
                self.source(table, record),
                format!("table_name = {}", literal(table)),
            ),
            None => (
                "CAST(NULL AS BIGINT)".to_owned(),
                "table_name IS NULL".to_owned(),
            ),
        };
        // Without its only source a base record would not exist; a record of which no lineage
        // was captured stays as it is.
        let remediated = match (remediated, &origin.table) {
            (false, _) => String::new(),
            (true, Some(_)) => ", CAST(NULL AS BIGINT) AS remediated_ns".to_owned(),
            (true, None) => format!(", {latency} AS remediated_ns"),
        };
        format!(
            "SELECT {key}, {latency} AS total_ns, {source} AS source, CAST(0 AS BIGINT) AS shuffle_ns{remediated}\n\
             FROM {edges} AS edge WHERE {origin_column} = {operator} AND {table}"
        )
    }
}

/// Where arriving records are read from.
struct Arrival<'a> {
    edges: &'a str,
    key: &'a str,
    origin_column: &'a str,
    record: &'a str,
    latency: &'a str,
}
