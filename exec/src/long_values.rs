//! Rows with far more bytes than the others, which are worth timing by themselves.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, AsArray, GenericByteViewArray, OffsetSizeTrait, RecordBatch,
};
use datafusion::arrow::datatypes::{ByteViewType, DataType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

/// A value is long from this size on: whatever a function does with it, that is worth a clock
/// reading.
const LONG: usize = 1 << 12;

/// A value may be worth a clock reading from this size on: it is if rows are expensive in the mean. It
/// is a power of two.
const LONGISH: usize = 1 << 6;

const _: () = assert!(LONGISH.is_power_of_two());

/// … and if it is this many times the mean of its batch.
const TIMES_THE_MEAN: usize = 8;

/// The columns that expressions read, whose values may be long. Lengths are in bytes for strings and
/// in elements for lists.
#[derive(Debug)]
pub struct LongValues {
    columns: Vec<usize>,
}

impl LongValues {
    /// Of what `expressions` read.
    pub fn read_by(expressions: &[(Arc<dyn PhysicalExpr>, String)]) -> Self {
        let mut columns: Vec<usize> = expressions
            .iter()
            .flat_map(|(expression, _)| collect_columns(expression))
            .map(|column| column.index())
            .collect();
        columns.sort_unstable();
        columns.dedup();
        Self { columns }
    }

    /// The rows, ascending, with a value far longer than the mean of its column, and whether that is
    /// [`LONG`].
    pub fn far_longer_than_the_mean(&self, batch: &RecordBatch) -> Vec<LongRow> {
        let mut rows = Vec::new();
        for column in &self.columns {
            let array = batch.column(*column).as_ref();
            match array.data_type() {
                DataType::Utf8 => by_offsets(array.as_string::<i32>().value_offsets(), &mut rows),
                DataType::LargeUtf8 => {
                    by_offsets(array.as_string::<i64>().value_offsets(), &mut rows);
                }
                DataType::Binary => by_offsets(array.as_binary::<i32>().value_offsets(), &mut rows),
                DataType::LargeBinary => {
                    by_offsets(array.as_binary::<i64>().value_offsets(), &mut rows);
                }
                DataType::List(_) => by_offsets(array.as_list::<i32>().value_offsets(), &mut rows),
                DataType::LargeList(_) => {
                    by_offsets(array.as_list::<i64>().value_offsets(), &mut rows);
                }
                DataType::Utf8View => by_views(array.as_string_view(), &mut rows),
                DataType::BinaryView => by_views(array.as_binary_view(), &mut rows),
                _ => {}
            }
        }
        // Of a row with several such values the longest kind comes first, and stays.
        rows.sort_unstable_by_key(|long| (long.row, !long.is_long));
        rows.dedup_by_key(|long| long.row);
        rows
    }

    /// The length of a row's values that are [`LONGISH`] together; 0 if it has none.
    pub fn length(&self, batch: &RecordBatch, row: usize) -> usize {
        let lengths = self.columns.iter().map(|column| {
            let array = batch.column(*column).as_ref();
            match array.data_type() {
                DataType::Utf8 => array.as_string::<i32>().value_length(row) as usize,
                DataType::LargeUtf8 => array.as_string::<i64>().value_length(row) as usize,
                DataType::Binary => array.as_binary::<i32>().value_length(row) as usize,
                DataType::LargeBinary => array.as_binary::<i64>().value_length(row) as usize,
                DataType::List(_) => array.as_list::<i32>().value_length(row) as usize,
                DataType::LargeList(_) => array.as_list::<i64>().value_length(row) as usize,
                DataType::Utf8View => array.as_string_view().value(row).len(),
                DataType::BinaryView => array.as_binary_view().value(row).len(),
                _ => 0,
            }
        });
        lengths.filter(|length| *length >= LONGISH).sum()
    }
}

/// A row with a value far longer than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongRow {
    /// Its place in the batch.
    pub row: usize,
    /// Whether it is worth a clock reading whatever rows cost.
    pub is_long: bool,
}

impl LongRow {
    /// A row that is worth a clock reading.
    pub fn long(row: usize) -> Self {
        Self { row, is_long: true }
    }
}

fn by_offsets<O: OffsetSizeTrait>(offsets: &[O], rows: &mut Vec<LongRow>) {
    let total = match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (*last - *first).as_usize(),
        _ => 0,
    };
    if total >= LONGISH {
        let lengths = offsets
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_usize());
        select(lengths, total, offsets.len() - 1, rows);
    }
}

fn by_views<T: ByteViewType>(array: &GenericByteViewArray<T>, rows: &mut Vec<LongRow>) {
    if array.data_buffers().is_empty() {
        // All are in their views, which hold 12 bytes.
        return;
    }
    // A view's low 32 bits are the length, so all views or-ed together have the highest bit of the longest.
    let bits = array.views().iter().fold(0, |bits, view| bits | view) as u32;
    if (bits as usize) < LONGISH {
        return;
    }
    let lengths = array.lengths().map(|length| length as usize);
    let total = lengths.clone().sum();
    select(lengths, total, array.len(), rows);
}

