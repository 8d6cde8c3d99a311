//! Tasks: partitions of fragments.

use crate::definition::{array, column, heap, sys_table, value};

sys_table! {
    /// One row per task: a partition of a fragment, on the worker that ran it. Its times are those of the calls of
    /// its topmost operator. Level `counters` and above.
    struct TaskStats = "task_stats" {
        /// The query.
        given query_id: Int,
        /// The fragment.
        row fragment_id: Int,
        /// The worker that ran the task.
        given worker_id: Int,
        /// The partition.
        row partition: Int,
        /// When the task was called first.
        row started_at: Time,
        /// When its last call ended.
        row ended_at: Time,
        /// Nanoseconds of its calls, also while the thread had no processor; without what ran in other fragments.
        row wall_ns: Int,
        /// Nanoseconds in which a processor worked on its calls; NULL where the system does not tell.
        row cpu_ns: OptInt,
        /// How often the thread waited for something in a call. Level `calls` and above; NULL below, and where
        /// the system does not tell.
        row voluntary_switches: OptInt,
        /// How often the processor was taken away from the thread in a call. As `voluntary_switches`.
        row involuntary_switches: OptInt,
        /// Nanoseconds of its calls in which the thread could have run but had no processor; with `throttled_ns`.
        /// What is left of `wall_ns` beside this and `cpu_ns` the task waited by itself: for a disk, a lock, a page
        /// of memory. Below 50 µs in a call it counts as 0. NULL where the system does not tell.
        row runqueue_ns: OptInt,
        /// Nanoseconds of its calls in which a control group around the worker had used up its processor quota.
        /// NULL where the system does not tell.
        row throttled_ns: OptInt,
    }
}

impl TaskStats {
    /// Adds calls of another topmost operator of the same task.
    pub(crate) fn add(&mut self, more: &Self) {
        let sum = |one: Option<i64>, other: Option<i64>| Some(one? + other?);
        self.started_at = self.started_at.min(more.started_at);
        self.ended_at = self.ended_at.max(more.ended_at);
        self.wall_ns += more.wall_ns;
        self.cpu_ns = sum(self.cpu_ns, more.cpu_ns);
        self.voluntary_switches = sum(self.voluntary_switches, more.voluntary_switches);
        self.involuntary_switches = sum(self.involuntary_switches, more.involuntary_switches);
        self.runqueue_ns = sum(self.runqueue_ns, more.runqueue_ns);
        self.throttled_ns = sum(self.throttled_ns, more.throttled_ns);
    }
}
