//! The result of a statement, as it comes.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{EmptyRecordBatchStream, SendableRecordBatchStream};
use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use skewer_compat::operators::scheduling::{Cancellation, RunningQuery};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::admission::Admission;
use crate::catalog::StatementCatalog;
use crate::error::Error;
use crate::progress::ProgressHandle;
use crate::record::StatementRecord;
use crate::session::{Session, WeakSession};
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
    /// 0 for none; another once the query is run again.
    query_id: Arc<AtomicI64>,
    progress: ProgressHandle,
    notices: Vec<String>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A result that is there already.
    Ready(Option<RecordBatch>),
    /// A query that runs.
    Running {
        batches: mpsc::Receiver<Result<Part, Error>>,
        /// The result has come to its end, or to an error.
        ended: bool,
        task: AbortHandle,
        cancellation: Cancellation,
        record: SharedRecord,
        /// The query runs on the threads of its database, which live as long as this.
        session: Session,
    },
}

/// The record of a query, until it has ended: whoever cancels the query ends it, since its task may be in a
/// call that takes seconds.
type SharedRecord = Arc<Mutex<Option<StatementRecord>>>;

/// What the task of a query hands over. A task that breaks off has not said that it is at its end.
#[derive(Debug)]
enum Part {
    Batch(RecordBatch),
    End,
}

impl QueryStream {
    /// The names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The statement's `query_id` in schema `sys`; `None` for statements that leave no trace there,
    /// as SET and queries that read only `sys`.
    pub fn query_id(&self) -> Option<i64> {
        match self.query_id.load(Ordering::Acquire) {
            0 => None,
            id => Some(id),
        }
    }

    /// What the session says of the result beside its rows, as that a quarantine leaves rows out. Each is a
    /// sentence without a full stop.
    pub fn notices(&self) -> &[String] {
        &self.notices
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
            query_id: Arc::new(AtomicI64::new(query_id.unwrap_or(0))),
            progress,
            notices: Vec::new(),
            source: Source::Ready(Some(batch)),
        }
    }

    /// The same, of which the session says this.
    pub(crate) fn with_notices(mut self, notices: Vec<String>) -> Self {
        self.notices = notices;
        self
    }

    /// Runs `stream` on the current runtime and records how it ends.
    pub(crate) fn run(stream: SendableRecordBatchStream, context: Context) -> Self {
        let Context {
            session,
            catalog,
            record,
            progress,
            running: query,
            admission,
            again,
            notices,
            corrected: _,
        } = context;
        let schema = stream.schema();
        let query_id = Arc::new(AtomicI64::new(record.traced_id().unwrap_or(0)));
        let (sender, batches) = mpsc::channel(BUFFERED_BATCHES);
        let counted = Arc::clone(&session.database_inner().running);
        let cancellation = query.cancellation().clone();
        let record = Arc::new(Mutex::new(Some(record)));
        let deadline = session
            .inner()
            .read_only
            .map(|limits| (Instant::now() + limits.timeout, limits.timeout));
        let running = Running {
            stream,
            deadline,
            query,
            record: Arc::clone(&record),
            progress: progress.clone(),
            catalog,
            again: again.map(|plan| Again {
                plan,
                session: session.downgrade(),
                query_id: Arc::clone(&query_id),
            }),
            admission,
        };
        let task = tokio::spawn(async move {
            let _counted = counted;
            drive(running, sender).await;
        });
        Self {
            schema,
            query_id,
            progress,
            notices,
            source: Source::Running {
                batches,
                ended: false,
                task: task.abort_handle(),
                cancellation,
                record,
                session,
            },
        }
    }
}

/// A query that runs. When its task is aborted the fields go in their order: first the stream,
/// whose operators then hand over what they recorded, and the record last, if nobody has ended it.
struct Running {
    stream: SendableRecordBatchStream,
    /// When a statement of a read-only session ends, and how long it then took.
    deadline: Option<(Instant, Duration)>,
    query: Arc<RunningQuery>,
    progress: ProgressHandle,
    catalog: Arc<StatementCatalog>,
    /// How to run it once more, as long as it has returned no row.
    again: Option<Again>,
    record: SharedRecord,
    admission: Option<Admission>,
}

/// A query that reads, to be run once more if it loses a worker that it does not need.
struct Again {
    plan: LogicalPlan,
    session: WeakSession,
    query_id: Arc<AtomicI64>,
}

