//! The queries that a worker process runs tasks of, and what becomes of their recordings.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use parking_lot::Mutex;
use skewer_profiling::{FinishRequest, Level, RemoteSysError, SysTables, present, remote};

use crate::profile::QueryProfile;
use crate::task::WorkerQuery;

/// A query that ends waits at most this long for streams that were stopped early: they hand over
/// what they recorded when their tasks notice.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// Between two looks at them.
const LOOK: Duration = Duration::from_millis(1);

/// Queries that nobody ends, since the message got lost, are ended when they have had no stream
/// and no new task for so long.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// So many queries are remembered as ended: tasks of theirs that come late are not recorded.
const REMEMBERED: usize = 1024;

/// The queries that a worker process runs tasks of. Each has a recorder from its first task on,
/// whose events become rows of the process's own part of schema `sys` when the query ends.
#[derive(Debug)]
pub struct WorkerQueries {
    worker_id: i64,
    sys: Arc<SysTables>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<i64, Running>,
    ended: BTreeSet<i64>,
}

#[derive(Debug)]
struct Running {
    query: WorkerQuery,
    /// When its newest task came.
    newest: Instant,
}

impl WorkerQueries {
    /// No query yet, on worker `worker_id`, whose part of schema `sys` is `sys`.
    pub fn new(worker_id: i64, sys: Arc<SysTables>) -> Arc<Self> {
        Arc::new_cyclic(|queries: &Weak<Self>| {
            let queries = Weak::clone(queries);
            sys.set_running(Arc::new(move || {
                let queries = queries.upgrade();
                queries.map_or_else(Vec::new, |queries| queries.running_operators())
            }));
            Self {
                worker_id,
                sys,
                state: Mutex::default(),
            }
        })
    }

    /// Rows of `sys.running_operators`: what the operators of all queries did here so far.
    fn running_operators(&self) -> Vec<RecordBatch> {
        let running: Vec<_> = {
            let state = self.state.lock();
            let running = state.running.values();
            running
                .map(|running| Arc::clone(&running.query.recorder))
                .collect()
        };
        let batches = running
            .iter()
            .flat_map(|recorder| recorder.running_operators());
        batches.collect()
    }

    /// The query that a new task belongs to.
    pub fn of_task(&self, profile: &QueryProfile) -> WorkerQuery {
        let now = Instant::now();
        let (query, forgotten) = {
            let mut state = self.state.lock();
            let forgotten = state.forgotten(now);
            if let Some(running) = state.running.get_mut(&profile.query_id) {
                running.newest = now;
                (running.query.clone(), forgotten)
            } else {
                let recorder = profile.recorder(self.worker_id);
                recorder.spill_to(&self.sys);
                let query = WorkerQuery::new(recorder);
                let late = state.ended.contains(&profile.query_id);
                if profile.level > Level::Off && !late {
                    let running = Running {
                        query: query.clone(),
                        newest: now,
                    };
                    state.running.insert(profile.query_id, running);
                }
                (query, forgotten)
            }
        };
        for forgotten in forgotten {
            self.keep(forgotten, 0);
        }
        query
    }

    /// How many queries have not ended.
    pub fn running(&self) -> usize {
        self.state.lock().running.len()
    }

    /// The query has ended: its events become rows as soon as the last of its streams is gone,
    /// which is waited for, but not for long. Times are corrected by `clock_offset_ns`, what this
    /// worker's clock is ahead of the master's.
    pub async fn end(&self, query_id: i64, clock_offset_ns: i64) {
        let running = {
            let mut state = self.state.lock();
            state.end(query_id);
            state.running.remove(&query_id)
        };
        let Some(running) = running else {
            return;
        };
        let deadline = Instant::now() + STRAGGLERS;
        while running.query.recorder.open_streams() > 0 && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        self.keep(running.query, clock_offset_ns);
    }

    /// The master is gone, or the worker is about to be: all queries have ended.
    pub async fn end_all(&self) {
        let queries: Vec<i64> = self.state.lock().running.keys().copied().collect();
        for query_id in queries {
            self.end(query_id, 0).await;
        }
    }

    fn keep(&self, query: WorkerQuery, clock_offset_ns: i64) {
        query.report();
        self.sys.finish_on_worker(&query.recorder, clock_offset_ns);
    }

    /// Answers what the master asks of schema `sys`: methods that begin with `sys/`.
    ///
    /// # Errors
    /// If there is no such method, or the question is none.
    pub async fn call(&self, method: &str, body: Vec<u8>) -> Result<Vec<u8>, RemoteSysError> {
        match method {
            remote::FINISH => {
                let request = FinishRequest::decode(&body)?;
                if request.retention != self.sys.retention() {
                    self.sys.set_retention(request.retention);
                }
                self.end(request.query_id, request.clock_offset_ns).await;
                Ok(Vec::new())
            }
            remote::PART => {
                let sys = Arc::clone(&self.sys);
                let answer = tokio::task::spawn_blocking(move || sys.answer(&body)).await;
                answer.map_err(|error| RemoteSysError::Failed(error.to_string()))?
            }
            present::PRESENT => self.sys.answer_present(&body),
            other => Err(RemoteSysError::Method(other.to_owned())),
        }
    }
}

impl State {
    fn end(&mut self, query_id: i64) {
        self.ended.insert(query_id);
        if self.ended.len() > REMEMBERED {
            // Ids ascend: the smallest is the oldest.
            self.ended.pop_first();
        }
    }

    /// Takes out the queries that nobody has ended.
    fn forgotten(&mut self, now: Instant) -> Vec<WorkerQuery> {
        let idle = |running: &Running| {
            now.duration_since(running.newest) >= FORGOTTEN
                && running.query.recorder.open_streams() == 0
        };
        let ids = self.running.iter().filter(|(_, running)| idle(running));
        let ids: Vec<i64> = ids.map(|(id, _)| *id).collect();
        ids.into_iter()
            .filter_map(|id| {
                self.end(id);
                self.running.remove(&id).map(|running| running.query)
            })
            .collect()
    }
}
