//! A clock for what is asked for twice a call of every operator.
//!
//! Where the system's clock counts the processor's time stamp counter, the counter is read as it
//! is, which takes a quarter of the time; elsewhere the system's clock is read. Ticks become
//! nanoseconds by a [`Scale`], of which a query has one: its times are as consistent as its ticks.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(u64);

impl Ticks {
    /// Now.
    #[inline]
    pub fn now() -> Self {
        let start = &*START;
        Self(match counter(start.counts) {
            Some(ticks) => ticks,
            None if start.simulated => simulated::now(),
            None => start.at.elapsed().as_nanos() as u64,
        })
    }

    /// Ticks since an earlier moment; 0 if it is a later one.
    #[inline]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment so many ticks later.
    #[inline]
    #[must_use]
    pub fn after(self, ticks: u64) -> Self {
        Self(self.0.saturating_add(ticks))
    }

    /// The moment so many ticks before.
    #[inline]
    #[must_use]
    pub fn before(self, ticks: u64) -> Self {
        Self(self.0.saturating_sub(ticks))
    }
}

/// Measures what something takes on one thread.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    started: Instant,
    /// In [`simulated`] time.
    simulated: Option<u64>,
}

impl Stopwatch {
    /// From now on.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
            simulated: START.simulated.then(simulated::now),
        }
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        match self.simulated {
            Some(started) => Duration::from_nanos(simulated::now() - started),
            None => self.started.elapsed(),
        }
    }

    /// Whether the time is not the system's.
    pub fn is_simulated(&self) -> bool {
        self.simulated.is_some()
    }
}

/// Time that passes only when it is told to, on each thread by itself: what is measured in it is
/// the same on every run.
pub mod simulated {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    pub(super) static WANTED: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    /// Time is simulated in this process, from its first moment on.
    ///
    /// # Panics
    /// If the clock has been read before.
    pub fn begin() {
        WANTED.store(true, Ordering::SeqCst);
        assert!(
            super::START.simulated,
            "the clock has been read: simulated time begins before that"
        );
    }

    /// So much time passes on this thread.
    pub fn pass(time: Duration) {
        NOW.set(NOW.get() + time.as_nanos() as u64);
    }

    pub(super) fn now() -> u64 {
        NOW.get()
    }
}

/// What ticks are in nanoseconds, and when they were.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    ns_per_tick: f64,
    /// A moment, and its nanoseconds since the Unix epoch.
    known: (Ticks, i64),
}

impl Scale {
    /// As known now: the longer the process runs, the better. The counter's frequency is right to
    /// about 100 ns in the time since the first tick.
    pub fn now() -> Self {
        let start = &*START;
        let (ticks, at) = both(start.counts);
        let since = at.duration_since(start.at).as_nanos() as f64;
        let ns_per_tick = match ticks.since(start.ticks) {
            ticks if start.counts && ticks > 0 => since / ticks as f64,
            _ => 1.0,
        };
        Self {
            ns_per_tick,
            known: (ticks, start.wall_ns + since as i64),
        }
    }

    /// Nanoseconds of a number of ticks.
    pub fn ns(&self, ticks: u64) -> i64 {
        (ticks as f64 * self.ns_per_tick) as i64
    }

    /// Ticks of a number of nanoseconds; 0 for negative ones.
    pub fn ticks(&self, ns: i64) -> u64 {
        (ns as f64 / self.ns_per_tick) as u64
    }

    /// The moment of a number of nanoseconds since the Unix epoch.
    pub fn moment(&self, wall_ns: i64) -> Ticks {
        let (ticks, known_ns) = self.known;
        match wall_ns >= known_ns {
            true => ticks.after(self.ticks(wall_ns.saturating_sub(known_ns))),
            false => ticks.before(self.ticks(known_ns.saturating_sub(wall_ns))),
        }
    }

    /// Nanoseconds since the Unix epoch at a moment.
    pub fn wall_ns(&self, moment: Ticks) -> i64 {
        let (ticks, wall_ns) = self.known;
        match moment >= ticks {
            true => wall_ns + self.ns(moment.since(ticks)),
            false => wall_ns - self.ns(ticks.since(moment)),
        }
    }
}

/// The first reading of all clocks, from which the others are derived: times within a process
/// never run backwards.
struct Start {
    /// Whether ticks are the processor's.
    counts: bool,
    /// Whether they are nobody's.
    simulated: bool,
    ticks: Ticks,
    at: Instant,
    wall_ns: i64,
}

static START: LazyLock<Start> = LazyLock::new(|| {
    let simulated = simulated::WANTED.load(std::sync::atomic::Ordering::SeqCst);
    let counts = !simulated && system_counts_ticks();
    let (ticks, at) = both(counts);
    Start {
        counts,
        simulated,
        ticks,
        at,
        wall_ns: nanos_since_epoch(SystemTime::now()),
    }
});

/// Nanoseconds from 1970 until `time`; 0 for times before.
pub fn nanos_since_epoch(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Both clocks at once: of some readings that during which the least time went by.
fn both(counts: bool) -> (Ticks, Instant) {
    let mut best: Option<(u64, Ticks, Instant)> = None;
    for _ in 0..4 {
        let before = counter(counts).unwrap_or(0);
        let at = Instant::now();
        let after = counter(counts).unwrap_or(0);
        let took = after.saturating_sub(before);
        if best.is_none_or(|(least, ..)| took < least) {
            best = Some((took, Ticks(before + took / 2), at));
        }
    }
    match best {
        Some((_, ticks, at)) => (ticks, at),
        None => (Ticks(0), Instant::now()),
    }
}

/// Whether the system has found the counter steady, and the same on all cores.
fn system_counts_ticks() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64"))
        && std::fs::read_to_string(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
        .is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "the instruction is an intrinsic")]
fn counter(counts: bool) -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction, and a system that would not let programs
    // use it does not use it as its own clock either.
    counts.then(|| unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter(_: bool) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ticks_measure_what_the_system_s_clock_measures() {
        // The first tick is well before the first scale.
        let _ = Ticks::now();
        std::thread::sleep(Duration::from_millis(20));
        let (from, started) = (Ticks::now(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (elapsed, until) = (started.elapsed(), Ticks::now());
        let scale = Scale::now();
        let ns = scale.ns(until.since(from));
        // Both may be interrupted, at worst in between.
        let between = ns - elapsed.as_nanos() as i64;
        assert!((-1_000_000..20_000_000).contains(&between), "{between} ns");
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let between = wall.as_nanos() as i64 - scale.wall_ns(until);
        assert!(between.abs() < 20_000_000, "{between} ns");
    }

    #[test]
    fn a_scale_keeps_the_order_of_moments_on_both_sides_of_it() {
        let mut moments = vec![Ticks::now(); 3];
        let scale = Scale::now();
        moments.extend((0..3).map(|_| Ticks::now()));
        assert!(moments.is_sorted());
        let walls: Vec<_> = moments.iter().map(|m| scale.wall_ns(*m)).collect();
        assert!(walls.is_sorted(), "{walls:?}");
        assert_eq!(moments[0].since(moments[5]), 0);
    }
}
