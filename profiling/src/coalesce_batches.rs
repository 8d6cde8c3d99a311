//! Batches of about the usual size.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;

/// Gathers small batches and cuts large ones.
pub(crate) struct BatchCoalescer {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
}

impl BatchCoalescer {
    /// Rows of a batch: DataFusion's own default.
    const ROWS: usize = 8192;

    pub(crate) fn new(schema: &SchemaRef) -> BatchCoalescer {
        BatchCoalescer {
            schema: Arc::clone(schema),
            batches: Vec::new(),
            rows: 0,
        }
    }

    /// Adds a batch and returns what is complete.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        if batch.num_rows() >= Self::ROWS / 2 {
            // Large enough to go on as it is: to join it to what waits would be to copy it.
            let before = self.take()?;
            return Ok(before.into_iter().chain(cut(&batch)).collect());
        }
        self.rows += batch.num_rows();
        self.batches.push(batch);
        if self.rows < Self::ROWS {
            return Ok(Vec::new());
        }
        Ok(self.take()?.iter().flat_map(cut).collect())
    }

    /// All rows so far; none if there are none.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>> {
        let (batches, rows) = (std::mem::take(&mut self.batches), self.rows);
        self.rows = 0;
        match batches.as_slice() {
            [] => Ok(None),
            [batch] => Ok(Some(batch.clone())),
            _ if self.schema.fields().is_empty() => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::clone(&self.schema);
                let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
                Ok(Some(batch))
            }
            _ => Ok(Some(concat_batches(&self.schema, &batches)?)),
        }
    }
}

/// Slices of a batch of at most [`BatchCoalescer::ROWS`] rows.
fn cut(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let starts = (0..batch.num_rows()).step_by(BatchCoalescer::ROWS);
    starts.map(|start| batch.slice(start, BatchCoalescer::ROWS.min(batch.num_rows() - start)))
}
