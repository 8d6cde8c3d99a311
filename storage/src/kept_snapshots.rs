//! What queries saw, kept for a while: `EXPLAIN PROFILE QUERY n` runs on the rows of then.
//!
//! A snapshot keeps its segments' files. Those that statements have replaced since would be gone
//! otherwise, so what they take is limited (`profile.snapshot_bytes`).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Snapshot;

/// What replaced segments may take by default.
pub const DEFAULT_LIMIT: u64 = 256 << 20;

/// Versions of the database that are kept: every commit looks through them.
const VERSIONS: usize = 16;

/// Queries of one version that are known, the latest ones.
const QUERIES: usize = 4096;

/// The snapshots that the latest queries saw.
#[derive(Debug)]
pub struct KeptSnapshots(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    limit: u64,
    /// Oldest first.
    versions: VecDeque<Version>,
}

#[derive(Debug)]
struct Version {
    snapshot: Arc<Snapshot>,
    /// Of all of its segments.
    bytes: u64,
    queries: VecDeque<i64>,
}

impl Default for KeptSnapshots {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            limit: DEFAULT_LIMIT,
            versions: VecDeque::new(),
        }))
    }
}

impl KeptSnapshots {
    /// Query `query_id` reads `snapshot`; the database is at `now`.
    pub fn keep(&self, query_id: i64, snapshot: &Arc<Snapshot>, now: &Snapshot) {
        let mut kept = self.0.lock();
        if kept.limit == 0 {
            return;
        }
        let version = snapshot.version();
        let place = kept
            .versions
            .partition_point(|kept| kept.snapshot.version() < version);
        match kept.versions.get_mut(place) {
            Some(same) if same.snapshot.version() == version => {
                if same.queries.len() == QUERIES {
                    same.queries.pop_front();
                }
                same.queries.push_back(query_id);
            }
            _ => {
                let new = Version {
                    bytes: snapshot.bytes(),
                    snapshot: Arc::clone(snapshot),
                    queries: [query_id].into(),
                };
                kept.versions.insert(place, new);
            }
        }
        let too_many = kept.versions.len().saturating_sub(VERSIONS);
        let forgotten: Vec<Version> = kept.versions.drain(..too_many).collect();
        drop(kept);
        // Files are removed with it.
        drop(forgotten);
        if version < now.version() {
            self.trim(now);
        }
    }

    /// What query `query_id` saw, if that is still kept.
    pub fn of_query(&self, query_id: i64) -> Option<Arc<Snapshot>> {
        let kept = self.0.lock();
        let version = kept
            .versions
            .iter()
            .find(|version| version.queries.contains(&query_id))?;
        Some(Arc::clone(&version.snapshot))
    }

    /// What replaced segments may take, in bytes.
    pub fn limit(&self) -> u64 {
        self.0.lock().limit
    }

    /// Changes that; 0 keeps nothing.
    pub fn set_limit(&self, bytes: u64, now: &Snapshot) {
        self.0.lock().limit = bytes;
        self.trim(now);
    }

    /// Forgets the oldest versions until segments that `now` does not have any more are within the
    /// limit.
    pub fn trim(&self, now: &Snapshot) {
        let mut kept = self.0.lock();
        let mut counted = HashSet::new();
        let mut bytes: u64 = 0;
        let limit = kept.limit;
        let at_most: u64 = kept.versions.iter().map(|version| version.bytes).sum();
        if at_most <= limit && limit > 0 {
            // Small databases need not be compared segment by segment at each commit.
            return;
        }
        // Versions share segments: from the newest on, each adds what the later ones do not have.
        let too_old = kept.versions.iter().rposition(|version| {
            for segment in version.snapshot.segments_not_in(now) {
                if counted.insert((segment.owner, segment.id)) {
                    bytes += segment.bytes;
                }
            }
            bytes > limit || limit == 0
        });
        let forgotten: Vec<Version> = match too_old {
            Some(newest) => kept.versions.drain(..=newest).collect(),
            None => Vec::new(),
        };
        drop(kept);
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use crate::{DEFAULT_SCHEMA, Storage};

    /// A database with an empty table `t` that has a column `a`.
    fn storage() -> Storage {
        let storage = Storage::in_memory().unwrap();
        let columns = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let mut transaction = storage.begin();
        transaction
            .create_table(DEFAULT_SCHEMA, "t", columns, false)
            .unwrap();
        transaction.commit().unwrap();
        storage
    }

    /// Commits a segment with a row of `t`, in place of the segments `replaced`.
    async fn commit_row(storage: &Storage, value: i64, replaced: &[u64]) -> Arc<Snapshot> {
        let table = storage.snapshot().table(DEFAULT_SCHEMA, "t").unwrap();
        let column = Arc::new(Int64Array::from(vec![value]));
        let batch = RecordBatch::try_new(Arc::clone(&table.schema), vec![column]).unwrap();
        let mut writer = storage.writer(&table);
        writer.write(&batch).await.unwrap();
        let segments = writer.finish().await.unwrap();
        let mut transaction = storage.begin();
        match replaced {
            [] => transaction.add_segments(table.id, segments).unwrap(),
            _ => transaction
                .replace_segments(table.id, replaced, segments)
                .unwrap(),
        }
        transaction.commit().unwrap();
        storage.snapshot()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_latest_versions_are_kept_as_far_as_the_limit_allows() {
        let storage = storage();
        let mut seen = vec![commit_row(&storage, 0, &[]).await];
        for n in 1..4 {
            let before = seen.last().unwrap().table(DEFAULT_SCHEMA, "t").unwrap();
            let replaced: Vec<_> = before.segments.iter().map(|segment| segment.id).collect();
            seen.push(commit_row(&storage, n, &replaced).await);
        }
        let kept = KeptSnapshots::default();
        for (query, snapshot) in seen.iter().enumerate() {
            kept.keep(query as i64, snapshot, snapshot);
            kept.keep(query as i64 + 10, snapshot, snapshot);
        }
        let version = |query| kept.of_query(query).map(|snapshot| snapshot.version());
        for (query, snapshot) in seen.iter().enumerate() {
            assert_eq!(version(query as i64), Some(snapshot.version()));
            assert_eq!(version(query as i64 + 10), Some(snapshot.version()));
        }
        assert_eq!(version(99), None);

        // Each version has one segment of its own; the latest is the present one.
        let segment = |n: usize| seen[n].table(DEFAULT_SCHEMA, "t").unwrap().bytes();
        kept.set_limit(segment(1) + segment(2), &seen[3]);
        assert_eq!(version(0), None);
        assert_eq!(version(11), Some(seen[1].version()));
        kept.set_limit(segment(2), &seen[3]);
        assert_eq!(version(1), None);
        // Nor is it when a query that began before comes late.
        kept.keep(21, &seen[1], &seen[3]);
        assert_eq!(version(21), None);
        assert_eq!(version(2), Some(seen[2].version()));
        assert_eq!(version(3), Some(seen[3].version()));
        kept.set_limit(0, &seen[3]);
        assert_eq!(version(3), None);
        kept.keep(5, &seen[3], &seen[3]);
        assert_eq!(version(5), None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_so_many_versions_are_kept() {
        let storage = storage();
        let kept = KeptSnapshots::default();
        for query in 0..VERSIONS as i64 + 3 {
            let snapshot = commit_row(&storage, query, &[]).await;
            kept.keep(query, &snapshot, &snapshot);
        }
        assert!(kept.of_query(2).is_none());
        assert_eq!(
            kept.of_query(3)
                .unwrap()
                .table(DEFAULT_SCHEMA, "t")
                .unwrap()
                .rows(),
            4
        );
    }
}
