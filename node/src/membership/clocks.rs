//! Clocks of the system, or of a simulation, for logic that has to be told the time.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// A moment, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// By the clock that only goes on: for intervals.
    pub steady: Instant,
    /// By the clock that people read.
    pub wall: SystemTime,
}

/// Clocks: those of the system, or of a simulation.
pub trait Clocks: fmt::Debug + Send + Sync {
    /// What they show.
    fn now(&self) -> Now;
}

/// Clocks that stand still unless they are set.
#[derive(Debug)]
pub struct SimulatedClocks {
    start: Instant,
    passed: Mutex<Duration>,
}

impl SimulatedClocks {
    /// The steady clock shows `start`, the other one the beginning of 1970.
    pub fn new(start: Instant) -> Self {
        Self {
            start,
            passed: Mutex::default(),
        }
    }

    /// Sets both clocks to `passed` after the start.
    pub fn set(&self, passed: Duration) {
        *self.passed.lock() = passed;
    }

    /// Both clocks go on by `time`.
    pub fn advance(&self, time: Duration) {
        *self.passed.lock() += time;
    }
}

impl Clocks for SimulatedClocks {
    fn now(&self) -> Now {
        let passed = *self.passed.lock();
        Now {
            steady: self.start + passed,
            wall: SystemTime::UNIX_EPOCH + passed,
        }
    }
}
