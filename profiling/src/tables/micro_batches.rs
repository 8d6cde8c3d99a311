//! Micro-batches of continuous queries.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per micro-batch of a continuous query, also of those that failed. The micro-batch is the query of
    /// `query_id` in all other tables.
    struct MicroBatch = "micro_batches" {
        /// The query that the micro-batch ran.
        given query_id: Int,
        /// The continuous query, with its schema.
        row continuous_query: Text,
        /// The number of the micro-batch in its continuous query, from 1. A batch that failed runs again under the same
        /// number.
        row batch: Int,
        /// When the micro-batch was due.
        row due_at: Time,
        /// Rows of the stream that the micro-batch read for the first time.
        row rows_in: Int,
        /// Rows that the micro-batch added to the target table; 0 if it failed.
        row rows_out: Int,
        /// Of `rows_in`, rows that came too late: all their windows had been emitted. They are dropped.
        row late_rows: Int,
        /// Nanoseconds from `due_at` until the results were durable, or until the error.
        row latency_ns: Int,
        /// Rows of the stream that still waited when the micro-batch ended.
        row backlog: Int,
        /// Whether `latency_ns` exceeded the deadline of the continuous query; NULL if it has none.
        row deadline_missed: OptFlag,
        /// The watermark after the micro-batch; NULL without one.
        row watermark: OptTime,
        /// Why the micro-batch failed; NULL if it was committed.
        row error: OptText,
    }
}
