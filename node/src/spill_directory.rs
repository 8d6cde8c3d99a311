//! The directory that a process spills to.
//!
//! ```text
//! temp directory        shared by any number of databases and processes
//!   skewer-spill-71-0   of one of them, which holds a lock on it
//!     …                 spill files
//! ```
//!
//! Who opens a database, or a worker, removes directories that nobody holds a lock on: their processes were
//! killed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// How the names of such directories begin.
const PREFIX: &str = "skewer-spill-";

/// A process does not open so many databases at once.
const MOST: usize = 1 << 20;

/// A directory for spill files, removed when it is dropped.
#[derive(Debug)]
pub struct SpillDirectory {
    path: PathBuf,
    /// The directory, open, with a lock that ends with the process. `None` where directories cannot be
    /// locked: nobody else removes them there.
    lock: Option<File>,
}

impl SpillDirectory {
    /// Creates one in the directory `parent`, and removes those that killed processes left there.
    ///
    /// # Errors
    /// If `parent` cannot be written.
    pub fn create_in(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let process = std::process::id();
        for number in 0..MOST {
            let path = parent.join(format!("{PREFIX}{process}-{number}"));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            }
            let lock = match File::open(&path).map(|file| (file.try_lock(), file)) {
                Ok((Ok(()), file)) => Some(file),
                // Another process has found it before it was locked, and removes it.
                Ok((Err(TryLockError::WouldBlock), _)) => continue,
                Ok((Err(TryLockError::Error(_)), _)) => None,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => None,
            };
            if path.exists() {
                return Ok(Self { path, lock });
            }
        }
        Err(io::Error::other("there are too many directories in it"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it as a process that is killed does.
    #[cfg(test)]
    fn abandon(mut self) {
        self.lock = None;
        std::mem::forget(self);
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        // Nobody may take it for another's while it goes.
        let _lock = self.lock.take();
        // What cannot be removed now is removed by whoever comes next.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories in `parent` that nobody holds a lock on. What cannot be looked at stays.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        // Held until it is removed: nobody may take it meanwhile.
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if file.try_lock().is_ok() {
            match fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!("removed spill files of a killed process: {path:?}"),
                Err(error) => tracing::warn!("{path:?}: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parent: &Path) -> Vec<String> {
        let entries = fs::read_dir(parent).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn directories_of_dead_processes_go_and_those_of_living_ones_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("skewer-spill-1-0");
        fs::create_dir_all(abandoned.join("datafusion-x")).unwrap();
        fs::write(abandoned.join("datafusion-x/.tmp1"), "rows").unwrap();
        fs::create_dir(parent.path().join("of somebody else")).unwrap();
        fs::write(parent.path().join("skewer-spill-file"), "no directory").unwrap();
        let one = SpillDirectory::create_in(parent.path()).unwrap();
        let two = SpillDirectory::create_in(parent.path()).unwrap();
        assert!(!abandoned.exists());
        assert!(one.path().exists() && one.path() != two.path());
        let path = one.path().to_owned();
        // As if its process had been killed: the lock ends, the files stay.
        fs::write(path.join("left"), "rows").unwrap();
        one.abandon();
        assert!(path.join("left").exists());
        let three = SpillDirectory::create_in(parent.path()).unwrap();
        assert!(!path.join("left").exists());
        drop((two, three));
        assert_eq!(
            names(parent.path()),
            ["of somebody else", "skewer-spill-file"]
        );
    }
}
