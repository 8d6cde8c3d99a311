//! The tables of schema `sys`, each defined once.
//!
//! A new column must have an `Opt…` kind: files that were written before lack it, and a NOT NULL
//! column makes them unreadable. A new time must be added to `Events::correct_times`
//! (`recorder/events.rs`), or it keeps the clock of its worker. docs/architecture.md lists the steps.

mod exchanges;
mod micro_batches;
mod operator_stats;
mod operator_times;
mod operators;
mod queries;
mod records;
mod remedy_runs;
mod running_operators;
mod tasks;
mod workers;

pub use self::exchanges::{KeyFrequency, TuplesSent};
pub use self::micro_batches::MicroBatch;
pub use self::operator_stats::{OperatorMetric, OperatorStats};
pub use self::operator_times::{OperatorCall, TimelineBin};
pub use self::operators::Operator;
pub use self::queries::{Fragment, QueryRow};
pub use self::records::{ImpactfulSource, LINEAGE, OUTPUT_RECORDS, RECORD_LATENCY};
pub use self::remedy_runs::RemedyRun;
pub use self::running_operators::RunningOperator;
pub use self::tasks::TaskStats;
pub use self::workers::{ProfilerOverhead, WorkerMetric, WorkerRow};
use crate::definition::{SysRow, TableDefinition};

/// A table of schema `sys`, in the order of their documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the table of its name")]
pub enum Table {
    Queries,
    Fragments,
    Operators,
    OperatorStats,
    OperatorCalls,
    OperatorTimeline,
    TaskStats,
    OperatorMetrics,
    TuplesSent,
    RecordLatency,
    Lineage,
    OutputRecords,
    ImpactfulSources,
    KeyFrequencies,
    RemedyRuns,
    MicroBatches,
    Workers,
    WorkerMetrics,
    ProfilerOverhead,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 19] = [
        Table::Queries,
        Table::Fragments,
        Table::Operators,
        Table::OperatorStats,
        Table::OperatorCalls,
        Table::OperatorTimeline,
        Table::TaskStats,
        Table::OperatorMetrics,
        Table::TuplesSent,
        Table::RecordLatency,
        Table::Lineage,
        Table::OutputRecords,
        Table::ImpactfulSources,
        Table::KeyFrequencies,
        Table::RemedyRuns,
        Table::MicroBatches,
        Table::Workers,
        Table::WorkerMetrics,
        Table::ProfilerOverhead,
    ];

    /// The table's definition.
    pub fn definition(self) -> &'static TableDefinition {
        match self {
            Table::Queries => &QueryRow::TABLE,
            Table::Fragments => &Fragment::TABLE,
            Table::Operators => &Operator::TABLE,
            Table::OperatorStats => &OperatorStats::TABLE,
            Table::OperatorCalls => &OperatorCall::TABLE,
            Table::OperatorTimeline => &TimelineBin::TABLE,
            Table::TaskStats => &TaskStats::TABLE,
            Table::OperatorMetrics => &OperatorMetric::TABLE,
            Table::TuplesSent => &TuplesSent::TABLE,
            Table::RecordLatency => &RECORD_LATENCY,
            Table::Lineage => &LINEAGE,
            Table::OutputRecords => &OUTPUT_RECORDS,
            Table::ImpactfulSources => &ImpactfulSource::TABLE,
            Table::KeyFrequencies => &KeyFrequency::TABLE,
            Table::RemedyRuns => &RemedyRun::TABLE,
            Table::MicroBatches => &MicroBatch::TABLE,
            Table::Workers => &WorkerRow::TABLE,
            Table::WorkerMetrics => &WorkerMetric::TABLE,
            Table::ProfilerOverhead => &ProfilerOverhead::TABLE,
        }
    }

    /// The table's name in schema `sys`.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Whether workers in processes of their own have rows of it. The other tables have rows of
    /// the process alone that returned the query's rows.
    pub(crate) fn is_of_workers(self) -> bool {
        match self {
            Table::Queries
            | Table::Fragments
            | Table::RemedyRuns
            | Table::MicroBatches
            | Table::Workers => false,
            Table::Operators
            | Table::OperatorStats
            | Table::OperatorCalls
            | Table::OperatorTimeline
            | Table::TaskStats
            | Table::OperatorMetrics
            | Table::TuplesSent
            | Table::RecordLatency
            | Table::Lineage
            | Table::OutputRecords
            | Table::ImpactfulSources
            | Table::KeyFrequencies
            | Table::WorkerMetrics
            | Table::ProfilerOverhead => true,
        }
    }

    /// The table of a name in schema `sys`.
    pub fn by_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }
}
