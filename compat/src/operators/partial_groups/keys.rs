//! Finds the groups of rows, those of values seen before by their bits.
//!
//! Values that have the same bits are equal: numbers, short texts, and texts that are at the same place of the same
//! buffer. So a row with the bits of the row before it, or of a row that is remembered, needs no look at its values.
//! The values of the other rows, which are few in many queries, are looked up by DataFusion. Equal texts at different
//! places are found to be equal there.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::PhysicalGroupBy;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::sets::columns_of;

/// Places of the table of remembered rows: a power of two. Half of them are used at most.
const PLACES: usize = 1 << 14;
const MOST_REMEMBERED: usize = PLACES / 2;

/// Rows with any number of words.
const ANY: usize = 0;

/// Rows after which remembering is given up if it helps few of them.
const TRIAL_ROWS: u64 = 1 << 16;

/// The groups of a partition's rows.
pub(super) struct Keys {
    values: Box<dyn GroupValues>,
    /// `None` if the columns have no bits to compare, or it does not help.
    remembered: Option<Remembered>,
    can_remember: bool,
}

impl Keys {
    /// No groups yet, of rows of `input`.
    pub(super) fn try_new(by: &PhysicalGroupBy, input: &Schema) -> Result<Self> {
        let columns = columns_of(by, input)?;
        let mut types = columns.fields().iter().map(|field| field.data_type());
        let can_remember = types.all(|data_type| words_of(data_type).is_some())
            && columns.fields().len() <= u64::BITS as usize;
        Ok(Self {
            values: new_group_values(columns, &GroupOrdering::None)?,
            remembered: can_remember.then(Remembered::default),
            can_remember,
        })
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Bytes of memory.
    pub(super) fn size(&self) -> usize {
        let remembered = self.remembered.as_ref();
        self.values.size() + remembered.map_or(0, Remembered::size)
    }

    /// Whether the rows of a group follow each other: those of earlier groups do not come again, as far as has been
    /// seen.
    pub(super) fn are_adjacent(&self) -> bool {
        let remembered = self.remembered.as_ref();
        remembered.is_some_and(|remembered| remembered.seen.are_adjacent())
    }

    /// The group of each row of `columns`.
    pub(super) fn find(&mut self, columns: &[ArrayRef], groups: &mut Vec<usize>) -> Result<()> {
        groups.clear();
        let rows = columns.first().map_or(0, |column| column.len());
        let Some(remembered) = &mut self.remembered else {
            return self.values.intern(columns, groups);
        };
        remembered.look_up(columns, rows);
        let before = self.values.len();
        if !remembered.unknown.is_empty() {
            match remembered.unknown.len() == rows {
                true => self.values.intern(columns, groups)?,
                false => {
                    let unknown = UInt32Array::from(std::mem::take(&mut remembered.unknown));
                    let few = columns.iter().map(|column| take(column, &unknown, None));
                    let few = few.collect::<Result<Vec<_>, _>>()?;
                    self.values.intern(&few, groups)?;
                }
            }
        }
        let created = self.values.len() - before;
        remembered.learn(groups, created);
        if !remembered.seen.helps() {
            self.remembered = None;
        }
        Ok(())
    }

    /// The values of all groups, which are forgotten.
    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>> {
        let room = self.values.len().min(PLACES);
        let values = self.values.emit(EmitTo::All)?;
        // Some kinds still know where the groups were.
        self.values.clear_shrink(room);
        match &mut self.remembered {
            Some(remembered) => remembered.forget(),
            None => self.remembered = self.can_remember.then(Remembered::default),
        }
        Ok(values)
    }
}

/// How many words of 64 bits tell a value of this type; `None` if equal bits do not, or need not, mean equal values.
fn words_of(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => Some(2),
        // Zeros with different signs are one group.
        DataType::Float16 | DataType::Float32 | DataType::Float64 => None,
        data_type => match data_type.primitive_width()? {
            4 | 8 => Some(1),
            16 => Some(2),
            _ => None,
        },
    }
}

/// What has been seen since groups were handed on.
#[derive(Debug, Default)]
struct Seen {
    rows: u64,
    /// Rows with the bits of the row before.
    repeated: u64,
    /// Other rows with remembered bits.
    remembered: u64,
    /// Groups that were new when they were looked up.
    created: u64,
}

