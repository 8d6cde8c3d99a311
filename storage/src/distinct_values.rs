//! Sketches of how many distinct values the columns of a segment have.
//!
//! A sketch is a HyperLogLog: 4,096 registers, so its standard error is 1.6 %. Sketches of several segments
//! merge exactly. The estimate is Ertl's, which needs no correction for small or large counts
//! (O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", 2017, section 4).
//!
//! The writer puts the sketches of all columns between the last row group and the footer, where Parquet's
//! readers skip them. The footer says where, under [`KEY`].

use std::collections::HashMap;
use std::ops::Range;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::parquet::file::metadata::{FileMetaData, KeyValue};
use twox_hash::XxHash64;

/// What the footer calls the bytes of the sketches: their offset and length, as `12345,678`.
pub(crate) const KEY: &str = "skewer.distinct_values";

/// Bits of a hash that choose a register.
const INDEX_BITS: u32 = 12;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that are counted.
const COUNTED_BITS: u32 = u64::BITS - INDEX_BITS;
/// Registers that are written one by one: beyond that, all of them take less.
const MOST_SPARSE: usize = REGISTERS / 3;
/// A number between hashes of one kind of value and another's.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// How many distinct values have been added, roughly. NULLs do not count.
#[derive(Clone, PartialEq, Eq)]
pub struct DistinctValues {
    registers: Box<[u8; REGISTERS]>,
}

impl std::fmt::Debug for DistinctValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DistinctValues({:.0})", self.estimate())
    }
}

impl Default for DistinctValues {
    fn default() -> Self {
        Self {
            registers: Box::new([0; REGISTERS]),
        }
    }
}

impl DistinctValues {
    /// Whether values of this type can be added.
    pub fn supports(data_type: &DataType) -> bool {
        data_type.primitive_width().is_some()
            || matches!(
                data_type,
                DataType::Boolean
                    | DataType::Utf8
                    | DataType::LargeUtf8
                    | DataType::Utf8View
                    | DataType::Binary
                    | DataType::LargeBinary
                    | DataType::BinaryView
            )
    }

    /// Adds the values of `array`; none if its type is not [supported](Self::supports).
    pub fn add(&mut self, array: &ArrayRef) {
        match array.data_type() {
            DataType::Boolean => {
                self.add_all(array.as_boolean().iter(), |value| mixed(u64::from(value)))
            }
            DataType::Utf8 => self.add_all(array.as_string::<i32>().iter(), |value| {
                of_bytes(value.as_bytes())
            }),
            DataType::LargeUtf8 => self.add_all(array.as_string::<i64>().iter(), |value| {
                of_bytes(value.as_bytes())
            }),
            DataType::Utf8View => self.add_all(array.as_string_view().iter(), |value| {
                of_bytes(value.as_bytes())
            }),
            DataType::Binary => self.add_all(array.as_binary::<i32>().iter(), of_bytes),
            DataType::LargeBinary => self.add_all(array.as_binary::<i64>().iter(), of_bytes),
            DataType::BinaryView => self.add_all(array.as_binary_view().iter(), of_bytes),
            data_type => {
                if let Some(width) = data_type.primitive_width() {
                    self.add_fixed(array, width);
                }
            }
        }
    }

    fn add_all<T: Copy + PartialEq>(
        &mut self,
        values: impl Iterator<Item = Option<T>>,
        hash: impl Fn(T) -> u64,
    ) {
        let mut before = None;
        for value in values.flatten() {
            if before != Some(value) {
                self.add_hash(hash(value));
            }
            before = Some(value);
        }
    }

