//! What workers recorded, as the master has asked for it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use futures::future::join_all;
use parking_lot::Mutex;

use crate::query_ids::QueryIds;
use crate::remote::{
    FINISH, FinishRequest, PART, PartAnswer, PartRequest, RemoteSys, RemoteSysError,
};
use crate::retention::Retention;
use crate::tables::{Table, WorkerRow};

/// The master itself.
const MASTER: i64 = 0;

/// The end of a query waits at most this long for each worker to say that its rows can be read.
const FINISH_WAIT: Duration = Duration::from_secs(1);

/// A worker that takes longer than this to give a page is taken for one that does not answer.
const PAGE_WAIT: Duration = Duration::from_secs(30);

/// What was asked for is kept up to so many bytes, as it is stored: the report about a query asks
/// for the same rows many times.
const KEPT_BYTES: usize = 256 << 20;

/// Rows of more queries than these are not kept.
const KEPT_QUERIES: usize = 16;

/// That a worker has nothing of a query is believed for so long: it may be about to have.
const NOTHING_IS_NEW: Duration = Duration::from_secs(1);

/// Asks the workers of a cluster for what they recorded, and keeps answers.
#[derive(Debug)]
pub(crate) struct RemoteCache {
    remote: Arc<dyn RemoteSys>,
    kept: Mutex<Kept>,
    /// The workers that were lost when somebody last looked.
    lost: Mutex<BTreeSet<i64>>,
}

/// How much is fetched of what a worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtMost {
    /// A page of each query; of those that have more, nothing.
    Page,
    /// Everything.
    All,
}

/// Worker, table, query.
type Key = (i64, Table, i64);

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<Key, Answer>,
    /// From the first kept to the last.
    order: VecDeque<Key>,
    bytes: usize,
}

/// What a worker has of a table and a query. That never changes once there is something: all
/// events of a query become rows at once.
#[derive(Debug, Clone)]
struct Answer {
    /// `None` if that is more than a page, and was not wanted.
    batches: Option<Arc<[RecordBatch]>>,
    bytes: usize,
    at: Instant,
}

/// Rows of workers, as they are stored.
#[derive(Debug, Default)]
pub(crate) struct OfWorkers {
    pub(crate) batches: Vec<RecordBatch>,
    /// The workers that have more than was wanted, of which nothing is here.
    pub(crate) more: Vec<i64>,
    /// Why something is missing.
    pub(crate) missing: Vec<String>,
}