impl Seen {
    fn unknown(&self) -> u64 {
        self.rows - self.repeated - self.remembered
    }

    /// Whether few rows must be looked up.
    fn helps(&self) -> bool {
        self.rows < TRIAL_ROWS || self.unknown() * 2 < self.rows
    }

    fn are_adjacent(&self) -> bool {
        self.repeated * 3 > self.rows
            && self.remembered * 10 < self.repeated
            && self.created * 20 > self.unknown() * 19
    }
}

/// The bits of rows, and their groups.
struct Remembered {
    /// How many words a row has.
    words: usize,
    /// Whether the last of them tells which columns are NULL.
    has_nulls: bool,
    /// The words of remembered rows, one row after the other.
    bits: Vec<u64>,
    /// The group of each remembered row.
    groups: Vec<usize>,
    /// By hash: one more than the number of a remembered row.
    table: Box<[u32]>,
    /// The buffers that views of the remembered rows refer to, by column. They are held, so that no other text gets
    /// the place of one.
    buffers: Vec<Vec<Buffer>>,
    /// The words of the rows of a batch.
    batch: Vec<u64>,
    /// Of each row of a batch: the remembered row with its bits.
    found: Vec<u32>,
    /// The rows of a batch whose bits are new, which have become the last of those remembered.
    unknown: Vec<u32>,
    seen: Seen,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            words: 0,
            has_nulls: false,
            bits: Vec::new(),
            groups: Vec::new(),
            table: vec![0; PLACES].into(),
            buffers: Vec::new(),
            batch: Vec::new(),
            found: Vec::new(),
            unknown: Vec::new(),
            seen: Seen::default(),
        }
    }
}

impl Remembered {
    fn size(&self) -> usize {
        size_of_val(&self.bits[..])
            + size_of_val(&self.groups[..])
            + size_of_val(&self.table[..])
            + self.batch.capacity() * size_of::<u64>()
    }

    /// Forgets all rows, and what was seen.
    fn forget(&mut self) {
        self.forget_rows();
        self.buffers.clear();
        self.seen = Seen::default();
    }

    fn forget_rows(&mut self) {
        self.bits.clear();
        self.groups.clear();
        self.table.fill(0);
    }

    /// Finds the rows of a batch, and remembers those that are unknown, whose groups are learned next.
    fn look_up(&mut self, columns: &[ArrayRef], rows: usize) {
        let types = columns.iter().map(|column| column.data_type());
        let has_nulls = self.has_nulls || columns.iter().any(|column| column.null_count() > 0);
        let is_new = self.has_nulls != has_nulls || !self.has_buffers_of(columns);
        self.has_nulls = has_nulls;
        self.words = types.filter_map(words_of).sum::<usize>() + usize::from(has_nulls);
        if is_new {
            self.forget_rows();
            self.buffers = columns.iter().map(buffers_of).collect();
        }
        self.read(columns, rows);
        match self.words {
            1 => self.find_rows::<1>(rows),
            2 => self.find_rows::<2>(rows),
            3 => self.find_rows::<3>(rows),
            4 => self.find_rows::<4>(rows),
            _ => self.find_rows::<ANY>(rows),
        }
    }

    /// Finds the rows of a batch that was read. A row has `WORDS` words: the compiler then compares a few words
    /// without a call.
    fn find_rows<const WORDS: usize>(&mut self, rows: usize) {
        self.found.clear();
        self.unknown.clear();
        let words = match WORDS {
            ANY => self.words,
            known => known,
        };
        let mut before: Option<u32> = None;
        for row in 0..rows {
            let bits = &self.batch[row * words..(row + 1) * words];
            if let Some(before) = before
                && *bits == self.batch[(row - 1) * words..row * words]
            {
                self.seen.repeated += 1;
                self.found.push(before);
                continue;
            }
            let mut place = hash_of(bits) as usize % PLACES;
            let known = loop {
                match self.table[place] {
                    0 => break None,
                    number => {
                        let known = number - 1;
                        let begin = known as usize * words;
                        if self.bits[begin..begin + words] == *bits {
                            break Some(known);
                        }
                    }
                }
                place = (place + 1) % PLACES;
            };
            let known = match known {
                Some(known) => {
                    self.seen.remembered += 1;
                    known
                }
                None => {
                    let known = (self.bits.len() / words.max(1)) as u32;
                    // What finds no room is remembered for this batch only.
                    if (known as usize) < MOST_REMEMBERED {
                        self.table[place] = known + 1;
                    }
                    self.bits.extend_from_slice(bits);
                    self.unknown.push(row as u32);
                    known
                }
            };
            before = Some(known);
            self.found.push(known);
        }
        self.seen.rows += rows as u64;
    }

