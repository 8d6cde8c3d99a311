//! A decoded column of a row group, and the memory that it takes.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryViewArray, StringViewArray,
};
use datafusion::arrow::datatypes::DataType;

/// Rows of a chunk: a page of a segment, and a batch by default. Each chunk has memory of its own, so that who
/// keeps a batch keeps, and counts, no more than that.
pub(crate) const CHUNK_ROWS: usize = 1 << 13;

/// Beyond so many bytes that nobody refers to, texts are copied out of the pages that they were read from.
const WASTE: usize = 1 << 16;

/// A column of a row group.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// Of [`CHUNK_ROWS`] rows each, but for the last.
    chunks: Vec<ArrayRef>,
    bytes: usize,
}

impl Decoded {
    /// The column in these chunks, without memory that they hold in vain. `None` if some chunk has not as many
    /// rows as it should.
    pub(super) fn new(mut chunks: Vec<ArrayRef>, rows: usize) -> Option<Self> {
        let expected = (0..rows).step_by(CHUNK_ROWS);
        let expected = expected.map(|begin| CHUNK_ROWS.min(rows - begin));
        if !chunks.iter().map(|chunk| chunk.len()).eq(expected) {
            return None;
        }
        let mut bytes = bytes(&chunks);
        if compact(&mut chunks) {
            bytes = self::bytes(&chunks);
        }
        Some(Self { chunks, bytes })
    }

    /// Bytes of memory; what several chunks refer to counts once.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The chunk that begins at a row.
    pub(crate) fn chunk_at(&self, row: usize) -> Option<&ArrayRef> {
        self.chunks.get(row / CHUNK_ROWS)
    }

    pub(super) fn is_of(&self, data_type: &DataType) -> bool {
        let first = self.chunks.first();
        first.is_none_or(|chunk| chunk.data_type() == data_type)
    }
}

/// Bytes of the allocations behind `chunks`; each counts once.
pub(super) fn bytes(chunks: &[ArrayRef]) -> usize {
    let mut counted = HashSet::new();
    let each = chunks.iter();
    each.map(|chunk| size_of::<ArrayData>() + allocated(&chunk.to_data(), &mut counted))
        .sum()
}

fn allocated(data: &ArrayData, counted: &mut HashSet<usize>) -> usize {
    let validity = data.nulls().map(|nulls| nulls.buffer());
    let mut bytes = 0;
    for buffer in data.buffers().iter().chain(validity) {
        if counted.insert(buffer.data_ptr().as_ptr() as usize) {
            bytes += buffer.capacity();
        }
    }
    let children = data.child_data().iter();
    bytes
        + children
            .map(|child| allocated(child, counted))
            .sum::<usize>()
}

/// Copies texts out of pages that hardly anybody refers to: short texts are in their views.
/// A dictionary that many refer to stays.
fn compact(chunks: &mut [ArrayRef]) -> bool {
    let mut counted = HashSet::new();
    let (mut pages, mut used) = (0, 0);
    for chunk in &*chunks {
        let (buffers, of_chunk) = match chunk.data_type() {
            DataType::Utf8View => {
                let texts = chunk.as_string_view();
                (texts.data_buffers(), texts.total_buffer_bytes_used())
            }
            DataType::BinaryView => {
                let values = chunk.as_binary_view();
                (values.data_buffers(), values.total_buffer_bytes_used())
            }
            _ => return false,
        };
        used += of_chunk;
        for buffer in buffers {
            if counted.insert(buffer.data_ptr().as_ptr() as usize) {
                pages += buffer.capacity();
            }
        }
    }
    if pages <= 2 * used + WASTE {
        return false;
    }
    for chunk in chunks {
        *chunk = match chunk.data_type() {
            DataType::Utf8View => {
                let texts: &StringViewArray = chunk.as_string_view();
                Arc::new(texts.gc())
            }
            _ => {
                let values: &BinaryViewArray = chunk.as_binary_view();
                Arc::new(values.gc())
            }
        };
    }
    true
}