    /// Adds values of `width` bytes each, by their bytes.
    fn add_fixed(&mut self, array: &ArrayRef, width: usize) {
        let data = array.to_data();
        let Some(buffer) = data.buffers().first() else {
            return;
        };
        let begin = data.offset() * width;
        let Some(bytes) = buffer.as_slice().get(begin..begin + data.len() * width) else {
            return;
        };
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        match width {
            4 => self.add_words(bytes, nulls, |value: &[u8; 4]| {
                of_word(SEED, u64::from(u32::from_le_bytes(*value)))
            }),
            8 => self.add_words(bytes, nulls, |value: &[u8; 8]| {
                of_word(SEED, u64::from_le_bytes(*value))
            }),
            16 => self.add_words(bytes, nulls, |value: &[u8; 16]| {
                let value = u128::from_le_bytes(*value);
                of_word(of_word(SEED, value as u64), (value >> 64) as u64)
            }),
            _ => {
                for (row, value) in bytes.chunks_exact(width).enumerate() {
                    if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                        self.add_hash(of_words(value));
                    }
                }
            }
        }
    }

    /// Adds values of `N` bytes. One that is equal to the one before it is not hashed again.
    fn add_words<const N: usize>(
        &mut self,
        bytes: &[u8],
        nulls: Option<&NullBuffer>,
        hash: impl Fn(&[u8; N]) -> u64,
    ) {
        let (values, _) = bytes.as_chunks::<N>();
        let mut before = None;
        for (row, value) in values.iter().enumerate() {
            if before == Some(value) || nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            before = Some(value);
            self.add_hash(hash(value));
        }
    }

    fn add_hash(&mut self, hash: u64) {
        let register = (hash >> COUNTED_BITS) as usize;
        // The lowest bit ends the count where all others are 0.
        let counted = (hash << INDEX_BITS) | (1 << (INDEX_BITS - 1));
        let rank = counted.leading_zeros() as u8 + 1;
        let kept = &mut self.registers[register];
        *kept = rank.max(*kept);
    }

    /// About how many distinct values have been added.
    pub fn estimate(&self) -> f64 {
        let mut counts = [0_u32; COUNTED_BITS as usize + 2];
        for register in self.registers.iter() {
            counts[usize::from(*register).min(COUNTED_BITS as usize + 1)] += 1;
        }
        let registers = REGISTERS as f64;
        let full = f64::from(counts[COUNTED_BITS as usize + 1]);
        let mut sum = registers * tau(1.0 - full / registers);
        for count in counts[1..=COUNTED_BITS as usize].iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += registers * sigma(f64::from(counts[0]) / registers);
        registers * registers / (2.0 * std::f64::consts::LN_2 * sum)
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let set = self.registers.iter().filter(|rank| **rank > 0).count();
        if set > MOST_SPARSE {
            bytes.extend(u16::MAX.to_le_bytes());
            bytes.extend(self.registers.iter());
            return;
        }
        bytes.extend((set as u16).to_le_bytes());
        for (register, rank) in self.registers.iter().enumerate() {
            if *rank > 0 {
                bytes.extend((register as u16).to_le_bytes());
                bytes.push(*rank);
            }
        }
    }
}

/// A sketch as it is written: of few values it takes few bytes, and a table may have thousands of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedSketch(Box<[u8]>);

impl EncodedSketch {
    /// The sketch at the beginning of `bytes`, which are those behind it afterwards.
    fn take_from(bytes: &mut &[u8]) -> Option<Self> {
        let all = *bytes;
        let mut rest = all;
        DistinctValues::default().merge_encoded(&mut rest)?;
        let (own, behind) = all.split_at(all.len() - rest.len());
        *bytes = behind;
        Some(Self(own.into()))
    }

    /// Adds what has been added to this sketch to `merged`.
    pub fn merge_into(&self, merged: &mut DistinctValues) {
        // It has been read to its end before.
        let _ = merged.merge_encoded(&mut &*self.0);
    }
}

impl DistinctValues {
    /// Adds what has been added to the encoded sketch at the beginning of `bytes`, which are those behind it
    /// afterwards; `None` if there is none.
    fn merge_encoded(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let set = u16::from_le_bytes(*take::<2>(bytes)?);
        if set == u16::MAX {
            for (own, other) in self.registers.iter_mut().zip(take::<REGISTERS>(bytes)?) {
                *own = (*own).max(*other);
            }
            return Some(());
        }
        for _ in 0..set {
            let register = u16::from_le_bytes(*take::<2>(bytes)?);
            let [rank] = *take::<1>(bytes)?;
            let own = self.registers.get_mut(usize::from(register))?;
            *own = rank.max(*own);
        }
        Some(())
    }
}

/// The next `N` bytes.
fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn of_bytes(value: &[u8]) -> u64 {
    XxHash64::oneshot(SEED, value)
}

