//! A database: its storage, its threads, its memory.
//!
//! `builder`: its options, and how it is opened; `table_locks`: statements that rewrite a table take
//! turns.

mod builder;
mod table_locks;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use builder::DatabaseBuilder;
use datafusion::catalog::SchemaProvider;
use datafusion::execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;
use skewer_cluster::Workers;
use skewer_cluster::write::SegmentDestination;
use skewer_compat::operators::scheduling::{Cancellation, Scheduler};
use skewer_net::LostWorker;
use skewer_net::identity::NodeId;
use skewer_node::environment::THREAD;
use skewer_node::{Functions, SpillDirectory};
use skewer_profiling::{Retention, SysTables};
use skewer_storage::{Snapshot, Storage, TableId};
pub(crate) use table_locks::TableLocks;
use tokio::runtime::{EnterGuard, Handle, Runtime};

use crate::admission::AdmissionQueue;
use crate::cancellation;
use crate::cluster::{Master, MemberState};
use crate::compaction::Grown;
use crate::ended_queries::{EndedQueries, Followers};
use crate::error::Error;
use crate::plan_cache::PlanCache;
use crate::progress::Elsewhere;
use crate::quarantines_table::with_quarantines;
use crate::query_totals::{QueryTotals, with_query_totals};
use crate::remedies::RemedyBook;
use crate::running_table::with_running;
use crate::session::{ReadOnly, Session};
use crate::streams::tables::{with_continuous_queries, with_streams};
use crate::streams::{InUse, Streams};
use skewer_compat::operators::memory_pool::MemoryBudget;
use skewer_exec::column_cache::ColumnCache;
use skewer_optimizer::join_order::KnownRows;
use skewer_profiling::budget::Budgets;
use skewer_storage::kept_snapshots::KeptSnapshots;

/// How long closing waits for work on the database's threads to notice that it is over.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// How long closing waits for statements that were just cancelled to be recorded as such.
const CANCELLING: Duration = Duration::from_millis(200);

/// A query that has lost a worker may know it before membership does: the kernel closes the
/// worker's lifeline at once, so this is for busy machines.
const SETTLING: Duration = Duration::from_secs(1);

/// A database, in a directory or in memory.
///
/// Cheap to clone and safe to use from many tasks and threads; it is closed when the last clone,
/// [`Session`] and [`QueryStream`](crate::QueryStream) is gone. Statements run on threads of its
/// own, so any async runtime, or none, can await them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
/// use skewer::Database;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("music.skewer");
/// let db = Database::open(&path)?;
/// let session = db.session();
/// session.sql("CREATE TABLE songs (title VARCHAR NOT NULL, seconds INT)").await?;
/// session.sql("INSERT INTO songs VALUES ('Skewered', 187)").await?;
/// drop(session);
/// db.close().await?;
///
/// let db = Database::open(&path)?;
/// let batches = db.session().sql("SELECT * FROM songs").await?.collect().await?;
/// assert_eq!(batches[0].num_rows(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Database {
    /// Dropped first. The handles of tasks have none.
    in_use: Option<Arc<InUse>>,
    inner: Arc<DatabaseInner>,
}

