//! What a thread took of its processor during the calls of a task.

use crate::preemption::thread;

/// Processor time and context switches, of a thread since it began or of some calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// Nanoseconds in which a processor worked.
    pub cpu_ns: u64,
    /// How often the thread waited for something.
    pub voluntary: u64,
    /// How often the processor was taken away.
    pub involuntary: u64,
}

impl ThreadUse {
    /// Of the thread that calls, since it began; `None` where the system does not tell. It takes one call of the
    /// system, and another one for the switches, which are 0 otherwise.
    pub fn now(with_switches: bool) -> Option<Self> {
        let cpu = thread::processor_time()?;
        let switches = if with_switches {
            thread::switches()
        } else {
            None
        };
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        Some(Self {
            cpu_ns: u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX),
            voluntary: switches.map_or(0, |switches| count(switches.voluntary)),
            involuntary: switches.map_or(0, |switches| count(switches.involuntary)),
        })
    }

    /// What this is more than another.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
            voluntary: self.voluntary.saturating_sub(other.voluntary),
            involuntary: self.involuntary.saturating_sub(other.involuntary),
        }
    }
}

impl std::ops::AddAssign for ThreadUse {
    fn add_assign(&mut self, other: Self) {
        self.cpu_ns += other.cpu_ns;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }
}

/// What the thread takes during a call that begins a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskClock {
    with_switches: bool,
    before: Option<ThreadUse>,
}

impl TaskClock {
    /// From now on.
    pub(crate) fn start(with_switches: bool) -> Self {
        Self {
            with_switches,
            before: ThreadUse::now(with_switches),
        }
    }

    /// What it took until now.
    pub(crate) fn elapsed(self) -> Option<ThreadUse> {
        let before = self.before?;
        Some(ThreadUse::now(self.with_switches)?.without(before))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn work_takes_processor_time_and_sleep_takes_a_switch() {
        let clock = TaskClock::start(true);
        std::thread::sleep(Duration::from_millis(30));
        let slept = clock.elapsed().unwrap();
        assert!(slept.voluntary >= 1, "{slept:?}");
        assert!(slept.cpu_ns < 20_000_000, "{slept:?}");
        let clock = TaskClock::start(false);
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(100) {}
        let worked = clock.elapsed().unwrap();
        assert!(worked.cpu_ns > slept.cpu_ns, "{worked:?}");
        assert_eq!((worked.voluntary, worked.involuntary), (0, 0));
    }
}
