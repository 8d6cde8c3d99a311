//! What the master's storage asks of the nodes that own segments. Implemented where nodes are
//! reached; this crate knows none of them.

use std::fmt::Debug;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Result;
use crate::placement::SegmentName;
use crate::snapshot::TableId;

/// The segments of other nodes.
#[async_trait]
pub trait RemoteSegments: Debug + Send + Sync {
    /// Bytes of a segment from its owner; all of it without a range.
    ///
    /// # Errors
    /// [`StorageError::WorkerLost`](crate::StorageError::WorkerLost) if the owner is not there,
    /// what its [`WorkerStore`](crate::WorkerStore) says otherwise.
    async fn read(&self, segment: SegmentName, range: Option<Range<u64>>) -> Result<Bytes>;

    /// No snapshot has these segments any more: `node` should
    /// [remove](crate::WorkerStore::remove) them. Must not block and may be lost: what is still
    /// there when the node registers again is found by
    /// [`Storage::garbage_of`](crate::Storage::garbage_of).
    fn dropped(&self, node: u32, table: TableId, segments: &[u64]);

    /// A statement that wrote to `node` has failed: the segments with these numbers should be
    /// [given up](crate::WorkerStore::abandon), those that are yet to be written too. Must not
    /// block and may be lost.
    fn abandoned(&self, node: u32, table: TableId, segments: Range<u64>);
}

/// A process that wrote segments: a worker that was restarted has lost what it had not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Writer {
    /// The worker's number.
    pub node: u32,
    /// Drawn by its process at start.
    pub incarnation: u64,
}

/// Who takes part in the cluster, as far as commits are concerned.
pub trait Membership: Debug + Send + Sync {
    /// Calls `publish` once if all of `writers` take part as the processes that they were when
    /// they wrote, and keeps everybody from leaving and registering until it returns.
    ///
    /// # Errors
    /// [`StorageError::WorkerLost`](crate::StorageError::WorkerLost) with the name of one that
    /// does not; then nothing has been called.
    fn while_present(&self, writers: &[Writer], publish: &mut dyn FnMut()) -> Result<()>;
}
