//! One process at a time: a lock on `<db>/lock`, which names its owner.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Result, StorageError};

const LOCK_FILE: &str = "lock";

/// How long a database that this process has just let go of may take to close: its last handle may
/// be dropped by one of its own threads, which ends a moment later.
const CLOSING: Duration = Duration::from_secs(1);

/// Held as long as anything of the database is in use; the operating system releases it even if
/// the process is killed.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(crate) fn acquire(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK_FILE);
        let io = |source| StorageError::io(&path, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(io(source)),
            }
            let pid = read_owner(&mut file);
            if pid != Some(std::process::id()) || begun.elapsed() > CLOSING {
                return Err(StorageError::Locked {
                    pid,
                    path: directory.to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        file.set_len(0).map_err(io)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
            .map_err(io)?;
        Ok(Self { _file: file })
    }
}

/// The owner writes its id right after locking, so an empty file is worth a short wait.
fn read_owner(file: &mut File) -> Option<u32> {
    for _ in 0..20 {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).ok()?;
        file.read_to_string(&mut text).ok()?;
        if let Some(pid) = text.strip_suffix('\n').and_then(|pid| pid.parse().ok()) {
            return Some(pid);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
