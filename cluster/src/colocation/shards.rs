//! The shards of files.

use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use skewer_storage::Shard;

/// What all rows of a segment have in common, said of its file in a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOf {
    /// The shard.
    pub shard: Shard,
    /// The columns whose hash it is, by their places in the table.
    pub keys: Arc<[usize]>,
}

impl ShardOf {
    /// The shards of files, if all of them have one and they are shards of one division.
    pub(crate) fn of_all(files: &[PartitionedFile]) -> Option<Vec<&Self>> {
        let shards: Vec<&Self> = files
            .iter()
            .map(PartitionedFile::extension::<Self>)
            .collect::<Option<_>>()?;
        let first = shards.first()?;
        let alike = |other: &&Self| other.shard.of == first.shard.of && other.keys == first.keys;
        shards.iter().all(alike).then_some(shards)
    }

    /// Which of `workers`, that have their segments in common, reads which of the files: rows of
    /// one shard are read by one. `None` if there are too few shards for that.
    pub(crate) fn readers(files: &[PartitionedFile], workers: usize) -> Option<Vec<usize>> {
        let shards = Self::of_all(files)?;
        let is_divided = |of: &&Self| of.shard.of as usize >= workers;
        let reader = |of: &&Self| of.shard.index as usize % workers;
        let all = shards.iter().all(is_divided);
        all.then(|| shards.iter().map(reader).collect())
    }
}