#[derive(Debug)]
pub(crate) struct DatabaseInner {
    pub(crate) storage: Storage,
    pub(crate) sys: Arc<SysTables>,
    pub(crate) runtime_env: Arc<RuntimeEnv>,
    /// Where operators spill to.
    _spill_directory: Option<SpillDirectory>,
    /// The memory pool of `runtime_env`.
    pub(crate) memory: Arc<MemoryBudget>,
    /// What RESET goes back to.
    pub(crate) opened_memory_limit: Option<usize>,
    /// Decoded columns, which give way to what operators need of `memory`.
    pub(crate) cache: Arc<ColumnCache>,
    /// What RESET goes back to.
    pub(crate) opened_cache_size: Option<usize>,
    /// What RESET goes back to.
    pub(crate) opened_temp_limit: u64,
    pub(crate) writers: TableLocks,
    pub(crate) retention: Mutex<Retention>,
    /// What RESET goes back to.
    pub(crate) opened_retention: Retention,
    pub(crate) threads: usize,
    /// Who uses the processors.
    pub(crate) scheduler: Arc<Scheduler>,
    /// What every session has.
    pub(crate) functions: Functions,
    /// How many statements run queries at once, and which.
    pub(crate) admission: Arc<AdmissionQueue>,
    /// What RESET goes back to.
    pub(crate) opened_limit: Option<usize>,
    distribution: Distribution,
    /// Totals of the statements that have ended.
    pub(crate) totals: Arc<QueryTotals>,
    /// Whoever follows the statements that end.
    pub(crate) followers: Arc<Followers>,
    /// What statements took, for `profile.budget`.
    pub(crate) budgets: Arc<Budgets>,
    /// What statements took with remedies for skew, and without.
    pub(crate) remedies: Arc<RemedyBook>,
    /// How many rows relations had in queries that have ended.
    pub(crate) known_rows: Arc<KnownRows>,
    /// Plans of queries that have run.
    pub(crate) plans: Arc<PlanCache>,
    /// What queries saw, for `EXPLAIN PROFILE QUERY n`.
    pub(crate) snapshots: Arc<KeptSnapshots>,
    /// Where statements write that this process runs.
    pub(crate) place: Arc<SegmentDestination>,
    /// What runs for streams and continuous queries.
    pub(crate) streams: Arc<Streams>,
    /// Tables that have got new segments.
    grown: Grown,
    /// Each statement that runs has a clone.
    pub(crate) running: Arc<()>,
    handle: Handle,
    /// Taken when the database is dropped.
    runtime: Option<Runtime>,
}

/// Over what queries are distributed.
#[derive(Debug)]
enum Distribution {
    None,
    InProcess(Workers),
    Cluster(Master),
}