fn select(
    lengths: impl Iterator<Item = usize>,
    total: usize,
    count: usize,
    rows: &mut Vec<LongRow>,
) {
    let threshold = (TIMES_THE_MEAN * total / count.max(1)).max(LONGISH);
    if total >= threshold {
        let long = lengths
            .enumerate()
            .filter(|(_, length)| *length >= threshold);
        rows.extend(long.map(|(row, length)| LongRow {
            row,
            is_long: length >= LONG,
        }));
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, ListArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int32Type;
    use datafusion::physical_expr::expressions::col;

    use super::*;

    fn of_column(array: ArrayRef) -> (LongValues, RecordBatch) {
        let batch = RecordBatch::try_from_iter([("text", array)]).unwrap();
        let expression = col("text", &batch.schema()).unwrap();
        (
            LongValues::read_by(&[(expression, "text".to_owned())]),
            batch,
        )
    }

    fn long_rows(array: ArrayRef) -> Vec<usize> {
        let (values, batch) = of_column(array);
        let rows = values.far_longer_than_the_mean(&batch).into_iter();
        rows.filter(|long| long.is_long)
            .map(|long| long.row)
            .collect()
    }

    #[test]
    fn only_rows_far_longer_than_the_mean_are_named() {
        let mut texts = vec!["short".to_owned(); 1000];
        texts[17] = "x".repeat(100_000);
        texts[900] = "x".repeat(50_000);
        assert_eq!(
            long_rows(Arc::new(StringArray::from(texts.clone()))),
            [17, 900]
        );
        assert_eq!(long_rows(Arc::new(StringViewArray::from(texts))), [17, 900]);
    }

    #[test]
    fn a_value_is_long_from_4096_bytes_on() {
        for (length, expected) in [(4_095, &[][..]), (4_096, &[100]), (5_000, &[100])] {
            let mut texts: Vec<_> = (0..200).map(|n| "x".repeat(n)).collect();
            texts[100] = "x".repeat(length);
            let arrays: [ArrayRef; 2] = [
                Arc::new(StringArray::from(texts.clone())),
                Arc::new(StringViewArray::from(texts)),
            ];
            for array in arrays {
                assert_eq!(long_rows(array), expected, "{length}");
            }
        }
    }

    #[test]
    fn a_value_may_be_worth_a_clock_reading_from_64_bytes_on() {
        for (length, expected) in [(63, &[][..]), (64, &[100]), (3_000, &[100])] {
            let mut texts = vec!["short".to_owned(); 200];
            texts[100] = "x".repeat(length);
            let arrays: [ArrayRef; 2] = [
                Arc::new(StringArray::from(texts.clone())),
                Arc::new(StringViewArray::from(texts)),
            ];
            for array in arrays {
                let (values, batch) = of_column(array);
                let found = values.far_longer_than_the_mean(&batch);
                let expected: Vec<_> = expected
                    .iter()
                    .map(|row| LongRow {
                        row: *row,
                        is_long: false,
                    })
                    .collect();
                assert_eq!(found, expected, "{length}");
                assert_eq!(values.length(&batch, 0), 0);
            }
        }
    }

    #[test]
    fn rows_that_are_all_long_are_not_named() {
        let texts = vec!["x".repeat(10_000); 100];
        assert!(long_rows(Arc::new(StringArray::from(texts))).is_empty());
    }

    #[test]
    fn a_slice_is_judged_by_its_own_rows() {
        let mut texts = vec!["short".to_owned(); 100];
        texts[3] = "x".repeat(100_000);
        let array = StringArray::from(texts);
        assert!(long_rows(Arc::new(array.slice(10, 90))).is_empty());
        assert_eq!(long_rows(Arc::new(array.slice(2, 90))), [1]);
    }

    #[test]
    fn the_length_of_a_row_is_that_of_its_long_values() {
        let texts = ["short".to_owned(), "x".repeat(5_000), "x".repeat(100_000)];
        let list = |length: i32| Some((0..length).map(Some));
        let lists =
            ListArray::from_iter_primitive::<Int32Type, _, _>([5, 5_000, 100_000].map(list));
        let arrays: [ArrayRef; 3] = [
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(StringViewArray::from(texts.to_vec())),
            Arc::new(lists),
        ];
        for array in arrays {
            let (values, batch) = of_column(array);
            let lengths = [0, 1, 2].map(|row| values.length(&batch, row));
            assert_eq!(lengths, [0, 5_000, 100_000]);
            assert_eq!(values.length(&batch.slice(1, 2), 1), 100_000);
        }
    }
}
