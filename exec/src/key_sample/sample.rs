//! Rows that go by, a few of which are kept: which keys are heavy among them.
//!
//! Partial groups are one row for each key, however many rows went into it. Those of `array_agg`, `median` and
//! `count(DISTINCT x)` carry the rows' values in lists. So exchanges sample rows in proportion to their weight:
//! one for the row, and one for each value in its lists. (Sampling with probability proportional to size, by
//! systematic selection: Madow, On the theory of systematic sampling II, 1949.)

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::routes::exchange_hashes;

/// One row is taken of so many at first.
const FIRST_STRIDE: usize = 8;

/// With so many rows taken every other is given up, and from then on half as many are taken. Of
/// the 2,000 to 4,000 that remain a key with a two-hundredth of the rows has 10 to 20: copying and
/// counting them takes some 0.2 ms, however many rows there are.
const MOST_SAMPLES: usize = 4096;

/// Share of the rows from which on a key is heavy.
const HEAVY: f64 = 0.005;

/// A key seen less often than this in the sample may be chance.
const SEEN_AT_LEAST: usize = 4;

/// A row that was taken into the sample.
#[derive(Debug, Clone, Copy)]
struct Taken {
    /// Its place in the batch.
    row: u32,
    /// How often it was taken: a row of great weight several times. Its key is kept once.
    times: usize,
    weight: u64,
}

/// A row of every `stride`, at a place in them that chance decides: keys that recur at a fixed
/// distance are not favoured. Where rows have weights, a row of every `stride` of weight; a row that weighs
/// more is there several times.
#[derive(Debug)]
pub(super) struct Sample {
    /// The keys' columns of the rows that were taken, piece by piece.
    keys: Vec<Vec<ArrayRef>>,
    /// The same rows of all pieces.
    taken: Vec<Taken>,
    /// How often rows were taken.
    length: usize,
    stride: usize,
    /// Rows until the next is taken.
    skip: usize,
    /// Rows from the next that is taken to the end of its stride.
    rest: usize,
    /// Rows that went by.
    rows: u64,
    /// What they weigh together.
    weight: u64,
    /// State of the generator that picks rows.
    random: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            taken: Vec::new(),
            length: 0,
            stride: FIRST_STRIDE,
            // The first row of all is taken: the smallest inputs have a sample, too.
            skip: 0,
            rest: FIRST_STRIDE,
            rows: 0,
            weight: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

impl Sample {
    /// A sample of no rows, whose chance goes on.
    pub(super) fn emptied(&self) -> Self {
        Self {
            random: self.random,
            ..Self::default()
        }
    }

    /// The rows of a batch go by, and some are taken; `by_weight` in proportion to their weights.
    pub(super) fn observe(
        &mut self,
        batch: &RecordBatch,
        columns: &[usize],
        by_weight: bool,
    ) -> Result<(), ArrowError> {
        let weights = match by_weight {
            true => weights(batch, columns),
            false => None,
        };
        let picked = match weights {
            None => self.pick(batch.num_rows()),
            Some(weights) => self.pick_weighted(&weights)?,
        };
        match picked.is_empty() {
            true => Ok(()),
            false => self.keep(batch, columns, picked),
        }
    }

    /// What the rows of the sample say of all rows with a key.
    pub(super) fn estimate(&self, key: &HeavyKey) -> Estimate {
        let rows = self.rows as f64;
        // What one of the sample stands for: rows, or a part of a row with long lists.
        let each = self.weight as f64 / self.length as f64;
        let tuples = (key.parts * each).min(rows);
        let share = tuples / rows;
        let deviation = each * (key.squares * (1.0 - share)).sqrt();
        let all_values = (self.weight - self.rows) as f64;
        let has_lists = all_values > 0.0;
        let list_values = has_lists.then(|| (key.samples as f64 * each - tuples).max(0.0));
        Estimate {
            tuples,
            error: 2.0 * deviation,
            share,
            list_values,
            list_share: list_values.map(|values| (values / all_values).min(1.0)),
        }
    }

    /// The next `rows` rows go by: those of them that are taken.
    fn pick(&mut self, rows: usize) -> Vec<Taken> {
        self.rows += rows as u64;
        self.weight += rows as u64;
        let mut taken = Vec::new();
        let mut at = self.skip;
        while at < rows {
            taken.push(Taken {
                row: at as u32,
                times: 1,
                weight: 1,
            });
            at += self.step();
        }
        self.skip = at - rows;
        taken
    }

