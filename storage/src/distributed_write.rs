//! A statement that writes segments on several nodes, and what its parts tell each other.

use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::placement::{MASTER, SegmentName, Shard};
use crate::remote::Writer;
use crate::snapshot::{SegmentFile, SegmentMeta, SegmentNumbers, TableId, TableMeta};
use crate::storage::Storage;
use crate::writer::{NewSegment, SegmentIds, SegmentWriter};
use crate::{Result, StorageError};

/// Segments that one writer of a statement may write: some four billion rows.
pub const SEGMENTS_PER_WRITER: u64 = 4096;

/// Gives out row ids of one table, each once.
#[async_trait]
pub trait ReserveRowIds: Debug + Send + Sync {
    /// The first of `rows` consecutive ids.
    ///
    /// # Errors
    /// If the catalog cannot be asked.
    async fn reserve(&self, rows: u64) -> Result<i64>;

    /// Whether asking takes so long that a writer should ask for more ids than it needs at once.
    fn is_far(&self) -> bool;
}

#[async_trait]
impl ReserveRowIds for AtomicI64 {
    async fn reserve(&self, rows: u64) -> Result<i64> {
        Ok(self.fetch_add(rows.cast_signed(), Ordering::AcqRel))
    }

    fn is_far(&self) -> bool {
        false
    }
}

/// What a writer has to know of its table.
#[derive(Debug, Clone)]
pub struct WriteSpec {
    /// The table.
    pub table: TableId,
    /// The user's columns.
    pub columns: SchemaRef,
    /// Where ids of rows come from that have none.
    pub row_ids: Arc<dyn ReserveRowIds>,
    /// Numbers for segments; `None` takes those of this process's own storage.
    pub segment_ids: Option<Range<u64>>,
    /// What all rows have in common.
    pub shard: Option<Shard>,
}

/// A finished segment in words that can be sent: what the catalog will say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentDescription {
    /// The table it belongs to.
    pub table: u64,
    /// Its number.
    pub id: u64,
    /// The node that has it.
    pub owner: u32,
    /// The process that wrote it, as the node's number for itself.
    pub incarnation: u64,
    /// Number of rows.
    pub rows: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Smallest row id in it.
    pub min_row_id: i64,
    /// Largest row id in it.
    pub max_row_id: i64,
    /// XXH64 (seed 0) of the file.
    pub checksum: u64,
    /// What all of its rows have in common.
    pub shard: Option<Shard>,
}

impl NewSegment {
    /// The segment in words. The file is still this value's: dropped, it takes the file along,
    /// unless it goes through [`WorkerStore::release`](crate::WorkerStore::release) or
    /// [`Storage::hold`].
    pub fn describe(&self, incarnation: u64) -> SegmentDescription {
        let meta = self.meta();
        SegmentDescription {
            table: self.table.0,
            id: meta.id,
            owner: meta.owner,
            incarnation,
            rows: meta.rows,
            bytes: meta.bytes,
            min_row_id: meta.min_row_id,
            max_row_id: meta.max_row_id,
            checksum: meta.checksum,
            shard: meta.shard,
        }
    }
}

/// Segments written here that their statement has yet to ask for, by the statement's number.
pub(crate) type PendingSegments = Mutex<HashMap<u64, Vec<NewSegment>>>;

/// A statement that is writing segments of a table on some nodes.
///
/// As long as it is there, what its writers have written is not garbage. Dropped before
/// [`Write::mark_adopted`], it gives up what they wrote and may yet write.
#[derive(Debug)]
pub struct Write {
    storage: Storage,
    table: Arc<TableMeta>,
    nodes: Vec<u32>,
    segment_ids: Range<u64>,
    is_adopted: bool,
}

impl Write {
    /// The number of the first segment of the first writer; writer *n* begins
    /// *n* · [`SEGMENTS_PER_WRITER`] later.
    pub fn first_segment_id(&self) -> u64 {
        self.segment_ids.start
    }

    /// The table that is written.
    pub fn table(&self) -> &Arc<TableMeta> {
        &self.table
    }

    /// All writers have finished, and all that they wrote was [adopted](Storage::adopt): each
    /// segment stands for itself from now on.
    pub fn mark_adopted(mut self) {
        self.is_adopted = true;
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        let number = self.segment_ids.start;
        self.storage.running().lock().remove(&number);
        // Files are removed without the lock.
        let pending_segments = self.storage.pending_segments().lock().remove(&number);
        drop(pending_segments);
        if self.is_adopted {
            return;
        }
        let Some(remote) = self.storage.root().remote() else {
            return;
        };
        for node in self.nodes.iter().filter(|node| **node != MASTER) {
            remote.abandoned(*node, self.table.id, self.segment_ids.clone());
        }
    }
}

/// A running [`Write`], as storage knows it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) table: Arc<TableMeta>,
    pub(crate) segment_ids: Range<u64>,
}

