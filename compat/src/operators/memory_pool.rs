//! The memory that operators of all queries hold together, and its limit.
//!
//! A cache may fill what operators leave free. It gives way at once: operators get what they would get
//! without it, and the cache is told how much to evict.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{OnceLock, Weak};

use crate::operators::spilling_join;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

/// How the error begins that tells of the limit.
pub const LIMIT_REACHED: &str = "the memory limit of ";

/// A cache that gives way to operators, as it registers itself.
pub const CACHE: &str = "ColumnCache";

/// Each output of an exchange within a process, as it registers itself.
const EXCHANGE: &str = "RepartitionExec[";

/// A sort-merge join, as it registers itself: as if it could not spill, but it does where it is
/// refused.
const MERGE_JOIN: &str = "SMJStream[";

/// A sort, and with a suffix what it sets aside for merging what it spilled, as they register
/// themselves.
const SORT: &str = "ExternalSorter";
const SORT_MERGE: &str = "ExternalSorterMerge[";

/// The part of what there is that sorts' merges leave to others, one in so many. Those of what was
/// spilled take as much as they get, to merge more at once, and need less. But a sort merges what it
/// holds before it spills it, too, and fails where that is refused: that takes less than three quarters
/// of what the sort held.
///
/// A sort reserves twice the bytes of its batches, so that it can merge them. Its merge registers itself
/// as another consumer and asks for that half again, after other sorts may have taken what was free. So
/// merges may exceed the limit by half of what all sorts hold.
const LEFT_BY_MERGES: usize = 4;

/// The part of the limit that is little: one in so many. Who comes late may hold it if there is that
/// much, whatever its share, or what merges leave: nobody can begin with less than a batch.
const LITTLE: usize = 16;

/// A cache that registers itself as [`CACHE`].
pub trait Evictable: fmt::Debug + Send + Sync {
    /// Evicts at least `bytes` bytes, or all that can be evicted, and shrinks the reservation by as much.
    fn evict(&self, bytes: usize);
}

/// What raises the limit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaisedBy {
    /// `SET memory_limit`.
    Setting,
    /// The option with which a worker is started: settings are those of the master.
    Option,
    /// Nothing: a read-only session has it.
    Nothing,
}

/// A memory pool whose limit can be changed while queries run.
///
/// Below the limit, operators that can spill get an equal share each of what those that cannot
/// spill leave, as in DataFusion's `FairSpillPool`. A join's build side spills while it is collected, and
/// holds what it has until the join is done: it gets no more than it leaves to others, but a little in any
/// case. Exchanges have one share together: each has as
/// many outputs as all workers together have partitions, and holds few batches. What takes as much as
/// it gets, and can do with less, does not get all, so that who comes late can begin. After the limit was lowered, nothing is taken
/// from anybody: operators spill, or fail, when they ask for more.
#[derive(Debug)]
pub struct MemoryBudget {
    raised_by: RaisedBy,
    state: Mutex<State>,
    /// Evicts where operators need what the cache holds.
    cache: OnceLock<Weak<dyn Evictable>>,
}

#[derive(Debug, Default)]
struct State {
    limit: Option<usize>,
    /// What operators that can spill hold.
    spillable: usize,
    /// What exchanges hold of that.
    exchanged: usize,
    /// What the others hold.
    unspillable: usize,
    /// What merges hold of that.
    merged: usize,
    /// What sorts hold of `spillable`.
    sorted: usize,
    /// How many can spill, but for exchanges.
    spillers: usize,
    /// How many outputs exchanges have.
    outputs: usize,
    /// What the cache holds, which counts as free to all others.
    cached: usize,
    consumers: HashMap<usize, Consumer>,
}

#[derive(Debug)]
struct Consumer {
    name: String,
    held: usize,
}

/// How a consumer has its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It has one of its own.
    Spills,
    /// The same, and half of it is for its merge.
    Sort,
    /// All of them have one.
    Exchange,
    /// It takes what there is.
    CannotSpill,
    /// The same, but that it leaves some.
    Merge,
    /// It leaves as much as it takes.
    Build,
    /// It takes what all others leave, and gives way to them.
    Cache,
}

