//! A master with workers, all in this process: what storage sees of a cluster.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::{GetOptions, GetRange, ObjectStore};
use futures::executor::block_on;
use parking_lot::Mutex;
use skewer_storage::disk::{Disk, RealDisk};
use skewer_storage::{
    MASTER, Membership, NewSegment, RemoteSegments, ReserveRowIds, Result, SEGMENTS_PER_WRITER,
    SegmentDescription, SegmentName, Shard, Storage, StorageError, StorageOptions, TableId,
    TableMeta, WorkerStore, WorkerStoreIdentity, Write, WriteSpec, Writer,
};

use crate::support::batch;

/// The workers as the master reaches them.
#[derive(Debug, Default)]
pub struct Nodes {
    homes: Mutex<BTreeMap<u32, (WorkerStore, u64)>>,
    /// What the master said is not needed any more.
    pub dropped: Mutex<Vec<SegmentName>>,
}

fn lost(node: u32, detail: &str) -> StorageError {
    StorageError::WorkerLost {
        worker: format!("worker {node}"),
        detail: detail.to_owned(),
    }
}

impl Nodes {
    pub fn home(&self, node: u32) -> Option<WorkerStore> {
        Some(self.homes.lock().get(&node)?.0.clone())
    }
}

#[async_trait]
impl RemoteSegments for Nodes {
    async fn read(&self, segment: SegmentName, range: Option<Range<u64>>) -> Result<Bytes> {
        let home = self.home(segment.owner);
        let home = home.ok_or_else(|| lost(segment.owner, "it is gone"))?;
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let location = segment.location();
        let found = home.object_store().get_opts(&location, options).await;
        Ok(found.unwrap().bytes().await.unwrap())
    }

    fn dropped(&self, node: u32, table: TableId, segments: &[u64]) {
        self.dropped
            .lock()
            .extend(segments.iter().map(|id| SegmentName {
                owner: node,
                table,
                id: *id,
            }));
        if let Some(home) = self.home(node) {
            home.remove(table, segments.iter().copied());
        }
    }

    fn abandoned(&self, node: u32, table: TableId, segments: Range<u64>) {
        if let Some(home) = self.home(node) {
            home.abandon(table, segments);
        }
    }
}

impl Membership for Nodes {
    fn while_present(&self, writers: &[Writer], publish: &mut dyn FnMut()) -> Result<()> {
        let homes = self.homes.lock();
        for writer in writers {
            match homes.get(&writer.node) {
                Some((_, incarnation)) if *incarnation == writer.incarnation => {}
                Some(_) => return Err(lost(writer.node, "it was restarted")),
                None => return Err(lost(writer.node, "it is gone")),
            }
        }
        // Publishing may drop segments, whose owners are told.
        drop(homes);
        publish();
        Ok(())
    }
}

/// Row ids as a worker gets them: from the master, by a call.
#[derive(Debug)]
pub struct ByCall {
    pub storage: Storage,
    pub table: TableId,
}

#[async_trait]
impl ReserveRowIds for ByCall {
    async fn reserve(&self, rows: u64) -> Result<i64> {
        self.storage.reserve_row_ids(self.table, rows)
    }

    fn is_far(&self) -> bool {
        true
    }
}

/// A database and its workers, below one directory.
pub struct Cluster {
    pub storage: Storage,
    pub nodes: Arc<Nodes>,
}

/// Three rows per segment.
pub fn options(disk: Arc<dyn Disk>) -> StorageOptions {
    StorageOptions {
        disk,
        segment_rows: 3,
    }
}

pub fn identity(node: u32) -> WorkerStoreIdentity {
    WorkerStoreIdentity {
        cluster: "test".to_owned(),
        node,
    }
}

impl Cluster {
    pub fn open(path: &Path, workers: u32) -> Self {
        let disks = (0..=workers).map(|_| Arc::new(RealDisk) as _).collect();
        Self::on(path, disks).unwrap()
    }

    /// The first disk is the master's.
    pub fn on(path: &Path, disks: Vec<Arc<dyn Disk>>) -> Result<Self> {
        let mut disks = disks.into_iter();
        let master = disks.next().unwrap();
        let storage = Storage::open(&path.join("master"), options(master))?;
        let nodes = Arc::new(Nodes::default());
        storage.set_remote(Arc::clone(&nodes) as _);
        storage.set_membership(Arc::clone(&nodes) as _);
        let cluster = Self { storage, nodes };
        for (node, disk) in (1..).zip(disks) {
            cluster.start(path, node, 1, disk)?;
        }
        Ok(cluster)
    }

