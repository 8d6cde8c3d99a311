//! The thread that reads the metrics of the node: once a second, and ten times while queries run.
//!
//! One thread serves all databases of the process. It ends when the last one that asked for it does.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::history::{History, Point};
use crate::readings::{Counters, Readings};

/// Time between two readings while no query runs.
const IDLE: Duration = Duration::from_secs(1);

/// Time between two readings while queries run.
const BUSY: Duration = Duration::from_millis(100);

static STATE: Mutex<State> = Mutex::new(State {
    users: 0,
    queries: 0,
    thread: false,
    history: History::new(),
});

/// Wakes the thread when there is more, or nothing any more, to do.
static CHANGED: Condvar = Condvar::new();

#[derive(Debug)]
struct State {
    users: usize,
    queries: usize,
    thread: bool,
    history: History,
}

/// Metrics are read while this lives.
#[derive(Debug)]
pub struct Sampling(());

impl Sampling {
    /// Reads from now on.
    pub fn start() -> Self {
        let mut state = STATE.lock();
        state.users += 1;
        if !state.thread {
            let thread = std::thread::Builder::new().name("skewer-sampler".to_owned());
            state.thread = thread.spawn(run).is_ok();
        }
        Self(())
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        STATE.lock().users -= 1;
        CHANGED.notify_all();
    }
}

/// Metrics are read ten times a second while this lives.
#[derive(Debug)]
pub struct Busy(());

impl Busy {
    /// A query begins.
    pub fn begin() -> Self {
        let mut state = STATE.lock();
        state.queries += 1;
        if state.queries == 1 {
            CHANGED.notify_all();
        }
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        STATE.lock().queries -= 1;
    }
}

/// Everything that was read in this process and is kept, from the oldest.
pub fn points() -> Vec<Point> {
    STATE.lock().history.points()
}

/// The newest readings; `None` before the first.
pub fn latest() -> Option<Readings> {
    STATE.lock().history.latest()
}

fn run() {
    let mut before = Counters::now();
    let mut read_at = Instant::now();
    loop {
        {
            let mut state = STATE.lock();
            loop {
                if state.users == 0 {
                    state.thread = false;
                    return;
                }
                let interval = if state.queries > 0 { BUSY } else { IDLE };
                let Some(left) = interval.checked_sub(read_at.elapsed()) else {
                    break;
                };
                // Woken early it looks again how long to wait.
                let _ = CHANGED.wait_for(&mut state, left.max(Duration::from_millis(1)));
            }
        }
        let now = Counters::now();
        let readings = now.since(&before);
        let length = read_at.elapsed();
        read_at = Instant::now();
        before = now;
        STATE
            .lock()
            .history
            .add(SystemTime::now(), length, readings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn readings_come_while_somebody_wants_them() {
        let sampling = Sampling::start();
        let busy = Busy::begin();
        let started = Instant::now();
        while latest().is_none() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "no reading in 20 s"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(latest().unwrap().get(Metric::EffectiveCores).is_some());
        assert!(!points().is_empty());
        drop(busy);
        drop(sampling);
        while STATE.lock().thread {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "the thread did not end in 20 s"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
