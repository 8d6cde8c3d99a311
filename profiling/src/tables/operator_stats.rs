//! What operators did in their partitions: totals of their calls, and what they count themselves.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per operator and partition (a task of the operator), written when it ends.
    struct OperatorStats = "operator_stats" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that ran this partition; 0 in a process of its own.
        given worker_id: Int,
        /// The partition of the operator's output, from 0; several workers number theirs through.
        row partition: Int,
        /// Times that the parent called the operator for a batch.
        row calls: Int,
        /// Rows that the operator took from its inputs.
        row rows_in: Int,
        /// Rows that the operator returned.
        row rows_out: Int,
        /// Bytes in memory of the rows that the operator returned; strings are estimated, but for exchanges.
        row bytes_out: Int,
        /// Nanoseconds spent in the operator itself.
        row self_ns: Int,
        /// Nanoseconds spent in the operator and in the operators below it in the same task.
        row total_ns: Int,
        /// Nanoseconds in which the operator had nothing to do since its input was not ready.
        row input_wait_ns: Int,
        /// Nanoseconds in which its output waited to be taken.
        row output_wait_ns: Int,
        /// The most memory that the operator held, in bytes.
        row peak_memory_bytes: Int,
        /// Bytes written to temporary files.
        row spilled_bytes: Int,
        /// When it was called first.
        row first_call_at: OptTime,
        /// When its last call ended.
        row last_call_at: OptTime,
    }
}

impl OperatorStats {
    /// Adds what the operator did when it ran in the same partition once more.
    pub(crate) fn add(&mut self, again: &Self) {
        self.calls += again.calls;
        self.rows_in += again.rows_in;
        self.rows_out += again.rows_out;
        self.bytes_out += again.bytes_out;
        self.self_ns += again.self_ns;
        self.total_ns += again.total_ns;
        self.input_wait_ns += again.input_wait_ns;
        self.output_wait_ns += again.output_wait_ns;
        self.peak_memory_bytes = self.peak_memory_bytes.max(again.peak_memory_bytes);
        self.spilled_bytes += again.spilled_bytes;
        let times = [self.first_call_at, again.first_call_at];
        self.first_call_at = times.into_iter().flatten().min();
        self.last_call_at = self.last_call_at.max(again.last_call_at);
    }
}

sys_table! {
    /// One row per operator, partition and metric that DataFusion's operators count themselves, where it is not 0:
    /// rows of the build side of a join, row groups that a scan left out, bytes that it read, files that were
    /// spilled. What `sys.operator_stats` has is left out. Level `counters` and above.
    struct OperatorMetric = "operator_metrics" {
        /// The query.
        given query_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that ran this partition.
        given worker_id: Int,
        /// The partition; NULL for a metric of the whole operator.
        row partition: OptInt,
        /// The metric's name in DataFusion. Those that end with `_ns` are times in nanoseconds; `_pruned` and
        /// `_matched` are what a condition left out and kept, `_part` and `_total` what a ratio was made of.
        row metric: Text,
        /// The metric: the sum of all runs of the operator in the partition, of memory the most.
        row value: Int,
    }
}
