//! Time that passes while a thread is not on a processor is a record's only if the thread waited
//! by itself: slept, read a file, took a lock. If the system took the processor away, for another
//! thread or another program, the record at hand has nothing to do with it.
//!
//! One reading of the thread's processor time per evaluation (0.2 µs, on some virtual machines one)
//! tells whether time passed elsewhere; only then the counts of context switches are read, which tell
//! why. Evaluations that soon follow others on the same thread begin with the last reading of those.

use std::cell::Cell;
use std::time::{Duration, Instant};

use skewer_profiling::ticks::Stopwatch;

/// What is lost elsewhere is looked into from here on; below, it blames nobody.
const WORTH_ASKING: Duration = Duration::from_micros(50);

/// A reading that a thread took so short a time ago need not be taken again: what was lost since is
/// known all the same, but for when.
const RECENT: Duration = WORTH_ASKING;

/// Context switches that were counted longer ago than this are counted again: one for which the thread
/// waited by itself in between would hide why it is off the processor later.
const COUNTED_RECENTLY: Duration = Duration::from_millis(1);

/// A clock for evaluations on the thread that made it.
#[derive(Debug)]
pub struct ThreadClock {
    latest: Option<Reading>,
    doubtful: Duration,
}

/// What a thread knows of itself at a moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    processor: Duration,
    switches: Counted,
}

/// Context switches, and when they were counted.
#[derive(Debug, Clone, Copy)]
struct Counted {
    switches: Switches,
    at: Instant,
}

thread_local! {
    static LATEST: Cell<Option<Reading>> = const { Cell::new(None) };
}

/// Context switches of a thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switches {
    /// It waited for something.
    pub voluntary: i64,
    /// The processor was taken away.
    pub involuntary: i64,
}

impl ThreadClock {
    /// For the thread that calls.
    pub fn of_this_thread() -> Self {
        let recent = LATEST.get();
        let recent = recent.filter(|latest| latest.is_recent(Instant::now()));
        Self {
            latest: recent.or_else(|| Counted::of_this_thread().and_then(Reading::of_this_thread)),
            doubtful: Duration::ZERO,
        }
    }

    /// How long what has run since `started` took, without the time that the processor was taken
    /// away from this thread. It has been made, or asked last, little before `started`.
    pub fn since(&mut self, started: Stopwatch) -> Duration {
        let elapsed = started.elapsed();
        self.doubtful = Duration::ZERO;
        if started.is_simulated() {
            return elapsed;
        }
        let before = self.latest.take();
        self.latest = before.and_then(|before| Reading::of_this_thread(before.switches));
        let (Some(before), Some(after)) = (before, &mut self.latest) else {
            self.doubtful = elapsed;
            return elapsed;
        };
        let lost = Lost::between(&before, after, elapsed);
        if lost.at_most < WORTH_ASKING {
            self.doubtful = lost.at_most;
            return elapsed;
        }
        let Some(counted) = Counted::of_this_thread() else {
            self.doubtful = lost.at_most;
            return elapsed;
        };
        after.switches = counted;
        LATEST.set(self.latest);
        let (before, after) = (before.switches.switches, counted.switches);
        if only_preempted(before, after) {
            self.doubtful = lost.at_most - lost.at_least;
            return elapsed - lost.at_least;
        }
        if after.involuntary != before.involuntary {
            self.doubtful = lost.at_most;
        }
        elapsed
    }

    /// How much of what [`ThreadClock::since`] said last the thread may have waited for a processor.
    pub fn doubtful(&self) -> Duration {
        self.doubtful
    }
}

impl Reading {
    /// Of now, but for `switches`; the thread remembers it.
    fn of_this_thread(switches: Counted) -> Option<Self> {
        let reading = thread::processor_time().map(|processor| Self {
            at: Instant::now(),
            processor,
            switches,
        });
        LATEST.set(reading);
        reading
    }

    /// Whether it will do for an evaluation that begins now.
    fn is_recent(&self, now: Instant) -> bool {
        let since = |then| now.saturating_duration_since(then);
        since(self.at) < RECENT && since(self.switches.at) < COUNTED_RECENTLY
    }
}

impl Counted {
    fn of_this_thread() -> Option<Self> {
        let switches = thread::switches()?;
        let at = Instant::now();
        Some(Self { switches, at })
    }
}

/// How much of an evaluation a thread was not on a processor.
#[derive(Debug, PartialEq)]
struct Lost {
    at_least: Duration,
    at_most: Duration,
}

impl Lost {
    /// In the last `elapsed` before the reading `after`: what is lost before those, since the reading
    /// `before`, is none of it.
    fn between(before: &Reading, after: &Reading, elapsed: Duration) -> Self {
        let passed = after.at.saturating_duration_since(before.at);
        let worked = after.processor.saturating_sub(before.processor);
        let lost = passed.saturating_sub(worked);
        Self {
            at_least: lost.saturating_sub(passed.saturating_sub(elapsed)),
            at_most: lost.min(elapsed),
        }
    }
}

/// Whether all waiting between two readings was for the processor.
fn only_preempted(before: Switches, after: Switches) -> bool {
    after.voluntary == before.voluntary && after.involuntary > before.involuntary
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the system's calls; safe wrappers exist in crates that rebuild half the tree"
)]
pub(crate) mod thread {
    use std::mem::MaybeUninit;
    use std::time::Duration;

