//! Skewer's own operators and functions: what runs, next to DataFusion's.
//!
//! Dependencies go down only: this crate knows [`skewer_profiling`] and [`skewer_compat`], nothing above them.
//!
//! * [`identity`]: tables whose rows have ids
//! * [`implicit_row_ids`]: row ids that a scan counts in place of reading them
//! * [`source`]: where the records that an operator sees come from
//! * [`position`]: which operator is being executed on this thread
//! * [`packed`]: a record's id and latency in one column, for rows that are repeated
//! * [`profiled`]: counting and timing the calls of any operator
//! * `stream_totals`: what these add up to, also while a call is under way
//! * [`operator_kind`]: which kind an operator is, as `sys.operators` says it
//! * `operator_memory`: what operators tell of their memory
//! * [`numbered`]: the same in plans that are sent to workers
//! * [`key_sample`]: which keys an exchange hashes most
//! * [`capture`]: the aggregate function that logs which records went into which group
//! * [`frames`]: the window function that makes a record of the rows in each row's frame
//! * [`carry`]: the aggregate function that carries latencies on where no log is kept
//! * [`timed_evaluation`]: evaluating expressions and timing records
//! * [`pacing`]: how single slow records are found without timing each
//! * `confirm`: the same of rows that functions have timed one by one
//! * [`preemption`]: time that passed while other threads had the processor
//! * [`long_values`]: rows worth timing by themselves
//! * [`interruptible`]: functions that end when their query is cancelled
//! * [`row_function`]: scalar functions of one row, which time each call
//! * [`recursion`]: records of recursive queries
//! * [`sample`]: choosing the base records that are traced; `sparse_ids`: columns of their ids
//! * `traced_groups`: which groups have a traced record, and when they are too many
//! * [`waits`]: which operators wait for which inputs, and the end of queries that wait for ever
//! * [`output_records`]: the root, which says what result rows were made from

pub mod capture;
pub mod carry;
mod confirm;
pub mod frames;
pub mod identity;
pub mod implicit_row_ids;
pub mod interruptible;
pub mod key_sample;
pub mod long_values;
pub mod narrow;
mod numbered;
pub mod operator_kind;
mod operator_memory;
pub mod output_records;
pub mod pacing;
pub mod packed;
pub mod position;
pub mod preemption;
pub mod profiled;
mod recursion;
pub mod row_function;
pub mod sample;
pub mod source;
mod sparse_ids;
mod stream_totals;
pub mod timed_evaluation;
mod traced_groups;
pub mod waits;

pub use capture::{CapturedInput, LineageCapture};
pub use carry::{CarriedInput, CarriedLatency, carried_of_nothing};
pub use frames::{CapturedFrames, FrameCapture};
pub use identity::{IdColumn, IdentifiedTable, ROW_ID, ScansIds};
pub use interruptible::Interruptible;
pub use key_sample::{KeySample, Sampled};
pub use narrow::NarrowId;
pub use numbered::NumberedExec;
pub use operator_kind::{operator_kind, routing};
pub use output_records::{Hidden, OutputRecordsExec, ResultRecords, ResultTask};
pub use packed::PackedRecord;
pub use profiled::{Exchange, Observed, ProfiledExec, is_exchange};
pub use recursion::{
    CarriedState, FirstSeen, MergedState, Origin, RestartExec, RowCapture, RowState, StateRecord,
};
pub use row_function::{RowClosure, RowFunction};
pub use sample::SampledRowId;
pub use source::{AggregateSource, RecordSource, ScanSource};
pub use timed_evaluation::{LatencyColumn, MeasuredRecords, TimedEvaluationExec, TimedExpressions};
