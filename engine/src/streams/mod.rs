//! Streams, and continuous queries that run in micro-batches.
//!
//! A stream is a table whose rows go when every continuous query that reads it has read them. A
//! micro-batch is an ordinary query over the rows that came since the one before. Its results, the
//! progress of its continuous query and the rows that the stream drops are in one commit.
//!
//! * `definition`: what the statements that the catalog keeps mean
//! * `window`: windows of event time; `rewrite`: a continuous query → the query of a micro-batch
//! * `batch`: one micro-batch; `input`: the rows that it reads; `driver`: when it runs
//! * `sources`: rows that come from elsewhere than INSERT
//! * `status`: what is known in this process; `tables`: `sys.streams` and `sys.continuous_queries`

pub(crate) mod batch;
pub(crate) mod definition;
mod driver;
pub(crate) mod input;
pub(crate) mod rewrite;
pub(crate) mod sources;
pub(crate) mod status;
pub(crate) mod tables;
pub(crate) mod window;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use skewer_node::environment::THREAD;
use skewer_storage::Snapshot;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::sources::Requests;
use self::status::Statuses;
use crate::database::{Database, DatabaseInner};
use crate::error::Error;

/// How long closing waits for micro-batches that were cancelled.
const STOPPING: Duration = Duration::from_secs(5);

/// What runs for the streams and continuous queries of a database.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The drivers of continuous queries and the readers of streams, by id.
    tasks: Mutex<Tasks>,
    /// Told when rows come to any stream.
    arrivals: Notify,
    pub(crate) statuses: Statuses,
    /// Each micro-batch and each piece of a source that is being written has a clone.
    alive: Arc<()>,
}

#[derive(Debug, Default)]
struct Tasks {
    by_id: HashMap<u64, Task>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Task {
    handle: JoinHandle<()>,
    /// Requests to a source.
    requests: Option<Requests>,
}

impl Streams {
    /// Starts what the current snapshot has and what does not run; ends what it does not have.
    pub(crate) fn reconcile(&self, database: &Arc<DatabaseInner>) {
        let snapshot = database.storage.snapshot();
        let mut tasks = self.tasks.lock();
        if tasks.is_stopped {
            return;
        }
        tasks.by_id.retain(|id, task| {
            let stays = exists(&snapshot, *id);
            if !stays {
                task.handle.abort();
                self.statuses.forget(*id);
            }
            stays
        });
        for query in snapshot.continuous_queries() {
            tasks.by_id.entry(query.id).or_insert_with(|| {
                let driver = driver::run(Link::new(database), query.id);
                Task {
                    handle: database.spawn(driver),
                    requests: None,
                }
            });
        }
        for stream in snapshot.streams() {
            let id = stream.table.0;
            if !tasks.by_id.contains_key(&id)
                && let Some((source, requests)) = sources::start(&Link::new(database), stream)
            {
                let task = Task {
                    handle: database.spawn(source),
                    requests: Some(requests),
                };
                tasks.by_id.insert(id, task);
            }
        }
    }

    /// Rows have come to a stream.
    pub(crate) fn rows_came(&self) {
        self.arrivals.notify_waiters();
    }

    /// Waits until what the source of a stream has now is durable. Streams without a source of their
    /// own have nothing.
    pub(crate) async fn refresh_source(&self, stream: u64) -> Result<(), Error> {
        let requests = self
            .tasks
            .lock()
            .by_id
            .get(&stream)
            .map(|task| task.requests.clone());
        match requests.flatten() {
            Some(requests) => requests.refresh().await,
            None => Ok(()),
        }
    }

    /// Held by what writes for a stream, for closing to wait for it.
    fn alive(&self) -> Arc<()> {
        Arc::clone(&self.alive)
    }

    /// Ends everything that runs. Micro-batches that are not committed change nothing.
    fn end_all(&self) {
        let mut tasks = self.tasks.lock();
        tasks.is_stopped = true;
        for task in tasks.by_id.drain().map(|(_, task)| task) {
            task.handle.abort();
        }
    }

    /// Ends everything and waits until it has ended.
    pub(crate) async fn stop(&self) {
        self.end_all();
        let deadline = Instant::now() + STOPPING;
        while Arc::strong_count(&self.alive) > 1 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// How a task finds its database, as long as somebody uses it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    database: Weak<DatabaseInner>,
    pub(crate) streams: Arc<Streams>,
}

impl Link {
    pub(crate) fn new(database: &Arc<DatabaseInner>) -> Self {
        Self {
            database: Arc::downgrade(database),
            streams: Arc::clone(&database.streams),
        }
    }

    /// The database, if it is still in use.
    pub(crate) fn hold(&self) -> Option<Held> {
        // First: whoever closes the database must see it.
        let alive = self.streams.alive();
        let database = self.database.upgrade()?;
        Some(Held {
            database: Database::of_inner(database),
            _alive: alive,
        })
    }
}

/// The database in the hands of a task. Closing waits for it to be dropped.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    // Fields are dropped in their order.
    database: Database,
    _alive: Arc<()>,
}

impl Held {
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn inner(&self) -> &Arc<DatabaseInner> {
        self.database.inner()
    }
}

fn exists(snapshot: &Snapshot, id: u64) -> bool {
    snapshot.continuous_query_by_id(id).is_some()
        || snapshot.stream(skewer_storage::TableId(id)).is_some()
}

/// Held by whoever uses the database. When the last one is gone, micro-batches end: they hold the
/// database as long as they run.
#[derive(Debug)]
pub(crate) struct InUse(pub(crate) Arc<Streams>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.end_all();
        let name = std::thread::current();
        if name.name().is_some_and(|name| name.starts_with(THREAD)) {
            return;
        }
        let deadline = Instant::now() + STOPPING;
        while Arc::strong_count(&self.0.alive) > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl DatabaseInner {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.handle().spawn(task)
    }
}