    /// The next rows go by, with `weights`: the ones that are taken.
    fn pick_weighted(&mut self, weights: &[u64]) -> Result<Vec<Taken>, ArrowError> {
        let weight: u64 = weights.iter().sum();
        self.rows += weights.len() as u64;
        self.weight += weight;
        // A batch with long lists would fill the sample several times: takes fewer of its rows.
        while weight / self.stride as u64 >= MOST_SAMPLES as u64 {
            self.halve()?;
        }
        let mut taken = Vec::new();
        let (mut at, mut before) = (self.skip as u64, 0);
        for (row, weight) in weights.iter().enumerate() {
            let mut times = 0;
            while at < before + weight {
                times += 1;
                at += self.step() as u64;
            }
            if times > 0 {
                taken.push(Taken {
                    row: row as u32,
                    times,
                    weight: *weight,
                });
            }
            before += weight;
        }
        self.skip = (at - before) as usize;
        Ok(taken)
    }

    /// How far it is from the row that is taken to the next one.
    fn step(&mut self) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let place = (self.random >> 33) as usize % self.stride;
        let step = self.rest + place;
        self.rest = self.stride - place;
        step
    }

    fn keep(
        &mut self,
        batch: &RecordBatch,
        columns: &[usize],
        picked: Vec<Taken>,
    ) -> Result<(), ArrowError> {
        let rows: UInt32Array = picked.iter().map(|taken| Some(taken.row)).collect();
        let columns = columns
            .iter()
            .map(|index| match batch.columns().get(*index) {
                Some(column) => Ok(owned(take(column, &rows, None)?)),
                None => Err(ArrowError::SchemaError(format!("no column {index}"))),
            });
        self.keys.push(columns.collect::<Result<_, _>>()?);
        self.length += picked.iter().map(|taken| taken.times).sum::<usize>();
        self.taken.extend(picked);
        while self.length >= MOST_SAMPLES {
            self.halve()?;
        }
        Ok(())
    }

    /// Gives up every other time that a row was taken, and takes half as many from now on.
    fn halve(&mut self) -> Result<(), ArrowError> {
        self.stride *= 2;
        if self.length == 0 {
            return Ok(());
        }
        let (mut place, mut kept) = (0_usize, Vec::new());
        let mut left = Vec::new();
        for (row, taken) in self.taken.iter().enumerate() {
            let end = place + taken.times;
            let times = end.div_ceil(2) - place.div_ceil(2);
            place = end;
            if times > 0 {
                kept.push(row as u32);
                left.push(Taken { times, ..*taken });
            }
        }
        let kept = UInt32Array::from(kept);
        let halved = self.columns()?;
        let halved = halved.iter().map(|column| take(column, &kept, None));
        self.keys = vec![halved.collect::<Result<_, _>>()?];
        self.length = left.iter().map(|taken| taken.times).sum();
        self.taken = left;
        Ok(())
    }

    /// The columns of the rows taken so far.
    fn columns(&self) -> Result<Vec<ArrayRef>, ArrowError> {
        let count = self.keys.first().map_or(0, Vec::len);
        let column = |index: usize| {
            let pieces: Vec<&dyn Array> = self.keys.iter().map(|p| p[index].as_ref()).collect();
            concat(&pieces)
        };
        (0..count).map(column).collect()
    }

