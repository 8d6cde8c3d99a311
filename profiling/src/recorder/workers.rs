//! Makes recorders: one for each worker that takes part in a query.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use skewer_machine::readings::Counters;

use super::{OpenStream, Recorder, RecorderLimits};
use crate::level::Level;
use crate::metrics;
use crate::sampling::Sampling;

/// The worker that plans a query and returns its rows; the only one of most embedded databases.
const FIRST_WORKER: i64 = 0;

impl Recorder {
    /// A recorder for the query, at a level. `sample_rate` is the share of base records that
    /// are traced, 0 to 1.
    pub fn new(
        query_id: i64,
        level: Level,
        sample_rate: f64,
        limits: RecorderLimits,
    ) -> Arc<Recorder> {
        Self::on_worker(FIRST_WORKER, query_id, level, sample_rate, limits)
    }

    /// A recorder for the part of the query that worker `worker_id` runs in a process of its own.
    pub fn on_worker(
        worker_id: i64,
        query_id: i64,
        level: Level,
        sample_rate: f64,
        limits: RecorderLimits,
    ) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder {
            query_id,
            worker_id,
            level,
            piggyback: AtomicBool::new(false),
            sampling: Arc::new(Sampling::new(sample_rate, limits.time_share)),
            limits,
            memory: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            spill: OnceLock::new(),
            spilled: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            overhead_ns: AtomicU64::new(0),
            given_up: Mutex::default(),
            started: (level > Level::Off).then(Counters::recent),
            finished: AtomicBool::new(false),
            events: Mutex::default(),
            unfinished: Mutex::default(),
            pending: Mutex::default(),
            workers: Mutex::default(),
            streams: OpenStream::default(),
            scale: OnceLock::new(),
            timeline_start: Arc::default(),
        });
        if level > Level::Off {
            metrics::watch(&recorder);
        }
        recorder
    }

    /// The recorder of a worker that runs tasks of the same query in this process: always the
    /// same for a number, and this one for its own. What it collects becomes readable together
    /// with the rest of the query.
    pub fn of_worker(self: &Arc<Self>, worker_id: i64) -> Arc<Recorder> {
        if worker_id == self.worker_id {
            return Arc::clone(self);
        }
        let mut workers = self.workers.lock();
        if let Some(worker) = workers.iter().find(|w| w.worker_id == worker_id) {
            return Arc::clone(worker);
        }
        let worker = Arc::new(Recorder {
            query_id: self.query_id,
            worker_id,
            level: self.level,
            piggyback: AtomicBool::new(self.piggyback.load(Ordering::Relaxed)),
            sampling: Arc::clone(&self.sampling),
            limits: self.limits,
            memory: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            spill: self.spill.clone(),
            spilled: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            overhead_ns: AtomicU64::new(0),
            given_up: Mutex::default(),
            // Readings of the process are told once.
            started: None,
            finished: AtomicBool::new(false),
            events: Mutex::default(),
            unfinished: Mutex::default(),
            pending: Mutex::default(),
            workers: Mutex::default(),
            streams: OpenStream::default(),
            scale: OnceLock::new(),
            timeline_start: Arc::clone(&self.timeline_start),
        });
        workers.push(Arc::clone(&worker));
        worker
    }

    /// How many hold this recorder, or one of its workers', besides the caller: operators that
    /// may still have something to hand over.
    pub fn holders(self: &Arc<Self>) -> usize {
        let workers = self.workers.lock();
        let of_workers = workers.iter().map(|w| Arc::strong_count(w) - 1);
        Arc::strong_count(self) - 1 + of_workers.sum::<usize>()
    }

    /// The recorders of the other workers.
    pub(crate) fn workers(&self) -> Vec<Arc<Recorder>> {
        self.workers.lock().clone()
    }
}