/// The hash of a value of any number of bytes, eight at a time.
fn of_words(value: &[u8]) -> u64 {
    value.chunks(8).fold(SEED, |hash, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        of_word(hash, u64::from_le_bytes(word))
    })
}

/// The hash of a value that begins as `before` says, with eight bytes more.
fn of_word(before: u64, word: u64) -> u64 {
    mixed(before ^ word)
}

/// Mixes `value`, so that each bit of the result depends on all of its bits (the finalizer of MurmurHash3).
fn mixed(value: u64) -> u64 {
    let mut hash = value ^ (value >> 33);
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut y, mut sum) = (share, 1.0, share);
    loop {
        x *= x;
        let before = sum;
        sum += x * y;
        y += y;
        if sum <= before {
            return sum;
        }
    }
}

fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut x, mut y, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        x = x.sqrt();
        let before = sum;
        y *= 0.5;
        sum -= (1.0 - x).powi(2) * y;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

/// The sketches of the columns of a segment that is being written.
#[derive(Debug)]
pub(crate) struct SegmentSketches(Vec<Option<DistinctValues>>);

impl SegmentSketches {
    /// None has been added to yet; `physical` has the row ids last, which need none.
    pub(crate) fn new(physical: &Schema) -> Self {
        let (_, columns) = physical.fields().split_last().unzip();
        let columns = columns.unwrap_or_default().iter();
        let sketch = |data_type| DistinctValues::supports(data_type).then(DistinctValues::default);
        Self(columns.map(|field| sketch(field.data_type())).collect())
    }

    /// The sketches that values of these columns are to be added to.
    pub(crate) fn of_columns<'a>(
        &'a mut self,
        columns: &'a [ArrayRef],
    ) -> Vec<(&'a mut DistinctValues, &'a ArrayRef)> {
        let pairs = self.0.iter_mut().zip(columns);
        pairs
            .filter_map(|(sketch, column)| Some((sketch.as_mut()?, column)))
            .collect()
    }

    /// The sketches with the names of their columns.
    pub(crate) fn encode(&self, physical: &Schema) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sketch, field) in self.0.iter().zip(physical.fields()) {
            let Some(sketch) = sketch else { continue };
            bytes.extend((field.name().len() as u32).to_le_bytes());
            bytes.extend(field.name().as_bytes());
            sketch.encode(&mut bytes);
        }
        bytes
    }
}

/// The footer's entry for `length` bytes of sketches at `offset`.
pub(crate) fn place(offset: usize, length: usize) -> KeyValue {
    KeyValue::new(KEY.to_owned(), format!("{offset},{length}"))
}

/// Where in the file a segment's sketches are, by its footer. Segments that were written before sketches existed have
/// none.
pub fn place_of_sketches(footer: &FileMetaData) -> Option<Range<u64>> {
    let entries = footer.key_value_metadata()?;
    let entry = entries.iter().find(|entry| entry.key == KEY)?;
    let (offset, length) = entry.value.as_ref()?.split_once(',')?;
    let offset: u64 = offset.parse().ok()?;
    Some(offset..offset.checked_add(length.parse().ok()?)?)
}

