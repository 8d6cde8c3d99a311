//! A record's id and latency in one column, for rows that are repeated.
//!
//! A list of a thousand elements becomes a thousand rows of one record. As a dictionary
//!
//! ```text
//! keys UInt32  0 0 0 … 0 1 1 …   values  id, latency (ps)   0: 17, 81 200
//!                                                          1: 18,  9 050
//! ```
//!
//! a row takes 4 bytes in place of 16, and who reads it looks for where the keys change. A value is one
//! integer of 128 bits, the id above the latency, which Arrow has as a decimal: a struct of two columns would
//! be three more arrays, which every batch that passes an operator allocates and measures anew. Only an aggregate
//! that takes such rows as they come is handed them. Sorting, joining or filtering dictionaries would keep
//! values that no row has any more, which costs more than the column saves.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, DictionaryArray, Int64Array, UInt32Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, Int64Type, UInt32Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use skewer_profiling::equal_to_first;

/// The scalar function `packed_record(id [, latency]) → record`, whose arguments [`Records`] reads back.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RecordColumn {
    signature: Signature,
}

impl Default for RecordColumn {
    fn default() -> Self {
        Self {
            signature: Signature::variadic(vec![DataType::Int64], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for RecordColumn {
    fn name(&self) -> &'static str {
        "packed_record"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(Self::data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let (ids, latencies) = match arrays.as_slice() {
            [ids] => (ids, None),
            [ids, latencies] => (ids, Some(latencies.as_primitive::<Int64Type>())),
            other => return internal_err!("packed_record takes no {} arguments", other.len()),
        };
        let ids = ids.as_primitive::<Int64Type>();
        let Ok(end) = u32::try_from(rows) else {
            return internal_err!("packed_record: a batch has {rows} rows");
        };
        let keys = UInt32Array::from_iter_values(0..end);
        // Of rows without an id it does not matter what is below their NULL.
        let with_id = ids.values().iter();
        let values: Vec<i128> = match latencies {
            None => with_id.map(|id| value(*id, 0)).collect(),
            Some(latencies) if latencies.null_count() == 0 => {
                let both = with_id.zip(latencies.values());
                both.map(|(id, latency)| value(*id, *latency)).collect()
            }
            Some(latencies) => {
                let both = with_id.zip(latencies);
                both.map(|(id, latency)| value(*id, latency.unwrap_or(0)))
                    .collect()
            }
        };
        let values = Decimal128Array::new(values.into(), ids.nulls().cloned());
        Ok(ColumnarValue::Array(dictionary(keys, values)?))
    }
}

impl RecordColumn {
    /// The type of its columns.
    pub fn data_type() -> DataType {
        DataType::Dictionary(
            Box::new(DataType::UInt32),
            Box::new(Decimal128Type::DEFAULT_TYPE),
        )
    }
}

/// The values of those that are traced; NULL of the others.
fn dictionary(keys: UInt32Array, values: Decimal128Array) -> Result<ArrayRef> {
    Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(values))?))
}

fn value(id: i64, latency: i64) -> i128 {
    i128::from(id) << 64 | i128::from(latency as u64)
}

fn id_of(value: i128) -> i64 {
    (value >> 64) as i64
}

fn latency_of(value: i128) -> i64 {
    value as i64
}

fn later(before: i128, ps: i64) -> i128 {
    value(id_of(before), latency_of(before).saturating_add(ps))
}

/// A column of [`RecordColumn`] with what its rows took besides: `took` has so many rows, one after the
/// other, and the picoseconds of each of them.
pub(crate) fn with_latencies(
    column: &ArrayRef,
    mut took: impl ExactSizeIterator<Item = (usize, i64)>,
) -> Result<ArrayRef> {
    let (Records::Dictionary(before), Some(dictionary)) = (
        Records::of_column(column)?,
        column.as_dictionary_opt::<UInt32Type>(),
    ) else {
        return internal_err!("record level: {} is not packed", column.data_type());
    };
    // Where all took the same, rows have the keys that they had, which are known to be some of the values.
    if took.len() == 1
        && before.values.len() <= column.len()
        && let Some((_, ps)) = took.next()
    {
        let values: Decimal128Array = before.values.unary(|value| later(value, ps));
        return Ok(Arc::new(dictionary.with_values(Arc::new(values))));
    }
    before.later_by_run(took)
}

/// Rows one after the other of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordRun {
    pub(crate) rows: usize,
    pub(crate) id: i64,
    /// In picoseconds.
    pub(crate) latency: i64,
}

