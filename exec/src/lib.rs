//! Skewer's own operators and functions: what runs, next to DataFusion's.
//!
//! Dependencies go down only: this crate knows [`skewer_profiling`], nothing above it.
//!
//! * [`identity`]: tables whose rows have ids
//! * `sized`: functions whose results may be as large as one likes, with an end
//! * [`source`]: where the records that an operator sees come from
//! * [`position`]: which operator is being executed on this thread
//! * [`packed`]: a record's id and latency in one column, for rows that are repeated
//! * [`profiled`]: counting and timing the calls of any operator
//! * `stream_totals`: what these add up to, also while a call is under way
//! * [`operator_kind`]: which kind an operator is, as `sys.operators` says it
//! * `operator_memory`: what operators tell of their memory
//! * [`numbered`]: the same in plans that are sent to workers
//! * [`exchange`]: exchanges that spill without waiting for each other
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
//! * [`slices`]: batches cut into slices that do not take too long
//! * [`row_function`]: scalar functions of one row, which time each call
//! * [`recursion`]: records of recursive queries
//! * [`row_numbers`]: numbers that tell the rows of a query apart
//! * [`spilling_join`]: joins whose build side may be larger than memory
//! * [`shared_rows`]: rows that several places of a plan read, made once
//! * [`sample`]: choosing the base records that are traced; `sparse_ids`: columns of their ids
//! * `traced_groups`: which groups have a traced record, and when they are too many
//! * [`scheduling`]: who uses the processors, and who need not compute any more
//! * [`sound_properties`]: what may be concluded of the rows of an operator
//! * [`any_value`]: the value that all rows of a group have
//! * [`arithmetic`], [`totals`]: operators, sums and averages that are right or errors
//! * [`conversion`]: casts of numbers that lose something
//! * [`shift`]: `lead` and `lag`
//! * `octet_length`: of text and of bytes
//! * [`quantified`]: comparisons with any or all elements of a list
//! * [`read_array`]: PostgreSQL's array literals
//! * [`patterns`]: patterns with an escape character, and those of SIMILAR TO
//! * [`zones`]: instants and what the clocks of a time zone show
//! * [`single_value`], [`only_value`]: the value of a scalar subquery that is planned as a join
//! * [`output_records`]: the root, which says what result rows were made from

pub mod any_value;
pub mod arithmetic;
mod batch_bytes;
pub mod capture;
pub mod carry;
mod confirm;
pub mod conversion;
pub mod exchange;
pub mod frames;
mod guarded;
pub mod identity;
pub mod interruptible;
pub mod key_sample;
pub mod long_values;
pub mod narrow;
mod numbered;
mod octet_length;
pub mod one_nan;
mod only_value;
pub mod operator_kind;
mod operator_memory;
pub mod output_records;
pub mod pacing;
pub mod packed;
pub mod patterns;
pub mod position;
pub mod preemption;
pub mod profiled;
pub mod quantified;
pub mod read_array;
mod recursion;
pub mod row_function;
pub mod row_numbers;
pub mod sample;
pub mod scheduling;
pub mod shared_rows;
pub mod shift;
pub mod single_value;
pub mod slices;
pub mod sound_properties;
pub mod source;
mod sparse_ids;
pub mod spilling_join;
mod stream_totals;
pub mod timed_evaluation;
pub mod totals;
mod traced_groups;
pub mod zones;

pub use any_value::AnyValue;
pub use arithmetic::{Arithmetic, Operation};
pub use batch_bytes::batch_bytes;
pub use capture::{CapturedInput, LineageCapture};
pub use carry::{CarriedInput, CarriedLatency, carried_of_nothing};
pub use conversion::Conversion;
pub use exchange::{ExchangeExec, with_own_exchange};
pub use frames::{CapturedFrames, FrameCapture};
pub use guarded::{GuardedFunction, planning};
pub use identity::{IdColumn, IdentifiedTable, ROW_ID, ScansIds};
pub use interruptible::Interruptible;
pub use key_sample::{KeySample, Sampled};
pub use narrow::NarrowId;
pub use numbered::NumberedExec;
pub use octet_length::OctetLength;
pub use one_nan::with_one_nan;
pub use only_value::OnlyValue;
pub use operator_kind::{operator_kind, routing};
pub use output_records::{Hidden, OutputRecordsExec, ResultRecords, ResultTask};
pub use packed::PackedRecord;
pub use patterns::{EscapedPattern, PatternKind};
pub use profiled::{Exchange, Observed, ProfiledExec, is_exchange};
pub use quantified::{Quantified, Quantifier};
pub use read_array::ReadArray;
pub use recursion::{
    CarriedState, FirstSeen, MergedState, Origin, RestartExec, RowCapture, RowState, StateRecord,
};
pub use row_function::{RowClosure, RowFunction};
pub use row_numbers::RowNumbers;
pub use sample::SampledRowId;
pub use shared_rows::{SharedRows, SharedRowsExec};
pub use shift::Shift;
pub use single_value::SingleValue;
pub use sound_properties::SoundPropertiesExec;
pub use source::{AggregateSource, RecordSource, ScanSource};
pub use timed_evaluation::{LatencyColumn, MeasuredRecords, TimedEvaluationExec, TimedExpressions};
pub use totals::average::RoundedAverage;
pub use totals::extremes::Extreme;
pub use totals::sum::CheckedSum;
pub use zones::{AddInterval, ReadTime, ShowTime, Timezone};