    /// Starts a worker: opens its directory, registers it and removes its garbage.
    pub fn start(
        &self,
        path: &Path,
        node: u32,
        incarnation: u64,
        disk: Arc<dyn Disk>,
    ) -> Result<()> {
        let path = path.join(format!("worker {node}"));
        let home = WorkerStore::open(&path, &identity(node), options(disk))?;
        let garbage = self.storage.garbage_of(node, &home.list()?, true);
        for (table, id) in garbage {
            home.remove(table, [id]);
        }
        self.nodes.homes.lock().insert(node, (home, incarnation));
        Ok(())
    }

    pub fn stop(&self, node: u32) {
        self.nodes.homes.lock().remove(&node);
    }

    pub fn workers(&self) -> Vec<u32> {
        self.nodes.homes.lock().keys().copied().collect()
    }

    /// What one worker writes of a statement: its segments as the master gets them.
    pub fn write_on(
        &self,
        node: u32,
        write: &Write,
        values: &[i64],
        shard: Option<Shard>,
    ) -> Result<Vec<NewSegment>> {
        let descriptions = self.describe_on(node, write, values, shard)?;
        descriptions.iter().map(|d| self.storage.adopt(d)).collect()
    }

    /// The same, before the master gets them.
    pub fn describe_on(
        &self,
        node: u32,
        write: &Write,
        values: &[i64],
        shard: Option<Shard>,
    ) -> Result<Vec<SegmentDescription>> {
        let table = write.table();
        let first = write.first_segment_id() + u64::from(node) * SEGMENTS_PER_WRITER;
        let spec = WriteSpec {
            table: table.id,
            columns: Arc::clone(&table.schema),
            row_ids: Arc::new(ByCall {
                storage: self.storage.clone(),
                table: table.id,
            }),
            segment_ids: Some(first..first + SEGMENTS_PER_WRITER),
            shard,
        };
        let (home, incarnation) = match self.nodes.homes.lock().get(&node) {
            Some((home, incarnation)) => (home.clone(), *incarnation),
            None => return Err(lost(node, "it is gone")),
        };
        let mut writer = home.writer(&spec);
        let written = block_on(async {
            writer.write(&batch(table, values)).await?;
            writer.finish().await
        })?;
        written
            .into_iter()
            .map(|segment| home.release(segment, incarnation))
            .collect()
    }

    /// Appends rows, some on each worker, in one commit.
    pub fn insert(&self, table: &Arc<TableMeta>, values: &[i64]) -> Result<()> {
        let workers = self.workers();
        let write = self.begin(table)?;
        let mut segments = Vec::new();
        for (place, node) in workers.iter().enumerate() {
            let share = values.iter().skip(place).step_by(workers.len());
            let share: Vec<i64> = share.copied().collect();
            segments.extend(self.write_on(*node, &write, &share, None)?);
        }
        write.mark_adopted();
        let mut transaction = self.storage.begin();
        transaction.add_segments(table.id, segments)?;
        transaction.commit().map(drop)
    }

    pub fn begin(&self, table: &Arc<TableMeta>) -> Result<Write> {
        let mut nodes = self.workers();
        nodes.push(MASTER);
        self.storage.begin_write(table, &nodes, 8)
    }

    /// All files that workers have.
    pub fn files(&self) -> Vec<SegmentName> {
        let homes = self.nodes.homes.lock();
        let mut files = Vec::new();
        for (owner, (home, _)) in &*homes {
            let listed = home.list().unwrap();
            files.extend(listed.into_iter().map(|(table, id)| SegmentName {
                owner: *owner,
                table,
                id,
            }));
        }
        files.sort();
        files
    }

    /// The segments of workers that the current snapshot has.
    pub fn referenced(&self) -> Vec<SegmentName> {
        let snapshot = self.storage.snapshot();
        let mut names: Vec<_> = snapshot
            .tables(skewer_storage::DEFAULT_SCHEMA)
            .iter()
            .flat_map(|table| table.segments.clone())
            .filter(|segment| segment.owner != MASTER)
            .map(|segment| SegmentName::parse(&segment.location).unwrap())
            .collect();
        names.sort();
        names
    }
}
