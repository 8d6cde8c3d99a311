//! How long a thread that could have run had no processor.
//!
//! The scheduler counts for each thread the time on its run queue, also while a control group is throttled:
//! the second number of `/proc/thread-self/schedstat` (kernel: `Documentation/scheduler/sched-stats.rst`).
//! A reading takes 0.8 µs, as the file stays open; one that may be a millisecond old takes 0.03 µs.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cgroup;

/// A reading of this age is good enough for a task that begins.
const FRESH: Duration = Duration::from_millis(1);

/// What a thread, or its process, has waited for since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waited {
    /// Nanoseconds on a run queue.
    pub runqueue_ns: u64,
    /// Nanoseconds in which the process's groups were throttled, summed over processors.
    pub throttled_ns: u64,
}

impl Waited {
    /// Until a little before now: what a task that begins compares with. `None` where the system does not tell.
    pub fn recently() -> Option<Self> {
        THREAD.with_borrow_mut(|thread| {
            let runqueue_ns = match thread.latest {
                Some((at, ns)) if at.elapsed() < FRESH => ns,
                _ => thread.read()?,
            };
            Some(Self {
                runqueue_ns,
                throttled_ns: cgroup::recently_throttled_ns(),
            })
        })
    }

    /// Until now.
    pub fn now() -> Option<Self> {
        THREAD.with_borrow_mut(|thread| {
            Some(Self {
                runqueue_ns: thread.read()?,
                throttled_ns: cgroup::throttled_ns(),
            })
        })
    }

    /// What a task waited for that was without a processor for `idle_ns` between the readings. Waiting of the thread
    /// before the task began, and of other threads, is capped by that.
    #[must_use]
    pub fn since(self, before: Self, idle_ns: u64) -> Self {
        let throttled_ns = self
            .throttled_ns
            .saturating_sub(before.throttled_ns)
            .min(idle_ns);
        let runqueue_ns = self.runqueue_ns.saturating_sub(before.runqueue_ns);
        Self {
            // Kernels from 6.18 on take throttled threads off the queue.
            runqueue_ns: runqueue_ns.max(throttled_ns).min(idle_ns),
            throttled_ns,
        }
    }
}

/// Whether the system counts the time that threads spend on run queues.
pub fn is_told() -> bool {
    static TOLD: OnceLock<bool> = OnceLock::new();
    *TOLD.get_or_init(|| Waited::now().is_some())
}

#[derive(Debug, Default)]
struct Thread {
    #[cfg(target_os = "linux")]
    file: Option<std::fs::File>,
    is_absent: bool,
    latest: Option<(Instant, u64)>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

impl Thread {
    #[cfg(target_os = "linux")]
    fn read(&mut self) -> Option<u64> {
        use std::os::unix::fs::FileExt;

        if self.is_absent {
            return None;
        }
        if self.file.is_none() {
            self.file = std::fs::File::open("/proc/thread-self/schedstat").ok();
        }
        let mut text = [0; 64];
        let read = self
            .file
            .as_ref()
            .and_then(|file| file.read_at(&mut text, 0).ok());
        let ns = read.and_then(|length| runqueue_ns(&text[..length]));
        self.is_absent = ns.is_none();
        self.latest = ns.map(|ns| (Instant::now(), ns));
        ns
    }

    #[cfg(not(target_os = "linux"))]
    fn read(&mut self) -> Option<u64> {
        self.is_absent = true;
        None
    }
}

/// The second number of a line of `schedstat`.
fn runqueue_ns(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_on_the_queue() {
        assert_eq!(runqueue_ns(b"12795 2462623 1\n"), Some(2_462_623));
        assert_eq!(runqueue_ns(b"0 0"), Some(0));
        assert_eq!(runqueue_ns(b""), None);
    }

    #[test]
    fn a_task_waited_no_longer_than_it_had_no_processor() {
        let before = Waited {
            runqueue_ns: 100,
            throttled_ns: 1_000,
        };
        let after = Waited {
            runqueue_ns: 180,
            throttled_ns: 1_050,
        };
        let waited = |idle| after.since(before, idle);
        assert_eq!(
            waited(1_000),
            Waited {
                runqueue_ns: 80,
                throttled_ns: 50
            }
        );
        assert_eq!(
            waited(60),
            Waited {
                runqueue_ns: 60,
                throttled_ns: 50
            }
        );
        assert_eq!(
            waited(20),
            Waited {
                runqueue_ns: 20,
                throttled_ns: 20
            }
        );
        let off_the_queue = Waited {
            runqueue_ns: 100,
            throttled_ns: 1_050,
        };
        assert_eq!(
            off_the_queue.since(before, 70),
            Waited {
                runqueue_ns: 50,
                throttled_ns: 50
            }
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_that_share_a_processor_wait_for_it() {
        let Some(before) = Waited::now() else {
            return; // This kernel does not tell.
        };
        let rivals = std::thread::available_parallelism().map_or(1, usize::from) * 3;
        let waited = std::thread::scope(|scope| {
            for _ in 0..rivals {
                scope.spawn(|| busy(Duration::from_millis(200)));
            }
            busy(Duration::from_millis(150));
            Waited::now().unwrap().since(before, u64::MAX)
        });
        assert!(waited.runqueue_ns > 1_000_000, "{waited:?}");
    }

    #[cfg(target_os = "linux")]
    fn busy(time: Duration) {
        let started = Instant::now();
        while started.elapsed() < time {}
    }
}
