//! When an operator worked in a task: a fixed number of bins of time, however long the query takes.
//!
//! ```text
//! start of execution
//! │ 0 │ 1 │ 2 │ 3 │   a bin is BASE_NS wide
//! │   0   │   1   │   when the last one is full, pairs become one
//! ```
//!
//! Bins of all tasks begin at the start of the query's execution, and their widths are powers of two times the same
//! base. So two bins of a query either have no time in common, or one contains the other. A worker in a process of
//! its own has the start from the master, by its own clock.

use crate::level::Level;
use crate::tables::{OperatorStats, TimelineBin};
use crate::ticks::{Scale, Ticks};

/// The least width of a bin in nanoseconds: 64 of them are a millisecond.
pub const BASE_NS: i64 = 1 << 14;

/// Bins of a task at level `counters`: 2 kB.
const BINS: usize = 64;

/// Bins of a task from level `calls` on: 32 kB.
const BINS_OF_CALLS: usize = 1024;

/// A start that differs more from what this machine's clock says is of a clock that is wrong.
const PLAUSIBLE_NS: i64 = 60_000_000_000;

/// Where the first bins of a query begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimelineStart {
    at: Ticks,
    wall_ns: i64,
    /// Ticks in [`BASE_NS`].
    base: u64,
}

impl TimelineStart {
    /// Now.
    pub(crate) fn now() -> Self {
        let at = Ticks::now();
        let scale = Scale::now();
        Self::new(at, scale.wall_ns(at), scale)
    }

    /// At a moment in nanoseconds since 1970; now, if this machine's clock does not make that plausible.
    pub(crate) fn at_wall(wall_ns: i64) -> Self {
        let now = Self::now();
        if now.wall_ns.abs_diff(wall_ns) > PLAUSIBLE_NS.unsigned_abs() {
            return now;
        }
        let scale = Scale::now();
        Self::new(scale.moment(wall_ns), wall_ns, scale)
    }

    fn new(at: Ticks, wall_ns: i64, scale: Scale) -> Self {
        Self {
            at,
            wall_ns,
            base: scale.ticks(BASE_NS).max(1),
        }
    }

    /// When that is, in nanoseconds since 1970.
    pub fn wall_ns(&self) -> i64 {
        self.wall_ns
    }
}

/// What an operator did in a bin. Times are in ticks, in a [`RecordedTimeline`] in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bin {
    calls: u64,
    rows: u64,
    self_time: u64,
    input_wait: u64,
}

impl Bin {
    fn add(&mut self, other: Bin) {
        self.calls += other.calls;
        self.rows += other.rows;
        self.self_time += other.self_time;
        self.input_wait += other.input_wait;
    }

    fn is_empty(&self) -> bool {
        *self == Bin::default()
    }
}

/// The bin that was asked for last: most calls are in the same one as those before.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Current {
    index: usize,
    /// Ticks since the start.
    from: u64,
    /// The first tick of the next bin.
    to: u64,
}

impl Current {
    const NONE: Current = Current {
        index: 0,
        from: 0,
        to: 0,
    };
}

/// When one stream of an operator worked. To add a call takes a few additions as long as the call is in one bin.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    start: TimelineStart,
    /// How many bins there may be.
    limit: usize,
    /// How often pairs of bins became one.
    doublings: u32,
    /// Up to the last one that has something.
    bins: Vec<Bin>,
    current: Current,
}

impl Timeline {
    /// One without anything in it, with as many bins as a level has; `None` if it has none.
    pub fn new(start: TimelineStart, level: Level) -> Option<Timeline> {
        let limit = match level {
            Level::Off => return None,
            Level::Counters => BINS,
            Level::Calls | Level::Records => BINS_OF_CALLS,
        };
        Some(Timeline {
            start,
            limit,
            doublings: 0,
            bins: Vec::with_capacity(limit),
            current: Current::NONE,
        })
    }

    /// The operator itself worked from one moment to another.
    #[inline]
    pub fn add_work(&mut self, from: Ticks, to: Ticks) {
        self.spread(from, to, |bin, ticks| bin.self_time += ticks);
    }

    /// The operator waited for its input from one moment to another.
    #[inline]
    pub fn add_wait(&mut self, from: Ticks, to: Ticks) {
        self.spread(from, to, |bin, ticks| bin.input_wait += ticks);
    }

    /// A call ended and returned so many rows.
    #[inline]
    pub fn add_call(&mut self, ended: Ticks, rows: u64) {
        let ended = ended.since(self.start.at);
        let bin = self.find(ended.saturating_sub(1));
        let bin = &mut self.bins[bin];
        bin.calls += 1;
        bin.rows += rows;
    }

