//! Arrow batches to Parquet segments, with row ids.

mod encoder;
mod open_segment;
mod properties;
mod reserved_numbers;
mod sink;

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::encoder::{Encoder, IdOrder};
pub use self::reserved_numbers::RowIds;
pub(crate) use self::reserved_numbers::SegmentIds;
use crate::conform::conform;
use crate::distributed_write::WriteSpec;
use crate::remote::Writer;
use crate::snapshot::{Root, SegmentMeta, TableId, with_row_id};
use crate::{Result, StorageError};

/// Batches that may wait for the encoder.
const QUEUE: usize = 2;

/// A segment that is on disk, to be published by a transaction. Dropped without that, its file is
/// removed.
#[derive(Debug)]
pub struct NewSegment {
    pub(crate) table: TableId,
    pub(crate) meta: Arc<SegmentMeta>,
    /// The worker that wrote it, if it was written on another node.
    pub(crate) writer: Option<Writer>,
}

impl NewSegment {
    /// What will be published.
    pub fn meta(&self) -> &Arc<SegmentMeta> {
        &self.meta
    }
}

/// Writes rows of one table into new segments.
///
/// Encoding runs on one of tokio's blocking threads and a few that help it, a few batches behind the caller;
/// outside of a tokio runtime it runs in place. Memory is bounded by one row group. Several writers of one table may
/// run at once: row ids never clash.
///
/// Dropped without [`SegmentWriter::finish`], it removes its files. After an error it only
/// repeats that something failed.
#[derive(Debug)]
pub struct SegmentWriter {
    columns: SchemaRef,
    physical: SchemaRef,
    row_ids: RowIds,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle(Box<Encoder>),
    Running {
        batches: mpsc::Sender<RecordBatch>,
        task: JoinHandle<Result<Vec<NewSegment>>>,
    },
    Failed,
}

impl SegmentWriter {
    pub(crate) fn new(
        root: Arc<Root>,
        segment_ids: SegmentIds,
        segment_rows: u64,
        spec: &WriteSpec,
    ) -> Self {
        let physical = with_row_id(&spec.columns);
        Self {
            columns: Arc::clone(&spec.columns),
            physical: Arc::clone(&physical),
            row_ids: RowIds::new(Arc::clone(&spec.row_ids)),
            state: State::Idle(Box::new(Encoder {
                root,
                table: spec.table,
                shard: spec.shard,
                physical,
                segment_ids,
                segment_rows,
                order: IdOrder::Unknown,
                with_nan: Vec::new(),
                open: None,
                done: Vec::new(),
            })),
        }
    }

    /// For [`SegmentWriter::write_with_ids`] of rows whose ids ascend, as far as is known: their
    /// segments say so. Where one does not, another segment begins, and none says so any more.
    #[must_use]
    pub(crate) fn in_order_of_ids(mut self) -> Self {
        if let State::Idle(encoder) = &mut self.state {
            encoder.order = IdOrder::Ascending { last: i64::MIN };
        }
        self
    }

    /// Writes rows of the table's columns, in the table's order (names are not compared), and
    /// gives them row ids. Strings and binaries may be in any Arrow representation.
    ///
    /// # Errors
    /// [`StorageError::Invalid`] if the columns do not fit, or one that is NOT NULL has NULLs.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut columns = conform(batch, &self.columns)?;
        columns.push(Arc::new(self.row_ids.next(batch.num_rows() as u64).await?));
        if let State::Idle(encoder) = &mut self.state
            && encoder.open.is_none()
        {
            encoder.order = IdOrder::Ascending { last: i64::MIN };
        }
        self.send(columns, batch.num_rows()).await
    }

    /// Writes rows that have ids: the table's columns and `_row_id` last. For rows that are
    /// moved or updated.
    ///
    /// # Errors
    /// As [`SegmentWriter::write`].
    pub async fn write_with_ids(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = conform(batch, &self.physical)?;
        self.send(columns, batch.num_rows()).await
    }

    async fn send(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.physical);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(StorageError::invalid)?;
        if let State::Idle(encoder) = &mut self.state {
            let Ok(runtime) = Handle::try_current() else {
                return encoder.write(&batch);
            };
            let State::Idle(mut encoder) = std::mem::replace(&mut self.state, State::Failed) else {
                unreachable!("matched above");
            };
            let (batches, mut queue) = mpsc::channel::<RecordBatch>(QUEUE);
            let task = runtime.spawn_blocking(move || {
                while let Some(batch) = queue.blocking_recv() {
                    encoder.write(&batch)?;
                }
                encoder.finish()
            });
            self.state = State::Running { batches, task };
        }
        match &self.state {
            State::Running { batches, .. } if batches.send(batch).await.is_ok() => Ok(()),
            _ => Err(self.failure().await),
        }
    }

    /// Completes the segments: when it returns, files and directory are synced. Returns none if
    /// nothing was written.
    pub async fn finish(mut self) -> Result<Vec<NewSegment>> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Idle(encoder) => encoder.finish(),
            State::Running { batches, task } => {
                drop(batches);
                task.await.unwrap_or_else(|error| Err(panicked(&error)))
            }
            State::Failed => Err(self.failure().await),
        }
    }

    /// Why the encoder stopped.
    async fn failure(&mut self) -> StorageError {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Running { task, .. } => match task.await {
                Ok(Err(error)) => return error,
                Err(error) => return panicked(&error),
                Ok(Ok(_)) => {}
            },
            State::Idle(_) | State::Failed => {}
        }
        StorageError::Internal {
            detail: "segment writer used after an error".to_owned(),
        }
    }
}

fn panicked(error: &tokio::task::JoinError) -> StorageError {
    StorageError::Internal {
        detail: format!("segment encoder stopped: {error}"),
    }
}
