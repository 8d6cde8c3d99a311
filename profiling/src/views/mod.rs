//! The views of schema `sys` whose SQL is the same for every query, one file each.

/// A view: its name, and its SQL with a comment that says what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Name in schema `sys`.
    pub name: &'static str,
    /// The view's SQL.
    pub sql: &'static str,
}

macro_rules! views {
    ($($name:literal,)+) => {
        /// All views, in the order of their documentation. A view uses only tables and views
        /// that come before it.
        pub const VIEWS: &[View] = &[
            $(View { name: $name, sql: include_str!(concat!($name, ".sql")) },)+
        ];
    };
}

views! {
    "operator_contribution",
    "cardinalities",
    "utilization",
    "communication",
    "task_imbalance",
    "stragglers",
    "data_skew",
    "heavy_records",
    "apportioned_latency",
    "plan_fingerprints",
    "anomalies",
    "task_accounts",
    "worker_accounts",
    "worker_waits",
    "worker_findings",
    "straggler_tasks",
    "straggler_nodes",
    "throttled_workers",
    "processor_contention",
    "data_size_skew",
    "task_assignment",
    "abnormal_nodes",
    "outlier_metrics",
    "memory_pressure",
    "disk_wait",
    "hybridtune_straggler_tasks",
    "hybridtune_straggler_nodes",
    "hybridtune_task_assignment",
    "hybridtune_data_skew",
    "hybridtune_abnormal_nodes",
    "hybridtune_outlier_metrics",
    "key_findings",
    "heavy_keys",
    "null_keys",
    "operator_findings",
    "multiplying_joins",
    "wrong_estimates",
    "spills",
    "fission",
    "slow_client",
    "query_findings",
    "waiting_statements",
    "profiler_faults",
    "not_distributed",
    "expensive_records",
    "shuffle_latencies",
    "overpartitioned",
    "colocation_candidates",
    "colocation",
    "colocation_savings",
    "slow_links",
    "changed_runs",
    "critical_path_tasks",
    "detections",
    "diagnoses",
    "alerts",
    "remedy_candidates",
    "remedies",
}

/// The views that every diagnosis of a query reads: the detectors, and what judges them. Each is planned by itself,
/// and its optimised plan is kept.
const KEPT: &[&str] = &[
    "expensive_records",
    "shuffle_latencies",
    "key_findings",
    "data_size_skew",
    "operator_findings",
    "overpartitioned",
    "colocation",
    "task_assignment",
    "straggler_tasks",
    "worker_findings",
    "slow_links",
    "changed_runs",
    "query_findings",
    "detections",
    "diagnoses",
];

impl View {
    /// Whether its optimised plan is kept.
    pub(crate) fn is_kept(&self) -> bool {
        KEPT.contains(&self.name)
    }

    /// The view of a name.
    pub fn by_name(name: &str) -> Option<View> {
        VIEWS.iter().copied().find(|view| view.name == name)
    }

    /// What the view shows: the comment at the beginning of its SQL.
    pub fn doc(&self) -> String {
        let lines = self.sql.lines().map_while(|line| line.strip_prefix("-- "));
        lines.collect::<Vec<_>>().join(" ")
    }
}
