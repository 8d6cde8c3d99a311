//! What level `records` learns: latencies, lineage, and the records of result rows.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per record and measured operator: what the record took there. Level `records`.
    const RECORD_LATENCY = "record_latency" {
        /// The query.
        query_id: Int,
        /// The fragment that the operator belongs to.
        fragment_id: Int,
        /// The operator that was measured.
        operator_id: Int,
        /// The worker that measured.
        worker_id: Int,
        /// The partition of the operator.
        partition: Int,
        /// The table that the record belongs to; NULL if `row_id` is a record made by an
        /// operator that captures lineage.
        table_name: OptText,
        /// The record: `_row_id` of the table, or `output_id` in `sys.lineage`.
        row_id: Int,
        /// What the record took, in nanoseconds.
        latency_ns: Int,
        /// `computation` or `shuffle`.
        kind: Text,
        /// `measured` by itself, `apportioned` from a batch, or `replayed` to be found in one.
        method: Text,
        /// By how much `latency_ns` may be off, in nanoseconds. `apportioned`: what the other records
        /// of the batch were given, which this one may have taken. `replayed`: how much longer the
        /// second shortest of its evaluations took. `measured`: the time in which its thread may have
        /// waited for a processor. NULL in logs of versions that did not say.
        error_ns: OptInt,
    }
}

sys_table! {
    /// One row per edge of lineage: a record made by an operator that captures lineage (an
    /// aggregate, or a window of frames), and a record it was made from. Level `records`.
    const LINEAGE = "lineage" {
        /// The query.
        query_id: Int,
        /// The fragment that the operator belongs to.
        fragment_id: Int,
        /// The operator that made `output_id`.
        operator_id: Int,
        /// The worker that made it.
        worker_id: Int,
        /// The partition that made it.
        partition: Int,
        /// The record that was made, unique for its operator.
        output_id: Int,
        /// The operator that `input_id` comes from: a scan, or one that captures lineage.
        input_operator_id: Int,
        /// The table that was scanned; NULL if the input is not a base record.
        table_name: OptText,
        /// The input: `_row_id` of the table, or `output_id` of the input operator.
        input_id: Int,
        /// What the input took since it was read or made, for this output, in nanoseconds.
        input_latency_ns: Int,
    }
}

sys_table! {
    /// One row per result row and record that it was made from without further aggregation.
    /// A row of a join has several. Level `records`.
    const OUTPUT_RECORDS = "output_records" {
        /// The query.
        query_id: Int,
        /// Number of the row in the result, from 0. Of rows that several tasks write where they are
        /// made, no two have one number, and there are gaps.
        output_row: Int,
        /// The operator that `record_id` comes from: a scan, or one that captures lineage.
        operator_id: Int,
        /// The table that was scanned; NULL if the record is not a base record.
        table_name: OptText,
        /// The record: `_row_id` of the table, or `output_id` in `sys.lineage`. NULL where the
        /// row has none, as in the padding of an outer join.
        record_id: OptInt,
        /// What the record took since it was read or made, for this row, in nanoseconds.
        latency_ns: Int,
    }
}

sys_table! {
    /// One row per base record that is the most impactful source of result rows, of queries that ran
    /// with `profile.lineage = 'piggyback'`: what `sys.expensive_inputs` needs of it, since there is
    /// no log to compute that from. At most 4,096 of each task (of each partition where a statement
    /// writes its rows); `events_dropped` in
    /// `sys.profiler_overhead` counts the result rows of others. Of rows that several tasks write
    /// where they are made, one row per task.
    struct ImpactfulSource = "impactful_sources" {
        /// The query.
        given query_id: Int,
        /// The table that the record belongs to.
        row table_name: Text,
        /// The record: `_row_id` of the table.
        row row_id: Int,
        /// The greatest total latency of the result rows that it is the source of, in nanoseconds.
        row max_total_ns: Int,
        /// Their greatest remediated latency, in nanoseconds.
        row max_remediated_ns: Int,
        /// How many result rows.
        row outputs: Int,
    }
}
