//! Rows into a table's new segments.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::StreamExt;
use skewer_storage::{NewSegment, TableMeta};

use super::Context;
use crate::error::Error;

impl Context {
    /// Writes a stream whose columns are the table's, in its order, to new segments. They are not
    /// published yet. Gives the number of rows.
    pub(crate) async fn write(
        &mut self,
        mut stream: SendableRecordBatchStream,
        table: &TableMeta,
    ) -> Result<(Vec<NewSegment>, u64), Error> {
        let mut writer = self.storage().writer(table);
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            let batch = conform(&batch?, table, rows)?;
            writer.write(&batch).await?;
            rows += batch.num_rows() as u64;
            self.progress.add_rows(batch.num_rows() as u64);
        }
        drop(stream);
        Ok((writer.finish().await?, rows))
    }
}

/// A batch with exactly the table's types; `rows` rows were written before it.
///
/// Errors name the first column that is NOT NULL and has no value.
pub(crate) fn conform(
    batch: &RecordBatch,
    table: &TableMeta,
    rows: u64,
) -> Result<RecordBatch, Error> {
    let schema = SchemaRef::clone(&table.schema);
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if !field.is_nullable() && column.null_count() > 0 {
            let row = (0..column.len()).find(|row| column.is_null(*row));
            return Err(Error::NotNull {
                table: table.name.clone(),
                column: field.name().clone(),
                row: rows + row.unwrap_or(0) as u64 + 1,
            });
        }
        let column: ArrayRef = if column.data_type() == field.data_type() {
            Arc::clone(column)
        } else {
            cast(column, field.data_type())?
        };
        columns.push(column);
    }
    Ok(RecordBatch::try_new(schema, columns)?)
}
