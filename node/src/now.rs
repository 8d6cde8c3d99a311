//! What the clocks show, for logic that has to be told.

use std::fmt;
use std::time::{Instant, SystemTime};

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

/// The system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClocks;

impl Clocks for SystemClocks {
    fn now(&self) -> Now {
        Now {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}

/// Clocks that stand unless they are set.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct Still(parking_lot::Mutex<Instant>);

#[cfg(test)]
impl Still {
    pub(super) fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(parking_lot::Mutex::new(Instant::now())))
    }

    pub(super) fn go_on(&self, time: std::time::Duration) {
        *self.0.lock() += time;
    }
}

#[cfg(test)]
impl Clocks for Still {
    fn now(&self) -> Now {
        Now {
            steady: *self.0.lock(),
            wall: SystemTime::UNIX_EPOCH,
        }
    }
}
