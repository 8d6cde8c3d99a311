//! The one door to the file system.
//!
//! Every side effect of storage (create, write, sync, rename, remove, and what redb does to its
//! file) goes through [`Disk`], so that [`crate::fault::FaultDisk`] can fail or stop at each of
//! them. The database's lock file is outside: it protects processes from each other, and its
//! content means nothing after a crash.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::object_store::memory::InMemory;
use datafusion::object_store::path::Path as Location;
use datafusion::object_store::{ObjectStoreExt, PutPayload};
use futures::FutureExt;
use parking_lot::Mutex;

/// Operations on directories and names. All of them block.
///
/// Nothing is durable before the sync that covers it: [`DiskFile::sync`] for content,
/// [`Disk::sync_dir`] for names created, renamed or removed in a directory.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a directory; its parent must exist. An existing directory is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a file that must not exist.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Whether a file of this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Paths of the entries of a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// An open file, written at offsets.
pub trait DiskFile: Debug + Send + Sync + 'static {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `out` from `offset`; an error if the file is shorter.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`; after an error any part of it may be written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the content durable.
    fn sync(&self) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(file))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // Windows cannot open a directory as a file; its journal orders names by itself.
        if cfg!(windows) {
            return Ok(());
        }
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, out, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, data, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let n = std::os::windows::fs::FileExt::seek_read(self, out, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += n as u64;
            out = &mut out[n..];
        }
        Ok(())
    }

    #[cfg(windows)]
    fn write_at(&self, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let n = std::os::windows::fs::FileExt::seek_write(self, data, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += n as u64;
            data = &data[n..];
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Files in memory, for databases without a directory.
///
/// A synced file becomes an object of [`MemoryDisk::objects`], which is what readers see; the
/// catalog of such a database does not pass through here (redb has a memory backend of its own).
#[derive(Debug, Default)]
pub struct MemoryDisk {
    objects: Arc<InMemory>,
}

impl MemoryDisk {
    /// The synced files, by path without a leading slash.
    pub fn objects(&self) -> Arc<InMemory> {
        Arc::clone(&self.objects)
    }
}

#[derive(Debug)]
struct MemoryFile {
    location: Location,
    bytes: Mutex<Vec<u8>>,
    objects: Arc<InMemory>,
}

fn location(path: &Path) -> io::Result<Location> {
    Location::parse(path.to_string_lossy()).map_err(io::Error::other)
}

/// The memory store's futures never wait.
fn at_once<T>(
    future: impl Future<Output = Result<T, datafusion::object_store::Error>>,
) -> io::Result<T> {
    future
        .now_or_never()
        .ok_or(io::ErrorKind::WouldBlock)?
        .map_err(|error| match error {
            datafusion::object_store::Error::NotFound { .. } => io::ErrorKind::NotFound.into(),
            error => io::Error::other(error),
        })
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(MemoryFile {
            location: location(path)?,
            bytes: Mutex::default(),
            objects: self.objects(),
        }))
    }

    fn open(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match at_once(self.objects.head(&location(path)?)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            result => result.map(|_| true),
        }
    }

    fn list(&self, _: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        at_once(self.objects.delete(&location(path)?))
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let range = start..start + out.len();
        out.copy_from_slice(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.bytes.lock().resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // Segments are written once and synced once, so the content can move.
        let bytes = std::mem::take(&mut *self.bytes.lock());
        at_once(self.objects.put(&self.location, PutPayload::from(bytes)))?;
        Ok(())
    }
}
