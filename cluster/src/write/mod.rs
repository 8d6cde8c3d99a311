//! Rows into segments on the workers that will own them.
//!
//! ```text
//! CoalescePartitionsExec            descriptions of segments, which the master publishes
//!   WriteSegmentsExec               on every worker that is written to
//!     RepartitionExec: Hash(route)  rows to their owners
//!       RouteExec                   who gets which row, row ids
//!         EntryExec                 rows that enter at the master (VALUES, COPY FROM)
//! ```
//!
//! Where the input is divided already (`INSERT … SELECT` of what workers have) and nobody asks for
//! a certain owner, `WriteSegmentsExec` sits right on top of it: rows stay where they are made.
//! Rows that are deleted or updated are written anew by their owners:
//!
//! ```text
//! CoalescePartitionsExec
//!   WriteSegmentsExec
//!     ApplyChangesExec              without, or with other values in, the rows that change
//!       DataSourceExec              the segments that have such rows
//!       RepartitionExec: Hash(route)  ids and new values to the owners of their rows
//!         EntryExec
//! ```
//!
//! Where rows change their owner, by an `UPDATE` of the columns that they are divided by or since
//! there are other workers, `WriteSegmentsExec` is above a `RouteExec` as it is for new rows.
//!
//! - `destination`: where a task writes, and where row ids come from
//! - `target`: what all writers of a statement know
//! - `plan`: the plans above
//! - `ingest`, `route`, `segments`, `apply`: their operators
//! - `shards`: the hash that divides rows among owners
//! - `rows`: rows as the table has them
//! - `encoded`: the operators as bytes

mod apply;
mod destination;
mod encoded;
mod ingest;
mod plan;
mod route;
mod rows;
mod segments;
mod shards;
mod target;

pub use apply::{ApplyChangesExec, Changes};
pub use destination::{IngestReceipt, RowIds, SegmentDestination};
pub(crate) use encoded::{EncodedWrite, decode, encode};
pub use ingest::EntryExec;
pub use plan::{Rewrite, Writing, ingest, rewritten};
pub(crate) use plan::{routes_to, tasks_of, wrap};
pub use route::RouteExec;
pub use rows::{WriteError, conform};
pub use segments::{RowsHave, WriteSegmentsExec, descriptions};
pub(crate) use shards::hashed_alike;
pub use shards::{has_hash, shards};
pub use target::Target;