impl Running {
    /// The query has failed with `error`: runs it once more on the workers that are left, if that
    /// may help. It gets an id of its own, since workers have records of the first attempt.
    async fn run_again(&mut self, error: Error) -> Result<(), Error> {
        let (Error::WorkerLost { name, .. }, Some(again)) = (&error, self.again.take()) else {
            return Err(error);
        };
        let Some(session) = again.session.upgrade() else {
            return Err(error);
        };
        tracing::info!(%error, "a query is run once more, without the worker that it has lost");
        // Its operators end, and hand over what they have recorded.
        self.stream = Box::pin(EmptyRecordBatchStream::new(self.stream.schema()));
        let database = session.database_inner();
        database.settled(name).await;
        let anew = self.record.lock().as_ref().map(|record| {
            let query_id = database.storage.next_query_id();
            record.anew(query_id)
        });
        let Some(record) = anew else {
            return Err(Error::Cancelled);
        };
        let traced = record.traced_id().unwrap_or(0);
        let mut context = Context {
            session: session.clone(),
            catalog: Arc::clone(&self.catalog),
            record,
            progress: self.progress.clone(),
            running: Arc::clone(&self.query),
            admission: None,
            again: None,
            notices: Vec::new(),
            corrected: Vec::new(),
        };
        let started = context.stream(&again.plan).await;
        if started.is_ok() {
            context.keep_snapshot();
        }
        let first = self.record.lock().replace(context.record);
        if let Some(first) = first {
            first.finish(Err(&error)).await;
        }
        again.query_id.store(traced, Ordering::Release);
        self.stream = started?;
        Ok(())
    }
}

/// Hands over the result, and records how it ends.
async fn drive(mut running: Running, sender: mpsc::Sender<Result<Part, Error>>) {
    let outcome = AssertUnwindSafe(hand_over(&mut running, &sender));
    let outcome = match outcome.catch_unwind().await {
        Ok(outcome) => outcome,
        // Of an operator, in whatever task it was.
        Err(panic) => Err(Error::panicked(panic.as_ref())),
    };
    let Running {
        stream,
        deadline: _,
        query: _,
        progress,
        catalog,
        record,
        admission,
        again: _,
    } = running;
    drop(stream);
    drop(admission);
    progress.finish();
    drop(catalog);
    let record = record.lock().take();
    if let Some(record) = record {
        record.finish(outcome.as_ref().copied()).await;
    }
    // Nobody listens to a cancelled query.
    let _ = sender.send(outcome.map(|()| Part::End)).await;
}

/// Waits until a statement has taken as long as it may.
async fn too_late(deadline: Option<(Instant, Duration)>) -> Error {
    match deadline {
        Some((deadline, timeout)) => {
            tokio::time::sleep_until(deadline).await;
            Error::TimedOut(timeout)
        }
        None => std::future::pending().await,
    }
}

/// Hands over batches until the end, an error, or a reader that is gone.
async fn hand_over(
    running: &mut Running,
    sender: &mpsc::Sender<Result<Part, Error>>,
) -> Result<(), Error> {
    loop {
        let next = running.stream.next();
        let next = tokio::select! {
            biased;
            next = next => next,
            () = running.query.cancellation().cancelled() => return Err(Error::Cancelled),
            error = too_late(running.deadline) => return Err(error),
        };
        match next {
            Some(Ok(batch)) => {
                let rows = batch.num_rows() as u64;
                running.again = None;
                if let Some(record) = running.record.lock().as_mut() {
                    record.add_rows(rows);
                    if rows > 0 {
                        record.has_rows();
                    }
                }
                running.progress.add_rows(rows);
                let sent = tokio::select! {
                    biased;
                    sent = sender.send(Ok(Part::Batch(batch))) => sent.is_ok(),
                    () = running.query.cancellation().cancelled() => false,
                };
                if !sent {
                    return Err(Error::Cancelled);
                }
            }
            // The error is that it has been cancelled.
            Some(Err(_)) if running.query.cancellation().is_cancelled() => {
                return Err(Error::Cancelled);
            }
            Some(Err(error)) => {
                let error = running.catalog.diagnose(error.into()).await;
                running.run_again(error).await?;
            }
            None => return Ok(()),
        }
    }
}

impl Stream for QueryStream {
    type Item = Result<RecordBatch, Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        let (batches, ended) = match &mut self.source {
            Source::Ready(batch) => return Poll::Ready(batch.take().map(Ok)),
            Source::Running { ended: true, .. } => return Poll::Ready(None),
            Source::Running { batches, ended, .. } => (batches, ended),
        };
        let part = ready!(batches.poll_recv(cx)).unwrap_or_else(|| {
            let broken = "the query broke off before its end".to_owned();
            Err(Error::Internal(broken))
        });
        *ended = !matches!(part, Ok(Part::Batch(_)));
        Poll::Ready(match part {
            Ok(Part::Batch(batch)) => Some(Ok(batch)),
            Ok(Part::End) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl Drop for QueryStream {
    fn drop(&mut self) {
        if let Source::Running {
            task,
            cancellation,
            record,
            session,
            ..
        } = &self.source
        {
            cancellation.cancel();
            task.abort();
            // It ends as cancelled.
            let record = record.lock().take();
            let _within = session.database().enter();
            drop(record);
        }
    }
}
