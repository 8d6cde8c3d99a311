//! Rows of a view as an Arrow IPC stream of four types.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use thiserror::Error;

/// Why rows of a view cannot be sent.
#[derive(Debug, Error)]
pub enum RowsError {
    /// The view is written wrongly.
    #[error(
        "column {column} of view {view} is {found}; the page reads BIGINT, DOUBLE, VARCHAR and BOOLEAN"
    )]
    Type {
        /// The view.
        view: String,
        /// Its column.
        column: String,
        /// The column's type.
        found: DataType,
    },
    /// What Arrow says.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// The view with values of a table's own columns, which have any types and lengths: they are shown as text.
const VALUES: &str = "record_rows";

/// Characters of such a text that are shown. The page knows the form of what follows.
const SHOWN: usize = 200;

/// The type that the page reads a column as, if it reads it.
fn read_as(found: &DataType) -> Option<DataType> {
    Some(match found {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64 => DataType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
            DataType::Utf8
        }
        DataType::Boolean => DataType::Boolean,
        DataType::Dictionary(_, values) => read_as(values)?,
        _ => return None,
    })
}

/// Rows of `view` as an Arrow IPC stream.
///
/// # Errors
/// [`RowsError::Type`] for columns of other types than the page reads.
pub fn arrow_stream(
    view: &str,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<Vec<u8>, RowsError> {
    let fields = schema.fields().iter().map(|field| {
        let found = field.data_type();
        let text = (view == VALUES).then_some(DataType::Utf8);
        let read = read_as(found).or(text).ok_or_else(|| RowsError::Type {
            view: view.to_owned(),
            column: field.name().clone(),
            found: found.clone(),
        })?;
        Ok(Field::new(field.name(), read, true))
    });
    let fields: Vec<Field> = fields.collect::<Result<_, RowsError>>()?;
    let schema = Arc::new(Schema::new(fields));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    for batch in batches {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns: Vec<_> = columns
            .map(
                |(column, field)| match (view == VALUES, field.data_type()) {
                    (true, DataType::Utf8) => shortened(column),
                    (_, read) => cast(column, read),
                },
            )
            .collect::<Result<_, _>>()?;
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    writer.finish()?;
    Ok(writer.into_inner()?)
}

/// The values of a column as text, long ones cut.
fn shortened(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let text = |row: usize| {
        let text = formatter.value(row).try_to_string()?;
        let cut = text.char_indices().nth(SHOWN).map(|(at, _)| at);
        Ok(Some(match cut {
            Some(at) => format!("{}… ({} characters)", &text[..at], text.chars().count()),
            None => text,
        }))
    };
    let texts = (0..column.len()).map(|row| {
        if column.is_null(row) {
            Ok(None)
        } else {
            text(row)
        }
    });
    let texts: StringArray = texts.collect::<Result<_, ArrowError>>()?;
    Ok(Arc::new(texts))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Date32Array};
    use datafusion::arrow::ipc::reader::StreamReader;

    use super::*;

    fn batch() -> RecordBatch {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(1), None]));
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec!["x".repeat(300), "short".to_owned()]));
        RecordBatch::try_from_iter([("day", days), ("text", texts)]).unwrap()
    }

    #[test]
    fn values_of_tables_are_short_texts() {
        let bytes = arrow_stream(VALUES, &batch().schema(), &[batch()]).unwrap();
        let read = StreamReader::try_new(bytes.as_slice(), None)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let column = |name: &str| {
            read.column_by_name(name)
                .unwrap()
                .as_string::<i32>()
                .clone()
        };
        assert_eq!(
            column("day").iter().collect::<Vec<_>>(),
            [Some("1970-01-02"), None]
        );
        assert_eq!(
            column("text").value(0),
            format!("{}… (300 characters)", "x".repeat(200))
        );
        assert_eq!(column("text").value(1), "short");
    }

    #[test]
    fn views_of_other_types_are_mistakes() {
        let error = arrow_stream("plan", &batch().schema(), &[batch()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "column day of view plan is Date32; the page reads BIGINT, DOUBLE, VARCHAR and BOOLEAN"
        );
    }
}
