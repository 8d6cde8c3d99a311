//! The profiler is data: recorders append plain events, the events are rows of tables in
//! schema `sys`, and every conclusion is a SQL view over those tables.
//!
//! Nothing here knows the engine: operators (`skewer-exec`) hand events to a [`Recorder`], the
//! engine hands finished recorders to the store and registers the store's schema.
//!
//! - [`level`]: how much is recorded
//! - [`definition`]: one definition per table: row struct, Arrow schema, documentation
//! - [`tables`]: the tables themselves
//! - [`ids`], [`latencies`]: compact columns of the record-level log
//! - [`chunks`]: the record-level events
//! - [`recorder`]: collects the events of one query

pub mod chunks;
pub mod definition;
pub mod ids;
pub mod latencies;
pub mod level;
pub mod recorder;
pub mod tables;

pub use chunks::{LatencyChunk, LatencyKind, LineageChunk, Method, OutputChunk};
pub use ids::Ids;
pub use latencies::Latencies;
pub use level::{Level, LevelError};
pub use recorder::{Recorder, RecorderLimits};
pub use tables::{
    Fragment, Operator, OperatorCall, OperatorStats, QueryRow, TuplesSent, WorkerMetric, WorkerRow,
};