impl Storage {
    /// Begins to write to a table, which may be one that a transaction has yet to create, with at
    /// most `writers` writers on `nodes`.
    ///
    /// # Errors
    /// If numbers of segments cannot be reserved.
    pub fn begin_write(
        &self,
        table: &Arc<TableMeta>,
        nodes: &[u32],
        writers: u64,
    ) -> Result<Write> {
        let remote = nodes.iter().any(|node| *node != MASTER);
        let segment_ids = match remote {
            true => self.reserve_segment_ids(writers * SEGMENTS_PER_WRITER)?,
            // Writers of this process take theirs as they come; this one names the statement.
            false => {
                let id = self.segment_ids().fetch_add(1, Ordering::Relaxed);
                id..id + 1
            }
        };
        self.running().lock().insert(
            segment_ids.start,
            Running {
                table: Arc::clone(table),
                segment_ids: segment_ids.clone(),
            },
        );
        Ok(Write {
            storage: self.clone(),
            table: Arc::clone(table),
            nodes: nodes.to_vec(),
            segment_ids,
            is_adopted: false,
        })
    }

    /// Row ids for rows that somebody else writes: the first of `rows` consecutive ones, of a
    /// table that a statement is [writing](Storage::begin_write) or that is committed.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if there is no such table.
    pub fn reserve_row_ids(&self, table: TableId, rows: u64) -> Result<i64> {
        let written = self
            .running()
            .lock()
            .values()
            .find(|running| running.table.id == table)
            .map(|running| Arc::clone(&running.table));
        let found = written.or_else(|| self.snapshot().table_by_id(table));
        let table = found.ok_or_else(|| {
            StorageError::not_found(crate::Object::Table, format!("with id {table}"))
        })?;
        Ok(table.reserve_row_ids(rows))
    }

    /// A writer in this process's own directory. Its segments belong to [`MASTER`].
    pub fn writer_of(&self, spec: &WriteSpec) -> SegmentWriter {
        let ids = match &spec.segment_ids {
            Some(block) => SegmentIds::Block(block.clone()),
            None => SegmentIds::Shared(Arc::clone(self.segment_ids())),
        };
        SegmentWriter::new(Arc::clone(self.root()), ids, self.segment_rows(), spec)
    }

    /// Keeps a segment that was written here until the statement that it was written for
    /// [adopts](Storage::adopt) it or is dropped.
    pub fn hold(&self, segment: NewSegment, write: u64) -> SegmentDescription {
        let description = segment.describe(0);
        let running = self.running().lock();
        // A statement that is over adopts nothing any more.
        if running.contains_key(&write) {
            self.pending_segments()
                .lock()
                .entry(write)
                .or_default()
                .push(segment);
        }
        description
    }

    /// What a description says, to be published by a transaction. Dropped without that, its owner
    /// is told to remove the file.
    ///
    /// # Errors
    /// [`StorageError::Internal`] for a segment of this process that it does not hold.
    pub fn adopt(&self, description: &SegmentDescription) -> Result<NewSegment> {
        let SegmentDescription {
            table,
            id,
            owner,
            incarnation,
            ..
        } = *description;
        if owner == MASTER {
            let mut pending_segments = self.pending_segments().lock();
            let found = pending_segments.values_mut().find_map(|segments| {
                let place = segments.iter().position(|s| s.meta().id == id)?;
                Some(segments.swap_remove(place))
            });
            return found.ok_or_else(|| StorageError::Internal {
                detail: format!("segment {id} is not here"),
            });
        }
        let numbers = SegmentNumbers {
            rows: description.rows,
            bytes: description.bytes,
            min_row_id: description.min_row_id,
            max_row_id: description.max_row_id,
            checksum: description.checksum,
        };
        let table = TableId(table);
        let name = SegmentName { owner, table, id };
        let file = SegmentFile::new(self.root(), name, false);
        Ok(NewSegment {
            table,
            meta: Arc::new(SegmentMeta::new(numbers, description.shard, file)),
            writer: Some(Writer {
                node: owner,
                incarnation,
            }),
        })
    }

    /// Which of the segments that `node` has are nobody's: no snapshot has them, none is about to
    /// be published, and no statement is writing them. With `restarted`, what statements of now
    /// are writing there is garbage too: it is what an earlier process left unfinished.
    pub fn garbage_of(
        &self,
        node: u32,
        listed: &[(TableId, u64)],
        restarted: bool,
    ) -> Vec<(TableId, u64)> {
        // First what is being written: what is adopted meanwhile is alive by then.
        let writing: Vec<(TableId, Range<u64>)> = match restarted {
            true => Vec::new(),
            false => self
                .running()
                .lock()
                .values()
                .map(|running| (running.table.id, running.segment_ids.clone()))
                .collect(),
        };
        let root = self.root();
        let alive = root.sizes.lock();
        listed
            .iter()
            .filter(|(table, id)| {
                let name = SegmentName {
                    owner: node,
                    table: *table,
                    id: *id,
                };
                !alive.contains_key(&name.location())
                    && !writing
                        .iter()
                        .any(|(written, ids)| written == table && ids.contains(id))
            })
            .copied()
            .collect()
    }
}
