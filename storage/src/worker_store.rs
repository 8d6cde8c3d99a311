//! The directory of a node that has segments and no catalog: what is in it, the master says.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::catalog::CATALOG_FILE;
use crate::disk::Disk;
use crate::distributed_write::{SegmentDescription, WriteSpec};
use crate::lock::DirectoryLock;
use crate::placement::MASTER;
use crate::segment_store::SegmentStore;
use crate::snapshot::{Root, SEGMENTS, TableId};
use crate::storage::{StorageOptions, create_directory, number, segments_url};
use crate::writer::{NewSegment, SegmentIds, SegmentWriter};
use crate::{Result, StorageError};

/// Says whose directory it is: without it, a node could be told that the segments of another
/// cluster are garbage.
const HOME_FILE: &str = "home.json";
/// One that is being written, renamed when it is complete.
const NEW_HOME_FILE: &str = "home.json.new";

/// Whose directory it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStoreIdentity {
    /// Tells the cluster from all others.
    pub cluster: String,
    /// The node's number in it, not [`MASTER`].
    pub node: u32,
}

impl fmt::Display for WorkerStoreIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cluster {}", self.node, self.cluster)
    }
}

/// The segments of one node. Clones are the same directory; it is locked until the last one and
/// the last [`NewSegment`] are gone.
#[derive(Debug, Clone)]
pub struct WorkerStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Arc<Root>,
    store: Arc<dyn ObjectStore>,
    url: ObjectStoreUrl,
    segment_rows: u64,
    /// Numbers that failed statements had: their segments must not outlive them.
    abandoned: Mutex<Vec<(TableId, Range<u64>)>>,
}

/// A node's directory that no other process has open, before anybody has said whose it is.
#[derive(Debug)]
pub struct WorkerStoreDirectory {
    path: PathBuf,
    lock: DirectoryLock,
    options: StorageOptions,
}

impl WorkerStoreDirectory {
    /// Locks a directory, or makes one.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if a process has it open, [`StorageError::Invalid`] if it is a
    /// database.
    pub fn lock(path: &Path, options: StorageOptions) -> Result<Self> {
        let disk = &options.disk;
        let io = |source| StorageError::io(path, source);
        let path = std::path::absolute(path).map_err(io)?;
        if !disk.exists(&path).map_err(io)? {
            create_directory(&**disk, &path)?;
        }
        let lock = DirectoryLock::acquire(&path)?;
        if disk.exists(&path.join(CATALOG_FILE)).map_err(io)? {
            return Err(StorageError::invalid(format_args!(
                "{} is a database, not the directory of a worker",
                path.display()
            )));
        }
        Ok(Self {
            path,
            lock,
            options,
        })
    }

    /// Whether a node that has no number yet can have it.
    ///
    /// # Errors
    /// [`StorageError::Invalid`] if it belongs to a node, whichever that is: numbers are never given
    /// out twice. [`StorageError::Corrupt`] if it has segments and nothing says whose they are.
    pub fn must_be_free(&self) -> Result<()> {
        match owner(&*self.options.disk, &self.path)? {
            None => Ok(()),
            Some(owner) => Err(StorageError::invalid(format_args!(
                "{} belongs to node {owner}: a worker that joins needs a directory of its own",
                self.path.display(),
            ))),
        }
    }

    /// Whether it can be that of a node that has lost its identity, and is certified again: it is
    /// the node's, or nobody's.
    ///
    /// # Errors
    /// [`StorageError::Invalid`] if it belongs to another node. [`StorageError::Corrupt`] if it has
    /// segments and nothing says whose they are.
    pub fn must_be_of(&self, node: u32) -> Result<()> {
        match owner(&*self.options.disk, &self.path)? {
            Some(owner) if owner.node != node => Err(StorageError::invalid(format_args!(
                "{} belongs to node {owner}, not to node {node}",
                self.path.display(),
            ))),
            _ => Ok(()),
        }
    }

    /// Opens it as that of a node.
    ///
    /// # Errors
    /// [`StorageError::OtherHome`] if it belongs to another node or cluster.
    pub fn open(self, identity: &WorkerStoreIdentity) -> Result<WorkerStore> {
        let Self {
            path,
            lock,
            options,
        } = self;
        if identity.node == MASTER {
            return Err(StorageError::invalid("node 0 has a database"));
        }
        let local = LocalFileSystem::new_with_prefix(&path)
            .map_err(|source| StorageError::io(&path, std::io::Error::other(source)))?;
        let root = Root::new(path, identity.node, options.disk, Some(lock));
        claim(&root, identity)?;
        Ok(WorkerStore {
            inner: Arc::new(Inner {
                store: Arc::new(SegmentStore::new(Arc::new(local), Arc::clone(&root))),
                root,
                url: segments_url()?,
                segment_rows: options.segment_rows,
                abandoned: Mutex::default(),
            }),
        })
    }
}

impl WorkerStore {
    /// Opens a node's directory, or makes one.
    ///
    /// # Errors
    /// Those of [`WorkerStoreDirectory::lock`] and [`WorkerStoreDirectory::open`].
    pub fn open(
        path: &Path,
        identity: &WorkerStoreIdentity,
        options: StorageOptions,
    ) -> Result<Self> {
        WorkerStoreDirectory::lock(path, options)?.open(identity)
    }

    /// The node's number.
    pub fn node(&self) -> u32 {
        self.inner.root.node
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.inner.root.path
    }

