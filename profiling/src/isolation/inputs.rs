//! The steps of `sys.expensive_inputs` above the latencies of result rows.

use super::latency::Writer;
use super::steps::{Step, Use};

impl Writer<'_> {
    /// Impact of each base record that is the source of a result row.
    pub(super) fn impacts(&self) -> Step {
        Step::new(
            Use::Inline,
            "impacts".to_owned(),
            "What each source adds to the result rows that it is the source of.",
            format!(
                "  SELECT\n    \
             {},\n    {},\n    \
             max(total_ns) - max(coalesce(remediated_ns, 0)) AS impact_ns,\n    \
             max(total_ns) AS max_total_ns, max(coalesce(remediated_ns, 0)) AS max_remediated_ns,\n    \
             count(*) AS outputs\n  \
             FROM outputs\n  WHERE source IS NOT NULL\n  GROUP BY source",
                self.source_table("source")
                    .replace("source_table", "table_name"),
                self.source_row_id("source")
                    .replace("source_row_id", "row_id"),
            ),
        )
    }

    /// The sources with their second attribution: the sum of all computation latencies of the
    /// base record, as recorded for the record, or else as recorded for its edges.
    pub(super) fn attributed(&self) -> Step {
        let query = self.query_id;
        let latencies = if self.shape.record_latency {
            format!(
                "    SELECT table_name, row_id, latency_ns, method, error_ns FROM sys.record_latency\n    \
                 WHERE query_id = {query} AND table_name IS NOT NULL AND kind = 'computation'"
            )
        } else {
            self.latencies_of_edges()
        };
        Step::new(
            Use::Inline,
            "attributed".to_owned(),
            "The second attribution: all time spent on the record, on the critical path or not.",
            format!(
                "  SELECT\n    \
             impacts.table_name, impacts.row_id, impacts.impact_ns, impacts.max_total_ns,\n    \
             impacts.max_remediated_ns, impacts.outputs,\n    \
             coalesce(sum(latencies.latency_ns), 0) AS self_ns,\n    \
             sum(CASE WHEN method = 'measured' THEN latencies.latency_ns END) AS measured_ns,\n    \
             sum(CASE WHEN method = 'replayed' THEN latencies.latency_ns END) AS replayed_ns,\n    \
             sum(latencies.error_ns) AS error_ns\n  \
             FROM impacts LEFT JOIN (\n{latencies}\n  ) AS latencies\n  \
             ON impacts.table_name = latencies.table_name AND impacts.row_id = latencies.row_id\n  \
             GROUP BY impacts.table_name, impacts.row_id, impacts.impact_ns, impacts.max_total_ns,\n    \
             impacts.max_remediated_ns, impacts.outputs"
            ),
        )
    }

    /// The computation latencies of base records, as recorded for their edges.
    fn latencies_of_edges(&self) -> String {
        let query = self.query_id;
        let of_edges = |which: &str, latency: &str| {
            format!(
                "    SELECT\n      \
                 table_name, input_id AS row_id, {latency} AS latency_ns,\n      \
                 CAST(NULL AS VARCHAR) AS method, CAST(NULL AS BIGINT) AS error_ns\n    \
                 FROM sys.lineage WHERE query_id = {query} AND table_name IS NOT NULL{which}"
            )
        };
        let of_outputs = format!(
            "    SELECT table_name, record_id AS row_id, latency_ns, NULL, NULL\n    \
             FROM sys.output_records WHERE query_id = {query} AND table_name IS NOT NULL"
        );
        let recursive = self.shape.recursive.iter().map(i64::to_string);
        let recursive = recursive.collect::<Vec<_>>().join(", ");
        let edges = match recursive.is_empty() {
            true => of_edges("", "input_latency_ns"),
            false => {
                let others = format!("\n    AND operator_id NOT IN ({recursive})");
                let recursive = format!(
                    "\n    AND operator_id IN ({recursive})\n    GROUP BY operator_id, table_name, input_id"
                );
                format!(
                    "{}\n    UNION ALL\n    \
                     -- Rows of a recursive query carry what a record took on its way: all that it became.\n\
                     {}",
                    of_edges(&others, "input_latency_ns"),
                    of_edges(&recursive, "max(input_latency_ns)")
                )
            }
        };
        format!("{edges}\n    UNION ALL\n{of_outputs}")
    }

    pub(super) fn inputs(&self) -> String {
        format!(
            "SELECT\n  \
             {} AS query_id, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns,\n  \
             outputs, self_ns,\n  \
             CASE\n    \
             WHEN 2 * replayed_ns > self_ns THEN 'replayed'\n    \
             WHEN 2 * measured_ns > self_ns THEN 'measured'\n    \
             WHEN error_ns IS NOT NULL THEN 'apportioned'\n  \
             END AS method,\n  \
             error_ns,\n  \
             CAST(row_number() OVER (ORDER BY impact_ns DESC, row_id, table_name) AS BIGINT) AS rank\n\
             FROM attributed",
            self.query_id
        )
    }
}
