//! Decoded columns of tables, kept in memory for the scans that follow.
//!
//! An entry is one column of one row group of one segment. Segments never change, so no entry is ever wrong:
//! entries go when their segment does, or to make room.
//!
//! * Whoever decodes a column fills its entry ([`Filling`]). Others that read it meanwhile decode it too:
//!   nobody waits for a filler, so one that fails or is cancelled holds up nobody.
//! * As long as there is room, the first read of a column fills its entry. Where there is none, the second read
//!   within a while does, and evicts only entries that nobody has used since the first. So a scan of more than
//!   fits leaves what is there.
//! * Operators that need the memory get it ([`MemoryBudget`]): a clock's hand then evicts entries that nobody has
//!   used since it passed them last (second chance).

mod clock;
mod decoded;
mod filling;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use datafusion::arrow::datatypes::DataType;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use skewer_compat::operators::memory_pool::{CACHE, Evictable, MemoryBudget};
use skewer_machine::cgroup;

use self::clock::{Clock, Entry};
pub(crate) use self::decoded::{CHUNK_ROWS, Decoded};
pub(crate) use self::filling::Filling;

/// Of the memory that operators may hold, or of the machine's, the cache takes one part in so many.
const PART: usize = 4;

/// Bytes of memory of a machine that does not tell.
const UNKNOWN_MACHINE: usize = 1 << 30;

/// One column must not take more than one part in so many of the cache.
const LARGEST: usize = 4;

/// A column of a row group of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) segment: u64,
    pub(crate) row_group: usize,
    /// Its place among the columns of the file.
    pub(crate) column: usize,
}

/// A column of a segment in the cache, as `sys.cache` shows it.
#[derive(Debug, Clone)]
pub struct CachedColumn {
    /// The table's number.
    pub table_id: u64,
    /// `schema.table`, as it was called when its column was read last.
    pub table: Arc<str>,
    /// The segment's number.
    pub segment: u64,
    /// The column's name.
    pub column: Arc<str>,
    /// How many of the segment's row groups are there.
    pub row_groups: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// How often a scan found a row group of it.
    pub hits: u64,
    /// When it was filled or found last.
    pub last_use: SystemTime,
}

/// The cache of a database.
pub struct ColumnCache {
    memory: Arc<MemoryBudget>,
    reservation: MemoryReservation,
    /// Bytes of the machine's memory that the process may use.
    machine: usize,
    state: Mutex<State>,
}

struct State {
    /// Bytes that it may take; a part of the memory limit if it is `None`.
    size: Option<usize>,
    clock: Clock,
}

impl std::fmt::Debug for ColumnCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColumnCache").finish_non_exhaustive()
    }
}

/// A segment whose columns may be in the cache. When the last clone is gone, its entries are.
#[derive(Debug, Clone)]
pub struct CachedSegment(Arc<Segment>);

#[derive(Debug)]
struct Segment {
    cache: Weak<ColumnCache>,
    id: u64,
    table_id: u64,
    table: Arc<str>,
}

impl CachedSegment {
    /// The segment's number.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.upgrade() {
            cache.forget(self.id);
        }
    }
}

impl ColumnCache {
    /// An empty cache whose entries `memory` counts, which also tells when others need the memory. `size` is as
    /// in [`set_size`](Self::set_size).
    pub fn new(memory: &Arc<MemoryBudget>, size: Option<usize>) -> Arc<Self> {
        let machine = cgroup::effective_memory_bytes();
        let machine = machine.and_then(|bytes| usize::try_from(bytes).ok());
        let pool: Arc<dyn MemoryPool> = Arc::clone(memory) as _;
        let cache = Arc::new(Self {
            memory: Arc::clone(memory),
            reservation: MemoryConsumer::new(CACHE).register(&pool),
            machine: machine.unwrap_or(UNKNOWN_MACHINE),
            state: Mutex::new(State {
                size,
                clock: Clock::default(),
            }),
        });
        let weak = Arc::downgrade(&cache);
        memory.set_cache(weak);
        cache
    }

    /// Bytes that it may take: what was set, or else a quarter of the memory limit, or of the machine's memory
    /// where there is no limit.
    pub fn size(&self) -> usize {
        self.size_of(&self.state.lock())
    }

    fn size_of(&self, state: &State) -> usize {
        let limit = || {
            self.memory
                .limit()
                .map_or(self.machine, |limit| limit.min(self.machine))
        };
        state.size.unwrap_or_else(|| limit() / PART)
    }