    /// Where the node's segments are read from, at the same places as on the master. Those of
    /// others are refused. Read-only.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner.store)
    }

    /// The URL to register [`WorkerStore::object_store`] under, the same on all nodes.
    pub fn object_store_url(&self) -> ObjectStoreUrl {
        self.inner.url.clone()
    }

    /// A writer of segments, which belong to this node.
    pub fn writer(&self, spec: &WriteSpec) -> SegmentWriter {
        let ids = SegmentIds::Block(spec.segment_ids.clone().unwrap_or(0..0));
        let inner = &*self.inner;
        SegmentWriter::new(Arc::clone(&inner.root), ids, inner.segment_rows, spec)
    }

    /// Leaves a segment to the statement that it was written for: from now on the file goes only
    /// when the master says so.
    ///
    /// # Errors
    /// [`StorageError::Invalid`] if the statement has been given up; the file is gone then.
    pub fn release(&self, segment: NewSegment, incarnation: u64) -> Result<SegmentDescription> {
        let description = segment.describe(incarnation);
        let abandoned = self.inner.abandoned.lock();
        let is_abandoned = abandoned
            .iter()
            .any(|(table, ids)| *table == segment.table && ids.contains(&description.id));
        if is_abandoned {
            drop(abandoned);
            return Err(StorageError::invalid("the statement was given up"));
        }
        segment.meta().file.set_published(true);
        Ok(description)
    }

    /// All segments that are here, those that are being written too.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<(TableId, u64)>> {
        let root = &self.inner.root;
        let list = |path: &Path| {
            let listed = root.disk.list(path);
            listed.map_err(|source| StorageError::io(path, source))
        };
        let mut found = Vec::new();
        for directory in list(&root.segments_dir())? {
            let Some(table) = number(&directory, "") else {
                continue;
            };
            for file in list(&directory)? {
                found.extend(number(&file, "parquet").map(|id| (TableId(table), id)));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Removes segments. What cannot be removed is reported in the log, and garbage again at the
    /// next registration.
    pub fn remove(&self, table: TableId, segments: impl IntoIterator<Item = u64>) {
        let root = &self.inner.root;
        for id in segments {
            let path = root.segment_path(table, id);
            if let Err(error) = root.disk.remove(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "cannot remove segment");
            }
        }
    }

    /// Gives up a statement: removes what it has written with these numbers, and lets it finish
    /// nothing more.
    pub fn abandon(&self, table: TableId, segments: Range<u64>) {
        self.inner.abandoned.lock().push((table, segments.clone()));
        match self.list() {
            Ok(listed) => {
                let written = listed
                    .into_iter()
                    .filter(|(of, id)| *of == table && segments.contains(id));
                self.remove(table, written.map(|(_, id)| id));
            }
            Err(error) => tracing::warn!(%error, "cannot look for segments of a failed statement"),
        }
    }
}

/// Whether a directory belongs to a node without a catalog.
pub(crate) fn is_home(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let file = path.join(HOME_FILE);
    let exists = disk.exists(&file);
    exists.map_err(|source| StorageError::io(&file, source))
}

/// Whose directory it is; `None` if it is nobody's, and has no segments.
fn owner(disk: &dyn Disk, path: &Path) -> Result<Option<WorkerStoreIdentity>> {
    let file = path.join(HOME_FILE);
    let segments = path.join(SEGMENTS);
    if is_home(disk, path)? {
        let open = disk.open(&file).map_err(io_error(&file))?;
        let length = open.len().map_err(io_error(&file))?;
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        open.read_at(0, &mut text).map_err(io_error(&file))?;
        let found =
            serde_json::from_slice(&text).map_err(|error| StorageError::corrupt(&file, error))?;
        return Ok(Some(found));
    }
    let exists = disk.exists(&segments).map_err(io_error(&segments))?;
    if exists
        && !disk
            .list(&segments)
            .map_err(io_error(&segments))?
            .is_empty()
    {
        let detail = "the file is missing although the directory has segments";
        return Err(StorageError::corrupt(&file, detail));
    }
    Ok(None)
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> StorageError {
    move |source| StorageError::io(path, source)
}

/// Writes down whose directory it is, or compares.
fn claim(root: &Root, identity: &WorkerStoreIdentity) -> Result<()> {
    let (disk, path) = (&*root.disk, &root.path);
    if let Some(found) = owner(disk, path)? {
        return match found == *identity {
            true => Ok(()),
            false => Err(StorageError::OtherHome {
                path: path.clone(),
                found: found.to_string(),
                expected: identity.to_string(),
            }),
        };
    }
    let segments = root.segments_dir();
    disk.create_dir(&segments).map_err(io_error(&segments))?;
    let file = path.join(HOME_FILE);
    let new = path.join(NEW_HOME_FILE);
    if disk.exists(&new).map_err(io_error(&new))? {
        disk.remove(&new).map_err(io_error(&new))?;
    }
    let text = serde_json::to_vec(identity).map_err(|error| StorageError::Internal {
        detail: error.to_string(),
    })?;
    let created = disk.create(&new).map_err(io_error(&new))?;
    created.write_at(0, &text).map_err(io_error(&new))?;
    created.sync().map_err(io_error(&new))?;
    disk.rename(&new, &file).map_err(io_error(&file))?;
    disk.sync_dir(path).map_err(io_error(path))
}
