//! What the tables are called whose SQL is written for each query, and what their rows and columns are.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::Expansion;

impl Expansion {
    /// Name of the view or table function.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Expansion::OutputLatency => "output_latency",
            Expansion::IntermediateLatency => "intermediate_latency",
            Expansion::ExpensiveInputs => "expensive_inputs",
            Expansion::AnomalyCandidates => "anomaly_candidates",
            Expansion::BackwardTrace { .. } => "backward_trace",
            Expansion::ForwardTrace { .. } => "forward_trace",
        }
    }

    /// What one row is, as Markdown.
    pub(crate) fn doc(&self) -> &'static str {
        match self {
            Expansion::OutputLatency => {
                "One row per result row: its total latency, of which `computation_ns` and\n\
                 `shuffle_ns` along the slowest way, the base record that it came from, and what the\n\
                 total would be without that record. Of a query that ran with\n\
                 `profile.lineage = 'piggyback'` there are none."
            }
            Expansion::IntermediateLatency => {
                "The same for each record that an operator which captures lineage (an aggregate, a\n\
                 window) made on the way to the result."
            }
            Expansion::ExpensiveInputs => {
                "The base records that are the most impactful source of a result row, by descending\n\
                 impact (`rank` 1 is the greatest): how many result rows (`outputs`), their greatest\n\
                 total and remediated latency. `self_ns` is a second attribution: the sum of all\n\
                 computation latencies of the record, on the slowest way or not (from\n\
                 `sys.record_latency`, or where that has nothing for the query, from the edges of\n\
                 lineage; in a recursive query, the greatest latency that a row made of it carried).\n\
                 `method` says how more than half of that was found, and `error_ns` by how much it may\n\
                 be off. Of a query that ran with `profile.lineage = 'piggyback'` the\n\
                 answer is in `sys.impactful_sources`, and `self_ns`, `method` and `error_ns` are\n\
                 NULL."
            }
            Expansion::AnomalyCandidates => {
                "The records of a query that are judged: the five of the highest impact, the three of the\n\
                 highest self time, and those of which many rows were made. `reason` says why a record stands\n\
                 out; it is NULL if the record does not. [`sys.anomalies`](#sysanomalies) has the records that\n\
                 do, and describes the columns.\n\n\
                 - `critical path`: the impact of the record is at least `threshold_ns`. That is the greatest of\n\
                 a millisecond, 5 % of `query_ns`, twice `even_ns`, and 10 times `median_ns` (10 times `even_ns`\n\
                 where no self time was measured).\n\
                 - `self time`: the self time of the record is at least the same threshold.\n\
                 - `fan-out`: an unnest, a join or a recursive query makes rows of the records of a table. A join\n\
                 does if it returns twice as many rows as the larger of its inputs, a recursive query if it returns\n\
                 twice as many as its static term. Rows are counted at the first operator that captures lineage,\n\
                 or in the result. Ten times more descend from the record than from each record with fewer rows,\n\
                 in the mean. Operators took at least `threshold_ns` for its rows: a millisecond, 5 % of\n\
                 `query_ns`, and 5 % of all self time. Each scan has up to three such records."
            }
            Expansion::BackwardTrace { .. } => {
                "The base records that a result row was computed from, and the computation latency\n\
                 of each on its way there (on the slowest, if there are several). An error says why\n\
                 where no lineage was recorded of the query, or it returned no such row."
            }
            Expansion::ForwardTrace { .. } => {
                "The result rows that were computed from a base record. An error says why where no\n\
                 lineage was recorded of the query, or it read no such table."
            }
        }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        const BIGINT: DataType = DataType::Int64;
        const VARCHAR: DataType = DataType::Utf8;
        let columns: &[(&str, DataType)] = match self {
            Expansion::OutputLatency => &[
                ("query_id", BIGINT),
                ("output_row", BIGINT),
                ("total_ns", BIGINT),
                ("source_table", VARCHAR),
                ("source_row_id", BIGINT),
                ("remediated_ns", BIGINT),
                ("computation_ns", BIGINT),
                ("shuffle_ns", BIGINT),
            ],
            Expansion::IntermediateLatency => &[
                ("query_id", BIGINT),
                ("operator_id", BIGINT),
                ("record_id", BIGINT),
                ("total_ns", BIGINT),
                ("source_table", VARCHAR),
                ("source_row_id", BIGINT),
                ("remediated_ns", BIGINT),
                ("computation_ns", BIGINT),
                ("shuffle_ns", BIGINT),
            ],
            Expansion::ExpensiveInputs => &[
                ("query_id", BIGINT),
                ("table_name", VARCHAR),
                ("row_id", BIGINT),
                ("impact_ns", BIGINT),
                ("max_total_ns", BIGINT),
                ("max_remediated_ns", BIGINT),
                ("outputs", BIGINT),
                ("self_ns", BIGINT),
                ("method", VARCHAR),
                ("error_ns", BIGINT),
                ("rank", BIGINT),
            ],
            Expansion::AnomalyCandidates => &[
                ("query_id", BIGINT),
                ("table_name", VARCHAR),
                ("row_id", BIGINT),
                ("reason", VARCHAR),
                ("cost_ns", BIGINT),
                ("threshold_ns", BIGINT),
                ("rank", BIGINT),
                ("impact_ns", BIGINT),
                ("max_total_ns", BIGINT),
                ("max_remediated_ns", BIGINT),
                ("outputs", BIGINT),
                ("self_ns", BIGINT),
                ("method", VARCHAR),
                ("error_ns", BIGINT),
                ("median_ns", BIGINT),
                ("even_ns", BIGINT),
                ("query_ns", BIGINT),
                ("operator_id", BIGINT),
                ("rows_made", BIGINT),
                ("table_rows", BIGINT),
                ("apportioned_ns", BIGINT),
                ("unknown", VARCHAR),
            ],
            Expansion::BackwardTrace { .. } => &[
                ("table_name", VARCHAR),
                ("row_id", BIGINT),
                ("latency_ns", BIGINT),
            ],
            Expansion::ForwardTrace { .. } => &[("output_row", BIGINT)],
        };
        let fields = columns.iter();
        let fields = fields.map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}
