//! How many bytes the rows of a batch occupy.

use datafusion::arrow::array::{
    Array, AsArray, GenericByteViewArray, OffsetSizeTrait, RecordBatch,
};
use datafusion::arrow::datatypes::{ByteViewType, DataType};

/// Bytes that the rows of a batch occupy, of its sliced and shared buffers only their own part.
///
/// Strings behind views count by the lengths that the views name, whether or not rows share
/// them: that is what would travel to another worker.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    bytes(batch, Views::All)
}

/// The same, but strings behind views count by the lengths of some of them.
///
/// This is asked for every batch of every operator, so it allocates nothing and, but for those,
/// looks at no row: all views of two columns would be 2 % of a scan such as TPC-H Q1's.
pub fn estimated_batch_bytes(batch: &RecordBatch) -> usize {
    bytes(batch, Views::Some)
}

/// The same of one array.
pub fn estimated_array_bytes(array: &dyn Array) -> usize {
    array_bytes(array, Views::Some)
}

/// Which views' lengths are looked at.
#[derive(Debug, Clone, Copy)]
enum Views {
    All,
    /// At most [`RUNS`] times [`RUN`].
    Some,
}

/// Runs of views that are looked at, spread over an array: a run is in one or two cache lines,
/// and what single views at a distance would take is to fetch as many lines from memory. (32 runs
/// were a hundredth of a query that unnests 12 million strings.)
const RUNS: usize = 8;

/// Views in a run.
const RUN: usize = 8;

fn bytes(batch: &RecordBatch, which: Views) -> usize {
    let columns = batch.columns().iter();
    columns
        .map(|column| array_bytes(column.as_ref(), which))
        .sum()
}

fn array_bytes(array: &dyn Array, which: Views) -> usize {
    let rows = array.len();
    let validity = if array.nulls().is_some() {
        rows.div_ceil(8)
    } else {
        0
    };
    validity
        + match array.data_type() {
            DataType::Null => 0,
            DataType::Boolean => rows.div_ceil(8),
            DataType::Utf8 => text(array.as_string::<i32>().value_offsets()),
            DataType::LargeUtf8 => text(array.as_string::<i64>().value_offsets()),
            DataType::Binary => text(array.as_binary::<i32>().value_offsets()),
            DataType::LargeBinary => text(array.as_binary::<i64>().value_offsets()),
            DataType::Utf8View => views(array.as_string_view(), which),
            DataType::BinaryView => views(array.as_binary_view(), which),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                elements(list.value_offsets(), list.values().as_ref(), which)
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                elements(list.value_offsets(), list.values().as_ref(), which)
            }
            DataType::Struct(_) => {
                let columns = array.as_struct().columns().iter();
                columns
                    .map(|column| array_bytes(column.as_ref(), which))
                    .sum()
            }
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                let values = dictionary.values().as_ref();
                // Slices of one batch share its values.
                let used = rows.min(values.len());
                let of_used = array_bytes(values, which) * used / values.len().max(1);
                array_bytes(dictionary.keys(), which) + of_used
            }
            other => match other.primitive_width() {
                Some(width) => rows * width,
                // Maps, unions: rare enough to take the slow way.
                None => {
                    let slice = array.to_data().get_slice_memory_size();
                    slice.unwrap_or_else(|_| array.get_array_memory_size())
                }
            },
        }
}

/// Offsets and the bytes between the first and the last.
fn text<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    size_of_val(offsets) + between(offsets)
}

fn between<O: OffsetSizeTrait>(offsets: &[O]) -> usize {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => (*last - *first).as_usize(),
        _ => 0,
    }
}

/// Offsets and the elements between the first and the last.
fn elements<O: OffsetSizeTrait>(offsets: &[O], values: &dyn Array, which: Views) -> usize {
    let first = offsets.first().map_or(0, |first| first.as_usize());
    let values = values.slice(first, between(offsets));
    size_of_val(offsets) + array_bytes(values.as_ref(), which)
}

