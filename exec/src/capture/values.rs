//! The arguments of functions that log records, row by row.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{Result, internal_err};
use skewer_profiling::{Ids, Latencies};

/// Edges from the records of one operator.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    pub(super) outputs: Vec<usize>,
    pub(super) inputs: Vec<i64>,
    pub(super) latencies: Vec<i64>,
}

impl Edges {
    /// Record `input`, which took `latency`, went into group `output`.
    pub(crate) fn add(&mut self, output: usize, input: i64, latency: i64) {
        self.outputs.push(output);
        self.inputs.push(input);
        self.latencies.push(latency);
    }
}

/// The group of each row of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Groups<'a> {
    /// As the caller says.
    Listed(&'a [usize]),
    /// All rows are of group 0.
    One,
    /// Every row is a group of its own.
    Each,
}

impl Groups<'_> {
    pub(crate) fn group_of(self, row: usize) -> usize {
        match self {
            Groups::Listed(groups) => groups[row],
            Groups::One => 0,
            Groups::Each => row,
        }
    }

    /// The ids of the groups of all `rows`, where group 0 has the id `first_id` and there are
    /// `total` groups.
    pub(super) fn encode(self, first_id: i64, rows: usize, total: usize) -> Ids {
        match self {
            Groups::Listed(groups) => Ids::encode_indexes(first_id, groups, total),
            Groups::One => Ids::constant(first_id, rows),
            Groups::Each => Ids::range(first_id, rows),
        }
    }
}

/// Latencies of a batch's records, in picoseconds.
pub(crate) enum Latency {
    None,
    One(Int64Array),
    Sum(Vec<i64>),
}

impl Latency {
    pub(crate) fn new(values: &[ArrayRef], arguments: &[usize]) -> Result<Self> {
        Ok(match arguments {
            [] => Latency::None,
            [one] => Latency::One(int64(values, *one)?.clone()),
            several => {
                let mut sum = vec![0; values[several[0]].len()];
                for argument in several {
                    let array = int64(values, *argument)?;
                    for (row, total) in sum.iter_mut().enumerate() {
                        *total += if array.is_null(row) {
                            0
                        } else {
                            array.value(row)
                        };
                    }
                }
                Latency::Sum(sum)
            }
        })
    }

    pub(crate) fn latency_of(&self, row: usize) -> i64 {
        match self {
            Latency::None => 0,
            Latency::One(array) if array.is_null(row) => 0,
            Latency::One(array) => array.value(row),
            Latency::Sum(sum) => sum[row],
        }
    }

    pub(super) fn encode(&self, rows: usize) -> Latencies {
        match self {
            Latency::None => Latencies::constant(0, rows),
            Latency::One(array) if array.null_count() == 0 => Latencies::encode(array.values()),
            Latency::One(array) => Latencies::encode(
                &array
                    .iter()
                    .map(Option::unwrap_or_default)
                    .collect::<Vec<_>>(),
            ),
            Latency::Sum(sum) => Latencies::encode(sum),
        }
    }
}

/// One of a function's arguments, or of an operator's columns.
pub(crate) fn column(values: &[ArrayRef], place: usize) -> Result<&ArrayRef> {
    match values.get(place) {
        Some(array) => Ok(array),
        None => internal_err!("record level: there is no column {place}"),
    }
}

pub(crate) fn int64(values: &[ArrayRef], place: usize) -> Result<&Int64Array> {
    match column(values, place)?.as_primitive_opt::<Int64Type>() {
        Some(array) => Ok(array),
        None => internal_err!("record level: column {place} is no BIGINT"),
    }
}
