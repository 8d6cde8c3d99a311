//! Time that passes while a thread is not on a processor is a record's only if the thread waited
//! by itself: slept, read a file, took a lock. If the system took the processor away, for another
//! thread or another program, the record at hand has nothing to do with it.
//!
//! One reading of the thread's processor time per evaluation (about 0.2 µs) tells whether time
//! passed elsewhere; only then the counts of context switches are read, which tell why.

use std::time::Duration;

use skewer_profiling::ticks::Stopwatch;

/// What is lost elsewhere is looked into from here on; below, it blames nobody.
const WORTH_ASKING: Duration = Duration::from_micros(50);

/// A clock for evaluations on the thread that made it.
#[derive(Debug)]
pub struct OwnTime {
    processor: Option<Duration>,
    switches: Option<Switches>,
    doubtful: Duration,
}

/// Context switches of a thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switches {
    /// It waited for something.
    pub voluntary: i64,
    /// The processor was taken away.
    pub involuntary: i64,
}

impl OwnTime {
    /// For the thread that calls.
    pub fn of_this_thread() -> Self {
        Self {
            processor: thread::processor_time(),
            switches: thread::switches(),
            doubtful: Duration::ZERO,
        }
    }

    /// How long what has run since `started` took, without the time that the processor was taken
    /// away from this thread. Evaluations follow each other without a break.
    pub fn since(&mut self, started: Stopwatch) -> Duration {
        let elapsed = started.elapsed();
        self.doubtful = Duration::ZERO;
        if started.is_simulated() {
            return elapsed;
        }
        let before = std::mem::replace(&mut self.processor, thread::processor_time());
        let (Some(before), Some(after)) = (before, self.processor) else {
            self.doubtful = elapsed;
            return elapsed;
        };
        let worked = after.saturating_sub(before).min(elapsed);
        let elsewhere = elapsed - worked;
        if elsewhere < WORTH_ASKING {
            self.doubtful = elsewhere;
            return elapsed;
        }
        let before = std::mem::replace(&mut self.switches, thread::switches());
        match (before, self.switches) {
            (Some(before), Some(after)) if only_preempted(before, after) => worked,
            (Some(before), Some(after)) if after.involuntary == before.involuntary => elapsed,
            _ => {
                self.doubtful = elsewhere;
                elapsed
            }
        }
    }

    /// How much of what [`OwnTime::since`] said last the thread may have waited for a processor.
    pub fn doubtful(&self) -> Duration {
        self.doubtful
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
mod thread {
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
mod thread {
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
    fn sleeping_counts() {
        let mut time = OwnTime::of_this_thread();
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
            let mut time = OwnTime::of_this_thread();
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
