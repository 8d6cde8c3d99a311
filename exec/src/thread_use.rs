//! What a thread took of its processor during the calls of a task.

use std::time::{Duration, Instant};

use skewer_machine::waiting::Waited;

use crate::preemption::{Switches, thread};

/// Processor time, waits for a processor and context switches, of a thread since it began or of some calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// Nanoseconds in which a processor worked.
    pub cpu_ns: u64,
    /// Nanoseconds in which the thread could have run but had no processor.
    pub runqueue_ns: u64,
    /// The part of `runqueue_ns` in which a control group had used up its quota.
    pub throttled_ns: u64,
    /// How often the thread waited for something.
    pub voluntary: u64,
    /// How often the processor was taken away.
    pub involuntary: u64,
}

impl ThreadUse {
    /// What this is more than another.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
            runqueue_ns: self.runqueue_ns.saturating_sub(other.runqueue_ns),
            throttled_ns: self.throttled_ns.saturating_sub(other.throttled_ns),
            voluntary: self.voluntary.saturating_sub(other.voluntary),
            involuntary: self.involuntary.saturating_sub(other.involuntary),
        }
    }
}

impl std::ops::AddAssign for ThreadUse {
    fn add_assign(&mut self, other: Self) {
        self.cpu_ns += other.cpu_ns;
        self.runqueue_ns += other.runqueue_ns;
        self.throttled_ns += other.throttled_ns;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }
}

/// Time without a processor from here on is looked into; below, it costs more to ask than it can explain.
const WORTH_ASKING: Duration = Duration::from_micros(50);

/// What the thread takes during a call that begins a task.
///
/// It takes two calls of the system, and two more for context switches. Waits for a processor are read at
/// the end only if there was time without one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskClock {
    with_switches: bool,
    began: Instant,
    processor: Option<Duration>,
    switches: Option<Switches>,
    waited: Option<Waited>,
}

impl TaskClock {
    /// From now on.
    pub(crate) fn start(with_switches: bool) -> Self {
        Self {
            with_switches,
            waited: Waited::recently(),
            began: Instant::now(),
            processor: thread::processor_time(),
            switches: with_switches.then(thread::switches).flatten(),
        }
    }

    /// What it took until now; `None` where the system does not tell.
    pub(crate) fn elapsed(self) -> Option<ThreadUse> {
        let cpu = thread::processor_time()?.saturating_sub(self.processor?);
        let idle = self.began.elapsed().saturating_sub(cpu);
        let idle_ns = nanos(idle);
        let waited = self.waited.filter(|_| idle >= WORTH_ASKING);
        let waited = waited.and_then(|before| Some(Waited::now()?.since(before, idle_ns)));
        let waited = waited.unwrap_or_default();
        let switches = self.with_switches.then(thread::switches).flatten();
        let count = |of: fn(&Switches) -> i64| {
            let (before, after) = (self.switches.as_ref().map(of), switches.as_ref().map(of));
            let switches = after.unwrap_or(0) - before.unwrap_or(0);
            u64::try_from(switches).unwrap_or(0)
        };
        Some(ThreadUse {
            cpu_ns: nanos(cpu),
            runqueue_ns: waited.runqueue_ns,
            throttled_ns: waited.throttled_ns,
            voluntary: count(|switches| switches.voluntary),
            involuntary: count(|switches| switches.involuntary),
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
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