    /// Adds each part of a time to the bin in which it was. What was before the start is in the first bins.
    #[inline]
    fn spread(&mut self, from: Ticks, to: Ticks, add: impl Fn(&mut Bin, u64)) {
        let ticks = to.since(from);
        if ticks == 0 {
            return;
        }
        let from = from.since(self.start.at);
        let last = self.find(from + ticks - 1);
        if self.current.from <= from {
            add(&mut self.bins[last], ticks);
        } else {
            self.spread_over_several(from, from + ticks, add);
        }
    }

    #[cold]
    fn spread_over_several(&mut self, mut from: u64, to: u64, add: impl Fn(&mut Bin, u64)) {
        while from < to {
            let bin = self.find(from);
            let until = to.min(self.current.to);
            add(&mut self.bins[bin], until - from);
            from = until;
        }
    }

    /// The bin of a moment in ticks since the start.
    #[inline]
    fn find(&mut self, moment: u64) -> usize {
        let current = self.current;
        if current.from <= moment && moment < current.to {
            return current.index;
        }
        self.seek(moment)
    }

    #[cold]
    fn seek(&mut self, moment: u64) -> usize {
        let index = loop {
            let index = moment / self.width();
            match usize::try_from(index) {
                Ok(index) if index < self.limit => break index,
                _ => self.fold(),
            }
        };
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        let from = index as u64 * self.width();
        self.current = Current {
            index,
            from,
            to: from.saturating_add(self.width()),
        };
        index
    }

    /// Ticks in a bin.
    fn width(&self) -> u64 {
        self.start.base << self.doublings
    }

    /// Makes one bin of each pair.
    fn fold(&mut self) {
        self.doublings += 1;
        self.current = Current::NONE;
        let half = self.bins.len().div_ceil(2);
        for bin in 0..half {
            let mut pair = self.bins[2 * bin];
            if let Some(second) = self.bins.get(2 * bin + 1) {
                pair.add(*second);
            }
            self.bins[bin] = pair;
        }
        self.bins.truncate(half);
    }

    /// The same with times in nanoseconds, in fewer bytes. The times of all bins add up to what all ticks are.
    pub fn in_ns(mut self, scale: Scale) -> RecordedTimeline {
        let (mut work, mut wait) = (Sum::default(), Sum::default());
        for bin in &mut self.bins {
            bin.self_time = work.next(bin.self_time, scale);
            bin.input_wait = wait.next(bin.input_wait, scale);
        }
        RecordedTimeline::pack(self.start.wall_ns, self.doublings, &self.bins)
    }
}

/// When an operator worked in a task, in nanoseconds: some ten bytes for each bin that has something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedTimeline {
    start_ns: i64,
    doublings: u32,
    /// How many bins have something.
    len: usize,
    /// Of each of them how many empty ones are before it, and its numbers: seven bits a byte, the least first.
    bytes: Box<[u8]>,
}

impl RecordedTimeline {
    fn pack(start_ns: i64, doublings: u32, bins: &[Bin]) -> Self {
        let (mut bytes, mut len, mut empty) = (Vec::with_capacity(bins.len() * 10), 0, 0);
        for bin in bins {
            if bin.is_empty() {
                empty += 1;
                continue;
            }
            for number in [empty, bin.calls, bin.rows, bin.self_time, bin.input_wait] {
                push(&mut bytes, number);
            }
            len += 1;
            empty = 0;
        }
        Self {
            start_ns,
            doublings,
            len,
            bytes: bytes.into(),
        }
    }

    /// The bins that have something, each with its number.
    fn bins(&self) -> impl Iterator<Item = (usize, Bin)> {
        let mut bytes = self.bytes.iter().copied();
        let mut next = 0;
        std::iter::from_fn(move || {
            let number = next + usize::try_from(take(&mut bytes)?).ok()?;
            next = number + 1;
            let bin = Bin {
                calls: take(&mut bytes)?,
                rows: take(&mut bytes)?,
                self_time: take(&mut bytes)?,
                input_wait: take(&mut bytes)?,
            };
            Some((number, bin))
        })
    }

    /// What an operator did in several runs in the same partition.
    pub(crate) fn sum(runs: &[RecordedTimeline]) -> Option<RecordedTimeline> {
        let start_ns = runs.first()?.start_ns;
        let doublings = runs.iter().map(|run| run.doublings).max()?;
        let mut sum: Vec<Bin> = Vec::new();
        for run in runs {
            for (number, bin) in run.bins() {
                let number = number >> (doublings - run.doublings);
                if sum.len() <= number {
                    sum.resize(number + 1, Bin::default());
                }
                sum[number].add(bin);
            }
        }
        Some(Self::pack(start_ns, doublings, &sum))
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<RecordedTimeline>() + self.bytes.len()
    }

    /// Sets its times back.
    pub(crate) fn set_back(&mut self, offset_ns: i64) {
        self.start_ns = self.start_ns.saturating_sub(offset_ns);
    }

