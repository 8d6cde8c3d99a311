//! Opening a database, taking snapshots, beginning transactions.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use parking_lot::{Mutex, RwLock};

use crate::catalog::{CATALOG_FILE, Catalog, Counters, Loaded};
use crate::catalog_changes::Effects;
use crate::commit::CommitQueue;
use crate::disk::{Disk, MemoryDisk, RealDisk};
use crate::distributed_write::{PendingSegments, Running, WriteSpec};
use crate::lock::DirectoryLock;
use crate::placement::MASTER;
use crate::remote::{Membership, RemoteSegments};
use crate::segment_store::{self, SegmentStore};
use crate::snapshot::{Root, SegmentMeta, Snapshot, TableId, TableMeta};
use crate::transaction::Transaction;
use crate::worker_store;
use crate::writer::SegmentWriter;
use crate::{Result, StorageError};

/// The schema every new database has.
pub const DEFAULT_SCHEMA: &str = "main";

/// Query ids are reserved in the catalog in blocks of this size: one sync per so many queries.
/// What is left of a block at a restart is skipped.
const QUERY_ID_BLOCK: i64 = 1024;

/// The same for numbers of segments that are written on other nodes, where opening the catalog
/// does not see what is there: some thousand statements, each of which gets numbers for whatever it
/// might write. There are enough for as many restarts.
const SEGMENT_ID_BLOCK: u64 = 1 << 34;

/// Where segments are registered, in every process: a plan that one made is read by others. Each
/// has object stores of its own under it.
const SEGMENTS_URL: &str = "skewer-segments://cluster";

/// How to open a database.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// The file system; another one injects faults.
    pub disk: Arc<dyn Disk>,
    /// A segment is closed when it has this many rows.
    pub segment_rows: u64,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            disk: Arc::new(RealDisk),
            // Large enough that reading is not about files, small enough that changing one row
            // (which rewrites its segment) takes well under a second.
            segment_rows: 1 << 20,
        }
    }
}

/// An open database. Clones are the same database; it closes, and its lock is released, when the
/// last clone, snapshot and segment is gone.
#[derive(Debug, Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    on_disk: bool,
    segment_rows: u64,
    store: Arc<dyn ObjectStore>,
    url: ObjectStoreUrl,
    pub(crate) snapshot: RwLock<Arc<Snapshot>>,
    /// Commits that wait for the catalog.
    pub(crate) waiting: CommitQueue,
    /// Held while a group of commits is written.
    pub(crate) catalog: Mutex<CatalogState>,
    next_table_id: AtomicU64,
    next_segment_id: Arc<AtomicU64>,
    /// Numbers of segments below this are reserved.
    reserved_segment_ids: AtomicU64,
    /// Statements that are writing, by their number.
    running: Mutex<HashMap<u64, Running>>,
    pending_segments: PendingSegments,
    pub(crate) membership: RwLock<Option<Arc<dyn Membership>>>,
    query_ids: Mutex<i64>,
    /// Query ids below this are reserved.
    reserved_query_ids: AtomicI64,
    /// Last, since it has the lock, which another process may take as soon as the catalog is closed.
    root: Arc<Root>,
}

#[derive(Debug)]
pub(crate) struct CatalogState {
    pub(crate) catalog: Catalog,
    /// Commits that failed in such a way that it is unknown whether the file has them.
    pub(crate) unresolved: Option<(Snapshot, Effects)>,
}

impl Storage {
    /// Whether there is a database in a directory.
    pub fn exists(path: &Path) -> bool {
        path.join(CATALOG_FILE).exists()
    }

    /// Opens the database in a directory; creates both if absent. Removes what crashed or failed
    /// statements left behind.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another process has it open, [`StorageError::Format`] if
    /// another version wrote it, [`StorageError::Corrupt`] if the catalog is damaged. Damaged
    /// segments are not errors here: they show when they are read.
    pub fn open(path: &Path, options: StorageOptions) -> Result<Self> {
        let disk = options.disk;
        let io = |source| StorageError::io(path, source);
        let path = std::path::absolute(path).map_err(io)?;
        if !disk.exists(&path).map_err(io)? {
            create_directory(&*disk, &path)?;
        }
        if worker_store::is_home(&*disk, &path)? {
            return Err(StorageError::invalid(format_args!(
                "{} is the directory of a worker: it has segments, and their catalog is elsewhere",
                path.display()
            )));
        }
        let lock = DirectoryLock::acquire(&path)?;
        let local = LocalFileSystem::new_with_prefix(&path).map_err(|source| StorageError::Io {
            path: path.clone(),
            source: std::io::Error::other(source),
        })?;
        let root = Root::new(path, MASTER, disk, Some(lock));
        let catalog = Catalog::open(&root, DEFAULT_SCHEMA)?;
        Self::start(root, catalog, Arc::new(local), true, options.segment_rows)
    }

    /// A database that is gone when it is closed. Works like one on disk in every other way.
    pub fn in_memory() -> Result<Self> {
        let disk = MemoryDisk::default();
        let objects = disk.objects();
        let root = Root::new(PathBuf::new(), MASTER, Arc::new(disk), None);
        let catalog = Catalog::in_memory(DEFAULT_SCHEMA)?;
        let segment_rows = StorageOptions::default().segment_rows;
        Self::start(root, catalog, objects, false, segment_rows)
    }

