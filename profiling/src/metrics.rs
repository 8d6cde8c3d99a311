//! Readings of the process, once a second while a query runs and once at its end.
//!
//! One thread serves all queries of the process: it reads `/proc/self` once and tells every
//! recorder that is alive. Where there is no `/proc` there are no readings.

use std::fs;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::recorder::Recorder;
use crate::tables::WorkerMetric;
use crate::ticks::nanos_since_epoch;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Ticks of the processor times in `/proc/self/stat` per second: Linux has told programs 100,
/// whatever the kernel uses inside, for as long as the file has existed.
const TICKS_PER_SECOND: f64 = 100.0;

/// Bytes of a page in `/proc/self/statm`: of all 64-bit targets that Skewer is built for.
const PAGE_BYTES: f64 = 4096.0;

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

/// A reading of this age is as good as a new one: what it shows is shown once a second, and
/// processor time is counted in hundredths of a second anyway. A reading takes as long as a hundredth
/// of the shortest queries, of which there may be many in this time.
const FRESH: Duration = Duration::from_millis(100);

/// The last reading, of whichever query.
static LAST: Mutex<Option<Baseline>> = Mutex::new(None);

/// Processor time and memory of the process at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Baseline {
    at: Instant,
    cpu_seconds: Option<f64>,
    rss_bytes: Option<f64>,
}

impl Baseline {
    /// A reading that is not older than [`FRESH`].
    pub(crate) fn now() -> Baseline {
        let mut last = LAST.lock();
        match *last {
            Some(fresh) if fresh.at.elapsed() < FRESH => fresh,
            _ => *last.insert(Baseline {
                at: Instant::now(),
                cpu_seconds: cpu_seconds(),
                rss_bytes: rss_bytes(),
            }),
        }
    }

    /// Readings since the baseline, and the next baseline.
    fn read(self) -> (Vec<WorkerMetric>, Baseline) {
        let next = Baseline::now();
        let at = nanos_since_epoch(SystemTime::now());
        let mut readings = Vec::with_capacity(2);
        let mut add = |metric: &str, value: f64| {
            readings.push(WorkerMetric {
                at,
                metric: metric.to_owned(),
                value,
            });
        };
        if let Some(bytes) = next.rss_bytes {
            add("rss_bytes", bytes);
        }
        let elapsed = next.at.duration_since(self.at).as_secs_f64();
        // Processor time is counted in hundredths of a second: below a tenth it says nothing.
        if let (Some(before), Some(after), true) =
            (self.cpu_seconds, next.cpu_seconds, elapsed >= 0.1)
        {
            add("cpu_share", (after - before) / elapsed);
        }
        (readings, next)
    }
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
pub(crate) fn finish(recorder: &Recorder, started: Baseline) {
    for reading in started.read().0 {
        recorder.worker_metric(reading);
    }
}

fn run() {
    let mut baseline = Baseline::now();
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
        let (readings, next) = baseline.read();
        baseline = next;
        for recorder in alive.iter().filter(|recorder| !recorder.is_finished()) {
            for reading in &readings {
                recorder.worker_metric(reading.clone());
            }
        }
    }
}

/// Memory of the process.
fn rss_bytes() -> Option<f64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

/// Processor time that the process has used, in user and kernel mode.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the process may contain spaces; it ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let kernel: f64 = fields.next()?.parse().ok()?;
    Some((user + kernel) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_busy_process_shows_memory_and_processor_time() {
        let before = Baseline::now();
        let mut sum = 0_u64;
        while before.at.elapsed() < Duration::from_millis(400) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let (readings, _) = before.read();
        let value = |metric: &str| {
            let reading = readings.iter().find(|reading| reading.metric == metric);
            reading.map(|reading| reading.value).unwrap()
        };
        assert!(value("rss_bytes") > 1e6);
        assert!(value("cpu_share") > 0.1 && value("cpu_share") < 1e3);
    }
}