/// The records of the rows of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Records<'a> {
    /// Their ids; latencies are in other columns.
    Ids(&'a Int64Array),
    /// What [`RecordColumn`] has made.
    Dictionary(RecordDictionary<'a>),
}

/// A column of [`RecordColumn`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordDictionary<'a> {
    keys: &'a UInt32Array,
    values: &'a Decimal128Array,
}

impl<'a> Records<'a> {
    pub(crate) fn of_column(column: &'a ArrayRef) -> Result<Self> {
        if let Some(ids) = column.as_primitive_opt::<Int64Type>() {
            return Ok(Self::Ids(ids));
        }
        let dictionary = column
            .as_dictionary_opt::<UInt32Type>()
            .and_then(|dictionary| {
                Some(RecordDictionary {
                    keys: dictionary.keys(),
                    values: dictionary.values().as_primitive_opt()?,
                })
            });
        match dictionary {
            Some(dictionary) => Ok(Self::Dictionary(dictionary)),
            None => internal_err!("record level: {} is no record", column.data_type()),
        }
    }

    /// The record of a row, if it is traced.
    pub(crate) fn id(&self, row: usize) -> Option<i64> {
        match self {
            Self::Ids(ids) => ids.is_valid(row).then(|| ids.value(row)),
            Self::Dictionary(dictionary) => dictionary.value(dictionary.key(row)?).map(id_of),
        }
    }

    /// How many of the rows from `row` on, before `limit`, surely are of one record, or of none.
    pub(crate) fn run(&self, row: usize, limit: usize) -> usize {
        match self {
            Self::Ids(ids) => {
                let equal = equal_to_first(&ids.values()[row..limit]);
                as_valid_as_first(ids.nulls(), row, equal)
            }
            Self::Dictionary(dictionary) => {
                let id = self.id(row);
                let mut end = row + dictionary.run(row, limit);
                // A record that has been repeated before has several keys.
                while end < limit && self.id(end) == id {
                    end += dictionary.run(end, limit);
                }
                end - row
            }
        }
    }
}

/// How many of so many rows, from `row` on, are NULL as that one is or are not NULL as it is not.
fn as_valid_as_first(nulls: Option<&NullBuffer>, row: usize, rows: usize) -> usize {
    match nulls {
        None => rows,
        Some(nulls) => {
            let first = nulls.is_valid(row);
            let as_first = (row..row + rows).take_while(|row| nulls.is_valid(*row) == first);
            as_first.count()
        }
    }
}

/// From so many runs on one can tell how long the runs of a batch are.
const FIRST_RUNS: usize = 64;