impl Kind {
    fn of_consumer(consumer: &MemoryConsumer) -> Self {
        let name = consumer.name();
        match consumer.can_spill() {
            true if name.starts_with(EXCHANGE) => Self::Exchange,
            true if name.starts_with(spilling_join::CONSUMER) => Self::Build,
            true if name.starts_with(SORT) => Self::Sort,
            true => Self::Spills,
            false if name == CACHE => Self::Cache,
            false if name.starts_with(MERGE_JOIN) => Self::Spills,
            false if name.starts_with(SORT_MERGE) => Self::Merge,
            false => Self::CannotSpill,
        }
    }
}

impl MemoryBudget {
    /// `None` sets no limit.
    pub fn new(limit: Option<usize>, raised_by: RaisedBy) -> Self {
        Self {
            raised_by,
            state: Mutex::new(State {
                limit,
                ..State::default()
            }),
            cache: OnceLock::new(),
        }
    }

    /// From now on `cache` evicts where operators need what it holds. The first time counts.
    pub fn set_cache(&self, cache: Weak<dyn Evictable>) {
        let _ = self.cache.set(cache);
    }

    /// Has the cache evict so many bytes. Nobody may hold the lock: the cache gives bytes back under it.
    fn evict(&self, bytes: usize) {
        if bytes > 0
            && let Some(cache) = self.cache.get().and_then(Weak::upgrade)
        {
            cache.evict(bytes);
        }
    }

    /// The limit in bytes; none if memory is not limited.
    pub fn limit(&self) -> Option<usize> {
        self.state.lock().limit
    }

    /// Changes the limit, in bytes. Consumers keep what they hold; the cache gives way.
    pub fn set_limit(&self, limit: Option<usize>) {
        let mut state = self.state.lock();
        state.limit = limit;
        let excess = state.excess(Kind::CannotSpill);
        drop(state);
        self.evict(excess);
    }

    /// Bytes that the cache holds. [`MemoryPool::reserved`] does not count them.
    pub fn cached(&self) -> usize {
        self.state.lock().cached
    }
}

impl State {
    /// What `reservation` may hold at most now.
    fn most(&self, reservation: &MemoryReservation, limit: usize) -> usize {
        let spill_available = limit.saturating_sub(self.unspillable);
        let free = spill_available.saturating_sub(self.spillable);
        let held = self.held(reservation.consumer());
        let little = reservation.size() + (limit / LITTLE).saturating_sub(held);
        let sharers = self.spillers + usize::from(self.outputs > 0);
        let share = spill_available / sharers.max(1);
        let all = reservation.size() + free;
        match Kind::of_consumer(reservation.consumer()) {
            Kind::Spills | Kind::Sort => share.max(little.min(all)),
            Kind::Exchange => share.saturating_sub(self.exchanged) + reservation.size(),
            // Without the few bytes of a group a query would fail, though others give way soon.
            Kind::CannotSpill => all.max(little),
            Kind::Build => {
                let others = held - reservation.size();
                let leaves_as_much = (held + free) / 2;
                // Those that share give way: without anything a join would take forever.
                leaves_as_much.saturating_sub(others).max(little)
            }
            Kind::Merge => {
                let there_is = spill_available + self.merged;
                let merges = there_is - there_is / LEFT_BY_MERGES;
                let left = merges.saturating_sub(self.merged) + reservation.size();
                (all + self.sorted / 2).min(left.max(little))
            }
            Kind::Cache => reservation.size() + free.saturating_sub(self.cached),
        }
    }

    /// By how much the cache exceeds what operators leave. Where the cache itself asks, it exceeds nothing: it
    /// got only what they leave.
    fn excess(&self, asking: Kind) -> usize {
        let Some(limit) = self.limit.filter(|_| asking != Kind::Cache) else {
            return 0;
        };
        let left = limit.saturating_sub(self.spillable + self.unspillable);
        self.cached.saturating_sub(left)
    }

    /// What `consumer` holds, by all of its reservations.
    fn held(&self, consumer: &MemoryConsumer) -> usize {
        let consumer = self.consumers.get(&consumer.id());
        consumer.map_or(0, |consumer| consumer.held)
    }

    /// There is another consumer, or one less.
    fn count(&mut self, consumer: &MemoryConsumer, change: impl Fn(&mut usize)) {
        match Kind::of_consumer(consumer) {
            Kind::Spills | Kind::Sort => change(&mut self.spillers),
            Kind::Exchange => change(&mut self.outputs),
            Kind::CannotSpill | Kind::Merge | Kind::Build | Kind::Cache => {}
        }
    }

