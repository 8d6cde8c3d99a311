//! The SQL behind each section of a report about one query: what `EXPLAIN PROFILE` runs, and
//! prints with `AS SQL`.

/// A section of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The operators with their totals; `parent_operator_id` makes the tree.
    Plan,
    /// The operators that took the most time of their own.
    TimeSpent,
    /// What crossed exchanges.
    Communication,
    /// What is conspicuous.
    Diagnoses,
    /// The base records with the greatest impact.
    ExpensiveInputs,
    /// The result rows with the greatest total latency.
    SlowestRows,
    /// What profiling cost, and how many events were dropped.
    Overhead,
}

impl Section {
    /// All sections, in the order of the report.
    pub const ALL: [Section; 7] = [
        Section::Plan,
        Section::TimeSpent,
        Section::Communication,
        Section::Diagnoses,
        Section::ExpensiveInputs,
        Section::SlowestRows,
        Section::Overhead,
    ];

    /// The section's SQL for a query.
    pub fn sql(self, query_id: i64) -> String {
        match self {
            Section::Plan => format!(
                "SELECT operator_id, parent_operator_id, name, details, partitions, rows_in,\n  \
                 rows_out, estimated_rows, self_ns, share, total_ns, input_wait_ns,\n  \
                 peak_memory_bytes, spilled_bytes, row_skew, time_skew\n\
                 FROM sys.operator_contribution WHERE query_id = {query_id}\nORDER BY operator_id"
            ),
            Section::TimeSpent => format!(
                "SELECT operator_id, name, self_ns, share, rows_in, rows_out, time_skew\n\
                 FROM sys.operator_contribution WHERE query_id = {query_id} AND self_ns > 0\n\
                 ORDER BY self_ns DESC, operator_id LIMIT 5"
            ),
            Section::Communication => format!(
                "SELECT exchange_id, name, tuples, bytes, partitions, max_tuples, skew\n\
                 FROM sys.communication WHERE query_id = {query_id}\nORDER BY exchange_id"
            ),
            Section::Diagnoses => format!(
                "SELECT rule, severity, subject, wasted_ns, advice, evidence_sql\n\
                 FROM sys.diagnoses WHERE query_id = {query_id}\n\
                 ORDER BY wasted_ns DESC NULLS LAST, rule, subject"
            ),
            Section::ExpensiveInputs => format!(
                "SELECT rank, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns,\n  \
                 outputs, self_ns\n\
                 FROM sys.expensive_inputs WHERE query_id = {query_id}\nORDER BY rank LIMIT 10"
            ),
            Section::SlowestRows => format!(
                "SELECT output_row, total_ns, computation_ns, shuffle_ns, source_table,\n  \
                 source_row_id, remediated_ns\n\
                 FROM sys.output_latency WHERE query_id = {query_id}\n\
                 ORDER BY total_ns DESC, output_row LIMIT 10"
            ),
            Section::Overhead => format!(
                "SELECT worker_id, time_ns, peak_memory_bytes, bytes_written, events_dropped\n\
                 FROM sys.profiler_overhead WHERE query_id = {query_id}\nORDER BY worker_id"
            ),
        }
    }
}
