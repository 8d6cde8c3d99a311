//! The redb file: creating, opening, committing, and opening again after an I/O error.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::InMemoryBackend;
use redb::{Builder, Database, ReadableDatabase, StorageBackend};

use crate::catalog_changes::Row;
use crate::catalog_rows::{self, Rows};
use crate::disk::{Disk, DiskFile};
use crate::snapshot::{Root, Snapshot};
use crate::{Result, StorageError};

/// Version of everything described in `docs/storage.md`. A change that an older build would
/// misread increments it; a database has the lowest that describes it.
pub(crate) const FORMAT: u64 = FORMAT_OF_STREAMS;
/// Of a database that has had a quarantine, or a stream.
pub(crate) const FORMAT_OF_STREAMS: u64 = 3;
/// Of a database that has had segments of workers, or tables that are divided.
pub(crate) const FORMAT_OF_NODES: u64 = 2;
/// Of a database whose segments all belong to [`MASTER`](crate::placement::MASTER) and to tables
/// that are not divided.
const FORMAT_OF_ONE_NODE: u64 = 1;

/// The catalog of a database, in its directory.
pub(crate) const CATALOG_FILE: &str = "catalog.redb";
/// A catalog being created, renamed when it is complete.
const NEW_CATALOG_FILE: &str = "catalog.redb.new";

/// A catalog of 10,000 segments is about 1 MB; redb's default of 1 GiB is for other uses.
const CACHE_BYTES: usize = 16 << 20;

/// Counters that survive a restart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    pub(crate) next_table_id: u64,
    pub(crate) next_query_id: i64,
    /// Only written once it is more than 0: other nodes have segments with numbers below it.
    pub(crate) next_segment_id: u64,
}

/// What is in the catalog.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    pub(crate) counters: Counters,
}

/// The open catalog. `None` while it cannot be used after an I/O error.
pub(crate) struct Catalog {
    path: PathBuf,
    disk: Option<Arc<dyn Disk>>,
    database: Option<Database>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("path", &self.path).finish()
    }
}

impl Catalog {
    pub(crate) fn in_memory(default_schema: &str) -> Result<Self> {
        let path = PathBuf::from("(memory)");
        let database = guard(&path, || {
            builder()
                .create_with_backend(InMemoryBackend::new())
                .map_err(failure)
        })?;
        let mut catalog = Self {
            path,
            disk: None,
            database: Some(database),
        };
        catalog.initialise(default_schema)?;
        Ok(catalog)
    }

    /// Opens the catalog in `directory`, or creates it if there is none and no segments either.
    pub(crate) fn open(root: &Root, default_schema: &str) -> Result<Self> {
        let disk = &root.disk;
        let path = root.path.join(CATALOG_FILE);
        let exists = disk
            .exists(&path)
            .map_err(|source| StorageError::io(&path, source))?;
        if !exists {
            Self::create(root, default_schema)?;
        }
        let mut catalog = Self {
            path,
            disk: Some(Arc::clone(disk)),
            database: None,
        };
        catalog.reopen()?;
        Ok(catalog)
    }

