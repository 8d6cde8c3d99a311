//! The entries of the cache, and which of them are evicted.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::{Decoded, Key};

/// The second read of a column counts if the first was not longer ago.
const WHILE: Duration = Duration::from_secs(600);

/// So many columns are remembered at most that were read and did not fit.
const REMEMBERED: usize = 1 << 16;

/// A column in the cache.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) decoded: Arc<Decoded>,
    pub(super) bytes: usize,
    pub(super) table_id: u64,
    pub(super) table: Arc<str>,
    pub(super) column: Arc<str>,
    pub(super) hits: u64,
    /// When it was used last, by the clock of the wall.
    pub(super) at: SystemTime,
    /// The same, counted in uses of the cache.
    last_use: u64,
    /// When it was inserted, in the same count: the hand knows the entry by that.
    inserted: u64,
    /// Somebody has used it since the hand passed.
    is_used: bool,
}

impl Entry {
    pub(super) fn new(decoded: Decoded, of_table: (u64, Arc<str>), column: Arc<str>) -> Self {
        Self {
            bytes: decoded.bytes(),
            decoded: Arc::new(decoded),
            table_id: of_table.0,
            table: of_table.1,
            column,
            hits: 0,
            at: SystemTime::now(),
            last_use: 0,
            inserted: 0,
            is_used: false,
        }
    }
}

/// A column that is being decoded to become an entry.
#[derive(Debug)]
struct Begun {
    estimate: usize,
    /// Whether its memory is needed for something else.
    is_given_up: Arc<AtomicBool>,
}

/// Entries in the order in which a hand looks at them.
#[derive(Debug, Default)]
pub(super) struct Clock {
    entries: BTreeMap<Key, Entry>,
    /// Each entry, and some that are gone.
    hand: VecDeque<(Key, u64)>,
    filling: HashMap<Key, Begun>,
    /// What was read and did not fit, and when.
    seen: HashMap<Key, (u64, Instant)>,
    /// Bytes of entries, and estimates of what is being filled.
    held: usize,
    /// Counts uses.
    now: u64,
}

impl Clock {
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Whether nobody has filled the entry, or is about to.
    pub(super) fn is_missing(&self, key: Key) -> bool {
        !self.entries.contains_key(&key) && !self.filling.contains_key(&key)
    }

    /// What is there, which somebody now uses.
    pub(super) fn use_entry(&mut self, key: Key) -> Option<Arc<Decoded>> {
        self.now += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.hits += 1;
        entry.at = SystemTime::now();
        entry.last_use = self.now;
        entry.is_used = true;
        Some(Arc::clone(&entry.decoded))
    }

    /// Makes room for `bytes` more, of `most` bytes in all, if `key` has been read within a while: entries go that
    /// nobody has used since then. There may be too few.
    pub(super) fn make_room(&mut self, key: Key, bytes: usize, most: usize) -> Vec<Entry> {
        self.now += 1;
        if self.held + bytes <= most {
            return Vec::new();
        }
        let before = self.remember(key);
        let Some(before) = before else {
            return Vec::new();
        };
        let mut evicted = Vec::new();
        for _ in 0..self.hand.len() {
            if self.held + bytes <= most {
                break;
            }
            let Some((key, inserted)) = self.hand.pop_front() else {
                break;
            };
            match self.entries.get(&key) {
                Some(entry) if entry.inserted != inserted => {}
                Some(entry) if entry.last_use >= before => self.hand.push_back((key, inserted)),
                Some(_) => evicted.extend(self.remove(key)),
                None => {}
            }
        }
        evicted
    }

    /// When the column was read that did not fit, if that was within a while; it is read now.
    fn remember(&mut self, key: Key) -> Option<u64> {
        if self.seen.len() >= REMEMBERED {
            self.seen.retain(|_, (_, at)| at.elapsed() < WHILE);
            if self.seen.len() >= REMEMBERED {
                self.seen.clear();
            }
        }
        let before = self.seen.insert(key, (self.now, Instant::now()));
        before
            .filter(|(_, at)| at.elapsed() < WHILE)
            .map(|(use_count, _)| use_count)
    }

    /// Evicts while `is_too_much`: entries that nobody has used since the hand passed them; in a second round
    /// any.
    pub(super) fn evict(&mut self, is_too_much: impl Fn(&Self) -> bool) -> Vec<Entry> {
        let mut evicted = Vec::new();
        while is_too_much(self)
            && let Some((key, inserted)) = self.hand.pop_front()
        {
            match self.entries.get_mut(&key) {
                Some(entry) if entry.inserted != inserted => {}
                Some(entry) if entry.is_used => {
                    entry.is_used = false;
                    self.hand.push_back((key, inserted));
                }
                Some(_) => evicted.extend(self.remove(key)),
                None => {}
            }
        }
        evicted
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.held -= entry.bytes;
        Some(entry)
    }

    /// All entries of a segment, which are no longer there.
    pub(super) fn remove_segment(&mut self, segment: u64) -> Vec<Entry> {
        let first = Key {
            segment,
            row_group: 0,
            column: 0,
        };
        let last = Key {
            segment,
            row_group: usize::MAX,
            column: usize::MAX,
        };
        let keys: Vec<_> = self
            .entries
            .range(first..=last)
            .map(|(key, _)| *key)
            .collect();
        let removed: Vec<_> = keys
            .into_iter()
            .filter_map(|key| self.remove(key))
            .collect();
        self.tidy();
        removed
    }

    /// Somebody begins to fill an entry of about `estimate` bytes. The result becomes true if the memory is needed
    /// for something else.
    pub(super) fn begin(&mut self, key: Key, estimate: usize) -> Arc<AtomicBool> {
        let is_given_up = Arc::new(AtomicBool::new(false));
        let begun = Begun {
            estimate,
            is_given_up: Arc::clone(&is_given_up),
        };
        self.filling.insert(key, begun);
        self.held += estimate;
        is_given_up
    }

    /// Nobody fills the entry any more: what was estimated is no longer held.
    pub(super) fn end(&mut self, key: Key) {
        if let Some(begun) = self.filling.remove(&key) {
            self.held -= begun.estimate;
        }
    }

    /// Those that fill entries are to give up.
    pub(super) fn give_up_fillings(&self) {
        for begun in self.filling.values() {
            begun.is_given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Inserts what has been decoded.
    pub(super) fn insert(&mut self, key: Key, mut entry: Entry) {
        self.now += 1;
        entry.last_use = self.now;
        entry.inserted = self.now;
        self.held += entry.bytes;
        self.seen.remove(&key);
        self.hand.push_back((key, entry.inserted));
        self.entries.insert(key, entry);
        self.tidy();
    }

    /// Keeps the hand from growing with entries that are gone.
    fn tidy(&mut self) {
        if self.hand.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            let is_there = |(key, inserted): &(Key, u64)| {
                let entry = entries.get(key);
                entry.is_some_and(|entry| entry.inserted == *inserted)
            };
            self.hand.retain(is_there);
        }
    }
}