impl RemoteCache {
    pub(crate) fn new(remote: Arc<dyn RemoteSys>) -> RemoteCache {
        RemoteCache {
            remote,
            kept: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// The workers that have got lost since this was last asked.
    pub(crate) fn newly_lost(&self) -> Vec<i64> {
        let workers = self.remote.workers().into_iter();
        let lost = workers.filter(|worker| worker.worker_id != MASTER && !worker.is_alive());
        let lost: BTreeSet<i64> = lost.map(|worker| worker.worker_id).collect();
        let mut known = self.lost.lock();
        let newly = lost.difference(&known).copied().collect();
        *known = lost;
        newly
    }

    /// The workers as they are now.
    pub(crate) fn workers(&self) -> Vec<WorkerRow> {
        self.remote.workers()
    }

    /// The workers that may be asked.
    pub(crate) fn others(&self) -> Vec<i64> {
        let workers = self.remote.workers().into_iter();
        let others = workers.filter(|worker| worker.worker_id != MASTER && worker.is_alive());
        others.map(|worker| worker.worker_id).collect()
    }

    /// Ends the recording of a query on workers, and returns their rows in `sys.workers`.
    pub(crate) async fn finish(
        &self,
        query_id: i64,
        workers: &[i64],
        retention: Retention,
    ) -> Vec<WorkerRow> {
        let known = self.remote.workers();
        let ends = workers.iter().map(|worker_id| {
            let known = known.iter().find(|known| known.worker_id == *worker_id);
            let worker = known
                .cloned()
                .unwrap_or_else(|| WorkerRow::lost(*worker_id));
            self.finish_on(query_id, worker, retention)
        });
        let ended = join_all(ends).await;
        self.kept.lock().forget(query_id);
        ended
    }

    async fn finish_on(
        &self,
        query_id: i64,
        mut worker: WorkerRow,
        retention: Retention,
    ) -> WorkerRow {
        let worker_id = worker.worker_id;
        let request = FinishRequest {
            query_id,
            clock_offset_ns: worker.clock_offset_ns,
            retention,
        };
        let ended = async {
            let body = request.encode()?;
            self.call(worker_id, FINISH, body, FINISH_WAIT).await
        };
        if let Err(error) = ended.await {
            tracing::warn!("what worker {worker_id} recorded of query {query_id} is lost: {error}");
            worker.state = WorkerRow::LOST.to_owned();
        }
        worker
    }

    async fn call(
        &self,
        worker_id: i64,
        method: &str,
        body: Vec<u8>,
        at_most: Duration,
    ) -> Result<Vec<u8>, RemoteSysError> {
        let answer = self.remote.call(worker_id, method, body);
        match tokio::time::timeout(at_most, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(RemoteSysError::Late(at_most)),
        }
    }

    /// Asks all workers the same, and returns what each answers.
    pub(crate) async fn ask_all(
        &self,
        method: &str,
        body: &[u8],
        at_most: Duration,
    ) -> Vec<(i64, Result<Vec<u8>, RemoteSysError>)> {
        let workers = self.others().into_iter();
        let asked = workers.map(async |worker_id| {
            let answer = self.call(worker_id, method, body.to_vec(), at_most);
            (worker_id, answer.await)
        });
        join_all(asked).await
    }

    /// Whether rows of these queries are kept.
    pub(crate) fn keeps(ids: &QueryIds) -> bool {
        matches!(ids, QueryIds::Listed(ids) if ids.len() <= KEPT_QUERIES)
    }

    /// The rows of a table that workers have of queries whose rows are [kept](Self::keeps).
    pub(crate) async fn rows(&self, table: Table, ids: &QueryIds, at_most: AtMost) -> OfWorkers {
        let QueryIds::Listed(ids) = ids else {
            return OfWorkers::default();
        };
        let workers = self.others();
        let asked = workers.iter().map(async |worker_id| {
            let rows = self.rows_of(*worker_id, table, ids, at_most).await;
            (*worker_id, rows)
        });
        let mut all = OfWorkers::default();
        for (worker_id, answer) in join_all(asked).await {
            match answer {
                Ok(Some(batches)) => all.batches.extend(batches),
                Ok(None) => all.more.push(worker_id),
                Err(error) => {
                    let missing = format!("what worker {worker_id} recorded: {error}");
                    all.missing.push(missing);
                }
            }
        }
        all
    }

    /// What one worker has of queries whose rows are kept; `None` if that is more than is wanted.
    async fn rows_of(
        &self,
        worker_id: i64,
        table: Table,
        ids: &BTreeSet<i64>,
        at_most: AtMost,
    ) -> Result<Option<Vec<RecordBatch>>, RemoteSysError> {
        let mut batches = Vec::new();
        let mut unknown = Vec::new();
        {
            let kept = self.kept.lock();
            for id in ids {
                match (kept.answer((worker_id, table, *id)), at_most) {
                    (Some(Some(answer)), _) => batches.extend(answer.iter().cloned()),
                    (Some(None), AtMost::Page) => return Ok(None),
                    (Some(None), AtMost::All) | (None, _) => unknown.push(*id),
                }
            }
        }
        // Each on its own: so they are kept.
        for id in unknown {
            let mut pages = self.pages(worker_id, table, QueryIds::Listed([id].into()));
            let mut rows = Vec::new();
            while let Some(page) = pages.next().await? {
                rows.extend(page);
                if at_most == AtMost::Page && pages.has_more() {
                    self.kept.lock().keep((worker_id, table, id), None);
                    return Ok(None);
                }
            }
            let kept = Some(rows.clone());
            self.kept.lock().keep((worker_id, table, id), kept);
            batches.extend(rows);
        }
        Ok(Some(batches))
    }

    /// The rows of a table that one worker has of some queries, as they come; at once if they are
    /// such as are kept.
    pub(crate) fn read(&self, worker_id: i64, table: Table, ids: &QueryIds) -> Reading<'_> {
        match ids {
            QueryIds::Listed(listed) if Self::keeps(ids) => Reading::Kept {
                fetched: self,
                worker_id,
                table,
                ids: Some(listed.clone()),
            },
            _ => Reading::Pages(self.pages(worker_id, table, ids.clone())),
        }
    }

    /// The rows of a table that one worker has of some queries, page by page.
    fn pages(&self, worker_id: i64, table: Table, ids: QueryIds) -> Pages<'_> {
        Pages {
            fetched: self,
            worker_id,
            table,
            next: Some(PartRequest::First {
                table: table.name().to_owned(),
                ids,
            }),
        }
    }
}