    /// Makes a complete catalog under another name, then renames it: a crash leaves none or all.
    fn create(root: &Root, default_schema: &str) -> Result<()> {
        let disk = &root.disk;
        let path = root.path.join(CATALOG_FILE);
        let segments = root.segments_dir();
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| StorageError::io(&path, source)
        };
        disk.create_dir(&segments).map_err(io(&segments))?;
        if !disk.list(&segments).map_err(io(&segments))?.is_empty() {
            let detail = "the file is missing although the directory has segments";
            return Err(StorageError::corrupt(&path, detail));
        }
        let new = root.path.join(NEW_CATALOG_FILE);
        if disk.exists(&new).map_err(io(&new))? {
            disk.remove(&new).map_err(io(&new))?;
        }
        let file = disk.create(&new).map_err(io(&new))?;
        let database = guard(&new, || {
            let backend = Backend(Arc::clone(&file));
            builder().create_with_backend(backend).map_err(failure)
        })?;
        let mut catalog = Self {
            path: new.clone(),
            disk: None,
            database: Some(database),
        };
        catalog.initialise(default_schema)?;
        drop(catalog);
        file.sync().map_err(io(&new))?;
        disk.rename(&new, &path).map_err(io(&path))?;
        disk.sync_dir(&root.path).map_err(io(&root.path))
    }

    fn initialise(&mut self, default_schema: &str) -> Result<()> {
        self.transact(|transaction| {
            let mut rows = Rows::open(transaction)?;
            rows.put_format(FORMAT_OF_ONE_NODE)?;
            rows.put_version(0)?;
            rows.put_counters(Counters {
                next_table_id: 1,
                next_query_id: 1,
                next_segment_id: 0,
            })?;
            rows.write(&Row::PutSchema(default_schema.to_owned()))?;
            rows.finish()
        })
    }

    /// Whether the last operation left redb usable.
    pub(crate) fn is_usable(&self) -> bool {
        self.database.is_some()
    }

    /// Opens the file again, which makes redb recover: after an I/O error it refuses everything.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        let Some(disk) = self.disk.clone() else {
            return Ok(());
        };
        self.close();
        let path = &self.path;
        let file = disk
            .open(path)
            .map_err(|source| StorageError::io(path, source))?;
        let length = file
            .len()
            .map_err(|source| StorageError::io(path, source))?;
        // redb would take an empty file for a new database.
        if length == 0 {
            return Err(StorageError::corrupt(path, "the file is empty"));
        }
        let database = guard(path, || {
            builder()
                .create_with_backend(Backend(file))
                .map_err(failure)
        })?;
        self.database = Some(database);
        Ok(())
    }

    /// redb reads and writes when it closes a file, and may stumble over damage.
    fn close(&mut self) {
        let database = self.database.take();
        let closed = guard(&self.path, || {
            drop(database);
            Ok(())
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "the catalog was not closed in order");
        }
    }

    /// Version of the last commit that is in the file.
    pub(crate) fn version(&self) -> Result<u64> {
        self.read(catalog_rows::version)
    }

    /// Writes a commit. After an error it may or may not be in the file: see [`Catalog::version`].
    pub(crate) fn write(
        &mut self,
        version: u64,
        counters: Counters,
        changed: &[Row],
    ) -> Result<()> {
        self.transact(|transaction| {
            let mut rows = Rows::open(transaction)?;
            rows.put_version(version)?;
            rows.put_counters(counters)?;
            changed.iter().try_for_each(|row| rows.write(row))?;
            rows.finish()
        })
    }

    /// Writes the counters alone.
    pub(crate) fn write_counters(&mut self, counters: Counters) -> Result<()> {
        self.transact(|transaction| {
            let mut rows = Rows::open(transaction)?;
            rows.put_counters(counters)?;
            rows.finish()
        })
    }

    fn transact(
        &mut self,
        body: impl FnOnce(&redb::WriteTransaction) -> Result<(), Failure>,
    ) -> Result<()> {
        let database = self.database()?;
        guard(&self.path, || {
            let transaction = database.begin_write().map_err(failure)?;
            body(&transaction)?;
            transaction.commit().map_err(failure)
        })
    }

    fn read<T>(
        &self,
        body: impl FnOnce(&redb::ReadTransaction) -> Result<T, Failure>,
    ) -> Result<T> {
        let database = self.database()?;
        guard(&self.path, || {
            body(&database.begin_read().map_err(failure)?)
        })
    }

    fn database(&self) -> Result<&Database> {
        self.database.as_ref().ok_or_else(|| {
            StorageError::io(
                &self.path,
                io::Error::other("closed after an earlier I/O error"),
            )
        })
    }

    /// Reads everything, and checks that it is what was written.
    pub(crate) fn load(&self, root: &Arc<Root>) -> Result<Loaded> {
        let (found, loaded) = self.read(|transaction| {
            let found = catalog_rows::format(transaction)?;
            let supported = (FORMAT_OF_ONE_NODE..=FORMAT).contains(&found);
            let loaded = supported.then(|| catalog_rows::load(transaction, root));
            Ok((found, loaded.transpose()?))
        })?;
        loaded.ok_or_else(|| StorageError::Format {
            path: root.path.clone(),
            found,
            supported: FORMAT,
        })
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.close();
    }
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Why an operation on the catalog failed, before the path is known.
pub(crate) enum Failure {
    Redb(redb::Error),
    Damaged(String),
}

pub(crate) fn failure(error: impl Into<redb::Error>) -> Failure {
    Failure::Redb(error.into())
}

pub(crate) fn damaged(detail: impl fmt::Display) -> Failure {
    Failure::Damaged(detail.to_string())
}

/// Runs an operation of redb; its panics, which damaged pages can cause, become errors.
fn guard<T>(path: &Path, body: impl FnOnce() -> Result<T, Failure>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Failure::Damaged(detail))) => Err(StorageError::corrupt(path, detail)),
        Ok(Err(Failure::Redb(redb::Error::Io(source)))) => match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Err(StorageError::corrupt(path, source))
            }
            _ => Err(StorageError::io(path, source)),
        },
        Ok(Err(Failure::Redb(error @ redb::Error::PreviousIo))) => {
            Err(StorageError::io(path, io::Error::other(error)))
        }
        Ok(Err(Failure::Redb(error))) => Err(StorageError::corrupt(path, error)),
        Err(panic) => {
            let detail = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unreadable");
            Err(StorageError::corrupt(path, detail))
        }
    }
}

/// redb's file, through the same door as everything else.
#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}
