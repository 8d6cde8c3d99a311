//! Reads one partition of a scan.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use tokio::sync::mpsc::Sender;

use super::Question;
use super::units::Unit;
use crate::chunk_codec;
use crate::chunk_columns::Expander;
use crate::coalesce_batches::BatchCoalescer;
use crate::query_ids::QueryIds;
use crate::segment::SegmentError;
use crate::store::Store;

/// Reads one partition.
pub(super) struct Reader {
    pub(super) store: Arc<Store>,
    pub(super) question: Question,
    pub(super) schema: SchemaRef,
}

impl Reader {
    /// Sends at most `left` rows of `units` to `sender`; blocks.
    pub(super) fn read_all(
        &self,
        units: &[Unit],
        mut left: usize,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let mut gathered = BatchCoalescer::new(&self.schema);
        let mut expander = Expander::new(&self.schema);
        for unit in units {
            for batch in self.read(unit, &mut expander) {
                for batch in gathered.push(batch?)? {
                    let batch = batch.slice(0, batch.num_rows().min(left));
                    left -= batch.num_rows();
                    // The receiver is gone when nobody wants more.
                    if sender.blocking_send(Ok(batch)).is_err() || left == 0 {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(batch) = gathered.take()? {
            let batch = batch.slice(0, batch.num_rows().min(left));
            // As above.
            let _ = sender.blocking_send(Ok(batch));
        }
        Ok(())
    }

    /// The unit's rows. What is damaged is skipped with a warning.
    fn read<'a>(
        &'a self,
        unit: &Unit,
        expander: &'a mut Expander,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch>> + 'a> {
        let Question {
            table,
            ids,
            chunks,
            projection,
            ..
        } = &self.question;
        match unit {
            Unit::Buffered { log, piece } => {
                let batch = log.expand(*table, *piece, projection, expander);
                let batch = batch.map_err(|error| DataFusionError::External(error.into()));
                Box::new(std::iter::once(batch))
            }
            Unit::Written { part, row_group } => {
                let Some(segment) = part.segment(*table, &QueryIds::ALL) else {
                    return Box::new(std::iter::empty());
                };
                match segment.read(*row_group, projection, (ids, chunks), expander) {
                    Ok(batches) => Box::new(batches.filter_map(|batch| match batch {
                        Ok(batch) => Some(Ok(batch)),
                        Err(error @ SegmentError::Chunk { .. }) => {
                            self.store.warn(format!("skipped {error}"));
                            None
                        }
                        Err(error) => {
                            self.store.warn(format!("skipped the rest of {error}"));
                            None
                        }
                    })),
                    Err(error) => {
                        self.store.warn(format!("skipped {error}"));
                        Box::new(std::iter::empty())
                    }
                }
            }
            Unit::RemoteCache { batch } => self.rows_of(batch, expander),
        }
    }

    /// Rows that are stored in a batch. What is damaged is skipped with a warning.
    fn rows_of<'a>(
        &'a self,
        batch: &RecordBatch,
        expander: &'a mut Expander,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch>> + 'a> {
        let Question {
            table,
            ids,
            chunks,
            projection,
            ..
        } = &self.question;
        if chunk_codec::schema(*table).is_none() {
            let rows = batch.project(projection).map_err(Into::into);
            return Box::new(std::iter::once(rows));
        }
        let batch = batch.clone();
        let chunks = chunks.wanted(*table, &batch).into_iter();
        Box::new(chunks.filter_map(move |chunk| {
            let rows = chunk_codec::expand(*table, &batch, chunk, projection, ids, expander)?;
            let rows = rows.inspect_err(|error| {
                let name = table.name();
                self.store
                    .warn(format!("skipped a chunk of sys.{name}: {error}"));
            });
            Some(Ok(rows.ok()?))
        }))
    }

    /// Sends at most `left` rows of a worker to `sender`, as they come.
    pub(super) async fn ask(
        &self,
        worker_id: i64,
        mut left: usize,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let Some(fetched) = self.store.fetched() else {
            return Ok(());
        };
        let Question { table, ids, .. } = &self.question;
        let mut pages = fetched.read(worker_id, *table, ids);
        let mut gathered = BatchCoalescer::new(&self.schema);
        let mut expander = Expander::new(&self.schema);
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    let missing = format!("skipped what worker {worker_id} recorded: {error}");
                    self.store.warn(missing);
                    break;
                }
            };
            for batch in page {
                let mut complete = Vec::new();
                for rows in self.rows_of(&batch, &mut expander) {
                    complete.extend(gathered.push(rows?)?);
                }
                for batch in complete {
                    let batch = batch.slice(0, batch.num_rows().min(left));
                    left -= batch.num_rows();
                    // The receiver is gone when nobody wants more.
                    if sender.send(Ok(batch)).await.is_err() || left == 0 {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(batch) = gathered.take()? {
            let batch = batch.slice(0, batch.num_rows().min(left));
            // As above.
            let _ = sender.send(Ok(batch)).await;
        }
        Ok(())
    }
}
