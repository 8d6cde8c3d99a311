//! An input record's values, fetched from its table.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

pub use skewer_sql::quote::recorded_table as table_sql;

use crate::text::shortened;
use crate::units::counted;

/// Characters of a value that are kept: one cell may hold a hundred megabytes.
const VALUE_CHARACTERS: usize = 60;

/// Elements of a list that are kept.
const ELEMENTS: usize = 8;

/// The statement that fetches a record.
pub(crate) fn record_sql(table: &str, row_id: i64) -> String {
    format!(
        "SELECT * FROM {} WHERE _row_id = {row_id}",
        table_sql(table)
    )
}

/// Names and shortened values of the first row; `None` if there is none.
pub(crate) fn values(batches: &[RecordBatch]) -> Option<Vec<(String, String)>> {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0)?;
    let schema = batch.schema();
    let named = schema.fields().iter().zip(batch.columns());
    Some(
        named
            .map(|(field, column)| (field.name().clone(), value(&column.slice(0, 1))))
            .collect(),
    )
}

/// The value of an array of one row, shortened; how long it is if that was cut off.
fn value(cell: &dyn Array) -> String {
    if cell.is_null(0) {
        return "NULL".to_owned();
    }
    match cell.data_type() {
        DataType::Utf8 => text(cell.as_string::<i32>().value(0)),
        DataType::LargeUtf8 => text(cell.as_string::<i64>().value(0)),
        DataType::Utf8View => text(cell.as_string_view().value(0)),
        DataType::Binary => binary(cell.as_binary::<i32>().value(0)),
        DataType::LargeBinary => binary(cell.as_binary::<i64>().value(0)),
        DataType::BinaryView => binary(cell.as_binary_view().value(0)),
        DataType::List(_) => list(&*cell.as_list::<i32>().value(0)),
        DataType::LargeList(_) => list(&*cell.as_list::<i64>().value(0)),
        DataType::FixedSizeList(..) => list(&*cell.as_fixed_size_list().value(0)),
        _ => formatted(cell),
    }
}

fn text(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARACTERS) {
        None => format!("'{text}'"),
        Some((end, _)) => {
            let characters = text.chars().count() as i64;
            format!("'{}…' ({})", &text[..end], counted(characters, "character"))
        }
    }
}

fn binary(bytes: &[u8]) -> String {
    let hex = bytes
        .iter()
        .take(ELEMENTS)
        .map(|byte| format!("{byte:02x}"));
    let hex: String = hex.collect();
    match bytes.len() > ELEMENTS {
        false => format!("x'{hex}'"),
        true => format!("x'{hex}…' ({})", counted(bytes.len() as i64, "byte")),
    }
}

fn list(elements: &dyn Array) -> String {
    let shown = elements.len().min(ELEMENTS);
    let values: Vec<String> = (0..shown)
        .map(|index| value(&*elements.slice(index, 1)))
        .collect();
    let values = values.join(", ");
    match elements.len() > shown {
        false => format!("[{values}]"),
        true => format!(
            "[{values}, …] ({})",
            counted(elements.len() as i64, "element")
        ),
    }
}

/// Any other value; nested ones are formatted whole.
fn formatted(cell: &dyn Array) -> String {
    let options = FormatOptions::default().with_null("NULL");
    match ArrayFormatter::try_new(cell, &options) {
        Ok(formatter) => shortened(&formatter.value(0).to_string(), VALUE_CHARACTERS),
        Err(_) => format!("({})", cell.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, ListArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn long_values_are_cut_and_say_how_long_they_are() {
        let long = "x".repeat(1000);
        let numbers = (0..20).map(Some);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("id", Arc::new(Int64Array::from(vec![7])) as ArrayRef, true),
            (
                "note",
                Arc::new(StringViewArray::from(vec![None::<&str>])),
                true,
            ),
            (
                "line",
                Arc::new(StringViewArray::from(vec![long.as_str()])),
                true,
            ),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(
                    numbers,
                )])),
                true,
            ),
        ])
        .unwrap();
        let values = values(&[batch]).unwrap();
        let expected = [
            ("id", "7".to_owned()),
            ("note", "NULL".to_owned()),
            ("line", format!("'{}…' (1,000 characters)", "x".repeat(60))),
            (
                "list",
                "[0, 1, 2, 3, 4, 5, 6, 7, …] (20 elements)".to_owned(),
            ),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(values, expected);
    }
}
