//! Which part a row belongs to, by the hash of its join keys.

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::{NullEquality, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Into how many parts rows are split at once. Each must fit into memory for itself, and rows are
/// written in portions of one part: with many parts, portions are small.
pub(super) const PARTS: usize = 32;

/// Seeds of [`Keys`] begin here: exchanges and hash tables use others.
const SEED: u64 = 0x5eed_0f5b_1115;

/// The join keys of one side.
#[derive(Clone)]
pub(super) struct Keys {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    null_equality: NullEquality,
    state: RandomState,
}

/// The keys of the rows of a batch.
pub(super) struct Hashed {
    pub(super) hashes: Vec<u64>,
    /// Which rows can have a partner, unless all can: NULLs have none in most joins.
    pub(super) matchable: Option<NullBuffer>,
}

impl Keys {
    /// At another `depth`, rows of one part are split differently.
    pub(super) fn new(
        expressions: Vec<Arc<dyn PhysicalExpr>>,
        null_equality: NullEquality,
        depth: usize,
    ) -> Self {
        Self {
            expressions,
            null_equality,
            state: RandomState::with_seed(SEED + depth as u64),
        }
    }

    pub(super) fn hash(&self, batch: &RecordBatch) -> Result<Hashed> {
        let rows = batch.num_rows();
        let values: Vec<ArrayRef> = self
            .expressions
            .iter()
            .map(|key| key.evaluate(batch)?.into_array(rows))
            .collect::<Result<_>>()?;
        let mut hashes = vec![0; rows];
        create_hashes(&values, &self.state, &mut hashes)?;
        let mut matchable = None;
        if self.null_equality == NullEquality::NullEqualsNothing {
            for value in &values {
                matchable = NullBuffer::union(matchable.as_ref(), value.logical_nulls().as_ref());
            }
        }
        let matchable = matchable.filter(|valid| valid.null_count() > 0);
        Ok(Hashed { hashes, matchable })
    }
}

impl Hashed {
    /// Whether a row can have a partner.
    pub(super) fn can_match(&self, row: usize) -> bool {
        self.matchable
            .as_ref()
            .is_none_or(|matchable| matchable.is_valid(row))
    }
}

/// Fibonacci hashing: the best bits of a hash may be any.
fn mixed(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The part of rows whose keys have this hash.
pub(super) fn part_of(hash: u64) -> usize {
    (mixed(hash) >> (u64::BITS - PARTS.ilog2())) as usize
}

/// A Bloom filter of hashes: whether a row of the other side may have a partner on disk. Each hash
/// sets a few bits of one word.
pub(super) struct KeyFilter {
    words: Vec<u64>,
    _reservation: MemoryReservation,
}

impl KeyFilter {
    /// One of `bytes`, unless memory is short.
    pub(super) fn try_new(bytes: usize, reservation: MemoryReservation) -> Option<Self> {
        reservation.try_grow(bytes).ok()?;
        Some(Self {
            words: vec![0; (bytes / size_of::<u64>()).max(1)],
            _reservation: reservation,
        })
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let mixed = mixed(hash ^ (hash >> 29));
        let word = (u128::from(mixed) * self.words.len() as u128) >> 64;
        let bits = (0..4).fold(0, |bits, n| bits | 1 << ((mixed >> (6 * n)) & 63));
        (word as usize, bits)
    }

    pub(super) fn insert(&mut self, hash: u64) {
        let (word, bits) = self.place(hash);
        self.words[word] |= bits;
    }

    /// `false` only if it was not inserted.
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        self.words[word] & bits == bits
    }
}
