//! What Skewer keeps once it is acknowledged: tables as immutable Parquet segments, published by
//! transactions of a redb catalog. Depends on no other crate of the workspace.
//!
//! A commit is one redb transaction that publishes files which are already on disk; a file that no
//! transaction published is garbage. The on-disk format is described in `docs/storage.md`.
//!
//! - [`storage`]: opening a database, taking snapshots, beginning transactions
//! - [`snapshot`]: the immutable state a reader sees: schemas, tables, views, segments
//! - [`kept_snapshots`]: what queries saw, kept for a while
//! - [`transaction`]: buffered changes and their commit
//! - [`writer`]: Arrow batches to Parquet segments, with row ids
//! - `row_groups`: the row groups of a segment, whose columns several threads encode
//! - [`row_ids`]: what a segment's footer says of them
//! - [`distinct_values`]: sketches of how many distinct values its columns have
//! - [`quarantine`]: conditions that keep rows of a table out of queries that ask for it
//! - [`placement`]: who owns a segment, and which of a table's rows are in it
//! - [`distributed_write`]: a statement that writes on several nodes, until it commits
//! - [`worker_store`]: the directory of a node that has segments and no catalog
//! - [`remote`]: what the master asks of such nodes
//! - [`compaction`]: small segments merged into larger ones
//! - `reader`: one segment's rows
//! - [`segment_store`]: segments as an object store for DataFusion to read, and their verification
//! - `catalog_changes`: what each change does to a snapshot and to the catalog
//! - [`streams`]: what makes a table a stream; continuous queries and their progress
//! - `commit`: commits that are written together
//! - `catalog`: the redb file
//! - [`disk`]: the one door to the file system; [`fault`]: the same door with injected faults
//! - `catalog_rows`: what is in it; `stream_rows`: of that, streams and continuous queries
//! - `lock`: one process at a time
//! - [`error`]: what can go wrong, by what the caller can do about it

mod catalog;
mod catalog_changes;
mod catalog_rows;
mod commit;
pub mod compaction;
mod conform;
pub mod disk;
pub mod distinct_values;
pub mod distributed_write;
pub mod error;
pub mod fault;
pub mod kept_snapshots;
mod lock;
pub mod placement;
pub mod quarantine;
mod reader;
pub mod remote;
mod row_groups;
pub mod row_ids;
pub mod segment_store;
pub mod snapshot;
pub mod storage;
mod stream_rows;
pub mod streams;
pub mod transaction;
pub mod worker_store;
pub mod writer;

pub use distributed_write::{
    ReserveRowIds, SEGMENTS_PER_WRITER, SegmentDescription, Write, WriteSpec,
};
pub use error::{Object, StorageError};
pub use placement::{MASTER, Partitioning, SegmentName, Shard};
pub use quarantine::QuarantineMeta;
pub use remote::{Membership, RemoteSegments, Writer};
pub use snapshot::{ROW_ID, SegmentMeta, Snapshot, TableId, TableMeta, ViewMeta};
pub use storage::{DEFAULT_SCHEMA, Storage, StorageOptions};
pub use streams::{ContinuousQueryMeta, FileMark, Progress, StreamMeta};
pub use transaction::Transaction;
pub use worker_store::{WorkerStore, WorkerStoreDirectory, WorkerStoreIdentity};
pub use writer::{NewSegment, RowIds, SegmentWriter};

/// Result of everything in this crate.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;
