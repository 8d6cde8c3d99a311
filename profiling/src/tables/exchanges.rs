//! Rows that crossed exchanges, and the heavy keys among them.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per exchange, sender, receiver and partition; from level `calls` on, one per
    /// batch that crossed.
    struct TuplesSent = "tuples_sent" {
        /// The query.
        given query_id: Int,
        /// The operator id of the exchange.
        row exchange_id: Int,
        /// The worker that sent.
        row source_worker: Int,
        /// The worker that received.
        row destination_worker: Int,
        /// The partition that received; where rows are gathered, the one that sent.
        row partition: Int,
        /// Rows sent.
        row tuples: Int,
        /// Bytes of the rows sent, as they are in memory.
        row bytes: Int,
        /// When the batch, or the last batch of a total, was sent.
        row sent_at: OptTime,
        /// The partition that sent, where that is known: where rows are gathered from workers, and where an
        /// exchange reads one partition.
        row source_partition: OptInt,
    }
}

sys_table! {
    /// One row per worker and heavy key of an exchange that hashes rows to partitions, or of an input of a
    /// join: a key with at least 0.5 % of its rows, or of the values in their lists. Estimated from a few rows of
    /// every batch. Level `counters` and above.
    struct KeyFrequency = "key_frequencies" {
        /// The query.
        given query_id: Int,
        /// The operator id of the exchange, or of the join.
        row exchange_id: Int,
        /// Which input of a join it is: 0 or 1; NULL for an exchange.
        row input: OptInt,
        /// The key: its columns as text, separated by commas.
        row key: Text,
        /// The hash by which an exchange finds the key's partition. NULL in rows of older versions.
        row key_hash: OptInt,
        /// Whether a column of the key is NULL. NULL in rows of older versions.
        row key_has_null: OptFlag,
        /// Rows with this key that went into the exchange or the join, estimated.
        row tuples: Int,
        /// By how much `tuples` may be off: two standard deviations of the sample.
        row error: Int,
        /// Share of the rows of the exchange or of the input, 0 to 1, estimated.
        row share: Float,
        /// Values in lists of these rows, estimated. Partial groups of `median`, `array_agg` and DISTINCT carry
        /// their rows' values in lists, and are one row for each key: their keys are heavy by these values. NULL
        /// for rows without lists, and in rows of older versions.
        row list_values: OptInt,
        /// Share of all values in lists, 0 to 1, estimated. As `list_values`.
        row list_share: OptFloat,
        /// The worker that has seen these rows.
        row worker_id: OptInt,
    }
}
