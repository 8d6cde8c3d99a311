//! The profiler is data: recorders append plain events, the events are rows of tables in
//! schema `sys`, and every conclusion is a SQL view over those tables.
//!
//! Nothing here knows the engine: operators (`skewer-exec`) hand events to a [`Recorder`], the
//! engine hands finished recorders to [`SysTables`] and registers its schema.
//!
//! - [`level`]: how much is recorded
//! - [`lineage_mode`]: whether what is learned of records is logged or carried in their rows
//! - [`carried`]: what records carry instead of a log
//! - [`definition`]: one definition per table: row struct, Arrow schema, documentation
//! - [`tables`]: the tables themselves
//! - [`ids`], [`latencies`], `run_length`: compact columns of the record-level log
//! - [`chunks`]: the record-level events
//! - [`recorder`]: collects the events of one query
//! - `chunk_columns`: how rows of the record-level tables are made of chunks
//! - [`sampling`]: which base records are traced
//! - [`budget`]: how much is recorded, where that is not to cost more than a share of the time
//! - `query_log`: the events of a finished query, rows on demand
//! - `chunk_codec`, `byte_string`: chunks in files
//! - `segment`, `segment_writer`, `part`, `store`: where events go: memory, then Parquet
//! - `imported`: rows of a query that was recorded elsewhere
//! - [`retention`]: for how long
//! - [`remote`]: events of workers in processes of their own
//! - `part_pages`, `remote_cache`: what a worker answers, and what the master keeps of that
//! - `query_ids`, `chunk_filter`, `sys_table`, [`scan`], `coalesce_batches`, `schema`: how SQL reads them
//! - `one_more_table`, [`present`]: tables of the present, which are not recorded
//! - [`distributed_scan`]: scans that run on the nodes that have the events
//! - [`ticks`]: a clock that costs little
//! - [`timeline`]: when an operator worked
//! - `metrics`: readings of the process while queries run
//! - `isolation`: which input records make a query slow
//! - [`views`]: conclusions whose SQL is the same for every query
//! - `planner`: plans the SQL of views
//! - `functions`: table functions
//! - [`user_detectors`]: detectors of users, as views of schema `detectors`
//! - `unknown_query`: ids of queries that are not there
//! - [`documentation`]: the page about schema `sys`
//! - [`sys_tables`]: all of it, for the engine

pub mod budget;
mod byte_string;
pub mod carried;
mod chunk_codec;
mod chunk_columns;
mod chunk_filter;
pub mod chunks;
mod coalesce_batches;
mod deferred_scan;
pub mod definition;
pub mod distributed_scan;
pub mod documentation;
pub mod edges;
mod functions;
pub mod ids;
mod imported;
mod isolation;
mod kept_view;
pub mod latencies;
pub mod level;
pub mod lineage_mode;
mod metrics;
mod one_more_table;
pub mod operator_kind;
mod part;
mod part_pages;
mod planner;
pub mod present;
mod query_ids;
mod query_log;
pub mod recorder;
pub mod remote;
mod remote_cache;
pub mod retention;
mod run_length;
pub mod sampling;
pub mod scan;
mod schema;
mod segment;
mod segment_writer;
mod store;
mod sys_table;
pub mod sys_tables;
pub mod tables;
pub mod ticks;
pub mod timeline;
mod unknown_query;
pub mod user_detectors;
pub mod views;

pub use carried::{Carried, Gathering, Impacts, Sources};
pub use chunk_columns::ChunkError;
pub use chunks::{LatencyChunk, LatencyKind, LineageChunk, Method, OutputChunk};
pub use distributed_scan::{DistributedScan, ScanDescription};
pub use edges::{Edges, EdgesOf};
pub use ids::{Ids, is_range};
pub use latencies::Latencies;
pub use level::{Level, LevelError};
pub use lineage_mode::{LineageMode, LineageModeError};
pub use one_more_table::OneMoreTable;
pub use operator_kind::{CapturedRecords, OperatorKind, Routing};
pub use present::{CacheEntry, Link, MetricSource, NodeMetric, Source};
pub use recorder::{OpenStream, Recorder, RecorderLimits, StreamRecord, UnfinishedStream};
pub use remote::{FinishRequest, RemoteSys, RemoteSysError};
pub use retention::Retention;
pub use run_length::{consecutive_numbers, equal_to_first};
pub use sampling::Sampling;
pub use scan::SysScan;
pub use segment::SegmentError;
pub use sys_table::reads_sys;
pub use sys_tables::{ImportError, SysTables};
pub use tables::{
    Fragment, ImpactfulSource, KeyFrequency, MicroBatch, Operator, OperatorCall, OperatorMetric,
    OperatorStats, QueryRow, RemedyRun, RunningOperator, Table, TaskStats, TimelineBin, TuplesSent,
    WorkerMetric, WorkerRow,
};
pub use ticks::nanos_since_epoch;
pub use timeline::{RecordedTimeline, Timeline, TimelineStart};
pub use unknown_query::unknown_query;
pub use user_detectors::{UserDetection, UserDetectors, WithinDetector};
pub use views::{VIEWS, View};
