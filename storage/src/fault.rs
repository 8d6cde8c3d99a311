//! A disk that fails where a test wants it to.
//!
//! [`FaultDisk`] counts the side effects on a real disk and lets one of them fail: with an error,
//! with a short write, or as a crash after which nothing works any more. After a crash,
//! [`FaultDisk::lose_unsynced`] takes back what a power failure may take back.
//!
//! ```no_run
//! # use skewer_storage::{Storage, StorageOptions, fault::{Fault, FaultDisk}};
//! let disk = FaultDisk::new();
//! let options = StorageOptions { disk: disk.clone(), ..StorageOptions::default() };
//! let storage = Storage::open("/tmp/db".as_ref(), options)?;
//! disk.inject(7, Fault::Crash);
//! // … a workload: the 8th side effect from here on, and all after it, fail …
//! drop(storage);
//! disk.lose_unsynced(42)?;
//! // … open the directory again and compare with what was acknowledged …
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, RealDisk};

/// What happens at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with "no space left on device"; a write has then written half of its bytes.
    DiskFull,
    /// It fails with an I/O error and has done nothing.
    Error,
    /// It and everything after it fails, reads too; a write has then written half of its bytes.
    Crash,
    /// The process aborts before it, as if killed.
    Abort,
}

/// The operating system's files, with faults.
///
/// Operations that count are those with side effects: creating, writing, resizing, syncing,
/// renaming, removing.
#[derive(Debug, Default)]
pub struct FaultDisk {
    real: RealDisk,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    operations: u64,
    /// Number of the operation to fail, and how.
    next: Option<(u64, Fault)>,
    /// Whether removals succeed, and do not count.
    spares_removals: bool,
    /// What failed, in words.
    fired: Option<String>,
    crashed: bool,
    /// Writes since the last sync, by file.
    writes: HashMap<PathBuf, Vec<Undo>>,
    /// Changes of names since the last sync of their directory.
    names: Vec<NameChange>,
}

/// A write or change of length, with what it takes to undo and to redo it.
#[derive(Debug)]
struct Undo {
    old_len: u64,
    offset: u64,
    old: Vec<u8>,
    redo: Redo,
}

#[derive(Debug)]
enum Redo {
    Write(Vec<u8>),
    SetLen(u64),
}

#[derive(Debug)]
enum NameChange {
    Created(PathBuf),
    CreatedDir(PathBuf),
    Removed(PathBuf, Vec<u8>),
    RemovedDir(PathBuf),
    Renamed { from: PathBuf, to: PathBuf },
}

impl NameChange {
    fn directory(&self) -> Option<&Path> {
        match self {
            NameChange::Created(path)
            | NameChange::CreatedDir(path)
            | NameChange::Removed(path, _)
            | NameChange::RemovedDir(path)
            | NameChange::Renamed { to: path, .. } => path.parent(),
        }
    }

    fn undo(self, real: RealDisk) -> io::Result<()> {
        match self {
            NameChange::Created(path) => real.remove(&path),
            NameChange::CreatedDir(path) => std::fs::remove_dir_all(path),
            NameChange::Removed(path, content) => {
                let file = real.create(&path)?;
                file.write_at(0, &content)
            }
            NameChange::RemovedDir(path) => real.create_dir(&path),
            NameChange::Renamed { from, to } => real.rename(&to, &from),
        }
    }
}

fn crashed() -> io::Error {
    io::Error::other("injected crash")
}

impl State {
    /// Counts an operation. `Some` if it must fail, and how.
    fn step(&mut self, what: &str, path: &Path) -> io::Result<Option<Fault>> {
        if self.crashed {
            return Err(crashed());
        }
        let number = self.operations;
        self.operations += 1;
        let is_removal = what.starts_with("remove");
        match &mut self.next {
            Some((at, _)) if self.spares_removals && is_removal => {
                *at += 1;
                Ok(None)
            }
            Some((at, fault)) if *at == number => {
                let fault = *fault;
                self.next = None;
                self.fired = Some(format!("{what} {}", path.display()));
                if fault == Fault::Abort {
                    std::process::abort();
                }
                self.crashed = fault == Fault::Crash;
                Ok(Some(fault))
            }
            _ => Ok(None),
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.crashed { Err(crashed()) } else { Ok(()) }
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Fault::DiskFull => io::ErrorKind::StorageFull.into(),
            Fault::Error => io::Error::other("injected I/O error"),
            Fault::Crash | Fault::Abort => crashed(),
        }
    }
}

impl FaultDisk {
    /// A disk without faults as yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes one operation fail: the one after `after` more that succeed.
    pub fn inject(&self, after: u64, fault: Fault) {
        self.arm(after, fault, false);
    }

    /// The same, but removals succeed and do not count: what earlier statements leave behind is
    /// removed at some time or other.
    pub fn inject_but_in_removals(&self, after: u64, fault: Fault) {
        self.arm(after, fault, true);
    }

    fn arm(&self, after: u64, fault: Fault, spares_removals: bool) {
        let mut state = self.state.lock();
        state.next = Some((state.operations + after, fault));
        state.spares_removals = spares_removals;
        state.fired = None;
    }

    /// Number of operations so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// What the last injected fault hit (operation and path), if it came to it.
    pub fn fired(&self) -> Option<String> {
        self.state.lock().fired.clone()
    }

