//! Workers in processes of their own, as far as schema `sys` can tell: each has a log of its own,
//! and all that goes to and fro is bytes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use skewer_profiling::remote::{FINISH, PART};
use skewer_profiling::{
    FinishRequest, Level, Recorder, RecorderLimits, RemoteSys, RemoteSysError, SysTables, WorkerRow,
};

/// The workers 1 to n of a cluster.
#[derive(Debug)]
pub struct Processes {
    pub workers: Vec<Arc<SysTables>>,
    /// What the clock of worker n is ahead by.
    pub ahead_ns: Vec<i64>,
    pub lost: Mutex<BTreeSet<i64>>,
    /// Recorders of queries that have not ended.
    running: Mutex<HashMap<(i64, i64), Arc<Recorder>>>,
    /// Pages that were asked for.
    pub pages: AtomicUsize,
}

impl Processes {
    /// Workers with these logs.
    pub fn new(workers: Vec<Arc<SysTables>>) -> Arc<Self> {
        Arc::new(Self {
            ahead_ns: vec![0; workers.len()],
            workers,
            lost: Mutex::default(),
            running: Mutex::default(),
            pages: AtomicUsize::new(0),
        })
    }

    /// The recorder of a query on a worker.
    pub fn recorder(&self, worker_id: i64, query_id: i64) -> Arc<Recorder> {
        let mut running = self.running.lock();
        let new = || {
            let limits = RecorderLimits::default();
            Recorder::on_worker(worker_id, query_id, Level::Records, 1.0, limits)
        };
        Arc::clone(running.entry((worker_id, query_id)).or_insert_with(new))
    }

    fn index(worker_id: i64) -> usize {
        usize::try_from(worker_id - 1).unwrap()
    }
}

#[async_trait]
impl RemoteSys for Processes {
    fn workers(&self) -> Vec<WorkerRow> {
        let lost = self.lost.lock();
        let workers = (1..).zip(&self.ahead_ns);
        workers
            .map(|(worker_id, ahead_ns)| WorkerRow {
                worker_id,
                state: match lost.contains(&worker_id) {
                    true => "lost".to_owned(),
                    false => "alive".to_owned(),
                },
                address: format!("10.0.0.{worker_id}:7000"),
                clock_offset_ns: *ahead_ns,
                clock_error_ns: 17,
            })
            .collect()
    }

    async fn call(
        &self,
        worker_id: i64,
        method: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, RemoteSysError> {
        if self.lost.lock().contains(&worker_id) {
            return Err(RemoteSysError::Lost("the test has killed it".to_owned()));
        }
        let sys = &self.workers[Self::index(worker_id)];
        match method {
            FINISH => {
                let request = FinishRequest::decode(&body)?;
                let recorder = self.running.lock().remove(&(worker_id, request.query_id));
                if let Some(recorder) = recorder {
                    sys.finish_on_worker(&recorder, request.clock_offset_ns);
                }
                Ok(Vec::new())
            }
            PART => {
                self.pages.fetch_add(1, Ordering::Relaxed);
                sys.answer(&body)
            }
            other => Err(RemoteSysError::Method(other.to_owned())),
        }
    }
}
