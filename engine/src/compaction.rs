//! Small segments merged in the background, each where it is.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use datafusion::execution::SessionState;
use datafusion::physical_plan::execute_stream;
use parking_lot::Mutex;
use skewer_cluster::Workers;
use skewer_cluster::write::SegmentDestination;
use skewer_compat::operators::scheduling::{Cancellation, RunningQuery};
use skewer_node::task_session;
use skewer_profiling::{Level, Recorder, RecorderLimits, SysTables};
use skewer_storage::{Storage, StorageError, TableId};
use tokio::sync::mpsc;

use crate::database::{DatabaseInner, TableLocks};
use crate::error::Error;
use crate::planning;
use crate::progress::ProgressHandle;
use crate::statements::on_workers::{Division, OnWorkers};

/// After an insert its table rests for so long: a burst of small inserts is merged once.
const REST: Duration = Duration::from_millis(500);

/// Where tables are named that have got new segments: each once until it is looked at, however many
/// statements come before.
#[derive(Debug)]
pub(crate) struct Grown {
    tables: Arc<Mutex<HashSet<TableId>>>,
    wake: mpsc::Sender<()>,
}

/// The other end of [`Grown`].
#[derive(Debug)]
pub(crate) struct GrownTables {
    tables: Arc<Mutex<HashSet<TableId>>>,
    woken: mpsc::Receiver<()>,
}

pub(crate) fn grown() -> (Grown, GrownTables) {
    let (wake, woken) = mpsc::channel(1);
    let tables: Arc<Mutex<HashSet<TableId>>> = Arc::default();
    let looks = GrownTables {
        tables: Arc::clone(&tables),
        woken,
    };
    (Grown { tables, wake }, looks)
}

impl Grown {
    pub(crate) fn add(&self, table: TableId) {
        self.tables.lock().insert(table);
        // Where it is full nobody has looked since. Without a receiver the database is closing:
        // compaction can wait for the next opening.
        let _ = self.wake.try_send(());
    }
}

/// Merges small segments of the tables that are named, until nobody can name any. Does not keep the
/// database.
pub(crate) async fn run(
    database: Weak<DatabaseInner>,
    storage: Storage,
    writers: TableLocks,
    mut grown: GrownTables,
) {
    while grown.woken.recv().await.is_some() {
        tokio::time::sleep(REST).await;
        let due = std::mem::take(&mut *grown.tables.lock());
        for table in due {
            // Nothing is lost where it fails: the segments stay as they are.
            loop {
                let _turn = writers.take(table).await;
                match storage.compact(table).await {
                    // A shard at a time; statements have a turn in between.
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!("table {table:?} could not be compacted: {error}");
                        break;
                    }
                }
            }
            let _turn = writers.take(table).await;
            if let Some(on) = Remote::of_database(&database)
                && let Err(error) = on.compact(&storage, table).await
            {
                tracing::warn!("table {table:?} could not be compacted on workers: {error}");
            }
            if let Some(database) = database.upgrade() {
                // What queries saw, and their plans, may hold the segments that were merged.
                let now = storage.snapshot();
                database.snapshots.trim(&now);
                database.plans.drop_outdated(&now);
            }
        }
    }
}

/// Workers with segments of their own.
struct Remote {
    workers: Workers,
    state: SessionState,
    place: Arc<SegmentDestination>,
    sys: Arc<SysTables>,
    query: Arc<RunningQuery>,
}

impl Remote {
    /// Those that take part now, if there are any.
    fn of_database(database: &Weak<DatabaseInner>) -> Option<Self> {
        let database = database.upgrade()?;
        let workers = database.workers_of(&database.storage.snapshot(), true)?;
        if workers.shares_segments() {
            return None;
        }
        let mut state = task_session(&database.runtime_env, &database.functions);
        // Several partitions of an owner would make several small segments.
        state.config_mut().options_mut().execution.target_partitions = 1;
        Some(Self {
            workers,
            state,
            place: Arc::clone(&database.place),
            sys: Arc::clone(&database.sys),
            query: database.scheduler.query(Cancellation::default()),
        })
    }

    /// As [`Storage::compact`], of the segments of workers, by those who have them.
    async fn compact(self, storage: &Storage, table: TableId) -> Result<(), Error> {
        let Some(table) = storage.snapshot().table_by_id(table) else {
            return Ok(());
        };
        let here = |owner| self.workers.list().iter().any(|at| at.number == owner);
        let is_remote = |owner| owner != skewer_storage::MASTER && here(owner);
        let chosen = table.worth_merging(is_remote, storage.segment_rows());
        // Without the owner of a shard rows would be divided among those who are there, and those that
        // lie together would do so no more.
        let mut owners = table.owners_of_shards().into_iter().flatten().flatten();
        if chosen.is_empty() || !owners.all(here) {
            return Ok(());
        }
        let removed: Vec<u64> = chosen.iter().map(|segment| segment.id).collect();
        let workers = Some(self.workers.clone());
        let Some(on) = OnWorkers::begin(storage, &table, workers, Division::AsBefore)? else {
            return Ok(());
        };
        // Nobody asked for it: it leaves no trace.
        let recorder = Recorder::new(0, Level::Off, 1.0, RecorderLimits::default());
        let state = planning::on_workers(
            &self.workers,
            self.state,
            &self.place,
            &self.sys,
            storage.object_store_url(),
            &recorder,
            &ProgressHandle::default(),
            &self.query,
        )?;
        let (plan, _) = on.rewriting(&state, &table, chosen, None, false).await?;
        let stream = execute_stream(plan, state.task_ctx())?;
        let (added, _) = on.adopt(stream).await?;
        let mut transaction = storage.begin();
        let replaced = match transaction.replace_segments(table.id, &removed, added) {
            // A commit syncs the catalog: it must not hold up a thread that runs queries.
            Ok(()) => tokio::task::spawn_blocking(move || transaction.commit())
                .await
                .map_err(|error| Error::Internal(error.to_string()))?
                .map(|_| ()),
            Err(error) => Err(error),
        };
        match replaced {
            // The table is gone or has changed meanwhile.
            Ok(()) | Err(StorageError::Conflict { .. } | StorageError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
