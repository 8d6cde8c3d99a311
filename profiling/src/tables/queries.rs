//! Queries and the fragments of their plans.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per query that finished, failed or was cancelled, at every level.
    struct QueryRow = "queries" {
        /// The query: ascending in the order in which queries started, also across restarts.
        given query_id: Int,
        /// The statement as it was sent; a query with the values of its parameters.
        row sql: Text,
        /// The same for statements that differ only in literals and white space.
        row fingerprint: Text,
        /// `finished`, `failed` or `cancelled`.
        row status: Text,
        /// The error message, if the query failed.
        row error: OptText,
        /// The level that the query ran at: `off`, `counters`, `calls` or `records`.
        given profile_level: Text,
        /// Share of the base records that were traced, 0 to 1, in the end; 1 means all of them.
        given sample_rate: Float,
        /// How level `records` kept what it learned of records: `log` or `piggyback`; NULL below it.
        given lineage: OptText,
        /// When the statement arrived.
        row started_at: Time,
        /// When its first rows were ready for the reader; NULL if it returned none.
        row first_row_at: OptTime,
        /// When its last row had been returned.
        row ended_at: OptTime,
        /// Nanoseconds in which the statement waited for admission; 0 if it did not wait. They are part of neither
        /// `planning_ns` nor `execution_ns`.
        row queued_ns: OptInt,
        /// Nanoseconds of parsing, resolving names, optimising and planning.
        row planning_ns: OptInt,
        /// Nanoseconds from the end of planning to the last row.
        row execution_ns: OptInt,
        /// Rows that the query returned or changed.
        row rows_returned: OptInt,
        /// The tables that the query read, as JSON: an array of `table`, its `rows`, and `version`,
        /// which is another whenever the table's segments are others.
        row tables_read: OptText,
        /// The quarantines that left rows out of the query, as JSON: an array of `table`, `name` and `predicate`. NULL
        /// if there were none.
        row quarantines: OptText,
        /// The directory that `IMPORT PROFILE` read; NULL for queries that ran here.
        row imported_from: OptText,
        /// The user of the session, as the client of a server named itself; `local` in a program that embeds the
        /// database.
        row user_name: OptText,
        /// The trace that the statement belongs to, as 32 hexadecimal digits: of the setting `trace.parent`, or of a
        /// comment `/*traceparent='…'*/`. NULL if its client named none.
        row trace_id: OptText,
        /// The span of the client that the statement belongs to, as 16 hexadecimal digits.
        row parent_span_id: OptText,
    }
}

sys_table! {
    /// One row per fragment: a part of the plan between exchanges.
    struct Fragment = "fragments" {
        /// The query.
        given query_id: Int,
        /// The fragment, unique in its query; the one that makes the result is 0.
        row fragment_id: Int,
        /// The fragment that consumes this one's rows; NULL for the one that makes the result.
        row parent_fragment_id: OptInt,
        /// Partitions that the fragment runs in, on all its workers.
        row tasks: Int,
        /// The fragment's part of the physical plan, as indented text.
        row plan: Text,
    }
}
