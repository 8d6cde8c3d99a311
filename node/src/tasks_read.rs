//! What the tasks of a query have read: noted on the workers, asked for by the master.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::join_all;
use parking_lot::Mutex;
use skewer_cluster::rows_read::{AskTasks, RowsRead, Scan, leaves};
use skewer_net::identity::NodeId;

use crate::master::Inner;
use crate::rpc_messages;

/// An answer that takes longer is not waited for: progress is for people who look now.
const WAIT: Duration = Duration::from_secs(2);

/// Queries whose tasks have all ended are remembered so long: others may be set up.
const ENDED: Duration = Duration::from_secs(60);

/// The scans of the tasks that run on a worker, by query.
#[derive(Debug, Default)]
pub(crate) struct TasksRead {
    queries: Mutex<HashMap<i64, Scans>>,
}

#[derive(Debug)]
struct Scans {
    scans: Vec<(Weak<dyn ExecutionPlan>, Option<usize>)>,
    newest: Instant,
}

impl TasksRead {
    /// A task of a query is about to run.
    pub(crate) fn watch(&self, query_id: i64, plan: &Arc<dyn ExecutionPlan>) {
        // Merges in the background have no number: nobody asks how far they are.
        if query_id == 0 {
            return;
        }
        let now = Instant::now();
        let leaves = leaves(plan).into_iter();
        let leaves = leaves.map(|scan| (Arc::downgrade(&scan.plan), scan.rows));
        let mut queries = self.queries.lock();
        queries.retain(|_, query| {
            let mut scans = query.scans.iter();
            now - query.newest < ENDED || scans.any(|(scan, _)| scan.strong_count() > 0)
        });
        let query = queries.entry(query_id).or_insert_with(|| Scans {
            scans: Vec::new(),
            newest: now,
        });
        query.newest = now;
        query.scans.extend(leaves);
    }

    /// What the scans of a query have read so far.
    pub(crate) fn read(&self, query_id: i64) -> RowsRead {
        let queries = self.queries.lock();
        let scans = queries.get(&query_id).into_iter();
        let scans = scans.flat_map(|query| &query.scans);
        let read = scans.map(|(scan, rows)| match scan.upgrade() {
            Some(plan) => Scan::read(&*plan, *rows),
            // Its task is over, and has read what it needed.
            None => RowsRead {
                rows: rows.unwrap_or(0) as u64,
                of: rows.map(|rows| rows as u64),
            },
        });
        read.fold(RowsRead::NOTHING, RowsRead::and)
    }
}

/// The tasks of a query on the workers of a cluster.
#[derive(Debug)]
pub(crate) struct TasksOfQuery {
    master: Weak<Inner>,
    workers: Vec<u32>,
    query_id: i64,
}

impl TasksOfQuery {
    pub(crate) fn new(master: &Arc<Inner>, workers: Vec<u32>, query_id: i64) -> Self {
        Self {
            master: Arc::downgrade(master),
            workers,
            query_id,
        }
    }
}

#[async_trait]
impl AskTasks for TasksOfQuery {
    async fn read(&self) -> RowsRead {
        let Some(master) = self.master.upgrade() else {
            return RowsRead::default();
        };
        let master = &master;
        let asked = self.workers.iter().map(async |worker| {
            let question = rpc_messages::encode(&self.query_id).ok()?;
            let answer = master
                .node
                .call(NodeId(*worker), rpc_messages::PROGRESS, question);
            let answer = tokio::time::timeout(WAIT, answer).await.ok()?.ok()?;
            let (rows, of) = rpc_messages::decode(&answer).ok()?;
            Some(RowsRead { rows, of })
        });
        let answers = join_all(asked).await.into_iter();
        // Without those who do not answer it is not known how much there is.
        answers
            .map(Option::unwrap_or_default)
            .fold(RowsRead::NOTHING, RowsRead::and)
    }
}
