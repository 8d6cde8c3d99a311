//! Takes over chunks of records, and hands them to schema `sys` when they are too many.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use datafusion::common::HashMap;

use super::Recorder;
use super::events::Events;
use crate::chunks::{LatencyChunk, LineageChunk, OutputChunk};
use crate::edges::{Edges, EdgesOf};
use crate::query_log::QueryLog;
use crate::sys_tables::SysTables;

impl Recorder {
    /// Takes over edges of lineage.
    ///
    /// # Panics
    /// In debug builds, if the chunk's columns differ in length.
    pub fn lineage(&self, chunk: LineageChunk) {
        debug_assert_eq!(chunk.output_ids.len(), chunk.input_ids.len());
        debug_assert_eq!(chunk.output_ids.len(), chunk.latency.len());
        let bytes = chunk.memory();
        if self.admit(chunk.len(), bytes) {
            self.keep_chunk(bytes, |events| events.lineage.push(chunk));
        }
    }

    /// Takes over edges that come a few at a time: they become a chunk with others of their kind.
    pub fn edges(&self, of: EdgesOf, edges: Edges) {
        self.reserve(edges.bytes());
        let most = self.limits.spill_bytes / 4;
        let ready = self.pending.lock().add(of, edges, most);
        self.seal(ready);
    }

    /// Makes chunks of edges that have waited for others.
    pub(super) fn seal(&self, edges: HashMap<EdgesOf, Edges>) {
        for (of, edges) in edges {
            self.memory.fetch_sub(edges.bytes(), Ordering::Relaxed);
            self.lineage(edges.into_chunk(of));
        }
    }

    /// Takes over latencies of records.
    ///
    /// # Panics
    /// In debug builds, if the chunk's columns differ in length.
    pub fn record_latency(&self, chunk: LatencyChunk) {
        debug_assert_eq!(chunk.row_ids.len(), chunk.latency.len());
        let bytes = chunk.memory();
        if self.admit(chunk.len(), bytes) {
            self.keep_chunk(bytes, |events| events.record_latency.push(chunk));
        }
    }

    /// Takes over the records of result rows.
    ///
    /// # Panics
    /// In debug builds, if the chunk's columns differ in length.
    pub fn output_records(&self, chunk: OutputChunk) {
        debug_assert_eq!(chunk.record_ids.len(), chunk.latency.len());
        let bytes = chunk.memory();
        if self.admit(chunk.len(), bytes) {
            self.keep_chunk(bytes, |events| events.output_records.push(chunk));
        }
    }

    /// From now on chunks of records that take more than the limit are handed to `sys`.
    pub fn spill_to(&self, sys: &SysTables) {
        // Of two, the first has what there is.
        let _ = self.spill.set(Arc::downgrade(sys.store()));
    }

    /// Whether chunks were handed over while the query ran.
    pub(crate) fn has_spilled(&self) -> bool {
        self.spilled.load(Ordering::Relaxed) > 0
    }

    /// Keeps a chunk of records of so many bytes, and hands all over if they are too many.
    fn keep_chunk(&self, bytes: usize, push: impl FnOnce(&mut Events)) {
        let chunks = self.chunks.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut events = self.events.lock();
        push(&mut events);
        if chunks < self.limits.spill_bytes {
            return;
        }
        let Some(store) = self.spill.get().and_then(Weak::upgrade) else {
            return;
        };
        // Written more slowly than they come, or so many that the log would forget the first of them:
        // they wait here, and count as this query's.
        let spilled = self.spilled.load(Ordering::Relaxed) as u64;
        if store.buffered_bytes() >= self.limits.memory_bytes / 2
            || spilled + chunks as u64 > store.retention().bytes / 2
        {
            return;
        }
        let spilled = events.take_chunks();
        drop(events);
        let bytes = spilled.chunk_bytes();
        self.chunks.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
        self.spilled.fetch_add(bytes, Ordering::Relaxed);
        store.push(vec![QueryLog::spilled(self, spilled, bytes)]);
    }
}
