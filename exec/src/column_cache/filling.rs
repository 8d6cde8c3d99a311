//! Filling an entry with what a scan decodes anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::DataType;

use super::clock::Entry;
use super::{CachedSegment, ColumnCache, Decoded, Key};

/// A chunk of more bytes is not kept: wide values are read in batches of few rows, which would refer to all of
/// the chunk.
const MAX_CHUNK_BYTES: usize = 2 << 20;

/// The right to fill an entry, which nobody else has. Dropped before it is finished, the entry stays missing.
#[derive(Debug)]
pub(crate) struct Filling {
    cache: Arc<ColumnCache>,
    key: Key,
    segment: CachedSegment,
    column: Arc<str>,
    estimate: usize,
    /// Whether its memory is needed for something else.
    is_given_up: Arc<AtomicBool>,
    chunks: Vec<ArrayRef>,
}

impl Filling {
    pub(super) fn new(
        cache: Arc<ColumnCache>,
        key: Key,
        segment: CachedSegment,
        column: &str,
        estimate: usize,
        is_given_up: Arc<AtomicBool>,
    ) -> Self {
        Self {
            cache,
            key,
            segment,
            column: column.into(),
            estimate,
            is_given_up,
            chunks: Vec::new(),
        }
    }

    /// Adds the next chunk. `false` if the entry will not be: the right is best dropped.
    pub(crate) fn add(&mut self, chunk: &ArrayRef) -> bool {
        if self.is_given_up.load(Ordering::Relaxed) || own_bytes(chunk) > MAX_CHUNK_BYTES {
            return false;
        }
        self.chunks.push(Arc::clone(chunk));
        true
    }

    /// Makes an entry of the chunks, which are all of the column's `rows` rows, if there is room.
    pub(crate) fn finish(mut self, rows: usize) {
        let Some(decoded) = Decoded::new(std::mem::take(&mut self.chunks), rows) else {
            return;
        };
        let bytes = decoded.bytes();
        let segment = &self.segment.0;
        let of_table = (segment.table_id, Arc::clone(&segment.table));
        let entry = Entry::new(decoded, of_table, Arc::clone(&self.column));
        let cache = Arc::clone(&self.cache);
        let mut state = cache.state.lock();
        let most = cache.size_of(&state);
        let more = bytes.saturating_sub(self.estimate);
        // The pool's lock may be taken under this one: nobody who has it waits for this.
        let fits = !self.is_given_up.load(Ordering::Relaxed)
            && state.clock.held() + more <= most
            && (more == 0 || cache.reservation.try_grow(more).is_ok());
        if !fits {
            // The lock is free before what was decoded is dropped.
            drop(state);
            return;
        }
        state.clock.end(self.key);
        state.clock.insert(self.key, entry);
        cache
            .reservation
            .shrink(self.estimate.saturating_sub(bytes));
        drop(state);
        // Nothing is left to give back.
        self.estimate = 0;
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if self.estimate == 0 {
            return;
        }
        let mut state = self.cache.state.lock();
        state.clock.end(self.key);
        self.cache.reservation.shrink(self.estimate);
    }
}

/// What a copy of a chunk would take at most; of texts that repeat, what they take.
fn own_bytes(chunk: &ArrayRef) -> usize {
    let (buffers, used) = match chunk.data_type() {
        DataType::Utf8View => {
            let texts = chunk.as_string_view();
            (texts.data_buffers(), texts.total_buffer_bytes_used())
        }
        DataType::BinaryView => {
            let values = chunk.as_binary_view();
            (values.data_buffers(), values.total_buffer_bytes_used())
        }
        _ => (&[][..], 0),
    };
    let there: usize = buffers.iter().map(Buffer::capacity).sum();
    let fixed = chunk.to_data().get_slice_memory_size();
    fixed.unwrap_or_else(|_| chunk.get_array_memory_size()) + used.min(there)
}