/// The sketches of a segment's columns by name; `None` if `bytes` are something else.
pub fn decode_sketches(mut bytes: &[u8]) -> Option<HashMap<String, EncodedSketch>> {
    let mut sketches = HashMap::new();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(*take::<4>(&mut bytes)?) as usize;
        let name = bytes.get(..length)?;
        bytes = &bytes[length..];
        let name = std::str::from_utf8(name).ok()?.to_owned();
        sketches.insert(name, EncodedSketch::take_from(&mut bytes)?);
    }
    Some(sketches)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Decimal128Array, Int32Array, Int64Array, StringArray};
    use datafusion::arrow::datatypes::Field;

    use super::*;

    fn numbers(values: impl Iterator<Item = i64>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(values))
    }

    /// Relative to the true count.
    fn error(sketch: &DistinctValues, expected: f64) -> f64 {
        (sketch.estimate() - expected).abs() / expected
    }

    #[test]
    fn a_number_has_the_same_hash_whatever_its_width_is_treated_as() {
        let numbers: Vec<_> = (0..1_000)
            .map(|n: i64| (n % 10 != 0).then_some(n * n))
            .collect();
        let arrays: [ArrayRef; 3] = [
            Arc::new(
                numbers
                    .iter()
                    .map(|n| n.map(|n| n as i32))
                    .collect::<Int32Array>(),
            ),
            Arc::new(numbers.iter().copied().collect::<Int64Array>()),
            Arc::new(
                numbers
                    .iter()
                    .map(|n| n.map(i128::from))
                    .collect::<Decimal128Array>(),
            ),
        ];
        for array in arrays {
            let width = array.data_type().primitive_width().unwrap();
            let data = array.to_data();
            let mut expected = DistinctValues::default();
            let values = data.buffers()[0].as_slice().chunks_exact(width);
            for (_, value) in values.enumerate().filter(|(row, _)| array.is_valid(*row)) {
                expected.add_hash(of_words(value));
            }
            let mut sketch = DistinctValues::default();
            sketch.add(&array);
            assert!(sketch == expected, "{width} bytes");
        }
    }

    #[test]
    fn distinct_values_are_counted_within_a_few_percent() {
        for count in [1, 7, 100, 3_000, 20_000, 1_000_000] {
            let mut sketch = DistinctValues::default();
            sketch.add(&numbers(0..count));
            sketch.add(&numbers(0..count));
            assert!(error(&sketch, count as f64) < 0.06, "{count}: {sketch:?}");
        }
        assert!(DistinctValues::default().estimate() < 0.5);
    }

    #[test]
    fn texts_and_decimals_count_and_nulls_do_not() {
        let texts: Vec<_> = (0..5_000)
            .map(|n| (n % 5 > 0).then(|| format!("t{n}")))
            .collect();
        let mut sketch = DistinctValues::default();
        sketch.add(&(Arc::new(StringArray::from(texts)) as ArrayRef));
        assert!(error(&sketch, 4_000.0) < 0.06, "{sketch:?}");
        let decimals: Vec<_> = (0..5_000_i128)
            .map(|n| (n % 2 > 0).then_some(n << 70))
            .collect();
        let mut sketch = DistinctValues::default();
        sketch.add(&(Arc::new(Decimal128Array::from(decimals)) as ArrayRef));
        assert!(error(&sketch, 2_500.0) < 0.06, "{sketch:?}");
    }

    #[test]
    fn slices_are_added_without_the_rows_around_them() {
        let all = numbers(0..1_000);
        let mut sliced = DistinctValues::default();
        sliced.add(&all.slice(10, 5));
        let mut alone = DistinctValues::default();
        alone.add(&numbers(10..15));
        assert_eq!(sliced, alone);
    }

    #[test]
    fn merging_is_adding_all() {
        let mut one = DistinctValues::default();
        one.add(&numbers(0..600));
        let mut other = DistinctValues::default();
        other.add(&numbers(400..1_000));
        let mut both = DistinctValues::default();
        both.add(&numbers(0..1_000));
        let mut bytes = Vec::new();
        other.encode(&mut bytes);
        one.merge_encoded(&mut bytes.as_slice()).unwrap();
        assert_eq!(one, both);
    }

    #[test]
    fn sketches_are_read_as_they_were_written() {
        let fields = ["few", "many", "nested", "_row_id"].map(|name| {
            let data_type = match name {
                "nested" => DataType::new_list(DataType::Int64, true),
                _ => DataType::Int64,
            };
            Field::new(name, data_type, true)
        });
        let schema = Schema::new(fields.to_vec());
        let mut sketches = SegmentSketches::new(&schema);
        let columns = [numbers(0..20_000).slice(0, 3), numbers(0..20_000)];
        for (sketch, column) in sketches.of_columns(&columns) {
            sketch.add(column);
        }
        let bytes = sketches.encode(&schema);
        let read = decode_sketches(&bytes).unwrap();
        assert_eq!(read.len(), 2);
        for (name, written) in ["few", "many"].into_iter().zip(&sketches.0) {
            let mut merged = DistinctValues::default();
            read[name].merge_into(&mut merged);
            assert_eq!(Some(&merged), written.as_ref(), "{name}");
        }
        assert!(read["few"].0.len() < 20, "few values take few bytes");
        for length in 1..bytes.len() {
            // Half a sketch is none, and never a panic.
            let _ = decode_sketches(&bytes[..length]);
        }
        assert_eq!(decode_sketches(&bytes[..5]), None);
    }
}