    use super::Switches;

    pub fn processor_time() -> Option<Duration> {
        let mut time = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: the clock exists on Linux; `time` is written if the result is 0, and only then
        // read.
        let time = unsafe {
            (libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr()) == 0)
                .then(|| time.assume_init())
        }?;
        Some(Duration::new(
            u64::try_from(time.tv_sec).ok()?,
            u32::try_from(time.tv_nsec).ok()?,
        ))
    }

    pub fn switches() -> Option<Switches> {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: `usage` is written if the result is 0, and only then read.
        let usage = unsafe {
            (libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) == 0)
                .then(|| usage.assume_init())
        }?;
        Some(Switches {
            voluntary: usage.ru_nvcsw,
            involuntary: usage.ru_nivcsw,
        })
    }
}

/// Without counts for single threads, evaluations take what the clock says.
#[cfg(not(target_os = "linux"))]
pub(crate) mod thread {
    use std::time::Duration;

    use super::Switches;

    pub fn processor_time() -> Option<Duration> {
        None
    }

    pub fn switches() -> Option<Switches> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_the_thread_did_not_wait_by_itself_time_elsewhere_is_nobodys() {
        let at = |voluntary, involuntary| Switches {
            voluntary,
            involuntary,
        };
        assert!(only_preempted(at(3, 5), at(3, 6)));
        assert!(!only_preempted(at(3, 5), at(4, 5)));
        assert!(!only_preempted(at(3, 5), at(4, 6)));
        assert!(!only_preempted(at(3, 5), at(3, 5)));
    }

    #[test]
    fn what_was_lost_before_an_evaluation_is_none_of_its_time() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let reading = |at, processor| Reading {
            at: start + ms(at),
            processor: ms(processor),
            switches: Counted {
                switches: Switches {
                    voluntary: 0,
                    involuntary: 0,
                },
                at: start,
            },
        };
        let lost = |passed: u64, worked: u64, elapsed: u64| {
            let Lost { at_least, at_most } = Lost::between(
                &reading(3, 1),
                &reading(3 + passed, 1 + worked),
                ms(elapsed),
            );
            (at_least.as_millis(), at_most.as_millis())
        };
        // It began with the reading.
        assert_eq!(lost(10, 10, 10), (0, 0));
        assert_eq!(lost(10, 4, 10), (6, 6));
        // It began two after it.
        assert_eq!(lost(10, 4, 8), (4, 6));
        assert_eq!(lost(10, 9, 8), (0, 1));
        assert_eq!(lost(10, 1, 2), (1, 2));
        // Clocks differ by a little.
        assert_eq!(lost(10, 11, 10), (0, 0));
    }

    #[test]
    fn a_reading_is_recent_while_its_time_and_its_switches_are() {
        let counted_at = Instant::now();
        let after = |counted: Duration, read: Duration| {
            let at = counted_at + counted;
            let switches = Counted {
                switches: Switches {
                    voluntary: 0,
                    involuntary: 0,
                },
                at: counted_at,
            };
            let processor = Duration::ZERO;
            let reading = Reading {
                at,
                processor,
                switches,
            };
            reading.is_recent(at + read)
        };
        let moment = Duration::from_micros(1);
        assert!(after(moment, moment));
        assert!(!after(moment, RECENT));
        assert!(!after(COUNTED_RECENTLY, moment));
    }

    #[test]
    fn a_thread_remembers_its_own_reading() {
        let of_now = ThreadClock::of_this_thread().latest;
        let known = LATEST.get();
        assert_eq!(
            known.map(|known| known.at),
            of_now.map(|reading| reading.at)
        );
        let of_other = std::thread::spawn(|| LATEST.get().is_none());
        assert!(of_other.join().unwrap());
    }

    #[test]
    fn sleeping_counts() {
        let mut time = ThreadClock::of_this_thread();
        for ms in [1, 3, 20] {
            let started = Stopwatch::start();
            std::thread::sleep(Duration::from_millis(ms));
            assert!(time.since(started) >= Duration::from_millis(ms));
            assert!(time.doubtful() <= started.elapsed());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn waiting_for_a_processor_does_not_count() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::Duration;

        // More threads than processors, all at work: each is preempted now and then, and what a
        // thread takes for the same work does not grow with their number.
        let stop = AtomicBool::new(false);
        let threads = std::thread::available_parallelism().map_or(2, usize::from) * 4;
        let work = || {
            let mut time = ThreadClock::of_this_thread();
            let started = Stopwatch::start();
            let from = thread::processor_time().unwrap();
            while thread::processor_time().unwrap() - from < Duration::from_millis(60) {
                std::hint::spin_loop();
            }
            let elapsed = started.elapsed();
            (elapsed, time.since(started), thread::switches().unwrap())
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let before = thread::switches().unwrap();
            let (elapsed, own, after) = work();
            stop.store(true, Ordering::Relaxed);
            assert!(own <= elapsed);
            if only_preempted(before, after) && elapsed > Duration::from_millis(120) {
                assert!(
                    own < Duration::from_millis(100),
                    "{own:?} of {elapsed:?} for 60 ms of work"
                );
            }
        });
    }
}