    /// Learns the groups of unknown rows, of which so many are new, and gives those of all rows.
    fn learn(&mut self, groups: &mut Vec<usize>, created: usize) {
        self.seen.created += created as u64;
        self.groups.append(groups);
        let found = self.found.iter();
        groups.extend(found.map(|known| self.groups[*known as usize]));
        if self.groups.len() > MOST_REMEMBERED {
            self.forget_rows();
        }
    }

    /// Whether views have the same buffers as those of the remembered rows.
    fn has_buffers_of(&self, columns: &[ArrayRef]) -> bool {
        let is_same = |(known, column): (&Vec<Buffer>, &ArrayRef)| {
            let buffers = data_buffers(column);
            known.len() == buffers.len()
                && known
                    .iter()
                    .zip(buffers)
                    .all(|(one, other)| one.ptr_eq(other))
        };
        self.buffers.len() == columns.len() && self.buffers.iter().zip(columns).all(is_same)
    }

    /// Reads the words of the rows of a batch.
    fn read(&mut self, columns: &[ArrayRef], rows: usize) {
        let words = self.words;
        self.batch.clear();
        self.batch.resize(rows * words, 0);
        let mut first = 0;
        for (number, column) in columns.iter().enumerate() {
            let width = words_of(column.data_type()).unwrap_or_default();
            let places = self.batch[first..].chunks_mut(words.max(1));
            match column.data_type() {
                DataType::Utf8View => read_wide(places, column.as_string_view().views()),
                DataType::BinaryView => read_wide(places, column.as_binary_view().views()),
                _ => {
                    let data = column.to_data();
                    let (offset, bytes) = (data.offset(), &data.buffers()[0]);
                    match data.data_type().primitive_width() {
                        Some(4) => {
                            let values = &bytes.typed_data::<u32>()[offset..offset + rows];
                            let pairs = places.zip(values);
                            pairs.for_each(|(place, value)| place[0] = u64::from(*value));
                        }
                        Some(8) => {
                            let values = &bytes.typed_data::<u64>()[offset..offset + rows];
                            let pairs = places.zip(values);
                            pairs.for_each(|(place, value)| place[0] = *value);
                        }
                        _ => read_wide(places, &bytes.typed_data::<u128>()[offset..offset + rows]),
                    }
                }
            }
            if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
                // What is behind a NULL may be anything.
                for row in (0..rows).filter(|row| nulls.is_null(*row)) {
                    self.batch[row * words + first..][..width].fill(0);
                    self.batch[row * words + words - 1] |= 1 << number;
                }
            }
            first += width;
        }
    }
}

fn read_wide<'a>(places: impl Iterator<Item = &'a mut [u64]>, values: &[u128]) {
    for (place, value) in places.zip(values) {
        place[0] = *value as u64;
        place[1] = (*value >> 64) as u64;
    }
}

/// The buffers that views refer to.
fn data_buffers(column: &ArrayRef) -> &[Buffer] {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view().data_buffers(),
        DataType::BinaryView => column.as_binary_view().data_buffers(),
        _ => &[],
    }
}

fn buffers_of(column: &ArrayRef) -> Vec<Buffer> {
    data_buffers(column).to_vec()
}

/// A hash of a few words: multiplies and folds, as wyhash does.
fn hash_of(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15, |hash, word| {
        let product = u128::from(hash ^ word) * 0xA076_1D64_78BD_642F;
        (product >> 64) as u64 ^ product as u64
    })
}