    /// How many rows it has in `sys.operator_timeline`.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its rows in `sys.operator_timeline`: those of the operator and partition that `stats` are of.
    pub(crate) fn rows(&self, stats: &OperatorStats) -> impl Iterator<Item = TimelineBin> {
        let width_ns = BASE_NS << self.doublings;
        let place = (stats.fragment_id, stats.operator_id, stats.partition);
        self.bins().map(move |(number, bin)| TimelineBin {
            fragment_id: place.0,
            operator_id: place.1,
            partition: place.2,
            bin: number as i64,
            started_at: self
                .start_ns
                .saturating_add(width_ns.saturating_mul(number as i64)),
            width_ns,
            calls: bin.calls.cast_signed(),
            rows: bin.rows.cast_signed(),
            self_ns: bin.self_time.cast_signed(),
            input_wait_ns: bin.input_wait.cast_signed(),
        })
    }
}

/// Appends a number.
fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes the next number out; `None` at the end.
fn take(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some(number)
}

/// Ticks so far, and what they are in nanoseconds.
#[derive(Debug, Default)]
struct Sum {
    ticks: u64,
    ns: u64,
}

impl Sum {
    /// Nanoseconds of the next ticks.
    fn next(&mut self, ticks: u64, scale: Scale) -> u64 {
        self.ticks += ticks;
        let ns = scale.ns(self.ticks).unsigned_abs();
        let more = ns.saturating_sub(self.ns);
        self.ns += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn start() -> TimelineStart {
        TimelineStart {
            at: Ticks::now(),
            wall_ns: 1_000,
            base: 16,
        }
    }

    /// With ticks in place of nanoseconds.
    fn packed(timeline: &Timeline) -> RecordedTimeline {
        RecordedTimeline::pack(0, timeline.doublings, &timeline.bins)
    }

    #[test]
    fn a_worker_s_start_is_the_master_s_unless_its_clock_is_wrong() {
        let now = TimelineStart::now();
        let earlier = now.wall_ns - 1_000_000;
        let start = TimelineStart::at_wall(earlier);
        assert_eq!(start.wall_ns, earlier);
        let between = Scale::now().ns(now.at.since(start.at)) - 1_000_000;
        assert!(between.abs() < 100_000, "{between}");
        let wrong = TimelineStart::at_wall(now.wall_ns - 2 * PLAUSIBLE_NS);
        assert!(wrong.wall_ns >= now.wall_ns);
    }

    #[test]
    fn a_query_that_goes_on_for_a_day_has_as_many_bins() {
        let start = TimelineStart::now();
        let mut timeline = Timeline::new(start, Level::Counters).unwrap();
        let scale = Scale::now();
        let day = 24 * 60 * 60 * 1_000_000_000;
        timeline.add_work(start.at, start.at.after(scale.ticks(day)));
        assert_eq!(timeline.bins.capacity(), BINS);
        let recorded = timeline.in_ns(scale);
        assert!((33..=64).contains(&recorded.len()), "{}", recorded.len());
        assert!(recorded.memory() < 1_000, "{}", recorded.memory());
        let worked: u64 = recorded.bins().map(|(_, bin)| bin.self_time).sum();
        assert!((worked.cast_signed() - day).abs() < 1_000_000);
    }

    proptest! {
        /// Intervals one after the other, some of many bins: each tick is in the bin of its moment.
        #[test]
        fn each_tick_is_in_the_bin_of_its_moment(
            intervals in prop::collection::vec((0..40u64, 0..90u64), 1..60),
        ) {
            let start = start();
            let mut one = Timeline::new(start, Level::Counters).unwrap();
            // Each is a stream of the same task, as in the iterations of a recursive query.
            let mut several = Vec::new();
            let mut expected = std::collections::BTreeMap::new();
            let mut moment = 0;
            for (gap, length) in &intervals {
                moment += gap;
                let (from, to) = (start.at.after(moment), start.at.after(moment + length));
                for tick in moment..moment + length {
                    *expected.entry(tick).or_insert(0) += 1;
                }
                moment += length;
                let mut stream = Timeline::new(start, Level::Counters).unwrap();
                for timeline in [&mut one, &mut stream] {
                    timeline.add_work(from, to);
                    timeline.add_call(to, *length);
                }
                several.push(packed(&stream));
                if several.len() > 3 {
                    several = vec![RecordedTimeline::sum(&several).unwrap()];
                }
            }
            let several = RecordedTimeline::sum(&several).unwrap();
            prop_assert_eq!(several, packed(&one));
            prop_assert!(one.bins.len() <= BINS);
            // Not wider than needed.
            prop_assert!(one.doublings == 0 || moment > one.width() / 2 * BINS as u64);
            for (number, bin) in one.bins.iter().enumerate() {
                let from = number as u64 * one.width();
                let ticks = expected.range(from..from + one.width()).count();
                prop_assert_eq!(bin.self_time, ticks as u64);
            }
            let calls: u64 = one.bins.iter().map(|bin| bin.calls).sum();
            prop_assert_eq!(calls, intervals.len() as u64);
        }
    }
}
