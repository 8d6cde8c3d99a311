//! Rows of a view as an Arrow IPC stream of four types.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
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
        let read = read_as(found).ok_or_else(|| RowsError::Type {
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
            .map(|(column, field)| cast(column, field.data_type()))
            .collect::<Result<_, _>>()?;
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
    }
    writer.finish()?;
    Ok(writer.into_inner()?)
}