impl RecordDictionary<'_> {
    /// Where the values have what a row has, which may be nothing.
    fn key(&self, row: usize) -> Option<usize> {
        let is_valid = self.keys.is_valid(row);
        is_valid.then(|| self.keys.value(row) as usize)
    }

    /// What those rows have that have this key, if their record is traced.
    fn value(&self, key: usize) -> Option<i128> {
        self.values.is_valid(key).then(|| self.values.value(key))
    }

    /// How many of the rows from `row` on, before `limit`, have one key, or none.
    fn run(&self, row: usize, limit: usize) -> usize {
        let keys = &self.keys.values()[row..limit];
        let equal = match (self.values.len(), keys) {
            (1, keys) => keys.len(),
            // Most runs are this short where lists are: comparing many at a time is not worth its beginning.
            (_, [a, b, c, d, ..]) if (a, a, a) != (b, c, d) => {
                1 + [b, c].into_iter().take_while(|key| *key == a).count()
            }
            _ => equal_to_first(keys),
        };
        as_valid_as_first(self.keys.nulls(), row, equal)
    }

    /// The rows of all records, if runs have `mean` rows in the mean at least and nothing is NULL. Where the
    /// first runs have less than half of that, the others are not looked at.
    pub(crate) fn long_runs(&self, mean: usize) -> Option<Vec<RecordRun>> {
        if self.keys.null_count() + self.values.null_count() > 0 {
            return None;
        }
        let mut runs = Vec::new();
        for (rows, key) in self.runs() {
            let value = self.values.value(key?);
            runs.push(RecordRun {
                rows: rows.len(),
                id: id_of(value),
                latency: latency_of(value),
            });
            let are_few = runs.len() == FIRST_RUNS && rows.end * 2 < FIRST_RUNS * mean;
            if are_few || runs.len() * mean > self.keys.len() {
                return None;
            }
        }
        Some(runs)
    }

    /// The same rows, each later by what its run took.
    fn later_by_run(&self, took: impl Iterator<Item = (usize, i64)>) -> Result<ArrayRef> {
        let rows = self.keys.len();
        let (mut keys, mut values) = (Vec::with_capacity(rows), vec![]);
        let mut end = 0;
        for (of_run, ps) in took {
            end += of_run;
            while keys.len() < end {
                let row = keys.len();
                let length = self.run(row, end);
                keys.extend(std::iter::repeat_n(values.len() as u32, length));
                let before = self.key(row).and_then(|key| self.value(key));
                values.push(before.map(|before| later(before, ps)));
            }
        }
        dictionary(UInt32Array::from(keys), values.into_iter().collect())
    }

    /// Whether no row is of a traced record.
    pub(crate) fn is_empty(&self) -> bool {
        if self.keys.null_count() + self.values.null_count() == 0 {
            return self.keys.is_empty();
        }
        let mut runs = self.runs();
        runs.all(|(_, key)| key.is_none_or(|key| self.values.is_null(key)))
    }

    /// Rows one after the other that have one key, or none.
    fn runs(&self) -> impl Iterator<Item = (Range<usize>, Option<usize>)> {
        let rows = self.keys.len();
        let mut next = 0;
        std::iter::from_fn(move || {
            (next < rows).then(|| {
                let row = next;
                next += self.run(row, rows);
                (row..next, self.key(row))
            })
        })
    }

    /// Calls `each` with every row whose record is traced, the record's id and its latency.
    pub(crate) fn for_each(&self, mut each: impl FnMut(usize, i64, i64)) {
        for (rows, key) in self.runs() {
            if let Some(value) = key.and_then(|key| self.value(key)) {
                let (id, latency) = (id_of(value), latency_of(value));
                rows.for_each(|row| each(row, id, latency));
            }
        }
    }

    /// The ids of all rows, and the latencies; NULL of those that are not traced.
    pub(crate) fn unpacked(&self) -> Result<(Int64Array, Int64Array)> {
        if self.keys.null_count() + self.values.null_count() == 0 {
            return Ok((self.of_rows(id_of), self.of_rows(latency_of)));
        }
        let values = take(self.values, self.keys, None)?;
        let values = values.as_primitive::<Decimal128Type>();
        Ok((values.unary(id_of), values.unary(latency_of)))
    }

    /// A part of each row's value, where nothing is NULL.
    fn of_rows(&self, part: impl Fn(i128) -> i64) -> Int64Array {
        let (keys, values) = (self.keys.values(), self.values.values());
        let parts = keys.iter().map(|key| part(values[*key as usize]));
        parts.collect::<Vec<i64>>().into()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::UInt64Array;
    use datafusion::arrow::datatypes::Field;
    use datafusion::config::ConfigOptions;

    use super::*;

    /// The records of rows that are made of one row of each of `records`, (id, latency), at these places.
    fn repeated(records: &[(Option<i64>, Option<i64>)], rows: &[Option<u64>]) -> ArrayRef {
        let (ids, latencies): (Vec<_>, Vec<_>) = records.iter().copied().unzip();
        let arrays =
            [ids, latencies].map(|values| -> ArrayRef { Arc::new(Int64Array::from(values)) });
        let function = RecordColumn::default();
        let dictionary = function.invoke_with_args(ScalarFunctionArgs {
            args: arrays.into_iter().map(ColumnarValue::Array).collect(),
            arg_fields: vec![],
            number_rows: records.len(),
            return_field: Arc::new(Field::new("r", function.return_type(&[]).unwrap(), true)),
            config_options: Arc::new(ConfigOptions::default()),
        });
        let dictionary = dictionary.unwrap().into_array(records.len()).unwrap();
        take(&dictionary, &UInt64Array::from(rows.to_vec()), None).unwrap()
    }

    fn dictionary_of(column: &ArrayRef) -> RecordDictionary<'_> {
        match Records::of_column(column).unwrap() {
            Records::Dictionary(dictionary) => dictionary,
            Records::Ids(_) => panic!("these are no ids"),
        }
    }

    #[test]
    fn the_rows_of_a_record_are_a_run_as_long_as_they_took_the_same() {
        let rows: Vec<_> = [[Some(0); 4], [Some(1); 4]].concat();
        let column = repeated(&[(Some(7), Some(100)), (Some(9), Some(50))], &rows);
        let run = |rows, id, latency| RecordRun { rows, id, latency };
        let by_record = vec![run(4, 7, 100), run(4, 9, 50)];
        assert_eq!(dictionary_of(&column).long_runs(4), Some(by_record));
        assert_eq!(dictionary_of(&column).long_runs(5), None);
        let of_some_rows = column.slice(3, 3);
        let by_record = vec![run(1, 7, 100), run(2, 9, 50)];
        assert_eq!(dictionary_of(&of_some_rows).long_runs(1), Some(by_record));
        let took = [(4, 1), (2, 2), (2, 3)];
        let longer = with_latencies(&column, took.into_iter()).unwrap();
        let by_time = vec![run(4, 7, 101), run(2, 9, 52), run(2, 9, 53)];
        assert_eq!(dictionary_of(&longer).long_runs(2), Some(by_time));
        assert_eq!(longer.data_type(), column.data_type());
    }

    #[test]
    fn runs_of_all_lengths_are_told_apart() {
        let lengths = [1, 2, 3, 4, 5, 1, 9, 3, 200, 1, 2];
        let ids: Vec<_> = (0..lengths.len() as i64)
            .map(|id| (Some(id), None))
            .collect();
        let of_each = (0..)
            .zip(lengths)
            .flat_map(|(id, rows)| vec![Some(id); rows]);
        let column = repeated(&ids, &of_each.collect::<Vec<_>>());
        let runs = dictionary_of(&column).long_runs(1).unwrap();
        assert_eq!(runs.iter().map(|run| run.rows).collect::<Vec<_>>(), lengths);
    }

    #[test]
    fn where_the_first_runs_are_short_none_is_looked_for() {
        let column = |first: usize| {
            let rows = (0..100).flat_map(|id| vec![Some(id); if id < 64 { first } else { 100 }]);
            let ids: Vec<_> = (0..100).map(|id| (Some(id), None)).collect();
            repeated(&ids, &rows.collect::<Vec<_>>())
        };
        assert!(dictionary_of(&column(8)).long_runs(16).is_some());
        assert!(dictionary_of(&column(7)).long_runs(16).is_none());
    }

    #[test]
    fn what_rows_took_besides_is_added_to_their_records_latencies() {
        let records = [
            (Some(7), Some(100)),
            (Some(9), None),
            (None, None),
            (Some(8), Some(5)),
        ];
        let rows = [0, 0, 1, 2, 3].map(Some);
        let rows = [rows.as_slice(), &[None]].concat();
        let latencies = |took: &[(usize, i64)]| {
            let column = repeated(&records, &rows);
            let longer = with_latencies(&column, took.iter().copied()).unwrap();
            let mut seen = vec![];
            dictionary_of(&longer).for_each(|row, id, latency| seen.push((row, id, latency)));
            let (ids, _) = dictionary_of(&longer).unpacked().unwrap();
            assert_eq!(ids, dictionary_of(&column).unpacked().unwrap().0);
            seen
        };
        assert_eq!(
            latencies(&[(6, 10)]),
            [(0, 7, 110), (1, 7, 110), (2, 9, 10), (4, 8, 15)]
        );
        assert_eq!(
            latencies(&[(1, 1), (3, 2), (2, 3)]),
            [(0, 7, 101), (1, 7, 102), (2, 9, 2), (4, 8, 8)]
        );
        // Fewer rows than records.
        let column = repeated(&records, &[Some(3)]);
        let longer = with_latencies(&column, [(1, 1)].into_iter()).unwrap();
        let by_time = RecordRun {
            rows: 1,
            id: 8,
            latency: 6,
        };
        assert_eq!(dictionary_of(&longer).long_runs(1), Some(vec![by_time]));
    }

    #[test]
    fn ids_and_latencies_below_zero_and_the_greatest_keep_apart() {
        let records = [
            (-1, -1),
            (-1, 5),
            (7, -9),
            (i64::MIN, i64::MAX),
            (i64::MAX, i64::MIN),
        ];
        let given: Vec<_> = records.map(|(id, ps)| (Some(id), Some(ps))).to_vec();
        let column = repeated(&given, &[0, 1, 2, 3, 4].map(Some));
        assert_eq!(*column.data_type(), RecordColumn::data_type());
        let seen = |column: &ArrayRef| {
            let mut seen = vec![];
            dictionary_of(column).for_each(|_, id, latency| seen.push((id, latency)));
            seen
        };
        assert_eq!(seen(&column), records);
        // All later by the same, and by what each took.
        for took in [vec![(5, 1)], vec![(1, 1); 5]] {
            let longer = with_latencies(&column, took.into_iter()).unwrap();
            assert_eq!(*longer.data_type(), RecordColumn::data_type());
            let later = records.map(|(id, ps)| (id, ps.saturating_add(1)));
            assert_eq!(seen(&longer), later);
        }
    }

    #[test]
    fn rows_of_a_record_that_was_repeated_before_are_of_one_record() {
        let records = [(Some(7), Some(100)), (Some(7), Some(50)), (Some(9), None)];
        let column = repeated(&records, &[Some(0), Some(0), Some(1), Some(2)]);
        let records = Records::of_column(&column).unwrap();
        assert_eq!([0, 2, 3].map(|row| records.run(row, 4)), [3, 1, 1]);
        assert_eq!(records.run(0, 2), 2);
    }

    #[test]
    fn records_that_are_not_traced_have_no_id() {
        let column = repeated(
            &[(Some(7), Some(100)), (None, None)],
            &[Some(0), Some(1), Some(1), None],
        );
        assert_eq!(dictionary_of(&column).long_runs(1), None);
        let (ids, latencies) = dictionary_of(&column).unpacked().unwrap();
        assert_eq!(ids, Int64Array::from(vec![Some(7), None, None, None]));
        assert_eq!(latencies.iter().flatten().collect::<Vec<_>>(), [100]);
        let records = Records::of_column(&column).unwrap();
        assert!(!dictionary_of(&column).is_empty());
        assert!(dictionary_of(&column.slice(1, 3)).is_empty());
        let mut seen = vec![];
        dictionary_of(&column).for_each(|row, id, latency| seen.push((row, id, latency)));
        assert_eq!(seen, [(0, 7, 100)]);
        let ids = [0, 1, 2, 3].map(|row| records.id(row));
        assert_eq!(ids, [Some(7), None, None, None]);
        assert_eq!(records.run(1, 3), 2);
    }

    #[test]
    fn other_columns_are_no_records() {
        let column: ArrayRef = Arc::new(UInt32Array::from(vec![1]));
        let refused = Records::of_column(&column).unwrap_err().to_string();
        assert!(refused.contains("UInt32 is no record"), "{refused}");
    }
}