    /// The heavy keys, the most frequent first.
    pub(super) fn heavy_keys(&self) -> Option<Vec<HeavyKey>> {
        let columns = self.columns().ok()?;
        let length = columns.first()?.len();
        let hashes = exchange_hashes(&columns).ok()?;
        // How often each is there, and where first.
        let mut counts: HashMap<u64, Seen> = HashMap::with_capacity(length);
        for ((row, hash), taken) in hashes.iter().enumerate().zip(&self.taken) {
            let (times, part) = (taken.times as f64, 1.0 / taken.weight as f64);
            let seen = counts.entry(*hash).or_insert_with(|| Seen::first_at(row));
            seen.samples += taken.times;
            seen.parts += times * part;
            seen.squares += times * part * part;
        }
        let least = SEEN_AT_LEAST.max((self.length as f64 * HEAVY).ceil() as usize);
        let mut heavy: Vec<Seen> = counts
            .into_values()
            .filter(|seen| seen.samples >= least)
            .collect();
        heavy.sort_unstable_by_key(|seen| (std::cmp::Reverse(seen.samples), seen.first));
        let options = FormatOptions::default().with_null("NULL");
        let cells = columns.iter().map(|c| ArrayFormatter::try_new(c, &options));
        let cells: Vec<_> = cells.collect::<Result<_, _>>().ok()?;
        let key = |row: usize| -> Vec<String> {
            cells
                .iter()
                .map(|cell| cell.value(row).to_string())
                .collect()
        };
        let heavy = heavy.into_iter().map(|seen| HeavyKey {
            key: key(seen.first).join(","),
            hash: hashes[seen.first],
            has_null: columns.iter().any(|column| column.is_null(seen.first)),
            samples: seen.samples,
            parts: seen.parts,
            squares: seen.squares,
        });
        Some(heavy.collect())
    }
}

/// A key that many rows of a sample have.
#[derive(Debug, PartialEq)]
pub(super) struct HeavyKey {
    /// Its columns as text, separated by commas.
    pub(super) key: String,
    /// As an exchange hashes it.
    pub(super) hash: u64,
    /// Whether one of its columns is NULL.
    pub(super) has_null: bool,
    /// Rows of the sample that have it.
    samples: usize,
    /// The same, each divided by its weight.
    parts: f64,
    /// The sum of the squares of these parts.
    squares: f64,
}

/// Rows of a sample that have one key.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The first of them.
    first: usize,
    samples: usize,
    parts: f64,
    squares: f64,
}

impl Seen {
    fn first_at(row: usize) -> Self {
        Self {
            first: row,
            samples: 0,
            parts: 0.0,
            squares: 0.0,
        }
    }
}

/// How many rows have a key, estimated.
#[derive(Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) tuples: f64,
    /// Two standard deviations.
    pub(super) error: f64,
    /// Share of all rows.
    pub(super) share: f64,
    /// Values in lists of these rows; `None` if rows have no lists.
    pub(super) list_values: Option<f64>,
    /// Share of all values in lists.
    pub(super) list_share: Option<f64>,
}

/// The weights of a batch's rows: one more than the values in their lists, but for keys. `None` if it has no lists.
fn weights(batch: &RecordBatch, keys: &[usize]) -> Option<Vec<u64>> {
    let mut weights: Option<Vec<u64>> = None;
    let columns = batch.columns().iter().enumerate();
    for (_, column) in columns.filter(|(index, _)| !keys.contains(index)) {
        let lengths: Option<Vec<usize>> = if let Some(lists) = column.as_list_opt::<i32>() {
            Some(lists.offsets().lengths().collect())
        } else {
            let lists = column.as_list_opt::<i64>();
            lists.map(|lists| lists.offsets().lengths().collect())
        };
        if let Some(lengths) = lengths {
            let weights = weights.get_or_insert_with(|| vec![1; batch.num_rows()]);
            let weights = weights.iter_mut().zip(lengths);
            weights.for_each(|(weight, values)| *weight += values as u64);
        }
    }
    weights
}

