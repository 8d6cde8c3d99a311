//! When operators worked: single calls, and bins of time.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per call of an operator by its parent. Level `calls` and above.
    struct OperatorCall = "operator_calls" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator that was called.
        row operator_id: Int,
        /// The worker that ran the call.
        given worker_id: Int,
        /// The partition that was called.
        row partition: Int,
        /// When the call began.
        row started_at: Time,
        /// When the call returned.
        row ended_at: Time,
        /// Rows that it returned; 0 if it returned none or was not ready.
        row rows: Int,
    }
}

sys_table! {
    /// One row per operator, partition and bin of time in which the operator did something. A partition has at
    /// most 64 bins, from level `calls` on 1,024. Bins of all operators of a query begin when its execution does.
    /// Their width is 16,384 ns at first. When a query outlasts the last bin, pairs of bins become one. So two
    /// bins of a query have no time in common, or one contains the other; clocks of machines may differ by
    /// `clock_error_ns` in `sys.workers`. Level `counters` and above.
    struct TimelineBin = "operator_timeline" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that ran this partition.
        given worker_id: Int,
        /// The partition of the operator's output.
        row partition: Int,
        /// The number of the bin, from 0.
        row bin: Int,
        /// When the bin begins.
        row started_at: Time,
        /// Nanoseconds from the beginning of the bin to that of the next; the same for all bins of a partition.
        row width_ns: Int,
        /// Calls of the operator that ended in the bin.
        row calls: Int,
        /// Rows that these calls returned.
        row rows: Int,
        /// Nanoseconds of the bin in which the operator itself worked. All bins of a partition add up to `self_ns`
        /// in `sys.operator_stats`.
        row self_ns: Int,
        /// Nanoseconds of the bin in which the operator had nothing to do since its input was not ready.
        row input_wait_ns: Int,
    }
}
