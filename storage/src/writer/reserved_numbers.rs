//! Numbers for new segments, and ids for their rows, from where they are given out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::Int64Array;

use crate::distributed_write::ReserveRowIds;
use crate::{Result, StorageError};

/// Row ids that a writer asks for at once where asking takes long: first so many, later more.
const ROW_ID_BLOCKS: Range<u64> = 1 << 13..1 << 17;

/// Where numbers of segments come from.
#[derive(Debug)]
pub(crate) enum SegmentIds {
    /// All writers of the process take from it.
    Shared(Arc<AtomicU64>),
    /// One writer's own.
    Block(Range<u64>),
}

impl SegmentIds {
    pub(super) fn next(&mut self) -> Result<u64> {
        match self {
            Self::Shared(next) => Ok(next.fetch_add(1, Ordering::Relaxed)),
            Self::Block(block) => block.next().ok_or_else(|| {
                StorageError::invalid("one statement writes more segments than have numbers")
            }),
        }
    }
}

/// Row ids for one writer: reserved by the block where they are kept far away, but for the first
/// rows, so that small statements leave no gaps.
#[derive(Debug)]
pub struct RowIds {
    from: Arc<dyn ReserveRowIds>,
    /// Those that are reserved.
    spare: Range<i64>,
    /// How many to reserve next, at least.
    block: u64,
}

impl RowIds {
    /// Ids that `from` reserves.
    pub fn new(from: Arc<dyn ReserveRowIds>) -> Self {
        Self {
            from,
            spare: 0..0,
            block: 0,
        }
    }

    /// Ids for so many rows, ascending.
    ///
    /// # Errors
    /// If none can be reserved: the node that gives them out is not reached.
    pub async fn next(&mut self, rows: u64) -> Result<Int64Array> {
        if !self.from.is_far() {
            let first = self.from.reserve(rows).await?;
            return Ok(Int64Array::from_iter_values(
                first..first + rows.cast_signed(),
            ));
        }
        let mut ids = Vec::with_capacity(rows as usize);
        loop {
            ids.extend(self.spare.by_ref().take(rows as usize - ids.len()));
            let missing = rows - ids.len() as u64;
            if missing == 0 {
                return Ok(Int64Array::from(ids));
            }
            let block = self.block.max(missing);
            let first = self.from.reserve(block).await?;
            self.spare = first..first + block.cast_signed();
            self.block = (self.block * 2).clamp(ROW_ID_BLOCKS.start, ROW_ID_BLOCKS.end);
        }
    }
}
