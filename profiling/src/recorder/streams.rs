//! Streams of operators: which have not ended, and what those did that have.

use std::sync::Arc;

use super::Recorder;
use crate::tables::{OperatorMetric, OperatorStats, TaskStats};
use crate::ticks::Scale;
use crate::timeline::RecordedTimeline;

/// Held for as long as a stream of an operator may hand something over.
#[derive(Debug, Clone, Default)]
pub struct OpenStream(Arc<()>);

/// A stream of an operator that has not ended, of which others may ask what it did so far.
pub trait UnfinishedStream: std::fmt::Debug + Send + Sync {
    /// What it did in its calls, with the part of the call under way that is over.
    fn so_far(&self, scale: Scale) -> StreamRecord;

    /// Of that the totals.
    fn stats_so_far(&self, scale: Scale) -> OperatorStats;
}

/// What a stream of an operator did.
#[derive(Debug, Clone)]
pub struct StreamRecord {
    /// The totals of its calls.
    pub stats: OperatorStats,
    /// When it worked.
    pub timeline: Option<RecordedTimeline>,
    /// What its task did, if the operator is the topmost one of the task.
    pub task: Option<TaskStats>,
}

impl From<OperatorStats> for StreamRecord {
    fn from(stats: OperatorStats) -> Self {
        Self {
            stats,
            timeline: None,
            task: None,
        }
    }
}

impl Recorder {
    /// A stream begins that will hand something over.
    pub fn open_stream(&self) -> OpenStream {
        self.streams.clone()
    }

    /// How many streams may still have something to hand over. Plans hold recorders, too, and may
    /// be kept for longer than they run.
    pub fn open_streams(&self) -> usize {
        Arc::strong_count(&self.streams.0) - 1
    }

    /// A stream with a number begins. Its totals count even if it has not ended when the query does.
    pub fn stream_began(&self, number: u64, stream: Arc<dyn UnfinishedStream>) {
        self.unfinished.lock().insert(number, stream);
    }

    /// A stream has ended, and did this. It is not recorded if the query has ended before.
    pub fn stream_ended(&self, number: u64, record: StreamRecord) {
        let mut unfinished = self.unfinished.lock();
        if unfinished.remove(&number).is_some() {
            self.stream(record);
        }
    }

    /// Records the totals of one operator and partition at the end of its stream. A recursive query
    /// runs its operators once in each iteration: what they did then adds up.
    pub fn operator_stats(&self, stats: OperatorStats) {
        self.stream(stats.into());
    }

    /// Records all that a stream of an operator did.
    pub fn stream(&self, record: StreamRecord) {
        let bytes = self.events.lock().add_stream(record);
        self.reserve(bytes);
    }

    /// Adds to the totals of a fragment's operator and partition what memory it took and what it
    /// spilled.
    pub fn operator_memory(&self, place: (i64, i64, i64), peak_bytes: i64, spilled_bytes: i64) {
        let events = &mut *self.events.lock();
        if let Some(place) = events.tasks.get(&place)
            && let Some(stats) = events.operator_stats.get_mut(*place)
        {
            stats.peak_memory_bytes = stats.peak_memory_bytes.max(peak_bytes);
            stats.spilled_bytes += spilled_bytes;
        }
    }

    /// Adds what operators counted themselves to what they counted before; `sum` tells how.
    pub fn operator_metrics(&self, metrics: Vec<OperatorMetric>, sum: fn(i64, i64) -> i64) {
        let mut events = self.events.lock();
        let bytes = metrics
            .into_iter()
            .map(|metric| events.add_metric(metric, sum))
            .sum();
        drop(events);
        self.reserve(bytes);
    }
}
