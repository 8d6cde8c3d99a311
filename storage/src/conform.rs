//! Whether batches fit the columns of a table.

use std::io;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::errors::ParquetError;

use crate::{Result, StorageError};

/// The columns of a batch in the types of `schema`.
///
/// # Errors
/// If there are more or fewer, a type has other values, or a NULL is where none may be.
pub(crate) fn conform(batch: &RecordBatch, schema: &Schema) -> Result<Vec<ArrayRef>> {
    if batch.num_columns() != schema.fields().len() {
        return Err(StorageError::invalid(format_args!(
            "{} columns given for {}",
            batch.num_columns(),
            schema.fields().len()
        )));
    }
    batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| conform_column(column, field))
        .collect()
}

fn conform_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    if !field.is_nullable() && column.logical_null_count() > 0 {
        return Err(StorageError::invalid(format_args!(
            "column {} is NOT NULL, but a row has NULL in it",
            field.name()
        )));
    }
    let (from, to) = (column.data_type(), field.data_type());
    if from == to {
        return Ok(Arc::clone(column));
    }
    if !same_values(from, to) {
        return Err(StorageError::invalid(format_args!(
            "column {} has type {to}, not {from}",
            field.name()
        )));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, to, &options).map_err(StorageError::invalid)
}

/// Whether two types are representations of the same values.
fn same_values(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Dictionary(_, a), b) | (b, DataType::Dictionary(_, a)) => same_values(a, b),
        (a, b) => {
            (a.is_string() && b.is_string())
                || (a.is_binary() && b.is_binary())
                || a.equals_datatype(b)
                || (a.is_nested() && b.is_nested())
        }
    }
}

/// Whether a column can be written to Parquet, found by writing one NULL.
///
/// # Errors
/// If it cannot.
pub(crate) fn check_storable(column: &Field) -> Result<()> {
    let nullable = Arc::new(column.clone().with_nullable(true));
    let schema = Arc::new(Schema::new(vec![nullable]));
    let try_write = || -> Result<(), ParquetError> {
        let mut writer = ArrowWriter::try_new(io::sink(), Arc::clone(&schema), None)?;
        let array = new_null_array(column.data_type(), 1);
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), vec![array])?)?;
        writer.close()?;
        Ok(())
    };
    try_write().map_err(|_| StorageError::UnsupportedType {
        column: column.name().clone(),
        data_type: column.data_type().to_string(),
    })
}
