//! Workers: those that took part in a query, readings of their processes, and what recording cost them.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per query and worker that took part in it; in a cluster also one per worker as it
    /// is now.
    struct WorkerRow = "workers" {
        /// The query; NULL for a worker as it is now.
        given query_id: OptInt,
        /// The worker.
        row worker_id: Int,
        /// `alive`, or `lost`: what a lost worker recorded is missing in all other tables.
        row state: Text,
        /// Where it runs; `in process` for the process itself.
        row address: Text,
        /// What its clock is ahead of the master's, in nanoseconds. The times that it recorded
        /// are corrected by that.
        row clock_offset_ns: Int,
        /// By how much that may be wrong, in nanoseconds.
        row clock_error_ns: Int,
    }
}

sys_table! {
    /// One row per worker, metric and second while a query runs, and one at its end. Level
    /// `counters` and above.
    struct WorkerMetric = "worker_metrics" {
        /// The query.
        given query_id: Int,
        /// The worker.
        given worker_id: Int,
        /// When it was read.
        row at: Time,
        /// `rss_bytes`: memory of the process; `cpu_share`: cores busy in it; `foreign_cpu_share`: cores busy in
        /// other processes of the machine; and more: `sys.metric_sources` lists all. Rates are over the time since
        /// the reading before, at the end of the query over its whole time.
        row metric: Text,
        /// The reading, in the unit that the metric's name says.
        row value: Float,
    }
}

sys_table! {
    /// One row per query and worker: what profiling it cost.
    struct ProfilerOverhead = "profiler_overhead" {
        /// The query.
        given query_id: Int,
        /// The worker.
        given worker_id: Int,
        /// Nanoseconds spent on recording, as far as it is measured.
        row time_ns: Int,
        /// The most memory that recorded events took, in bytes.
        row peak_memory_bytes: Int,
        /// Bytes of the query's rows in the files of schema `sys`; 0 while they are in memory.
        row bytes_written: Int,
        /// Events that were dropped since the budget was exhausted: if it is not 0, whatever
        /// is concluded from the query's events is incomplete.
        row events_dropped: Int,
        /// Share of the base records that the worker traced, 0 to 1: where it fell while the query ran, what
        /// it was at the end.
        row sample_rate: OptFloat,
        /// What the planner would have done without the profiler, since not every row has to be seen:
        /// `counting from statistics`, `TopK aggregation`, `DISTINCT that ends at its LIMIT`; NULL if
        /// nothing. At level `counters` or `off` the query does it.
        row given_up: OptText,
    }
}
