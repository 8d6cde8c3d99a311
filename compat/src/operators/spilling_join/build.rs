//! Collecting the build side, in memory as far as there is any.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::Result;
use datafusion::common::utils::memory::{
    RecordBatchMemoryCounter, estimate_memory_size, get_record_batch_memory_size,
};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use parking_lot::Mutex;

use super::disk::{Disk, Parts, PartsWriter};
use super::keys::{Hashed, KeyFilter, Keys, PARTS, part_of};
use super::pieces::{self, NOWHERE};
use super::spec::Spec;
use crate::operators::batch_bytes::estimated_batch_bytes;

/// What a side gathers before it splits it, one part of the limit in so many.
const PORTIONS: usize = 32;

/// The least and the most of that, in bytes. A portion has rows of all parts.
const LEAST_PORTION: usize = 256 << 10;
const MOST_PORTION: usize = 16 << 20;

/// What a filter of keys takes, one part of the limit in so many.
const FILTERS: usize = 64;
const MOST_FILTER: usize = 128 << 20;

/// What is written of a part at once, of that part which was in memory.
const CHUNK: usize = 512 << 10;

/// How much a side gathers before it splits it, in bytes.
pub(super) fn portion(context: &TaskContext) -> usize {
    let limit = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(limit) => limit,
        _ => usize::MAX,
    };
    (limit / PORTIONS).clamp(LEAST_PORTION, MOST_PORTION)
}

/// A build side: rows in memory, and rows on disk if there was not enough.
pub(super) struct Built {
    /// Until a hash table is made of them.
    pub(super) rows: Mutex<Option<Vec<RecordBatch>>>,
    /// What those and the table take.
    pub(super) reservation: MemoryReservation,
    pub(super) on_disk: Option<Arc<OnDisk>>,
}

/// Parts of a build side on disk.
pub(super) struct OnDisk {
    pub(super) parts: Parts,
    /// Which parts these are. The others are in memory.
    pub(super) spilled: Vec<bool>,
    /// Of which parts all rows have one key, so that no other hash would split them.
    pub(super) one_key: Vec<bool>,
    pub(super) filter: Option<KeyFilter>,
    /// That of the keys by which they are split.
    pub(super) depth: usize,
}

/// How a build side is collected.
pub(super) struct Collector<'a> {
    pub(super) spec: &'a Spec,
    pub(super) depth: usize,
    pub(super) disk: Disk,
    pub(super) reservation: MemoryReservation,
    pub(super) context: &'a TaskContext,
    /// Whether nothing stays in memory if not all does.
    pub(super) all_or_nothing: bool,
}

impl Collector<'_> {
    /// Reads all of `input`.
    ///
    /// # Errors
    /// Those of the input, and of writing to temporary files.
    pub(super) async fn collect(self, mut input: SendableRecordBatchStream) -> Result<Built> {
        let mut memory = RecordBatchMemoryCounter::new();
        let mut batches = vec![];
        let mut rows = 0;
        let mut fits = true;
        while fits && let Some(batch) = input.next().await {
            let batch = batch?;
            memory.count_batch(&batch);
            rows += batch.num_rows();
            batches.push(batch);
            let needed = memory.memory_usage() + table_bytes(self.spec, rows)?;
            fits = self.reservation.try_resize(needed).is_ok();
        }
        if fits {
            return Ok(Built {
                rows: Mutex::new(Some(batches)),
                reservation: self.reservation,
                on_disk: None,
            });
        }
        let mut split = Split::new(self);
        // These are in memory, and remain reserved until all are split.
        for batch in batches {
            if split.gather(batch)? {
                tokio::task::yield_now().await;
            }
        }
        split.make_room()?;
        while let Some(batch) = input.next().await {
            split.gather(batch?)?;
            split.make_room()?;
        }
        split.finish()
    }
}

/// What a join needs for so many build rows: the marks of those that had a partner, and a hash table.
pub(super) fn table_bytes(spec: &Spec, rows: usize) -> Result<usize> {
    if spec.has_no_keys() {
        return Ok(rows.div_ceil(8));
    }
    let entries = estimate_memory_size::<(u32, u64)>(rows, 0)?;
    Ok(entries + rows * size_of::<u32>() + rows.div_ceil(8))
}

/// A build side that is split into parts.
struct Split<'a> {
    collector: Collector<'a>,
    keys: Keys,
    portion: usize,
    gathered: Vec<RecordBatch>,
    gathered_bytes: usize,
    parts: Vec<InMemory>,
    spilled: Vec<bool>,
    /// The hash that all rows of a part have, as far as is known.
    only_hash: Vec<OnlyHash>,
    writer: PartsWriter,
    filter: Option<KeyFilter>,
    /// How many rows had no key, which may go to any part.
    without_key: usize,
}

