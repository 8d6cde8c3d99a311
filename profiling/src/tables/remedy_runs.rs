//! Runs of statements with and without a remedy.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per run of a statement and remedy that setting `remedies` = 'auto' considered for it: whether
    /// the run had the remedy, and what runs with and without it have shown so far. `sys.remedies` has these rows
    /// and, of other queries, the remedies that are advised.
    struct RemedyRun = "remedy_runs" {
        /// The query.
        given query_id: Int,
        /// The operator id of the exchange that the remedy changes; NULL in a run without it.
        row exchange_id: OptInt,
        /// Number of the exchange among the plan's exchanges that hash keys, from 0: the same in all runs.
        row exchange_number: Int,
        /// What it does; see `sys.operators.remedies`.
        row remedy: Text,
        /// The keys that it is for.
        row subject: Text,
        /// What a run without it has shown.
        row because: Text,
        /// The query that has shown it.
        row evidence_query_id: Int,
        /// Whether the run had the remedy.
        row is_applied: Flag,
        /// Nanoseconds that a run was predicted to take less.
        row predicted_ns: Int,
        /// Nanoseconds by which the median of the runs with the remedy so far took less than the median of the
        /// runs without it. NULL before there are both.
        row measured_ns: OptInt,
        /// Pairs of runs before this one: one with the remedy, and one without.
        row pairs: Int,
        /// `trial` until there are three runs with and three without it, then `kept`, or `taken back` if it does not
        /// save 5 %.
        row verdict: Text,
    }
}
