//! The memory that operators of all queries hold together, and its limit.

use std::collections::HashMap;
use std::fmt;

use crate::operators::spilling_join;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use parking_lot::Mutex;

/// How the error begins that tells of the limit.
pub const LIMIT_REACHED: &str = "the memory limit of ";

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
const LEFT_BY_MERGES: usize = 4;

/// The part of the limit that is little: one in so many. Who comes late may hold it if there is that
/// much, whatever its share, or what merges leave: nobody can begin with less than a batch.
const LITTLE: usize = 16;

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
    /// How many can spill, but for exchanges.
    spillers: usize,
    /// How many outputs exchanges have.
    outputs: usize,
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
    /// All of them have one.
    Exchange,
    /// It takes what there is.
    CannotSpill,
    /// The same, but that it leaves some.
    Merge,
    /// It leaves as much as it takes.
    Build,
}

impl Kind {
    fn of_consumer(consumer: &MemoryConsumer) -> Self {
        let name = consumer.name();
        match consumer.can_spill() {
            true if name.starts_with(EXCHANGE) => Self::Exchange,
            true if name.starts_with(spilling_join::CONSUMER) => Self::Build,
            true => Self::Spills,
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
        }
    }

    /// The limit in bytes; none if memory is not limited.
    pub fn limit(&self) -> Option<usize> {
        self.state.lock().limit
    }