/// Strings behind views would keep all of the batch's strings in memory.
fn owned(column: ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, ListArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    fn batch(keys: impl IntoIterator<Item = i64>) -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        RecordBatch::try_from_iter([("key", keys)]).unwrap()
    }

    /// A sample of batches of `sizes` rows, in turn, of `rows` rows with keys that `key` gives.
    fn sample(rows: usize, sizes: &[usize], key: impl Fn(usize) -> i64) -> Sample {
        let mut sample = Sample::default();
        let mut sizes = sizes.iter().cycle();
        let mut from = 0;
        while from < rows {
            let until = rows.min(from + sizes.next().unwrap());
            let batch = batch((from..until).map(&key));
            sample.observe(&batch, &[0], true).unwrap();
            from = until;
        }
        sample
    }

    #[test]
    fn a_heavy_key_is_found_with_its_share_and_others_are_not() {
        // Every tenth row has key 0, the others have a key of their own.
        let sample = sample(1_000_000, &[8192], |row| match row % 10 {
            0 => 0,
            _ => row as i64,
        });
        let heavy = sample.heavy_keys().unwrap();
        let [heavy] = &heavy[..] else {
            panic!("{heavy:?}")
        };
        assert_eq!((heavy.key.as_str(), heavy.has_null), ("0", false));
        let share = sample.estimate(heavy).share;
        assert!((share - 0.1).abs() < 0.03, "{share}");
    }

    #[test]
    fn the_sample_is_bounded_and_spread_over_all_rows_whatever_the_batches() {
        for sizes in [&[8192][..], &[1], &[7, 1, 900, 3], &[100_000]] {
            let rows = 400_000;
            let sample = sample(rows, sizes, |row| row as i64);
            assert!(
                (MOST_SAMPLES / 2..=MOST_SAMPLES).contains(&sample.length),
                "{sizes:?}"
            );
            let columns = sample.columns().unwrap();
            let taken = columns[0].as_any().downcast_ref::<Int64Array>().unwrap();
            for tenth in 0..10 {
                let part = (tenth * rows / 10) as i64..((tenth + 1) * rows / 10) as i64;
                let count = taken
                    .values()
                    .iter()
                    .filter(|key| part.contains(key))
                    .count();
                let expected = sample.length / 10;
                assert!(
                    count.abs_diff(expected) <= expected / 10,
                    "{count} of {} in part {tenth} of {sizes:?}",
                    sample.length
                );
            }
        }
    }

    /// The heavy keys of `keys` rows, each with a list of `length(key)` values: how many rows and values.
    fn of_lists(keys: i64, length: impl Fn(i64) -> usize) -> Vec<(String, i64, i64)> {
        let mut sample = Sample::default();
        for from in (0..keys).step_by(1000) {
            let of_batch = from..keys.min(from + 1000);
            let lists = of_batch
                .clone()
                .map(|key| Some(vec![Some(key); length(key)]));
            let lists: ArrayRef =
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
            let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(of_batch));
            let batch = RecordBatch::try_from_iter([("key", keys), ("values", lists)]).unwrap();
            sample.observe(&batch, &[0], true).unwrap();
        }
        assert!(sample.length < MOST_SAMPLES);
        let found = sample.heavy_keys().unwrap().into_iter();
        found
            .map(|found| {
                let estimate = sample.estimate(&found);
                let values = estimate.list_values.unwrap();
                (found.key, estimate.tuples.round() as i64, values as i64)
            })
            .collect()
    }

    #[test]
    fn a_row_with_a_long_list_has_a_heavy_key() {
        // Every key has one row. Key 4321 has a third of all values.
        let found = of_lists(10_000, |key| if key == 4321 { 50_000 } else { 10 });
        let [(key, tuples, values)] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((key.as_str(), *tuples), ("4321", 1));
        assert!(values.abs_diff(50_000) < 2_000, "{values}");
        assert_eq!(of_lists(10_000, |_| 10), []);
        // A few rows that are longer than the whole sample.
        let found = of_lists(3, |key| 10_000_000 * key as usize);
        let keys: Vec<_> = found.iter().map(|(key, ..)| key.as_str()).collect();
        assert_eq!(keys, ["2", "1"]);
    }

    /// A key that is a list is no weight, and is not kept more than once for each row.
    #[test]
    fn keys_that_are_long_lists_take_little() {
        let lists = (0..100).map(|row| Some(vec![Some(row); if row == 7 { 100_000 } else { 2 }]));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let batch = RecordBatch::try_from_iter([("key", Arc::clone(&lists)), ("value", lists)]);
        let batch = batch.unwrap();
        let mut sample = Sample::default();
        sample.observe(&batch, &[0], true).unwrap();
        let bytes = |sample: &Sample| -> usize {
            let columns = sample.keys.iter().flatten();
            columns.map(|column| column.get_array_memory_size()).sum()
        };
        assert!(bytes(&sample) < 2_000_000, "{} bytes", bytes(&sample));
        let by_key = batch.project(&[0]).unwrap();
        let mut sample = Sample::default();
        sample.observe(&by_key, &[0], true).unwrap();
        assert_eq!(sample.weight, 100);
    }

    #[test]
    fn few_rows_have_no_heavy_keys_by_chance() {
        let sample = sample(16, &[16], |_| 1);
        assert_eq!(sample.length, 2);
        assert_eq!(sample.heavy_keys().unwrap(), []);
    }
}
