//! Small segments merged into larger ones.
//!
//! Size-tiered: a segment of up to 8ⁿ rows is in tier n; eight segments in one tier are merged,
//! together with everything in lower tiers. So each row is rewritten once per tier, about seven
//! times on its way from single-row inserts to a full segment.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;

use crate::distributed_write::WriteSpec;
use crate::placement::{MASTER, Shard};
use crate::snapshot::{SegmentMeta, TableId, TableMeta};
use crate::storage::Storage;
use crate::{Result, StorageError};

/// Segments of a tier that are worth a merge, and the factor between tiers.
const FAN_IN: u64 = 8;

impl Storage {
    /// Merges small segments of a table that are here if there are enough of them; row ids stay as
    /// they are. Those of other nodes are [theirs](TableMeta::worth_merging) to merge.
    /// Returns whether anything changed: call again while it does. A table that is gone, or that
    /// changes meanwhile, is left alone.
    ///
    /// Statements that delete or update rows of the merged segments at the same time get
    /// [`StorageError::Conflict`] and have to be run again.
    pub async fn compact(&self, table: TableId) -> Result<bool> {
        let Some(table) = self.snapshot().table_by_id(table) else {
            return Ok(false);
        };
        let chosen = table.worth_merging(|owner| owner == MASTER, self.segment_rows());
        // Those of one shard at a time: their segment says it of all of its rows.
        let Some(first) = chosen.first() else {
            return Ok(false);
        };
        let shard = first.shard;
        let chosen: Vec<_> = chosen.iter().filter(|s| s.shard == shard).collect();
        let writer = self.writer_of(&WriteSpec {
            table: table.id,
            columns: Arc::clone(&table.schema),
            row_ids: Arc::clone(&table.next_row_id) as _,
            segment_ids: None,
            shard,
        });
        let mut writer = writer.in_order_of_ids();
        for segment in &chosen {
            let mut batches = self.read_segment(&table, segment).await?;
            while let Some(batch) = batches.try_next().await? {
                writer.write_with_ids(&batch).await?;
            }
        }
        let added = writer.finish().await?;
        let removed: Vec<u64> = chosen.iter().map(|segment| segment.id).collect();
        let mut transaction = self.begin();
        let replaced = transaction
            .replace_segments(table.id, &removed, added)
            .and_then(|()| transaction.commit());
        match replaced {
            Ok(_) => Ok(true),
            Err(StorageError::Conflict { .. } | StorageError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl TableMeta {
    /// Small segments that are worth being merged with those of the same owner and shard, of the
    /// owners that `can_merge`: of each in the order of their row ids.
    pub fn worth_merging(
        &self,
        can_merge: impl Fn(u32) -> bool,
        full: u64,
    ) -> Vec<Arc<SegmentMeta>> {
        let mut places: BTreeMap<(u32, Option<Shard>), Vec<Arc<SegmentMeta>>> = BTreeMap::new();
        for segment in self.segments.iter().filter(|s| can_merge(s.owner)) {
            let place = (segment.owner, segment.shard);
            places.entry(place).or_default().push(Arc::clone(segment));
        }
        let chosen = places.into_values().map(|segments| choose(&segments, full));
        chosen.flatten().collect()
    }
}

/// Segments to merge, in order of their row ids; none if there is too little to gain.
fn choose(segments: &[Arc<SegmentMeta>], full: u64) -> Vec<Arc<SegmentMeta>> {
    let mut limit = 1;
    let mut below = 0;
    while below < full {
        let in_tier = |segment: &&Arc<SegmentMeta>| {
            segment.rows > below && segment.rows <= limit && segment.rows < full
        };
        if segments.iter().filter(in_tier).count() as u64 >= FAN_IN {
            let mut chosen: Vec<_> = segments
                .iter()
                .filter(|segment| segment.rows <= limit && segment.rows < full)
                .cloned()
                .collect();
            chosen.sort_by_key(|segment| segment.min_row_id);
            return chosen;
        }
        (below, limit) = (limit, limit.saturating_mul(FAN_IN));
    }
    Vec::new()
}