#[derive(Default)]
struct InMemory {
    pieces: Vec<RecordBatch>,
    bytes: usize,
    rows: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum OnlyHash {
    None,
    One(u64),
    Several,
}

impl<'a> Split<'a> {
    fn new(collector: Collector<'a>) -> Self {
        let spec = collector.spec;
        let limit = match collector.context.memory_pool().memory_limit() {
            MemoryLimit::Finite(limit) => limit,
            _ => usize::MAX,
        };
        let filter_bytes = (limit / FILTERS).clamp(size_of::<u64>(), MOST_FILTER);
        let for_filter = collector.reservation.new_empty();
        Self {
            keys: spec.build_keys(collector.depth),
            portion: portion(collector.context),
            gathered: vec![],
            gathered_bytes: 0,
            parts: (0..PARTS).map(|_| InMemory::default()).collect(),
            spilled: vec![collector.all_or_nothing; PARTS],
            only_hash: vec![OnlyHash::None; PARTS],
            writer: PartsWriter::new(collector.disk.clone(), Arc::clone(&spec.build_schema)),
            filter: KeyFilter::try_new(filter_bytes, for_filter),
            without_key: 0,
            collector,
        }
    }

    /// Takes a batch, and splits what has been gathered if that is enough: whether it did.
    fn gather(&mut self, batch: RecordBatch) -> Result<bool> {
        self.gathered_bytes += estimated_batch_bytes(&batch);
        self.gathered.push(batch);
        let enough = self.gathered_bytes >= self.portion;
        if enough {
            self.split()?;
        }
        Ok(enough)
    }

    fn split(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        let mut targets = Vec::with_capacity(batches.len());
        for batch in &batches {
            let hashed = self.keys.hash(batch)?;
            targets.push(self.targets(&hashed));
        }
        let schema = &self.collector.spec.build_schema;
        let pieces = pieces::split(schema, &batches, &targets, PARTS)?;
        drop(batches);
        for (part, piece) in pieces.into_iter().enumerate() {
            let Some(piece) = piece else { continue };
            if self.spilled[part] {
                self.writer.append(part, &piece)?;
                continue;
            }
            let held = &mut self.parts[part];
            held.bytes += get_record_batch_memory_size(&piece);
            held.rows += piece.num_rows();
            held.pieces.push(piece);
        }
        Ok(())
    }

    /// The part of each row.
    fn targets(&mut self, hashed: &Hashed) -> Vec<u32> {
        let keeps = self.collector.spec.keeps_build();
        let mut targets = Vec::with_capacity(hashed.hashes.len());
        for (row, hash) in hashed.hashes.iter().enumerate() {
            if !hashed.can_match(row) {
                self.without_key += usize::from(keeps);
                targets.push(match keeps {
                    true => (self.without_key % PARTS) as u32,
                    false => NOWHERE,
                });
                continue;
            }
            let part = part_of(*hash);
            let only = &mut self.only_hash[part];
            *only = match *only {
                OnlyHash::None => OnlyHash::One(*hash),
                OnlyHash::One(one) if one == *hash => *only,
                _ => OnlyHash::Several,
            };
            if let Some(filter) = &mut self.filter {
                filter.insert(*hash);
            }
            targets.push(part as u32);
        }
        targets
    }

    fn needed(&self) -> Result<usize> {
        let held: usize = self.parts.iter().map(|part| part.bytes).sum();
        let rows = self.parts.iter().map(|part| part.rows).sum();
        Ok(self.gathered_bytes + held + table_bytes(self.collector.spec, rows)?)
    }

    /// Writes the largest parts to disk until the others may remain in memory.
    fn make_room(&mut self) -> Result<()> {
        loop {
            let needed = self.needed()?;
            if self.collector.reservation.try_resize(needed).is_ok() {
                return Ok(());
            }
            let largest = (0..PARTS).max_by_key(|&part| self.parts[part].bytes);
            match largest {
                Some(part) if self.parts[part].bytes > 0 => self.spill(part)?,
                _ if self.gathered_bytes > LEAST_PORTION => self.split()?,
                // Nobody can split less than that.
                _ => {
                    self.collector.reservation.resize(needed);
                    return Ok(());
                }
            }
        }
    }

    fn spill(&mut self, part: usize) -> Result<()> {
        self.spilled[part] = true;
        let schema = &self.collector.spec.build_schema;
        let mut chunk = vec![];
        let mut bytes = 0;
        for piece in std::mem::take(&mut self.parts[part]).pieces {
            bytes += get_record_batch_memory_size(&piece);
            chunk.push(piece);
            if bytes >= CHUNK {
                self.writer.append(part, &concat_batches(schema, &chunk)?)?;
                chunk.clear();
                bytes = 0;
            }
        }
        self.writer.append(part, &concat_batches(schema, &chunk)?)
    }

    fn finish(mut self) -> Result<Built> {
        self.split()?;
        self.make_room()?;
        let rows = self.parts.into_iter().flat_map(|part| part.pieces);
        let rows = Mutex::new(Some(rows.collect()));
        let on_disk = match self.spilled.contains(&true) {
            true => Some(Arc::new(OnDisk {
                parts: self.writer.finish()?,
                spilled: self.spilled,
                one_key: self
                    .only_hash
                    .iter()
                    .map(|only| *only != OnlyHash::Several)
                    .collect(),
                filter: self.filter,
                depth: self.collector.depth,
            })),
            false => None,
        };
        Ok(Built {
            rows,
            reservation: self.collector.reservation,
            on_disk,
        })
    }
}
