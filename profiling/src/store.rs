//! The log of all queries: what is in memory still, and what has been written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use datafusion::arrow::array::RecordBatch;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::isolation::Shape;
use crate::part::Part;
use crate::part_pages::PartPages;
use crate::present::Present;
use crate::query_log::QueryLog;
use crate::remote::RemoteSys;
use crate::remote_cache::RemoteCache;
use crate::retention::Retention;
use crate::segment::SegmentError;
use crate::tables::Table;

/// Finished queries stay in memory for so long before they are written together.
const FLUSH_DELAY: Duration = Duration::from_secs(5);

/// They are written at once when they take so many bytes: more would be a burden on memory …
const FLUSH_BYTES: usize = 64 << 20;

/// … or are so many: scanning them one by one would become slow.
const FLUSH_QUERIES: usize = 512;

/// Parts below this size are merged …
const SMALL_PART_BYTES: u64 = 4 << 20;

/// … when so many of them follow each other, so that their number stays low and each row is
/// rewritten few times.
const MERGED_PARTS: usize = 8;

/// Retention by age is looked at so often when nothing else happens.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// Shapes of so many queries are remembered; then all are forgotten.
const KNOWN_SHAPES: usize = 256;

/// Only the last so many warnings are kept.
const WARNINGS: usize = 100;

/// The log of all queries.
#[derive(Debug)]
pub(crate) struct Store {
    directory: Option<PathBuf>,
    state: Mutex<State>,
    /// Held while parts are written, merged or removed.
    writing: Mutex<()>,
    warnings: Mutex<Vec<String>>,
    shapes: Mutex<HashMap<i64, Arc<Shape>>>,
    signal: Arc<Signal>,
    /// What others have asked for.
    readings: Mutex<PartPages>,
    /// What the workers of a cluster have, for the master.
    fetched: OnceLock<RemoteCache>,
    present: Present,
}

#[derive(Debug)]
struct State {
    /// From the first to the last finished.
    buffered: Vec<Arc<QueryLog>>,
    buffered_bytes: usize,
    /// From the oldest to the newest.
    parts: Vec<Arc<Part>>,
    next_flush: u64,
    retention: Retention,
}

/// What wakes the background thread.
#[derive(Debug, Default)]
struct Signal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    flush_at: Option<Instant>,
    closed: bool,
}

/// The log at one moment: every query is in exactly one of the two.
pub(crate) struct Snapshot {
    pub(crate) buffered: Vec<Arc<QueryLog>>,
    pub(crate) parts: Vec<Arc<Part>>,
}

impl Store {
    /// Opens the log of a directory, or one in memory, and starts its background thread. What
    /// is unreadable is skipped with a warning.
    pub(crate) fn open(directory: Option<&Path>, retention: Retention) -> Arc<Store> {
        let found = directory.map(Part::find);
        let (parts, warnings, next_flush) = found.map_or((Vec::new(), Vec::new(), 0), |found| {
            (found.parts, found.warnings, found.next_flush)
        });
        let store = Arc::new(Store {
            directory: directory.map(Path::to_owned),
            state: Mutex::new(State {
                buffered: Vec::new(),
                buffered_bytes: 0,
                parts,
                next_flush,
                retention,
            }),
            writing: Mutex::new(()),
            warnings: Mutex::new(Vec::new()),
            shapes: Mutex::default(),
            signal: Arc::default(),
            readings: Mutex::default(),
            fetched: OnceLock::new(),
            present: Present::default(),
        });
        store.present.start();
        for warning in warnings {
            store.warn(warning);
        }
        let (signal, weak) = (Arc::clone(&store.signal), Arc::downgrade(&store));
        let run = move || {
            while signal.wait() {
                match weak.upgrade() {
                    Some(store) => store.maintain(),
                    None => break,
                }
            }
        };
        let thread = std::thread::Builder::new().name("skewer-sys".to_owned());
        if let Err(error) = thread.spawn(run) {
            store.warn(format!("schema sys is written only on closing: {error}"));
        }
        store
    }

    /// Adds a finished query: its log on each worker.
    pub(crate) fn push(&self, logs: Vec<QueryLog>) {
        let mut state = self.state.lock();
        let first = state.buffered.is_empty();
        for log in logs {
            state.buffered_bytes += log.memory();
            state.buffered.push(Arc::new(log));
        }
        let full = state.buffered_bytes >= FLUSH_BYTES || state.buffered.len() >= FLUSH_QUERIES;
        drop(state);
        if full {
            self.signal.flush_at(Instant::now());
        } else if first {
            self.signal.flush_at(Instant::now() + FLUSH_DELAY);
        }
    }