/// Views, and what the longer strings have beside them.
fn views<T: ByteViewType>(array: &GenericByteViewArray<T>, which: Views) -> usize {
    let views: &[u128] = array.views();
    let (beside, seen) = match which {
        _ if array.data_buffers().is_empty() => (0, 1),
        Views::Some if views.len() > 2 * RUNS * RUN => {
            let part = views.len() / RUNS;
            let beside = (0..RUNS).map(|run| beside(&views[run * part..run * part + RUN]));
            (beside.sum::<usize>(), RUNS * RUN)
        }
        Views::Some | Views::All => (beside(views), views.len().max(1)),
    };
    size_of_val(views) + (beside as u128 * views.len() as u128 / seen as u128) as usize
}

/// Bytes of strings that are not in their views. A view's low 32 bits are the length; up to 12
/// bytes are in the view itself.
fn beside(views: &[u128]) -> usize {
    let lengths = views.iter().map(|view| *view as u32 as usize);
    lengths
        .map(|length| if length > 12 { length } else { 0 })
        .sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        ArrayRef, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListArray, StringArray,
        StringViewArray,
    };
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    fn bytes(array: ArrayRef) -> usize {
        batch_bytes(&RecordBatch::try_from_iter([("column", array)]).unwrap())
    }

    #[test]
    fn a_slice_counts_its_own_rows_only() {
        let numbers = Int64Array::from_iter_values(0..1000);
        assert_eq!(bytes(Arc::new(numbers.slice(10, 100))), 800);
        let texts = StringArray::from_iter_values((0..1000).map(|_| "four"));
        assert_eq!(bytes(Arc::new(texts.slice(10, 100))), 101 * 4 + 400);
        assert_eq!(bytes(Arc::new(BooleanArray::from(vec![true; 80]))), 10);
    }

    #[test]
    fn short_strings_are_in_their_views_and_long_ones_beside() {
        let long = "x".repeat(100);
        let texts = StringViewArray::from(vec!["short", &long, "twelve bytes"]);
        assert_eq!(bytes(Arc::new(texts)), 3 * 16 + 100);
    }

    #[test]
    fn an_estimate_is_near_and_exact_where_all_rows_are_alike() {
        let estimate = |texts: &StringViewArray| {
            let array: ArrayRef = Arc::new(texts.clone());
            estimated_batch_bytes(&RecordBatch::try_from_iter([("column", array)]).unwrap())
        };
        let alike = StringViewArray::from_iter_values((0..8192).map(|_| "thirteen text"));
        assert_eq!(estimate(&alike), 8192 * (16 + 13));
        let few = StringViewArray::from_iter_values((0..100).map(|n| "x".repeat(n)));
        assert_eq!(estimate(&few), bytes(Arc::new(few)));
        let texts = (0..8192).map(|n| "x".repeat(n * 7919 % 100));
        let texts = StringViewArray::from_iter_values(texts);
        let (estimate, exact) = (estimate(&texts) as f64, bytes(Arc::new(texts)) as f64);
        assert!(
            (estimate / exact - 1.0).abs() < 0.15,
            "{estimate} of {exact}"
        );
    }

    #[test]
    fn nulls_take_a_bit_a_row() {
        let numbers = Int32Array::from(vec![Some(1), None, Some(3)]);
        assert_eq!(bytes(Arc::new(numbers)), 3 * 4 + 1);
    }

    #[test]
    fn lists_count_the_elements_of_their_rows() {
        let rows = (0..10).map(|row| Some(vec![Some(row); 5]));
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
        let elements = 2 * 5;
        assert_eq!(bytes(Arc::new(lists.slice(3, 2))), 3 * 4 + elements * 4);
    }

    #[test]
    fn a_slice_of_a_dictionary_counts_as_many_values_as_it_may_use() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let keys = Int32Array::from_iter_values((0..3000).map(|row| row % 1000));
        let dictionary = DictionaryArray::<Int32Type>::try_new(keys, values).unwrap();
        let part = dictionary.slice(10, 100);
        assert_eq!(bytes(Arc::new(dictionary)), 3000 * 4 + 1000 * 8);
        assert_eq!(bytes(Arc::new(part)), 100 * 4 + 100 * 8);
    }
}
