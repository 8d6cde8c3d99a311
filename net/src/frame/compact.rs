//! Batches without what they do not refer to.
//!
//! A filtered view array still points into whole buffers of its input, and a filtered dictionary
//! array has all values of its input: both would travel with each batch.

use std::sync::Arc;

use arrow_select::dictionary::garbage_collect_any_dictionary;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericByteViewArray, LargeListArray, ListArray, RecordBatch,
    RecordBatchOptions, StructArray,
};
use datafusion::arrow::datatypes::{ByteViewType, DataType};
use datafusion::arrow::error::ArrowError;

/// A view array is copied if less than a half of what its buffers hold is referred to: below that
/// the copy costs less than sending the rest.
const WORTH_COPYING: usize = 2;

/// The batch without what its arrays do not refer to.
///
/// # Errors
/// If an array cannot be rebuilt.
pub fn compact(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !batch
        .columns()
        .iter()
        .any(|column| wasteful(column.data_type()))
    {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().map(array);
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// Whether arrays of the type can hold more than they refer to.
fn wasteful(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView | DataType::Dictionary(..) => true,
        DataType::Struct(fields) => fields.iter().any(|field| wasteful(field.data_type())),
        DataType::List(field) | DataType::LargeList(field) => wasteful(field.data_type()),
        _ => false,
    }
}

fn array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !wasteful(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    Ok(match array.data_type() {
        DataType::Utf8View => views(array, array.as_string_view()),
        DataType::BinaryView => views(array, array.as_binary_view()),
        DataType::Dictionary(..) => garbage_collect_any_dictionary(array.as_any_dictionary())?,
        DataType::Struct(fields) => {
            let parts = array.as_struct();
            let columns = parts.columns().iter().map(self::array);
            Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns.collect::<Result<_, _>>()?,
                parts.nulls().cloned(),
                parts.len(),
            )?)
        }
        DataType::List(field) => {
            let list = array.as_list::<i32>();
            Arc::new(ListArray::try_new(
                Arc::clone(field),
                list.offsets().clone(),
                self::array(list.values())?,
                list.nulls().cloned(),
            )?)
        }
        DataType::LargeList(field) => {
            let list = array.as_list::<i64>();
            Arc::new(LargeListArray::try_new(
                Arc::clone(field),
                list.offsets().clone(),
                self::array(list.values())?,
                list.nulls().cloned(),
            )?)
        }
        _ => Arc::clone(array),
    })
}

fn views<T: ByteViewType>(original: &ArrayRef, views: &GenericByteViewArray<T>) -> ArrayRef {
    let held: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
    if held > WORTH_COPYING * views.total_buffer_bytes_used() {
        Arc::new(views.gc())
    } else {
        Arc::clone(original)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DictionaryArray, Int32Array, StringArray, StringViewArray};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::{Field, Int32Type, Schema};

    use super::*;

    fn texts(count: usize) -> StringViewArray {
        (0..count)
            .map(|i| {
                Some(format!(
                    "a text that is longer than twelve bytes, number {i}"
                ))
            })
            .collect()
    }

    #[test]
    fn a_slice_of_views_leaves_the_rest_of_the_buffers_behind() {
        let all: ArrayRef = Arc::new(texts(10_000));
        let few = all.slice(17, 3);
        let held = |array: &ArrayRef| -> usize {
            let buffers = array.as_string_view().data_buffers();
            buffers.iter().map(|buffer| buffer.len()).sum()
        };
        let compacted = array(&few).unwrap();
        assert!(held(&few) > 100_000 && held(&compacted) < 200);
        assert_eq!(&compacted, &few);
        assert!(Arc::ptr_eq(&array(&all).unwrap(), &all), "nothing to gain");
    }

    #[test]
    fn nested_views_and_dictionaries_are_compacted_too() {
        let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let values: ArrayRef = Arc::new(texts(10_000).slice(0, 4));
        let offsets = OffsetBuffer::from_lengths([1, 0, 3]);
        let list: ArrayRef = Arc::new(ListArray::new(field, offsets, values, None));
        let keys = Int32Array::from(vec![Some(7), None, Some(7)]);
        let names = StringArray::from_iter_values((0..1_000).map(|i| format!("name {i}")));
        let dictionary: ArrayRef =
            Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(names)));
        let schema = Arc::new(Schema::new(vec![
            Field::new("list", list.data_type().clone(), true),
            Field::new("dictionary", dictionary.data_type().clone(), true),
        ]));
        let batch = RecordBatch::try_new(schema, vec![list, dictionary]).unwrap();
        let compacted = compact(&batch).unwrap();
        let list = compacted.column(0).as_list::<i32>();
        let held = list.values().as_string_view().data_buffers();
        assert!(held.iter().map(|buffer| buffer.len()).sum::<usize>() < 1_000);
        let dictionary = compacted.column(1).as_dictionary::<Int32Type>();
        assert_eq!(dictionary.values().len(), 1);
        assert_eq!(compacted.column(0), batch.column(0));
        let (mine, theirs) = (compacted.column(1), batch.column(1));
        let texts =
            |array: &ArrayRef| datafusion::arrow::compute::cast(array, &DataType::Utf8).unwrap();
        assert_eq!(&texts(mine), &texts(theirs));
    }
}