    fn start(
        root: Arc<Root>,
        catalog: Catalog,
        store: Arc<dyn ObjectStore>,
        on_disk: bool,
        segment_rows: u64,
    ) -> Result<Self> {
        let Loaded { snapshot, counters } = catalog.load(&root)?;
        let last = if on_disk {
            remove_garbage(&root, &snapshot)
        } else {
            0
        };
        let with_files = snapshot.all_tables().filter(|t| !t.segments.is_empty());
        root.durable_dirs.lock().extend(with_files.map(|t| t.id));

        let url = segments_url()?;
        let next_segment_id = (last + 1).max(counters.next_segment_id);
        Ok(Self {
            inner: Arc::new(Inner {
                store: Arc::new(SegmentStore::new(store, Arc::clone(&root))),
                root,
                on_disk,
                segment_rows,
                url,
                snapshot: RwLock::new(Arc::new(snapshot)),
                waiting: CommitQueue::default(),
                catalog: Mutex::new(CatalogState {
                    catalog,
                    unresolved: None,
                }),
                next_table_id: AtomicU64::new(counters.next_table_id),
                next_segment_id: Arc::new(AtomicU64::new(next_segment_id)),
                reserved_segment_ids: AtomicU64::new(counters.next_segment_id),
                running: Mutex::default(),
                pending_segments: PendingSegments::default(),
                membership: RwLock::default(),
                query_ids: Mutex::new(counters.next_query_id),
                reserved_query_ids: AtomicI64::new(counters.next_query_id),
            }),
        })
    }

    /// Directory of the database; `None` in memory.
    pub fn path(&self) -> Option<&Path> {
        self.inner.on_disk.then_some(&self.inner.root.path)
    }

    /// The state after the last commit.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.inner.snapshot.read())
    }

    /// Begins a transaction on the current snapshot.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// A writer of segments for a table, which may be one that a transaction has yet to create.
    pub fn writer(&self, table: &TableMeta) -> SegmentWriter {
        self.writer_of(&WriteSpec {
            table: table.id,
            columns: Arc::clone(&table.schema),
            row_ids: Arc::clone(&table.next_row_id) as _,
            segment_ids: None,
            shard: None,
        })
    }

    /// How segments of other nodes are reached. Without it they cannot be read.
    pub fn set_remote(&self, remote: Arc<dyn RemoteSegments>) {
        *self.inner.root.remote.write() = Some(remote);
    }

    /// Who says whether those that wrote on other nodes are still there when their segments are
    /// published. Without it they cannot be.
    pub fn set_membership(&self, membership: Arc<dyn Membership>) {
        *self.inner.membership.write() = Some(membership);
    }

    /// Where segments are read from, at [`SegmentMeta::location`], those of other nodes through
    /// [`RemoteSegments`]. Read-only; its errors name the file.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner.store)
    }

    /// The URL to register [`Storage::object_store`] under: the same for all databases and on all
    /// nodes.
    pub fn object_store_url(&self) -> ObjectStoreUrl {
        self.inner.url.clone()
    }

    /// Checks that the file of a segment exists with the right length and, if `thoroughly`, reads
    /// it and checks its checksum.
    pub async fn verify(&self, segment: &SegmentMeta, thoroughly: bool) -> Result<()> {
        segment_store::verify(&*self.inner.store, segment, thoroughly).await
    }

    /// The first damaged file of a table, as an error that names it. Reads the whole table: for
    /// finding out why a query failed.
    pub async fn verify_table(&self, table: &TableMeta) -> Result<()> {
        for segment in &table.segments {
            self.verify(segment, true).await?;
        }
        Ok(())
    }

    /// The id for the next query: greater than all before it, also across restarts. Every
    /// 1024th call waits for the disk.
    ///
    /// If the disk fails then, ids still ascend until the process ends; they are reserved by the
    /// next commit.
    pub fn next_query_id(&self) -> i64 {
        let inner = &*self.inner;
        let mut next = inner.query_ids.lock();
        let id = *next;
        *next += 1;
        if id >= inner.reserved_query_ids.load(Ordering::Acquire) {
            inner
                .reserved_query_ids
                .store(id + QUERY_ID_BLOCK, Ordering::Release);
            let mut state = inner.catalog.lock();
            let reserved = inner
                .resolve(&mut state)
                .and_then(|()| state.catalog.write_counters(inner.counters()));
            if let Err(error) = reserved {
                tracing::warn!(%error, "cannot reserve query ids");
                // Harmless for the commits to come: the counters have no part in their outcome.
                let _ = state.catalog.reopen();
            }
        }
        id
    }

    pub(crate) fn next_table_id(&self) -> u64 {
        self.inner.next_table_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The first of `count` numbers that no segment has had, not even one that only its owner
    /// knows.
    pub(crate) fn reserve_segment_ids(&self, count: u64) -> Result<std::ops::Range<u64>> {
        let inner = &*self.inner;
        let mut state = inner.catalog.lock();
        let first = inner.next_segment_id.fetch_add(count, Ordering::AcqRel);
        let end = first + count;
        if end > inner.reserved_segment_ids.load(Ordering::Acquire) {
            inner.resolve(&mut state)?;
            let before = inner
                .reserved_segment_ids
                .swap(end + SEGMENT_ID_BLOCK, Ordering::AcqRel);
            if let Err(error) = state.catalog.write_counters(inner.counters()) {
                inner.reserved_segment_ids.store(before, Ordering::Release);
                // Harmless for the commits to come: the counters have no part in their outcome.
                let _ = state.catalog.reopen();
                return Err(error);
            }
        }
        Ok(first..end)
    }

    /// A segment is closed when it has this many rows.
    pub fn segment_rows(&self) -> u64 {
        self.inner.segment_rows
    }

    pub(crate) fn segment_ids(&self) -> &Arc<AtomicU64> {
        &self.inner.next_segment_id
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn root(&self) -> &Arc<Root> {
        &self.inner.root
    }

    pub(crate) fn running(&self) -> &Mutex<HashMap<u64, Running>> {
        &self.inner.running
    }

    pub(crate) fn pending_segments(&self) -> &PendingSegments {
        &self.inner.pending_segments
    }
}

/// The URL under which segments are registered in every process.
pub(crate) fn segments_url() -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse(SEGMENTS_URL).map_err(|error| StorageError::Internal {
        detail: error.to_string(),
    })
}

