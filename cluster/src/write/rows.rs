//! Rows as the table has them.

use std::io;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use skewer_storage::StorageError;

/// Rows that the table cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// NULL in a column that is NOT NULL.
    #[error(
        "column {column} of table {table} is NOT NULL, but row {row} of the statement has no value for it"
    )]
    NotNull {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Which of the rows that its writer was to write, from 1.
        row: u64,
    },
}

/// An error of the storage's. What is wrong with a disk stays that on the way to another node, and
/// names this one there.
pub(super) fn external(error: StorageError) -> DataFusionError {
    let kind = match &error {
        StorageError::DiskFull { .. } => io::ErrorKind::StorageFull,
        StorageError::Io { .. } => io::ErrorKind::Other,
        _ => return DataFusionError::External(Box::new(error)),
    };
    DataFusionError::IoError(io::Error::new(kind, error))
}

/// A batch with exactly the types of `columns`, which are those of `table`; `rows` rows were
/// written before it.
///
/// # Errors
/// [`WriteError`] for the first column that is NOT NULL and has no value, that of the cast
/// otherwise.
pub fn conform(
    batch: &RecordBatch,
    columns: &SchemaRef,
    table: &str,
    rows: u64,
) -> Result<RecordBatch> {
    let mut arrays = Vec::with_capacity(columns.fields().len());
    for (field, column) in columns.fields().iter().zip(batch.columns()) {
        if !field.is_nullable() && column.null_count() > 0 {
            let row = (0..column.len()).find(|row| column.is_null(*row));
            return Err(DataFusionError::External(Box::new(WriteError::NotNull {
                table: table.to_owned(),
                column: field.name().clone(),
                row: rows + row.unwrap_or(0) as u64 + 1,
            })));
        }
        let column: ArrayRef = if column.data_type() == field.data_type() {
            Arc::clone(column)
        } else {
            cast(column, field.data_type())?
        };
        arrays.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = SchemaRef::clone(columns);
    Ok(RecordBatch::try_new_with_options(
        columns, arrays, &options,
    )?)
}
