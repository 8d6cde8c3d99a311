//! Skewer's own operators and functions: what runs, next to DataFusion's.
//!
//! Dependencies go down only: this crate knows [`skewer_profiling`] and [`skewer_compat`], nothing above them.
//!
//! * [`row_ids`]: tables whose rows have ids
//! * [`column_cache`]: decoded columns of tables, kept in memory
//! * [`cached_scan`]: a scan that reads columns from that cache
//! * [`implicit_row_ids`]: row ids that a scan counts in place of reading them
//! * [`record_origin`]: where the records that an operator sees come from
//! * [`call_stack`]: which operator is being executed on this thread
//! * [`record_column`]: a record's id and latency in one column, for rows that are repeated
//! * [`profiled`]: counting and timing the calls of any operator
//! * `stream_totals`: what these add up to, also while a call is under way
//! * [`operator_kind`]: which kind an operator is, as `sys.operators` says it
//! * `operator_memory`: memory and other metrics that operators report
//! * [`numbered`]: operators with their numbers, in plans that are sent to workers
//! * [`key_sample`]: which keys an exchange hashes most
//! * [`capture`]: the aggregate function that logs which records went into which group
//! * [`frames`]: the window function that makes a record of the rows in each row's frame
//! * [`latency_propagation`]: the aggregate function that carries latencies on where no log is kept
//! * [`timed_evaluation`]: evaluating expressions and timing records
//! * [`chunked_timing`]: how single slow records are found without timing each
//! * `outlier_confirmation`: the same of rows that functions have timed one by one
//! * [`preemption`]: time that passed while other threads had the processor
//! * [`thread_use`]: processor time and context switches of the calls of a task
//! * [`long_values`]: rows worth timing by themselves
//! * [`interruptible`]: functions that end when their query is cancelled
//! * [`routes`]: exchanges that send some keys elsewhere than their hash says
//! * [`row_function`]: scalar functions of one row, which time each call
//! * [`recursion`]: records of recursive queries
//! * [`sample`]: choosing the base records that are traced; `sparse_ids`: columns of their ids
//! * `traced_groups`: which groups have a traced record, and when they are too many
//! * [`waits`]: which operators wait for which inputs, and the end of queries that wait for ever
//! * [`output_records`]: the root, which says what result rows were made from

pub mod cached_scan;
pub mod call_stack;
pub mod capture;
pub mod chunked_timing;
pub mod column_cache;
pub mod frames;
pub mod implicit_row_ids;
pub mod int32_row_id;
pub mod interruptible;
pub mod key_sample;
pub mod latency_propagation;
pub mod long_values;
mod numbered;
pub mod operator_kind;
mod operator_memory;
mod outlier_confirmation;
pub mod output_records;
pub mod preemption;
pub mod profiled;
pub mod record_column;
pub mod record_origin;
mod recursion;
pub mod routes;
pub mod row_function;
pub mod row_ids;
pub mod sample;
mod sparse_ids;
mod stream_totals;
pub mod thread_use;
pub mod timed_evaluation;
mod traced_groups;
pub mod waits;

pub use capture::{CapturedInput, LineageCapture};
pub use frames::{CapturedFrames, FrameCapture};
pub use int32_row_id::Int32RowId;
pub use interruptible::Interruptible;
pub use key_sample::{KeySample, Sampled};
pub use latency_propagation::{CarriedInput, CarriedLatency, carried_of_nothing};
pub use numbered::NumberedExec;
pub use operator_kind::{operator_kind, routing};
pub use output_records::{Hidden, OutputRecordsExec, ResultRecords, ResultTask};
pub use profiled::{Exchange, Observed, ProfiledExec, is_exchange};
pub use record_column::RecordColumn;
pub use record_origin::{AggregateOrigin, RecordOrigin, ScanOrigin};
pub use recursion::{
    CarriedState, FirstSeen, MergedState, Origin, RestartExec, RowCapture, RowState, StateRecord,
};
pub use routes::{Destination, RouteRowsExec, Routes, SpreadKeys, exchange_hashes};
pub use row_function::{RowClosure, RowFunction};
pub use row_ids::{IdColumn, IdentifiedTable, ROW_ID, ScansIds};
pub use sample::SampledRowId;
pub use timed_evaluation::{LatencyColumn, MeasuredRecords, TimedEvaluationExec, TimedExpressions};