    /// A consumer holds more, or less.
    fn hold(&mut self, consumer: &MemoryConsumer, change: impl Fn(&mut usize)) {
        match Kind::of_consumer(consumer) {
            Kind::Spills => change(&mut self.spillable),
            Kind::Sort => {
                change(&mut self.spillable);
                change(&mut self.sorted);
            }
            Kind::Exchange => {
                change(&mut self.spillable);
                change(&mut self.exchanged);
            }
            Kind::CannotSpill | Kind::Build => change(&mut self.unspillable),
            Kind::Merge => {
                change(&mut self.unspillable);
                change(&mut self.merged);
            }
            Kind::Cache => change(&mut self.cached),
        }
        if let Some(consumer) = self.consumers.get_mut(&consumer.id()) {
            change(&mut consumer.held);
        }
    }

    /// Why `reservation` cannot have `additional` bytes, and what can be done.
    fn refusal(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
        limit: usize,
        raised_by: RaisedBy,
    ) -> String {
        let name = reservation.consumer().name();
        let held = self.held(reservation.consumer());
        let mut text = format!(
            "{LIMIT_REACHED}{} is reached: {name} holds {} and needs {} more",
            size(limit),
            size(held),
            size(additional),
        );
        let others = self.consumers.values().filter(|other| other.name != CACHE);
        let greatest = others.max_by_key(|other| other.held);
        if let Some(greatest) = greatest.filter(|other| other.held > held) {
            text.push_str(&format!(
                ", while {} holds {}",
                greatest.name,
                size(greatest.held)
            ));
        }
        let needed = (self.spillable + self.unspillable).saturating_add(additional);
        let enough = needed.max(limit).saturating_add(1);
        let enough = enough.checked_next_power_of_two().unwrap_or(usize::MAX);
        let enough = size(enough);
        text.push_str(&match raised_by {
            RaisedBy::Setting => format!("; raise it with SET memory_limit = '{enough}'"),
            RaisedBy::Option => {
                format!("; start the worker with --memory-limit '{enough}' to raise it")
            }
            RaisedBy::Nothing => "; a read-only session has no more, so ask for less".to_owned(),
        });
        if name.starts_with(SORT) {
            text.push_str(
                ", or let each sort set aside less than 10 MiB with \
                 SET datafusion.execution.sort_spill_reservation_bytes",
            );
        }
        text
    }
}

impl MemoryPool for MemoryBudget {
    fn name(&self) -> &str {
        "budget"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        state.count(consumer, |count| *count += 1);
        let name = consumer.name().to_owned();
        state
            .consumers
            .insert(consumer.id(), Consumer { name, held: 0 });
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.state.lock();
        state.count(consumer, |count| *count -= 1);
        state.consumers.remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let mut state = self.state.lock();
        state.hold(reservation.consumer(), |held| *held += additional);
        let excess = state.excess(Kind::of_consumer(reservation.consumer()));
        drop(state);
        self.evict(excess);
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        let mut state = self.state.lock();
        state.hold(reservation.consumer(), |held| *held -= bytes);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(limit) = state.limit
            && reservation.size().saturating_add(additional) > state.most(reservation, limit)
        {
            // Operators that can spill do so on this very variant.
            return Err(DataFusionError::ResourcesExhausted(state.refusal(
                reservation,
                additional,
                limit,
                self.raised_by,
            )));
        }
        state.hold(reservation.consumer(), |held| *held += additional);
        let excess = state.excess(Kind::of_consumer(reservation.consumer()));
        drop(state);
        self.evict(excess);
        Ok(())
    }

    fn reserved(&self) -> usize {
        let state = self.state.lock();
        state.spillable + state.unspillable
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.limit()
            .map_or(MemoryLimit::Infinite, MemoryLimit::Finite)
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit() {
            Some(limit) => write!(f, "{} of {}", self.name(), size(limit)),
            None => write!(f, "{} without limit", self.name()),
        }
    }
}

/// Bytes in the largest unit that is not too coarse: `2 GiB`, `1.5 MiB`, `812 B`.
pub fn size(bytes: usize) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let text = format!("{value:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}