    /// Bytes that are to be written.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.state.lock().buffered_bytes
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        Snapshot {
            buffered: state.buffered.clone(),
            parts: state.parts.clone(),
        }
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        self.state.lock().retention = retention;
        self.signal.flush_at(Instant::now());
    }

    pub(crate) fn retention(&self) -> Retention {
        self.state.lock().retention
    }

    pub(crate) fn readings(&self) -> MutexGuard<'_, PartPages> {
        self.readings.lock()
    }

    /// From now on what the workers behind `remote` have is read, too. The first time counts.
    pub(crate) fn set_remote(&self, remote: Arc<dyn RemoteSys>) {
        if self.fetched.set(RemoteCache::new(remote)).is_err() {
            self.warn("there is a cluster already".to_owned());
        }
    }

    /// What the workers of a cluster have.
    pub(crate) fn fetched(&self) -> Option<&RemoteCache> {
        self.fetched.get()
    }

    /// What this process knows of the present.
    pub(crate) fn present(&self) -> &Present {
        &self.present
    }

    /// Writes what is in memory.
    pub(crate) fn flush(&self) -> Result<(), SegmentError> {
        let _writing = self.writing.lock();
        self.write_buffered()
    }

    /// Adds a query whose rows were recorded elsewhere, as they are in files.
    pub(crate) fn import(
        &self,
        query_id: i64,
        tables: Vec<(Table, Vec<RecordBatch>)>,
    ) -> Result<(), SegmentError> {
        let _writing = self.writing.lock();
        let flush = {
            let mut state = self.state.lock();
            state.next_flush += 1;
            state.next_flush - 1
        };
        let directory = self.directory.as_deref();
        let part = Part::of_query(directory, flush, query_id, tables, SystemTime::now())?;
        self.state.lock().parts.push(Arc::new(part));
        Ok(())
    }

    /// Writes what is in memory, merges small parts and removes what has expired.
    fn maintain(&self) {
        let _writing = self.writing.lock();
        let done = self.write_buffered().and_then(|()| self.merge_small());
        if let Err(error) = done {
            self.warn(error.to_string());
        }
        self.expire(SystemTime::now());
    }

    fn write_buffered(&self) -> Result<(), SegmentError> {
        let (logs, flush) = {
            let mut state = self.state.lock();
            state.next_flush += 1;
            (state.buffered.clone(), state.next_flush - 1)
        };
        if logs.is_empty() {
            return Ok(());
        }
        let directory = self.directory.as_deref();
        let part = Part::write(directory, flush, &logs, SystemTime::now())?;
        let mut state = self.state.lock();
        state.buffered.drain(..logs.len());
        state.buffered_bytes -= logs.iter().map(|log| log.memory()).sum::<usize>();
        state.parts.push(Arc::new(part));
        Ok(())
    }

    /// Merges the last parts while there are enough small ones in a row.
    fn merge_small(&self) -> Result<(), SegmentError> {
        let parts = self.state.lock().parts.clone();
        let small = parts
            .iter()
            .rev()
            .take_while(|part| part.bytes() < SMALL_PART_BYTES)
            .count();
        if small < MERGED_PARTS {
            return Ok(());
        }
        let first = parts.len() - small;
        let warn = |error: &SegmentError| self.warn(error.to_string());
        let merged = Part::merge(self.directory.as_deref(), &parts[first..], &warn)?;
        self.state.lock().parts.splice(first.., [Arc::new(merged)]);
        parts[first..].iter().for_each(|part| part.doom());
        Ok(())
    }

    fn expire(&self, now: SystemTime) {
        let mut state = self.state.lock();
        let parts: Vec<(u64, SystemTime)> = state
            .parts
            .iter()
            .map(|part| (part.bytes(), part.newest()))
            .collect();
        let expired = state.retention.expired(&parts, now);
        let expired: Vec<Arc<Part>> = state.parts.drain(..expired).collect();
        // When nothing can be written (the disk is full) memory has its limit all the same.
        while state.buffered_bytes as u64 > state.retention.bytes && state.buffered.len() > 1 {
            let log = state.buffered.remove(0);
            state.buffered_bytes -= log.memory();
        }
        drop(state);
        expired.iter().for_each(|part| part.doom());
    }

    /// Notes that something was skipped.
    pub(crate) fn warn(&self, warning: String) {
        tracing::warn!("schema sys: {warning}");
        let mut warnings = self.warnings.lock();
        if warnings.len() == WARNINGS {
            warnings.remove(0);
        }
        warnings.push(warning);
    }

    pub(crate) fn known_shape(&self, query_id: i64) -> Option<Arc<Shape>> {
        self.shapes.lock().get(&query_id).cloned()
    }

    pub(crate) fn remember_shape(&self, query_id: i64, shape: Arc<Shape>) {
        let mut shapes = self.shapes.lock();
        if shapes.len() >= KNOWN_SHAPES {
            shapes.clear();
        }
        shapes.insert(query_id, shape);
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.signal.close();
        if let Err(error) = self.flush() {
            tracing::warn!("schema sys: {error}");
        }
    }
}

impl Signal {
    fn flush_at(&self, at: Instant) {
        let mut wanted = self.wanted.lock();
        if wanted.flush_at.is_none_or(|earlier| at < earlier) {
            wanted.flush_at = Some(at);
            self.changed.notify_all();
        }
    }

    fn close(&self) {
        self.wanted.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is something to do; false if there will be nothing any more.
    fn wait(&self) -> bool {
        let mut wanted = self.wanted.lock();
        let idle_until = Instant::now() + IDLE_CHECK;
        loop {
            let until = wanted.flush_at.unwrap_or(idle_until);
            if wanted.closed {
                return false;
            }
            if Instant::now() >= until {
                wanted.flush_at = None;
                return true;
            }
            self.changed.wait_until(&mut wanted, until);
        }
    }
}