impl Inner {
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            next_table_id: self.next_table_id.load(Ordering::Acquire),
            next_query_id: self.reserved_query_ids.load(Ordering::Acquire),
            next_segment_id: self.reserved_segment_ids.load(Ordering::Acquire),
        }
    }

    /// Makes a committed state visible. What it returns second should be dropped without locks:
    /// it may be the last reference to files.
    pub(crate) fn install(&self, next: Snapshot, effects: Effects) -> (Arc<Snapshot>, Garbage) {
        for segment in &effects.published {
            segment.file.set_published(true);
        }
        for segment in &effects.unpublished {
            segment.file.set_published(false);
        }
        let next = Arc::new(next);
        let old = std::mem::replace(&mut *self.snapshot.write(), Arc::clone(&next));
        (next, (old, effects))
    }

    /// After an I/O error: opens the catalog again and finds out what became of the commit that
    /// failed.
    pub(crate) fn resolve(&self, state: &mut CatalogState) -> Result<()> {
        if state.catalog.is_usable() && state.unresolved.is_none() {
            return Ok(());
        }
        state.catalog.reopen()?;
        let version = state.catalog.version()?;
        if let Some((next, effects)) = state.unresolved.take() {
            if version == next.version {
                self.install(next, effects);
            } else {
                for segment in &effects.published {
                    segment.file.set_published(false);
                }
            }
        }
        Ok(())
    }
}

/// The replaced snapshot, and the segments a commit was about.
pub(crate) type Garbage = (Arc<Snapshot>, Effects);

/// Creates a directory and the ancestors it lacks, durably.
pub(crate) fn create_directory(disk: &dyn Disk, path: &Path) -> Result<()> {
    if let Some(parent) = path.parent() {
        let io = |source| StorageError::io(parent, source);
        if !disk.exists(parent).map_err(io)? {
            create_directory(disk, parent)?;
        }
        disk.create_dir(path)
            .map_err(|source| StorageError::io(path, source))?;
        disk.sync_dir(parent).map_err(io)?;
    }
    Ok(())
}

/// Removes segment files that the catalog does not know. Returns the largest segment id seen, so
/// that no name is used twice even where removing failed.
fn remove_garbage(root: &Root, snapshot: &Snapshot) -> u64 {
    // With its table: a removal that a power failure took back may have left a file behind whose
    // number a segment of another table has got since.
    let mut known: HashSet<(u64, u64)> = HashSet::new();
    for table in snapshot.all_tables() {
        let segments = table.segments.iter();
        known.extend(segments.map(|segment| (table.id.0, segment.id)));
    }
    let mut last = known.iter().map(|(_, id)| *id).max().unwrap_or(0);
    let disk = &*root.disk;
    let list = |path: &Path| {
        disk.list(path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot look for garbage");
            Vec::new()
        })
    };
    for directory in list(&root.segments_dir()) {
        let Some(table) = number(&directory, "") else {
            continue;
        };
        for file in list(&directory) {
            let Some(id) = number(&file, "parquet") else {
                continue;
            };
            last = last.max(id);
            if !known.contains(&(table, id))
                && let Err(error) = disk.remove(&file)
            {
                tracing::warn!(path = %file.display(), %error, "cannot remove garbage");
            }
        }
        if !snapshot.names.contains_key(&TableId(table))
            && let Err(error) = disk.remove_dir(&directory)
        {
            tracing::warn!(path = %directory.display(), %error, "cannot remove garbage");
        }
    }
    last
}

/// The number a file is named by; anything else in these directories is not ours.
pub(crate) fn number(path: &Path, extension: &str) -> Option<u64> {
    if path.extension().unwrap_or_default() != extension {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}
