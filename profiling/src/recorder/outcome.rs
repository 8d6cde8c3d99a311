//! What a query leaves behind: its events, and what recording them cost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Recorder;
use super::events::Events;
use crate::definition::Origin;
use crate::level::Level;
use crate::metrics;
use crate::tables::ProfilerOverhead;

impl Recorder {
    /// Adds to the time that was spent on recording itself.
    pub fn overhead(&self, spent: Duration) {
        let ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.overhead_ns.fetch_add(ns, Ordering::Relaxed);
        self.sampling.spend(spent);
    }

    /// The plan lacks these shortcuts, since every row has to be seen.
    pub fn set_disabled_optimizations(&self, shortcuts: &[&str]) {
        *self.given_up.lock() = Some(shortcuts.join(", ")).filter(|all| !all.is_empty());
    }

    /// What the rows of this query have in common.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            query_id: self.query_id,
            worker_id: self.worker_id(),
            profile_level: self.level.name().to_owned(),
            sample_rate: self.sample_rate(),
            lineage: (self.level == Level::Records).then(|| self.lineage_mode().name().to_owned()),
        }
    }

    /// What recording cost so far.
    pub(crate) fn cost(&self) -> ProfilerOverhead {
        ProfilerOverhead {
            time_ns: as_i64(self.overhead_ns.load(Ordering::Relaxed)),
            peak_memory_bytes: as_i64(self.peak.load(Ordering::Relaxed) as u64),
            bytes_written: 0,
            events_dropped: as_i64(self.events_dropped()),
            sample_rate: Some(self.sample_rate()),
            given_up: self.given_up.lock().clone(),
        }
    }

    /// Whether the events have been taken out.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// Takes all events out; the memory stays counted.
    pub(crate) fn take(&self) -> Events {
        if let Some(started) = self.started
            && !self.finished.swap(true, Ordering::Relaxed)
        {
            metrics::finish(self, started);
        }
        let mut unfinished = self.unfinished.lock();
        for (_, stream) in unfinished.drain() {
            self.stream(stream.so_far(self.scale()));
        }
        drop(unfinished);
        let pending = self.pending.lock().take();
        self.seal(pending);
        let mut events = std::mem::take(&mut *self.events.lock());
        events.add_up();
        events
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