    /// Changes the limit, in bytes. Consumers keep what they hold.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.state.lock().limit = limit;
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
            Kind::Spills => share.max(little.min(all)),
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
                all.min(left.max(little))
            }
        }
    }

    /// What `consumer` holds, by all of its reservations.
    fn held(&self, consumer: &MemoryConsumer) -> usize {
        let consumer = self.consumers.get(&consumer.id());
        consumer.map_or(0, |consumer| consumer.held)
    }

    /// There is another consumer, or one less.
    fn count(&mut self, consumer: &MemoryConsumer, change: impl Fn(&mut usize)) {
        match Kind::of_consumer(consumer) {
            Kind::Spills => change(&mut self.spillers),
            Kind::Exchange => change(&mut self.outputs),
            Kind::CannotSpill | Kind::Merge | Kind::Build => {}
        }
    }

    /// A consumer holds more, or less.
    fn hold(&mut self, consumer: &MemoryConsumer, change: impl Fn(&mut usize)) {
        match Kind::of_consumer(consumer) {
            Kind::Spills => change(&mut self.spillable),
            Kind::Exchange => {
                change(&mut self.spillable);
                change(&mut self.exchanged);
            }
            Kind::CannotSpill | Kind::Build => change(&mut self.unspillable),
            Kind::Merge => {
                change(&mut self.unspillable);
                change(&mut self.merged);
            }
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
        let greatest = self.consumers.values().max_by_key(|other| other.held);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn reservation(pool: &Arc<dyn MemoryPool>, name: &str, can_spill: bool) -> MemoryReservation {
        MemoryConsumer::new(name)
            .with_can_spill(can_spill)
            .register(pool)
    }

    #[test]
    fn those_that_can_spill_share_what_the_others_leave() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
        let join = reservation(&pool, "HashJoinInput", false);
        join.try_grow(20).unwrap();
        let one = reservation(&pool, "one", true);
        let two = reservation(&pool, "two", true);
        one.try_grow(40).unwrap();
        assert!(one.try_grow(1).is_err());
        two.try_grow(30).unwrap();
        join.try_grow(10).unwrap();
        assert!(join.try_grow(1).is_err());
        drop(one);
        assert_eq!(pool.reserved(), 60);
        two.try_grow(40).unwrap();
        drop((join, two));
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn a_build_side_leaves_as_much_as_it_takes() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(160), RaisedBy::Setting));
        let build = |number| {
            let name = format!("{}[{number}]", spilling_join::CONSUMER);
            reservation(&pool, &name, true)
        };
        let (one, two, three) = (build(0), build(1), build(2));
        one.try_grow(80).unwrap();
        assert!(one.try_grow(1).is_err());
        two.try_grow(40).unwrap();
        assert!(two.try_grow(1).is_err());
        // It takes part in no shares.
        let sort = reservation(&pool, "sort", true);
        sort.try_grow(36).unwrap();
        // A little it gets all the same, and others give way.
        three.try_grow(10).unwrap();
        assert!(three.try_grow(1).is_err());
        assert!(sort.try_grow(1).is_err());
        drop(sort);
        three.try_grow(10).unwrap();
        assert!(three.try_grow(1).is_err());
        // All that one has counts, in however many reservations.
        let filter = three.new_empty();
        assert!(filter.try_grow(1).is_err());
        three.shrink(5);
        filter.try_grow(5).unwrap();
        assert!(filter.try_grow(1).is_err());
        drop((one, two, three, filter));
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn exchanges_have_one_share_however_many_outputs_they_have() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
        let sort = reservation(&pool, "ExternalSorter[0]", true);
        let outputs: Vec<_> = (0..30)
            .map(|output| reservation(&pool, &format!("RepartitionExec[{output}]"), true))
            .collect();
        for output in &outputs[..10] {
            output.try_grow(5).unwrap();
        }
        assert!(outputs[0].try_grow(1).is_err());
        assert!(outputs[20].try_grow(1).is_err());
        sort.try_grow(50).unwrap();
        assert!(sort.try_grow(1).is_err());
        outputs[0].shrink(3);
        outputs[20].try_grow(3).unwrap();
        drop(outputs);
        sort.try_grow(50).unwrap();
        drop(sort);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_takes_all_it_gets_and_needs_less_leaves_some_to_others() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
        let merge = reservation(&pool, "ExternalSorterMerge[0]", false);
        let sort = reservation(&pool, "ExternalSorter[0]", true);
        merge.try_grow(60).unwrap();
        merge.try_grow(15).unwrap();
        assert!(merge.try_grow(1).is_err());
        // It does spill.
        let join = reservation(&pool, "SMJStream[0]", false);
        join.try_grow(12).unwrap();
        assert!(join.try_grow(1).is_err());
        let other = reservation(&pool, "AggregateStream[0]", false);
        other.try_grow(13).unwrap();
        assert!(other.try_grow(1).is_err());
        drop((join, other));
        // All merges together leave it, except what each needs to begin.
        let another = reservation(&pool, "ExternalSorterMerge[1]", false);
        another.try_grow(6).unwrap();
        assert!(another.try_grow(1).is_err());
        assert!(another.new_empty().try_grow(1).is_err());
        merge.shrink(46);
        another.try_grow(40).unwrap();
        assert!(another.try_grow(1).is_err());
        drop((merge, another, sort));
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn what_a_sort_held_can_be_merged_while_others_hold_their_shares() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(120), RaisedBy::Setting));
        let pair = |number| {
            let name = |of: &str| format!("{of}[{number}]");
            let sort = reservation(&pool, &name("ExternalSorter"), true);
            (
                sort,
                reservation(&pool, &name("ExternalSorterMerge"), false),
            )
        };
        let ((sort, merge), (other_sort, other_merge)) = (pair(0), pair(1));
        let output = reservation(&pool, "RepartitionExec[0]", true);
        for one in [&sort, &other_sort, &output] {
            one.try_grow(40).unwrap();
        }
        // Both spill at once: of what they hold, three quarters are needed to merge it.
        for _ in 0..10 {
            for (sort, merge) in [(&sort, &merge), (&other_sort, &other_merge)] {
                sort.shrink(4);
                merge.try_grow(3).unwrap();
            }
        }
        assert_eq!(pool.reserved(), 40 + 2 * 30);
    }

    #[test]
    fn who_comes_late_can_begin_although_its_share_is_less_than_a_batch() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(160), RaisedBy::Setting));
        let merge = reservation(&pool, "ExternalSorterMerge[0]", false);
        merge.try_grow(120).unwrap();
        let spillers: Vec<_> = (0..10)
            .map(|number| reservation(&pool, &format!("ExternalSorter[{number}]"), true))
            .collect();
        for spiller in &spillers[..4] {
            spiller.try_grow(10).unwrap();
            assert!(spiller.try_grow(1).is_err());
        }
        // What there is.
        assert!(spillers[4].try_grow(5).is_err());
        spillers[4].try_grow(4).unwrap();
        spillers[0].shrink(10);
        spillers[4].try_grow(6).unwrap();
    }

    #[test]
    fn the_limit_can_be_changed_while_memory_is_held() {
        let budget = Arc::new(MemoryBudget::new(None, RaisedBy::Setting));
        let pool: Arc<dyn MemoryPool> = Arc::clone(&budget) as _;
        let held = reservation(&pool, "held", false);
        held.try_grow(1 << 30).unwrap();
        budget.set_limit(Some(1 << 20));
        assert!(held.try_grow(1).is_err());
        budget.set_limit(None);
        held.try_grow(1).unwrap();
    }

    #[test]
    fn a_refusal_names_the_limit_who_holds_what_and_the_ways_out() {
        let pool: Arc<dyn MemoryPool> =
            Arc::new(MemoryBudget::new(Some(2 << 20), RaisedBy::Setting));
        let sort = reservation(&pool, "sort", true);
        sort.try_grow(3 << 19).unwrap();
        let groups = reservation(&pool, "AggregateStream[0]", false);
        groups.try_grow(1 << 10).unwrap();
        let Err(DataFusionError::ResourcesExhausted(text)) = groups.try_grow(1 << 20) else {
            panic!("the limit is not kept");
        };
        assert_eq!(
            text,
            "the memory limit of 2 MiB is reached: AggregateStream[0] holds 1 KiB and needs 1 MiB \
             more, while sort holds 1.5 MiB; raise it with SET memory_limit = '4 MiB'"
        );
    }

    #[test]
    fn the_limit_of_a_worker_is_raised_where_it_is_started() {
        let pool: Arc<dyn MemoryPool> =
            Arc::new(MemoryBudget::new(Some(2 << 20), RaisedBy::Option));
        let held = reservation(&pool, "held", false);
        let error = held.try_grow(3 << 20).unwrap_err().to_string();
        assert!(
            error.ends_with("; start the worker with --memory-limit '4 MiB' to raise it"),
            "{error}"
        );
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(812), "812 B");
        assert_eq!(size(3 << 19), "1.5 MiB");
        assert_eq!(size(2 << 30), "2 GiB");
    }
}