    /// Ends a crash, with the files as a power failure may leave them: of the writes to each file
    /// since its last sync any may be lost, and of the changes of names since the last sync of
    /// their directory all after some point. `seed` chooses; 0 loses everything that can be lost.
    ///
    /// To be called when nothing has the files open any more.
    pub fn lose_unsynced(&self, seed: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.crashed = false;
        state.next = None;
        let mut random = Random(seed);
        let mut files: Vec<_> = state.writes.drain().collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, writes) in files {
            if self.real.exists(&path)? {
                let file = self.real.open(&path)?;
                lose_writes(&*file, writes, &mut random)?;
            }
        }
        let names = std::mem::take(&mut state.names);
        let kept = random.below(names.len() as u64 + 1) as usize;
        for change in names.into_iter().skip(kept).rev() {
            match change.undo(self.real) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends a crash as if the disk had been away and came back: nothing is lost.
    pub fn come_back(&self) {
        let mut state = self.state.lock();
        state.crashed = false;
        state.next = None;
    }

    fn name_change(
        &self,
        what: &str,
        path: &Path,
        body: impl FnOnce() -> io::Result<Option<NameChange>>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(fault) = state.step(what, path)? {
            return Err(fault.error());
        }
        let change = body()?;
        match &change {
            Some(NameChange::Removed(path, _)) => {
                state.writes.remove(path);
            }
            Some(NameChange::Renamed { from, to }) => {
                let writes = state.writes.remove(from).unwrap_or_default();
                state.writes.insert(to.clone(), writes);
            }
            _ => {}
        }
        state.names.extend(change);
        Ok(())
    }

    fn file(&self, path: &Path, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultFile {
            path: path.to_owned(),
            inner,
            state: Arc::clone(&self.state),
        })
    }
}

/// Takes all writes back and does a random subset of them again, in order.
fn lose_writes(file: &dyn DiskFile, writes: Vec<Undo>, random: &mut Random) -> io::Result<()> {
    for write in writes.iter().rev() {
        if !write.old.is_empty() {
            file.write_at(write.offset, &write.old)?;
        }
        file.set_len(write.old_len)?;
    }
    for write in writes {
        if random.below(2) == 0 {
            continue;
        }
        match write.redo {
            Redo::Write(data) => file.write_at(write.offset, &data)?,
            Redo::SetLen(len) => file.set_len(len)?,
        }
    }
    Ok(())
}

/// SplitMix64: small, and the same everywhere. Seed 0 always gives 0.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        if self.0 == 0 {
            return 0;
        }
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15).max(1);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

impl Disk for FaultDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.name_change("create directory", path, || {
            let new = !path.exists();
            self.real.create_dir(path)?;
            Ok(new.then(|| NameChange::CreatedDir(path.to_owned())))
        })
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut file = None;
        self.name_change("create", path, || {
            file = Some(self.real.create(path)?);
            Ok(Some(NameChange::Created(path.to_owned())))
        })?;
        let file = file.ok_or_else(crashed)?;
        Ok(self.file(path, file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.state.lock().check()?;
        Ok(self.file(path, self.real.open(path)?))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.state.lock().check()?;
        self.real.exists(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.state.lock().check()?;
        self.real.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.name_change("rename", from, || {
            self.real.rename(from, to)?;
            Ok(Some(NameChange::Renamed {
                from: from.to_owned(),
                to: to.to_owned(),
            }))
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.name_change("remove", path, || {
            let content = std::fs::read(path)?;
            self.real.remove(path)?;
            Ok(Some(NameChange::Removed(path.to_owned(), content)))
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.name_change("remove directory", path, || {
            self.real.remove_dir(path)?;
            Ok(Some(NameChange::RemovedDir(path.to_owned())))
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(fault) = state.step("sync directory", path)? {
            return Err(fault.error());
        }
        state
            .names
            .retain(|change| change.directory() != Some(path));
        Ok(())
    }
}

#[derive(Debug)]
struct FaultFile {
    path: PathBuf,
    inner: Arc<dyn DiskFile>,
    state: Arc<Mutex<State>>,
}

impl FaultFile {
    /// What is now in a range, as far as the file reaches.
    fn content(&self, offset: u64, end: u64) -> io::Result<Vec<u8>> {
        let len = self.inner.len()?;
        let size = len.min(end).saturating_sub(offset);
        let mut old = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        self.inner.read_at(offset.min(len), &mut old)?;
        Ok(old)
    }

    fn log(&self, state: &mut State, undo: Undo) {
        let writes = state.writes.entry(self.path.clone()).or_default();
        writes.push(undo);
    }
}

impl DiskFile for FaultFile {
    fn len(&self) -> io::Result<u64> {
        self.state.lock().check()?;
        self.inner.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.state.lock().check()?;
        self.inner.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.step("write", &self.path)?;
        let data = match fault {
            None => data,
            Some(Fault::DiskFull | Fault::Crash) => &data[..data.len() / 2],
            Some(fault) => return Err(fault.error()),
        };
        let undo = Undo {
            old_len: self.inner.len()?,
            offset,
            old: self.content(offset, offset + data.len() as u64)?,
            redo: Redo::Write(data.to_vec()),
        };
        self.log(&mut state, undo);
        self.inner.write_at(offset, data)?;
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(fault) = state.step("resize", &self.path)? {
            return Err(fault.error());
        }
        let old_len = self.inner.len()?;
        let undo = Undo {
            old_len,
            offset: len,
            old: self.content(len, old_len)?,
            redo: Redo::SetLen(len),
        };
        self.log(&mut state, undo);
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(fault) = state.step("sync", &self.path)? {
            return Err(fault.error());
        }
        // A real sync would only make the tests slow.
        state.writes.remove(&self.path);
        Ok(())
    }
}