    /// Sets the bytes that it may take: `None` is a quarter of the memory limit, and 0 turns it off.
    pub fn set_size(&self, size: Option<usize>) {
        let mut state = self.state.lock();
        state.size = size;
        let most = self.size_of(&state);
        let evicted = state.clock.evict(|clock| clock.held() > most);
        self.gave_up(state, evicted);
    }

    /// A segment of a table, `schema.table`, to read through the cache.
    pub fn segment(self: &Arc<Self>, id: u64, table_id: u64, table: &str) -> CachedSegment {
        CachedSegment(Arc::new(Segment {
            cache: Arc::downgrade(self),
            id,
            table_id,
            table: table.into(),
        }))
    }

    /// What it holds, by table, segment and column.
    pub fn list(&self) -> Vec<CachedColumn> {
        let mut listed: Vec<CachedColumn> = Vec::new();
        let state = self.state.lock();
        let mut entries: Vec<_> = state.clock.entries().collect();
        entries.sort_by_key(|(key, _)| (key.segment, key.column, key.row_group));
        for (key, entry) in entries {
            if let Some(last) = listed.last_mut()
                && (last.segment, &last.column) == (key.segment, &entry.column)
            {
                last.row_groups += 1;
                last.bytes += entry.bytes as u64;
                last.hits += entry.hits;
                last.last_use = last.last_use.max(entry.at);
                continue;
            }
            listed.push(CachedColumn {
                table_id: entry.table_id,
                table: Arc::clone(&entry.table),
                segment: key.segment,
                column: Arc::clone(&entry.column),
                row_groups: 1,
                bytes: entry.bytes as u64,
                hits: entry.hits,
                last_use: entry.at,
            });
        }
        listed
    }

    /// The column, if it is there and of this type.
    pub(crate) fn get(&self, key: Key, data_type: &DataType) -> Option<Arc<Decoded>> {
        let mut state = self.state.lock();
        let decoded = state.clock.use_entry(key)?;
        decoded.is_of(data_type).then_some(decoded)
    }

    /// Begins to fill the entry of a column that takes about `estimate` bytes. `None` if somebody else does, or if
    /// there is no room that it has a right to.
    pub(crate) fn begin(
        self: &Arc<Self>,
        key: Key,
        segment: &CachedSegment,
        column: &str,
        estimate: usize,
    ) -> Option<Filling> {
        // Who holds nothing would have nothing to give back.
        let estimate = estimate.max(1);
        let mut state = self.state.lock();
        let most = self.size_of(&state);
        if estimate > most / LARGEST || !state.clock.is_missing(key) {
            return None;
        }
        let evicted = state.clock.make_room(key, estimate, most);
        let freed = evicted.iter().map(|entry| entry.bytes).sum();
        self.reservation.shrink(freed);
        // The pool's lock may be taken under this one: nobody who has it waits for this.
        let is_given =
            state.clock.held() + estimate <= most && self.reservation.try_grow(estimate).is_ok();
        let filling = is_given.then(|| {
            let is_given_up = state.clock.begin(key, estimate);
            let segment = CachedSegment::clone(segment);
            Filling::new(
                Arc::clone(self),
                key,
                segment,
                column,
                estimate,
                is_given_up,
            )
        });
        drop(state);
        drop(evicted);
        filling
    }

    /// Forgets what it has of a segment.
    fn forget(&self, segment: u64) {
        let mut state = self.state.lock();
        let evicted = state.clock.remove_segment(segment);
        self.gave_up(state, evicted);
    }

    /// Gives back the memory of `evicted` entries, which are dropped without the lock.
    fn gave_up(&self, state: parking_lot::MutexGuard<'_, State>, evicted: Vec<Entry>) {
        self.reservation
            .shrink(evicted.iter().map(|entry| entry.bytes).sum());
        drop(state);
        drop(evicted);
    }
}

impl Evictable for ColumnCache {
    fn evict(&self, bytes: usize) {
        let mut state = self.state.lock();
        let least = state.clock.held().saturating_sub(bytes);
        let evicted = state.clock.evict(|clock| clock.held() > least);
        if state.clock.held() > least {
            // What is not an entry yet gives way, too, as soon as its fillers look.
            state.clock.give_up_fillings();
        }
        self.gave_up(state, evicted);
    }
}
