//! Readings of the machine for queries: once a second while a query runs, and once at its end.
//!
//! One thread serves all queries of the process: it reads once and tells every recorder that is alive.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use skewer_machine::readings::Counters;
use skewer_machine::sampler::Busy;

use crate::recorder::Recorder;
use crate::tables::WorkerMetric;
use crate::ticks::nanos_since_epoch;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Recorders of running queries.
static RUNNING: Mutex<Running> = Mutex::new(Running {
    recorders: Vec::new(),
    thread: false,
});

struct Running {
    recorders: Vec<Weak<Recorder>>,
    /// Whether the thread runs; it ends when there is nothing to do.
    thread: bool,
}

/// Rows of `sys.worker_metrics` for the time between two looks at the counters.
fn rows(before: &Counters, after: &Counters) -> Vec<WorkerMetric> {
    let at = nanos_since_epoch(SystemTime::now());
    let readings = after.since(before);
    let readings = readings.present();
    readings
        .map(|(metric, value)| WorkerMetric {
            at,
            metric: metric.name().to_owned(),
            value,
        })
        .collect()
}

/// Reads once a second for a recorder until it is dropped.
pub(crate) fn watch(recorder: &Arc<Recorder>) {
    let mut running = RUNNING.lock();
    running.recorders.push(Arc::downgrade(recorder));
    if !running.thread {
        let thread = std::thread::Builder::new().name("skewer-metrics".to_owned());
        running.thread = thread.spawn(run).is_ok();
    }
}

/// The last reading of a query, over its whole time.
pub(crate) fn finish(recorder: &Recorder, started: Counters) {
    for reading in rows(&started, &Counters::recent()) {
        recorder.worker_metric(reading);
    }
}

fn run() {
    let _busy = Busy::begin();
    let mut before = Counters::recent();
    loop {
        std::thread::sleep(INTERVAL);
        let alive: Vec<Arc<Recorder>> = {
            let mut running = RUNNING.lock();
            running
                .recorders
                .retain(|recorder| recorder.strong_count() > 0);
            if running.recorders.is_empty() {
                running.thread = false;
                return;
            }
            running.recorders.iter().filter_map(Weak::upgrade).collect()
        };
        let after = Counters::recent();
        let readings = rows(&before, &after);
        before = after;
        for recorder in alive.iter().filter(|recorder| !recorder.is_finished()) {
            for reading in &readings {
                recorder.worker_metric(reading.clone());
            }
        }
    }
}