impl Database {
    /// Opens the database in a directory, which is created if it is not there.
    ///
    /// # Errors
    /// As [`DatabaseBuilder::build`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().path(path.as_ref()).build()
    }

    /// A database that is gone when it is dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t AS SELECT 1 AS one").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the operating system gives no threads.
    pub fn in_memory() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Options to open a database with.
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::default()
    }

    /// A new session, with default settings and nothing prepared.
    pub fn session(&self) -> Session {
        Session::new(self.clone(), None)
    }

    /// A handle of a database that is open.
    pub(crate) fn of_inner(inner: Arc<DatabaseInner>) -> Self {
        Self {
            in_use: None,
            inner,
        }
    }

    /// A new session that can only look: for programs that show what is there to people.
    pub fn read_only_session(&self, read_only: ReadOnly) -> Session {
        Session::new(self.clone(), Some(read_only))
    }

    /// Cancels the statement with this `query_id`, whatever session it is of; `false` if none of the statements in
    /// `sys.running` has it. The statement fails with [`Error::Cancelled`].
    pub fn cancel(&self, query_id: i64) -> bool {
        self.inner.admission.cancel(query_id)
    }

    /// The recorded statements that end from now on, whatever session they are of. At most `waiting` of them wait to
    /// be read; more are missed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let database = skewer::Database::in_memory()?;
    /// let mut ended = database.ended_queries(100);
    /// let session = database.session();
    /// session.sql("SELECT 1").await?.collect().await?;
    /// let ids: Vec<_> = ended.next(100).await.iter().map(|query| query.query_id).collect();
    /// assert_eq!(ids, [session.last_query_id().unwrap()]);
    /// # Ok(()) }
    /// ```
    pub fn ended_queries(&self, waiting: usize) -> EndedQueries {
        self.inner.followers.follow(waiting)
    }

    /// The directory, unless the database is in memory.
    pub fn path(&self) -> Option<&Path> {
        self.inner.storage.path()
    }

    /// The cluster whose master it is, if it is one.
    pub fn cluster(&self) -> Option<&Master> {
        match &self.inner.distribution {
            Distribution::Cluster(master) => Some(master),
            Distribution::None | Distribution::InProcess(_) => None,
        }
    }

    /// Writes what schema `sys` has only in memory and lets go of this handle.
    ///
    /// Waits up to 200 ms for queries that were cancelled to end. User data needs no closing: it is
    /// on disk when its statement returns. The lock on the directory is released with the last
    /// session and stream.
    ///
    /// # Errors
    /// If schema `sys` cannot be written.
    pub async fn close(self) -> Result<(), Error> {
        if self
            .in_use
            .as_ref()
            .is_some_and(|in_use| Arc::strong_count(in_use) == 1)
        {
            self.inner.streams.stop().await;
        }
        let running = Arc::downgrade(&self.inner.running);
        let sys = Arc::clone(&self.inner.sys);
        let written = self.inner.handle.spawn(async move {
            let deadline = Instant::now() + CANCELLING;
            while running.strong_count() > 1 && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::task::spawn_blocking(move || sys.flush()).await
        });
        match written.await.and_then(|written| written) {
            Ok(written) => written
                .map_err(|error| Error::Io(format!("schema sys could not be written: {error}"))),
            Err(error) => Err(Error::Internal(error.to_string())),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<DatabaseInner> {
        &self.inner
    }

    /// What is spawned until the result is dropped runs on the database's threads.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.inner.handle.enter()
    }

    /// Runs `future` on the database's threads; dropping the result cancels it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        struct AbortOnDrop(tokio::task::AbortHandle, Option<Cancellation>);
        impl Drop for AbortOnDrop {
            fn drop(&mut self) {
                if let Some(cancellation) = &self.1 {
                    cancellation.cancel();
                }
                self.0.abort();
            }
        }
        let running = Arc::clone(&self.inner.running);
        let cancellation = Cancellation::default();
        let future = cancellation::scope(cancellation.clone(), future);
        let cancelled = cancellation.clone();
        let task = self.inner.handle.spawn(async move {
            let _running = running;
            tokio::select! {
                biased;
                ended = future => ended,
                () = cancelled.cancelled() => Err(Error::Cancelled),
            }
        });
        let mut guard = AbortOnDrop(task.abort_handle(), Some(cancellation));
        let ended = task.await;
        // What it began may go on, as the query of a stream does.
        guard.1 = None;
        match ended {
            Ok(result) => result,
            Err(error) if error.is_cancelled() => Err(Error::Cancelled),
            Err(error) => Err(match error.try_into_panic() {
                Ok(panic) => Error::panicked(panic.as_ref()),
                Err(error) => Error::Internal(error.to_string()),
            }),
        }
    }
}

impl DatabaseInner {
    /// The workers for a query that reads `snapshot`, with this process among them if a part of it
    /// has to run `here`: rows enter that are written, or schema `sys` is read. `None` if all of it
    /// does.
    pub(crate) fn workers_of(&self, snapshot: &Snapshot, here: bool) -> Option<Workers> {
        match &self.distribution {
            Distribution::None => None,
            Distribution::InProcess(workers) => Some(workers.clone()),
            Distribution::Cluster(master) => master.0.workers_of(snapshot, here),
        }
    }

    /// How to ask for what the tasks of a query have read on `workers` in other processes.
    pub(crate) fn tasks_read(&self, workers: &Workers, query_id: i64) -> Option<Elsewhere> {
        let Distribution::Cluster(master) = &self.distribution else {
            return None;
        };
        let numbers = workers.list().iter().map(|worker| worker.number);
        let numbers = numbers.filter(|number| !NodeId(*number).is_master());
        let tasks = master.0.tasks_of_query(numbers.collect(), query_id);
        Some(Elsewhere::new(tasks, self.handle.clone()))
    }

