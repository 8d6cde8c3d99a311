//! Where a task writes segments.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, exec_err, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::SessionConfig;
use parking_lot::Mutex;
use skewer_storage::{
    MASTER, NewSegment, ReserveRowIds, SegmentDescription, SegmentWriter, Shard, Storage, TableId,
    WorkerStore, WriteSpec,
};

use super::rows::external;
use super::target::Target;

/// Gives out row ids of all tables, each once.
#[async_trait]
pub trait RowIds: fmt::Debug + Send + Sync {
    /// The first of `rows` consecutive ids of a table.
    ///
    /// # Errors
    /// If the catalog cannot be asked.
    async fn reserve(&self, table: TableId, rows: u64) -> skewer_storage::Result<i64>;

    /// Whether asking is a call to another process.
    fn is_far(&self) -> bool;
}

#[async_trait]
impl RowIds for Storage {
    async fn reserve(&self, table: TableId, rows: u64) -> skewer_storage::Result<i64> {
        self.reserve_row_ids(table, rows)
    }

    fn is_far(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct OfTable {
    row_ids: Arc<dyn RowIds>,
    table: TableId,
}

#[async_trait]
impl ReserveRowIds for OfTable {
    async fn reserve(&self, rows: u64) -> skewer_storage::Result<i64> {
        self.row_ids.reserve(self.table, rows).await
    }

    fn is_far(&self) -> bool {
        self.row_ids.is_far()
    }
}

/// Where the tasks of a query write on one node, an extension of their sessions.
#[derive(Debug)]
pub struct SegmentDestination {
    home: Home,
    row_ids: Arc<dyn RowIds>,
    entries: Entries,
}

#[derive(Debug)]
enum Home {
    /// Where the catalog is.
    Here(Storage),
    /// The directory of a worker.
    Node { home: WorkerStore, incarnation: u64 },
}

/// Streams of rows that enter here, by number.
#[derive(Default)]
struct Entries {
    next: AtomicU64,
    streams: Mutex<HashMap<u64, (SchemaRef, Option<SendableRecordBatchStream>)>>,
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.streams.lock().keys()).finish()
    }
}

/// A stream of rows that waits to enter, or has.
#[derive(Debug)]
pub struct IngestReceipt {
    place: Arc<SegmentDestination>,
    number: u64,
}

impl IngestReceipt {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for IngestReceipt {
    fn drop(&mut self) {
        // Dropping a stream may take a while.
        let entry = self.place.entries.streams.lock().remove(&self.number);
        drop(entry);
    }
}

impl SegmentDestination {
    /// In the database's own directory: on the master, and for workers in its process.
    pub fn here(storage: Storage) -> Arc<Self> {
        Arc::new(Self {
            row_ids: Arc::new(storage.clone()),
            home: Home::Here(storage),
            entries: Entries::default(),
        })
    }

    /// In a worker's directory, by the process that is its `incarnation`.
    pub fn home(home: WorkerStore, incarnation: u64, row_ids: Arc<dyn RowIds>) -> Arc<Self> {
        Arc::new(Self {
            home: Home::Node { home, incarnation },
            row_ids,
            entries: Entries::default(),
        })
    }

    /// The place of the task whose session this is.
    ///
    /// # Errors
    /// If its session was made without one: a defect.
    pub fn of_session(config: &SessionConfig) -> Result<Arc<Self>> {
        config
            .get_extension::<Self>()
            .ok_or_else(|| internal_datafusion_err!("a task writes that has no place to write to"))
    }

    /// Lets a stream of rows enter here, until the result is dropped.
    pub(super) fn ingest(self: &Arc<Self>, rows: SendableRecordBatchStream) -> IngestReceipt {
        let number = self.entries.next.fetch_add(1, Ordering::Relaxed);
        let entry = (rows.schema(), Some(rows));
        self.entries.streams.lock().insert(number, entry);
        IngestReceipt {
            place: Arc::clone(self),
            number,
        }
    }

    pub(super) fn entering_schema(&self, number: u64) -> Result<SchemaRef> {
        match self.entries.streams.lock().get(&number) {
            Some((schema, _)) => Ok(Arc::clone(schema)),
            None => exec_err!("rows {number} do not enter on this node"),
        }
    }

    pub(super) fn entering(&self, number: u64) -> Result<SendableRecordBatchStream> {
        let mut streams = self.entries.streams.lock();
        match streams.get_mut(&number).and_then(|(_, rows)| rows.take()) {
            Some(rows) => Ok(rows),
            None => exec_err!("rows {number} do not enter on this node, or have entered already"),
        }
    }

    /// Whether rows of shard number `index` of the statement belong here.
    pub(super) fn is_of(&self, target: &Target, index: u32) -> bool {
        match &self.home {
            // Workers of one process have their segments in common.
            Home::Here(_) if target.shares_segments => true,
            Home::Here(_) => target.writers.get(index as usize) == Some(&MASTER),
            Home::Node { home, .. } => target.writers.get(index as usize) == Some(&home.node()),
        }
    }

    pub(super) fn row_ids(&self, table: TableId) -> Arc<dyn ReserveRowIds> {
        Arc::new(OfTable {
            row_ids: Arc::clone(&self.row_ids),
            table,
        })
    }

    /// A writer whose segments have numbers of `block`, if this is not where numbers are given
    /// out.
    pub(super) fn writer(
        &self,
        target: &Target,
        block: Range<u64>,
        shard: Option<Shard>,
    ) -> SegmentWriter {
        let table = target.table();
        let spec = |segment_ids| WriteSpec {
            table,
            columns: Arc::clone(&target.columns),
            row_ids: self.row_ids(table),
            segment_ids,
            shard,
        };
        match &self.home {
            Home::Here(storage) => storage.writer_of(&spec(None)),
            Home::Node { home, .. } => home.writer(&spec(Some(block))),
        }
    }

    /// Leaves a segment to the statement.
    pub(super) fn release(
        &self,
        segment: NewSegment,
        target: &Target,
    ) -> Result<SegmentDescription> {
        match &self.home {
            Home::Here(storage) => Ok(storage.hold(segment, target.statement)),
            Home::Node { home, incarnation } => {
                home.release(segment, *incarnation).map_err(external)
            }
        }
    }
}
