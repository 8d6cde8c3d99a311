//! The result of a statement, as it comes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::catalog::StatementCatalog;
use crate::error::Error;
use crate::progress::ProgressHandle;
use crate::record::StatementRecord;
use crate::session::Session;
use crate::statements::Context;

/// Batches that may wait for a slow reader: enough that neither side waits for the other's
/// wake-up, too few to matter as memory.
const BUFFERED_BATCHES: usize = 2;

/// The result of a statement: a stream of Arrow batches.
///
/// A query runs on the database's own threads while its stream is read, at most a few batches
/// ahead. **Dropping the stream cancels the query.** Statements that change something have done
/// so when [`sql`](crate::Session::sql) returns: their stream holds one row with the column
/// `count`, and dropping it undoes nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
/// use futures::StreamExt;
/// use skewer::Database;
///
/// let session = Database::in_memory()?.session();
/// let mut stream = session.sql("SELECT value FROM generate_series(1, 10000)").await?;
/// assert_eq!(stream.schema().field(0).name(), "value");
/// let mut rows = 0;
/// while let Some(batch) = stream.next().await {
///     rows += batch?.num_rows();
/// }
/// assert_eq!(rows, 10000);
/// assert_eq!(stream.progress().now().rows, 10000);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct QueryStream {
    schema: SchemaRef,
    query_id: Option<i64>,
    progress: ProgressHandle,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A result that is there already.
    Ready(Option<RecordBatch>),
    /// A query that runs.
    Running {
        batches: mpsc::Receiver<Result<RecordBatch, Error>>,
        task: AbortHandle,
        /// The query runs on the threads of its database, which live as long as this.
        _session: Session,
    },
}

impl QueryStream {
    /// The names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The statement's `query_id` in schema `sys`; `None` for statements that leave no trace there,
    /// as SET and queries that read only `sys`.
    pub fn query_id(&self) -> Option<i64> {
        self.query_id
    }

    /// A handle that tells from any task how far the statement is.
    pub fn progress(&self) -> ProgressHandle {
        self.progress.clone()
    }

    /// Reads the whole result.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// let batches = session.sql("SELECT 6 * 7 AS answer").await?.collect().await?;
    /// assert_eq!(batches[0].num_rows(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>, Error> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        Ok(batches)
    }

    /// A result that is there already.
    pub(crate) fn ready(batch: RecordBatch, query_id: Option<i64>) -> Self {
        let progress = ProgressHandle::default();
        progress.add_rows(batch.num_rows() as u64);
        Self {
            schema: batch.schema(),
            query_id,
            progress,
            source: Source::Ready(Some(batch)),
        }
    }

    /// Runs `stream` on the current runtime and records how it ends.
    pub(crate) fn run(stream: SendableRecordBatchStream, context: Context) -> Self {
        let Context {
            session,
            catalog,
            record,
            progress,
        } = context;
        let schema = stream.schema();
        let query_id = record.traced_id();
        let (sender, batches) = mpsc::channel(BUFFERED_BATCHES);
        let counted = Arc::clone(&session.database_inner().running);
        let running = Running {
            stream,
            record,
            progress: progress.clone(),
            catalog,
        };
        let task = tokio::spawn(async move {
            let _counted = counted;
            drive(running, sender).await;
        });
        Self {
            schema,
            query_id,
            progress,
            source: Source::Running {
                batches,
                task: task.abort_handle(),
                _session: session,
            },
        }
    }
}

/// A query that runs. When its task is aborted the fields go in their order: first the stream,
/// whose operators then hand over what they recorded, and the record last.
struct Running {
    stream: SendableRecordBatchStream,
    progress: ProgressHandle,
    catalog: Arc<StatementCatalog>,
    record: StatementRecord,
}

/// Hands over batches until the end, an error, or a reader that is gone.
async fn drive(mut running: Running, sender: mpsc::Sender<Result<RecordBatch, Error>>) {
    let outcome = loop {
        match running.stream.next().await {
            Some(Ok(batch)) => {
                let rows = batch.num_rows() as u64;
                running.record.add_rows(rows);
                running.progress.add_rows(rows);
                if sender.send(Ok(batch)).await.is_err() {
                    break Err(Error::Cancelled);
                }
            }
            Some(Err(error)) => break Err(running.catalog.diagnose(error.into()).await),
            None => break Ok(()),
        }
    };
    let Running {
        stream,
        progress,
        catalog,
        record,
    } = running;
    drop(stream);
    progress.finish();
    drop(catalog);
    record.finish(outcome.as_ref().copied()).await;
    if let Err(error) = outcome {
        // Nobody listens to a cancelled query.
        let _ = sender.send(Err(error)).await;
    }
}

impl Stream for QueryStream {
    type Item = Result<RecordBatch, Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        match &mut self.source {
            Source::Ready(batch) => Poll::Ready(batch.take().map(Ok)),
            Source::Running { batches, .. } => batches.poll_recv(cx),
        }
    }
}

impl Drop for QueryStream {
    fn drop(&mut self) {
        if let Source::Running { task, .. } = &self.source {
            task.abort();
        }
    }
}
