//! Splitting rows into pieces that share no memory.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array, make_array,
};
use datafusion::arrow::compute::{cast, interleave, take};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;

/// Rows that nobody wants are sent here.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The rows of `batches` by the number of the piece that `targets` sends each to, of `pieces`. Rows of
/// a piece are in the order of the batches.
pub(super) fn split(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    targets: &[Vec<u32>],
    pieces: usize,
) -> Result<Vec<Option<RecordBatch>>> {
    if let ([batch], [targets]) = (batches, targets) {
        return split_one(schema, batch, targets, pieces);
    }
    let mut rows: Vec<Vec<(usize, usize)>> = vec![vec![]; pieces];
    for (batch, targets) in targets.iter().enumerate() {
        for (row, target) in targets.iter().enumerate() {
            if *target != NOWHERE {
                rows[*target as usize].push((batch, row));
            }
        }
    }
    let columns: Vec<Vec<&dyn Array>> = (0..schema.fields().len())
        .map(|column| batches.iter().map(|b| b.column(column).as_ref()).collect())
        .collect();
    let piece = |rows: Vec<(usize, usize)>| {
        let gathered = columns.iter().map(|column| Ok(interleave(column, &rows)?));
        of_columns(schema, gathered, rows.len())
    };
    rows.into_iter().map(piece).collect()
}

fn split_one(
    schema: &SchemaRef,
    batch: &RecordBatch,
    targets: &[u32],
    pieces: usize,
) -> Result<Vec<Option<RecordBatch>>> {
    let mut rows: Vec<Vec<u32>> = vec![vec![]; pieces];
    for (row, target) in (0..).zip(targets) {
        if *target != NOWHERE {
            rows[*target as usize].push(row);
        }
    }
    let piece = |rows: Vec<u32>| {
        let rows = UInt32Array::from(rows);
        let columns = batch.columns().iter();
        let gathered = columns.map(|column| Ok(take(column, &rows, None)?));
        of_columns(schema, gathered, rows.len())
    };
    rows.into_iter().map(piece).collect()
}

fn of_columns(
    schema: &SchemaRef,
    columns: impl Iterator<Item = Result<ArrayRef>>,
    rows: usize,
) -> Result<Option<RecordBatch>> {
    if rows == 0 {
        return Ok(None);
    }
    let columns = columns
        .map(|column| compact(&column?))
        .collect::<Result<_>>()?;
    Ok(Some(batch_of(schema, columns, rows)?))
}

/// A batch of these columns; there may be no column.
pub(super) fn batch_of(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::clone(schema);
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// The same rows without what others have in common with them.
pub(super) fn compacted(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter();
    let columns = columns.map(compact).collect::<Result<_>>()?;
    batch_of(&batch.schema(), columns, batch.num_rows())
}

/// The same values in buffers that hold no others: views name buffers of whole scans, and dictionaries
/// have values of all rows.
fn compact(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Utf8View if !array.as_string_view().data_buffers().is_empty() => {
            Arc::new(array.as_string_view().gc())
        }
        DataType::BinaryView if !array.as_binary_view().data_buffers().is_empty() => {
            Arc::new(array.as_binary_view().gc())
        }
        DataType::Dictionary(_, values) => {
            let dictionary = array.as_any_dictionary();
            let repacked = (dictionary.values().len() > array.len())
                .then(|| cast(&cast(array, values)?, array.data_type()));
            // Not all kinds of values can be made a dictionary of.
            repacked
                .and_then(std::result::Result::ok)
                .unwrap_or_else(|| Arc::clone(array))
        }
        kind if kind.is_nested() => compact_children(array)?,
        _ => Arc::clone(array),
    })
}

fn compact_children(array: &ArrayRef) -> Result<ArrayRef> {
    let data = array.to_data();
    let children = data.child_data().iter();
    let children: Vec<ArrayData> = children
        .map(|child| Ok(compact(&make_array(child.clone()))?.to_data()))
        .collect::<Result<_>>()?;
    let rebuilt = data.into_builder().child_data(children).build()?;
    Ok(make_array(rebuilt))
}