    /// Schema `sys`, as a statement sees it that reads `snapshot`.
    pub(crate) fn sys_schema(&self, snapshot: Arc<Snapshot>) -> Arc<dyn SchemaProvider> {
        let sys = self.sys.schema_provider();
        let sys = Arc::new(with_running(sys, Arc::clone(&self.admission)));
        let sys = Arc::new(with_query_totals(sys, Arc::clone(&self.totals)));
        let sys = Arc::new(with_quarantines(sys, Arc::clone(&snapshot)));
        let (seen, streams) = (Arc::clone(&snapshot), Arc::clone(&self.streams));
        let sys = Arc::new(with_streams(sys, seen, streams));
        let (seen, streams) = (Arc::clone(&snapshot), Arc::clone(&self.streams));
        let sys = Arc::new(with_continuous_queries(sys, seen, streams));
        match &self.distribution {
            Distribution::Cluster(master) => Arc::new(master.0.with_cluster_table(sys, snapshot)),
            Distribution::None | Distribution::InProcess(_) => sys,
        }
    }

    /// Into how many partitions statements are divided unless a session says otherwise. A plan with one partition has
    /// no exchanges, so that no other worker could take part.
    pub(crate) fn partitions(&self) -> usize {
        match &self.distribution {
            Distribution::None => self.threads,
            Distribution::InProcess(_) | Distribution::Cluster(_) => self.threads.max(2),
        }
    }

    /// Whether queries may be divided among workers.
    pub(crate) fn has_workers(&self) -> bool {
        !matches!(self.distribution, Distribution::None)
    }

    /// Whether workers may get lost.
    pub(crate) fn is_master(&self) -> bool {
        matches!(self.distribution, Distribution::Cluster(_))
    }

    /// Why the worker with a number cannot be asked for its segments; `None` if it can.
    pub(crate) fn lost(&self, number: u32) -> Option<LostWorker> {
        match &self.distribution {
            Distribution::Cluster(master) => master.0.lost(number),
            Distribution::None | Distribution::InProcess(_) => Some(LostWorker {
                name: NodeId(number).to_string(),
                reason: "the database was not opened as the master of its cluster".to_owned(),
            }),
        }
    }

    /// A query has lost a worker: waits until membership knows, but not for long.
    pub(crate) async fn settled(&self, name: &str) {
        let Distribution::Cluster(master) = &self.distribution else {
            return;
        };
        let deadline = Instant::now() + SETTLING;
        let takes_part = || {
            let mut members = master.members().into_iter();
            members.any(|m| m.title() == name && !matches!(m.state, MemberState::Lost(_)))
        };
        while takes_part() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Limits what temporary files of all queries may take together.
    pub(crate) fn set_temp_limit(&self, bytes: u64) -> Result<(), Error> {
        Ok(self
            .runtime_env
            .disk_manager
            .set_max_temp_directory_size(bytes)?)
    }

    /// A table has got new segments, which may be small.
    pub(crate) fn has_grown(&self, table: TableId) {
        self.grown.add(table);
        self.streams.rows_came();
    }

    /// The threads of the database.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for DatabaseInner {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        let on_worker = std::thread::current()
            .name()
            .is_some_and(|name| name.starts_with(THREAD));
        if on_worker {
            if let Distribution::Cluster(master) = &self.distribution {
                master.0.abandon();
            }
            runtime.shutdown_background();
            return;
        }
        // Tasks hold the storage: waiting for them means that the lock is free afterwards. The
        // detour over a thread is because a runtime must not be awaited within another.
        let distribution = std::mem::replace(&mut self.distribution, Distribution::None);
        let waiter = std::thread::spawn(move || {
            if let Distribution::Cluster(master) = distribution {
                runtime.block_on(master.0.shutdown());
            }
            runtime.shutdown_timeout(SHUTDOWN);
        });
        // A panic there would only mean that tasks go on for a moment.
        let _ = waiter.join();
    }
}
