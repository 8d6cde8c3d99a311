//! What operators of statements that run now did so far.

use super::{Operator, OperatorStats};
use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per operator and partition of a statement that runs now. Names and kinds are here, too, since
    /// `sys.operators` has those of queries that have ended.
    struct RunningOperator = "running_operators" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that runs this partition.
        given worker_id: Int,
        /// The partition of the operator's output.
        row partition: Int,
        /// The operator that consumes this one's rows; NULL for the root.
        row parent_operator_id: OptInt,
        /// The operator's name.
        row name: OptText,
        /// What kind of operator it is, as in `sys.operators`.
        row kind: OptText,
        /// Whether the partition is at its end.
        row has_ended: Flag,
        /// Times that the parent called the operator so far.
        row calls: Int,
        /// Rows that the operator took from its inputs.
        row rows_in: Int,
        /// Rows that the operator returned.
        row rows_out: Int,
        /// Bytes in memory of the rows that the operator returned.
        row bytes_out: Int,
        /// Nanoseconds spent in the operator itself, with the call under way.
        row self_ns: Int,
        /// Nanoseconds spent in the operator and in the operators below it in the same task.
        row total_ns: Int,
        /// Nanoseconds in which the operator had nothing to do since its input was not ready.
        row input_wait_ns: Int,
        /// Nanoseconds in which its output waited to be taken.
        row output_wait_ns: Int,
    }
}

impl RunningOperator {
    /// What a partition of `operator` did so far.
    pub(crate) fn of_stats(
        stats: &OperatorStats,
        operator: Option<&Operator>,
        has_ended: bool,
    ) -> Self {
        Self {
            fragment_id: stats.fragment_id,
            operator_id: stats.operator_id,
            partition: stats.partition,
            parent_operator_id: operator.and_then(|operator| operator.parent_operator_id),
            name: operator.map(|operator| operator.name.clone()),
            kind: operator.and_then(|operator| operator.kind.clone()),
            has_ended,
            calls: stats.calls,
            rows_in: stats.rows_in,
            rows_out: stats.rows_out,
            bytes_out: stats.bytes_out,
            self_ns: stats.self_ns,
            total_ns: stats.total_ns,
            input_wait_ns: stats.input_wait_ns,
            output_wait_ns: stats.output_wait_ns,
        }
    }
}
