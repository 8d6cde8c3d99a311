//! What the events of a query take, and what they may take.

use std::sync::atomic::Ordering;

use super::Recorder;
use crate::chunks::MAX_RECORDS;

/// What the events of one query may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecorderLimits {
    /// Bytes in memory after which chunks of events are dropped, and counted.
    pub memory_bytes: usize,
    /// Bytes of chunks of records after which they are handed to schema `sys`, which writes them,
    /// while the query runs.
    pub spill_bytes: usize,
    /// The share of the query's time that recording may take, above 0: fewer records are traced
    /// when it takes more. `None`: as long as it takes.
    pub time_share: Option<f64>,
}

impl Default for RecorderLimits {
    /// 64 MiB are handed over: some 12 million edges of lineage at their usual size. 1 GiB, should
    /// they not be written as fast as they come.
    fn default() -> Self {
        RecorderLimits {
            memory_bytes: 1 << 30,
            spill_bytes: 64 << 20,
            time_share: None,
        }
    }
}

impl Recorder {
    /// What the events may take.
    pub fn limits(&self) -> RecorderLimits {
        self.limits
    }

    /// Bytes that the events take.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Number of events that were dropped since the memory limit was reached.
    pub fn events_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn reserve(&self, bytes: usize) -> usize {
        let memory = self.memory.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(memory, Ordering::Relaxed);
        memory
    }

    /// Whether there is room for `events` events of together `bytes` bytes, at most as many as a
    /// chunk may have. If so they are
    /// counted as memory, if not as dropped.
    pub(super) fn admit(&self, events: usize, bytes: usize) -> bool {
        if events == 0 {
            return false;
        }
        let room = self.reserve(bytes) <= self.limits.memory_bytes;
        if !room || events > MAX_RECORDS {
            self.memory.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(events as u64, Ordering::Relaxed);
            return false;
        }
        true
    }
}
