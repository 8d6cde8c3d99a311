//! Collects the events of one query.
//!
//! - `events`, `runs`: the events, and how those of several runs of an operator become one
//! - `streams`, `rows`, `record_log`: what is handed over, by whom
//! - `running`: what operators did so far
//! - `limits`: what the events take
//! - `workers`: makes recorders, one for each worker
//! - `outcome`: what is left in the end

mod events;
mod limits;
mod outcome;
mod record_log;
mod rows;
mod running;
mod runs;
mod streams;
mod workers;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use datafusion::common::HashMap;
use parking_lot::Mutex;
use skewer_machine::readings::Counters;

pub(crate) use self::events::Events;
pub use self::limits::RecorderLimits;
pub use self::streams::{OpenStream, StreamRecord, UnfinishedStream};
use crate::edges::PendingEdges;
use crate::level::Level;
use crate::lineage_mode::LineageMode;
use crate::sampling::Sampling;
use crate::store::Store;
use crate::ticks::Scale;
use crate::timeline::TimelineStart;

/// Collects the events of one query on one worker. The first worker's has those of the others.
///
/// A stream keeps a buffer of its own and hands it over when it is full or at its end: that
/// takes a lock for as long as it takes to move one pointer. Nothing here is called per row.
///
/// Records that take more than a limit are handed to schema `sys` while the query runs. Events
/// beyond the limits are dropped and counted in `sys.profiler_overhead`, except the few rows that
/// describe the plan.
#[derive(Debug)]
pub struct Recorder {
    query_id: i64,
    worker_id: i64,
    level: Level,
    /// Set before the query is planned: plans say themselves what they do.
    piggyback: AtomicBool,
    /// Shared by all workers of this process.
    sampling: Arc<Sampling>,
    limits: RecorderLimits,
    memory: AtomicUsize,
    /// The most that it was.
    peak: AtomicUsize,
    /// Of `memory`, the chunks of records.
    chunks: AtomicUsize,
    /// Where chunks of records go while the query runs.
    spill: OnceLock<Weak<Store>>,
    /// Bytes of them that have gone.
    spilled: AtomicUsize,
    dropped: AtomicU64,
    overhead_ns: AtomicU64,
    given_up: Mutex<Option<String>>,
    /// Processor time at the start, at levels that read it.
    started: Option<Counters>,
    finished: AtomicBool,
    events: Mutex<Events>,
    /// The streams that have not ended, by their numbers.
    unfinished: Mutex<HashMap<u64, Arc<dyn UnfinishedStream>>>,
    /// Edges that wait for others of their kind.
    pending: Mutex<PendingEdges>,
    /// The recorders of other workers of this process.
    workers: Mutex<Vec<Arc<Recorder>>>,
    /// Held by what has something to hand over.
    streams: OpenStream,
    /// Set when it is first asked for.
    scale: OnceLock<Scale>,
    /// Where the bins of all timelines begin. Shared by all workers of this process.
    timeline_start: Arc<OnceLock<TimelineStart>>,
}

impl Recorder {
    /// Where the bins of all timelines of the query begin: when this was asked for first.
    pub fn timeline_start(&self) -> TimelineStart {
        *self.timeline_start.get_or_init(TimelineStart::now)
    }

    /// The execution of the query began at `wall_ns`, nanoseconds since 1970 by the master's clock: before anybody
    /// asks when it did.
    pub fn began_at(&self, wall_ns: i64) {
        self.timeline_start
            .get_or_init(|| TimelineStart::at_wall(wall_ns));
    }

    /// What ticks are in nanoseconds: the same for all events of the query on this worker.
    pub fn scale(&self) -> Scale {
        *self.scale.get_or_init(Scale::now)
    }

    /// The query whose events these are.
    pub fn query_id(&self) -> i64 {
        self.query_id
    }

    /// The worker that records: 0 for the one that returns the query's rows.
    pub fn worker_id(&self) -> i64 {
        self.worker_id
    }

    /// How much is recorded.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Sets how level `records` keeps what it learns, before the query is planned.
    pub fn set_lineage_mode(&self, mode: LineageMode) {
        let piggyback = mode == LineageMode::Piggyback;
        self.piggyback.store(piggyback, Ordering::Relaxed);
    }

    /// How level `records` keeps what it learns.
    pub fn lineage_mode(&self) -> LineageMode {
        match self.piggyback.load(Ordering::Relaxed) {
            true => LineageMode::Piggyback,
            false => LineageMode::Log,
        }
    }

    /// Share of base records that are traced, 0 to 1; with a budget of time it may fall.
    pub fn sample_rate(&self) -> f64 {
        self.sampling.rate()
    }

    /// Which base records are traced.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }
}