/// Rows of a worker that are being read.
pub(crate) enum Reading<'a> {
    Kept {
        fetched: &'a RemoteCache,
        worker_id: i64,
        table: Table,
        /// `None` once they were given.
        ids: Option<BTreeSet<i64>>,
    },
    Pages(Pages<'a>),
}

impl Reading<'_> {
    /// The next rows, `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>, RemoteSysError> {
        match self {
            Self::Pages(pages) => pages.next().await,
            Self::Kept {
                fetched,
                worker_id,
                table,
                ids,
            } => match ids.take() {
                Some(ids) => fetched.rows_of(*worker_id, *table, &ids, AtMost::All).await,
                None => Ok(None),
            },
        }
    }
}

/// Rows of a worker that are being asked for.
pub(crate) struct Pages<'a> {
    fetched: &'a RemoteCache,
    worker_id: i64,
    table: Table,
    next: Option<PartRequest>,
}

impl Pages<'_> {
    /// Whether the last page that came was not the last one.
    fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// The next page, `None` after the last.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>, RemoteSysError> {
        let Some(request) = self.next.take() else {
            return Ok(None);
        };
        let body = postcard::to_stdvec(&request)?;
        let fetched = self.fetched;
        let answer = fetched.call(self.worker_id, PART, body, PAGE_WAIT).await?;
        let answer: PartAnswer = postcard::from_bytes(&answer)?;
        self.next = answer.more.map(PartRequest::Next);
        Ok(Some(answer.batches(self.table)?))
    }
}

impl Kept {
    /// What is kept; `Some(None)` if it is known that there is more than a page.
    fn answer(&self, key: Key) -> Option<Option<&[RecordBatch]>> {
        let answer = self.answers.get(&key)?;
        let Some(batches) = &answer.batches else {
            return Some(None);
        };
        let believed = !batches.is_empty() || answer.at.elapsed() < NOTHING_IS_NEW;
        believed.then_some(Some(batches))
    }

    /// Keeps an answer, or that it is more than a page.
    fn keep(&mut self, key: Key, batches: Option<Vec<RecordBatch>>) {
        let columns = batches.iter().flatten().flat_map(RecordBatch::columns);
        let bytes = columns.map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        let answer = Answer {
            bytes: bytes.sum::<usize>() + size_of::<Key>() + size_of::<Answer>(),
            batches: batches.map(Into::into),
            at: Instant::now(),
        };
        self.bytes += answer.bytes;
        match self.answers.insert(key, answer) {
            Some(before) => self.bytes -= before.bytes,
            None => self.order.push_back(key),
        }
        while self.bytes > KEPT_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(answer) = self.answers.remove(&key) {
            self.bytes -= answer.bytes;
        }
    }

    /// Forgets what was known of a query.
    fn forget(&mut self, query_id: i64) {
        let keys = std::mem::take(&mut self.order);
        let (of_query, others): (Vec<Key>, Vec<Key>) =
            keys.into_iter().partition(|key| key.2 == query_id);
        self.order = others.into();
        for key in of_query {
            self.remove(key);
        }
    }
}

impl WorkerRow {
    /// The state of a worker whose rows cannot be had.
    pub(crate) const LOST: &'static str = "lost";

    /// A worker of which nothing is known any more.
    fn lost(worker_id: i64) -> WorkerRow {
        WorkerRow {
            worker_id,
            state: Self::LOST.to_owned(),
            address: String::new(),
            clock_offset_ns: 0,
            clock_error_ns: 0,
        }
    }

    /// Whether the worker can be asked.
    fn is_alive(&self) -> bool {
        self.state == "alive"
    }
}

/// Of each chunk in a batch the numbers that all its records have in common in columns `names`,
/// and its table.
pub(crate) fn chunk_numbers<'a, const N: usize>(
    batch: &'a RecordBatch,
    names: [&str; N],
) -> impl Iterator<Item = ([i64; N], Option<&'a str>)> {
    let columns = names.map(|name| batch[name].as_primitive::<Int64Type>());
    let tables = batch["table_name"].as_string::<i32>();
    (0..batch.num_rows()).map(move |chunk| {
        let table = tables.is_valid(chunk).then(|| tables.value(chunk));
        (columns.map(|column| column.value(chunk)), table)
    })
}
