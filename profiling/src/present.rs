//! Tables of schema `sys` about the present: what the nodes of the cluster read of their machines, and of their
//! links, and which decoded columns they keep in memory. Nothing of them is stored: each node keeps its own, and the master asks for it when a table is scanned.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use skewer_machine::metric::Metric;
use skewer_machine::sampler::{self, Sampling};

use crate::definition::{Origin, SysRow, TableDefinition, array, column, heap, sys_table, value};
use crate::remote::RemoteSysError;
use crate::store::Store;
use crate::tables::RunningOperator;
use crate::ticks::nanos_since_epoch;
use crate::user_detectors::UserDetectors;

/// Asks a worker for all rows of a table of the present; the body is the table's name.
pub const PRESENT: &str = "sys/present";

/// A worker that takes longer to answer is left out: these tables are for people who look now.
const WAIT: Duration = Duration::from_secs(2);

sys_table! {
    /// One row per node, metric and interval: readings of the machine, once a second, and ten times while queries run.
    /// They are kept for an hour; then minutes are, for a day. Nothing is stored: a process that starts has none.
    struct NodeMetric = "node_metrics" {
        /// The worker; 0 is the process itself, or the master.
        given worker_id: Int,
        /// The end of the interval, by the worker's clock.
        row at: Time,
        /// The metric, as in `sys.metric_sources`.
        row metric: Text,
        /// Its mean in the interval, in the unit that the name says.
        row value: Float,
        /// Its smallest reading in the interval.
        row low: Float,
        /// Its largest reading in the interval.
        row high: Float,
        /// The length of the interval in seconds.
        row seconds: Float,
    }
}

sys_table! {
    /// One row per node and metric: where it is read from, and why it is not there if it is not.
    struct MetricSource = "metric_sources" {
        /// The worker; 0 is the process itself, or the master.
        given worker_id: Int,
        /// The metric's name in `sys.node_metrics` and `sys.worker_metrics`.
        row metric: Text,
        /// `bytes`, `bytes/s`, `1/s`, `cores`, or `share` (0 to 1).
        row unit: Text,
        /// What it says.
        row meaning: Text,
        /// The file that it is read from.
        row source: Text,
        /// Whether it has been read.
        row is_available: Flag,
        /// Why it is absent; NULL if it is there.
        row reason: OptText,
    }
}

sys_table! {
    /// One row per connection between two nodes of a cluster, from the node that opened it: what QUIC measured since.
    struct Link = "links" {
        /// The node that opened the connection.
        given worker_id: Int,
        /// The other node; 0 is the master.
        row peer_id: Int,
        /// The round trip now, smoothed, in nanoseconds.
        row rtt_ns: Int,
        /// The shortest round trip that was measured.
        row min_rtt_ns: Int,
        /// UDP datagrams sent.
        row sent_packets: Int,
        /// Packets sent that are taken for lost.
        row lost_packets: Int,
        /// How often congestion was seen.
        row congestion_events: Int,
        /// Bytes that may be under way at once.
        row window_bytes: Int,
        /// Bytes sent.
        row sent_bytes: Int,
        /// Bytes received.
        row received_bytes: Int,
    }
}

sys_table! {
    /// One row per segment and column of which a process keeps decoded rows in memory, for the queries that follow.
    struct CacheEntry = "cache" {
        /// The process: 0 is this one. Workers of a cluster keep none.
        given worker_id: Int,
        /// The table's number.
        row table_id: Int,
        /// The table, with its schema, by the name that it had when its segment was first read.
        row table_name: Text,
        /// The number of the segment.
        row segment_id: Int,
        /// The column.
        row column_name: Text,
        /// Row groups of the segment whose rows are there.
        row row_groups: Int,
        /// Bytes of memory.
        row bytes: Int,
        /// How often a scan found a row group of the column.
        row hits: Int,
        /// When a scan found or filled one last.
        row last_used_at: Time,
    }
}

/// Knows something of the present in this process.
pub trait Source<Row>: Send + Sync {
    /// All of it, now.
    fn rows(&self) -> Vec<Row>;
}

impl<Row, F: Fn() -> Vec<Row> + Send + Sync> Source<Row> for F {
    fn rows(&self) -> Vec<Row> {
        self()
    }
}

/// A table of the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PresentTable {
    NodeMetrics,
    MetricSources,
    Links,
    RunningOperators,
    Cache,
}

impl PresentTable {
    pub(crate) const ALL: [Self; 5] = [
        Self::RunningOperators,
        Self::NodeMetrics,
        Self::MetricSources,
        Self::Links,
        Self::Cache,
    ];

    pub(crate) fn definition(self) -> &'static TableDefinition {
        match self {
            Self::NodeMetrics => &NodeMetric::TABLE,
            Self::MetricSources => &MetricSource::TABLE,
            Self::Links => &Link::TABLE,
            Self::RunningOperators => &RunningOperator::TABLE,
            Self::Cache => &CacheEntry::TABLE,
        }
    }

    /// Whether the first column is the number of the worker, which a worker does not know.
    fn begins_with_worker(self) -> bool {
        match self {
            Self::NodeMetrics | Self::MetricSources | Self::Links | Self::Cache => true,
            Self::RunningOperators => false,
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|table| table.definition().name == name)
    }
}

/// What this process knows of the present.
#[derive(Default)]
pub(crate) struct Present {
    /// Reads the machine as long as the store is open.
    sampling: OnceLock<Sampling>,
    links: OnceLock<Arc<dyn Source<Link>>>,
    running: OnceLock<Arc<dyn Source<RecordBatch>>>,
    cache: OnceLock<Arc<dyn Source<CacheEntry>>>,
    detectors: OnceLock<Arc<dyn UserDetectors>>,
}

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present").finish_non_exhaustive()
    }
}

impl Present {
    /// Reads the machine from now on.
    pub(crate) fn start(&self) {
        self.sampling.get_or_init(Sampling::start);
    }

    /// From now on the connections are known. The first time counts.
    pub(crate) fn set_links(&self, links: Arc<dyn Source<Link>>) {
        let _ = self.links.set(links);
    }

    /// From now on the operators that run are known. The first time counts.
    pub(crate) fn set_running(&self, running: Arc<dyn Source<RecordBatch>>) {
        let _ = self.running.set(running);
    }

    /// From now on it is known what the cache holds. The first time counts.
    pub(crate) fn set_cache(&self, cache: Arc<dyn Source<CacheEntry>>) {
        let _ = self.cache.set(cache);
    }

    /// From now on the views of schema `detectors` count. The first time counts.
    pub(crate) fn set_detectors(&self, detectors: Arc<dyn UserDetectors>) {
        let _ = self.detectors.set(detectors);
    }

    /// Runs the detectors of users.
    pub(crate) fn detectors(&self) -> Option<Arc<dyn UserDetectors>> {
        self.detectors.get().cloned()
    }

    /// All rows of this process, which takes itself for worker 0.
    fn rows(&self, table: PresentTable) -> Result<RecordBatch, ArrowError> {
        let origin = Origin::nobody();
        Ok(match table {
            PresentTable::NodeMetrics => NodeMetric::batch(&origin, &node_metrics()),
            PresentTable::MetricSources => MetricSource::batch(&origin, &metric_sources()),
            PresentTable::Links => {
                let links = self.links.get().map(|links| links.rows());
                Link::batch(&origin, &links.unwrap_or_default())
            }
            PresentTable::Cache => {
                let cache = self.cache.get().map(|cache| cache.rows());
                CacheEntry::batch(&origin, &cache.unwrap_or_default())
            }
            PresentTable::RunningOperators => {
                let running = self.running.get().map(|running| running.rows());
                concat_batches(&table.definition().schema(), &running.unwrap_or_default())?
            }
        })
    }

    /// Answers the master: the rows of this process in Arrow's stream format, of worker 0.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Vec<u8>, RemoteSysError> {
        let name = String::from_utf8_lossy(body);
        let table = PresentTable::by_name(&name);
        let table = table.ok_or_else(|| RemoteSysError::Table(name.into_owned()))?;
        let rows = self.rows(table)?;
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &rows.schema())?;
        writer.write(&rows)?;
        writer.finish()?;
        drop(writer);
        Ok(bytes)
    }
}

fn node_metrics() -> Vec<NodeMetric> {
    let points = sampler::points().into_iter();
    points
        .map(|point| NodeMetric {
            at: nanos_since_epoch(point.at),
            metric: point.metric.name().to_owned(),
            value: point.mean,
            low: point.low,
            high: point.high,
            seconds: point.length.as_secs_f64(),
        })
        .collect()
}

fn metric_sources() -> Vec<MetricSource> {
    let latest = sampler::latest();
    let metrics = Metric::ALL.into_iter();
    metrics
        .map(|metric| {
            let is_available = latest.is_some_and(|latest| latest.get(metric).is_some());
            let reason = match latest {
                _ if is_available => None,
                Some(_) => Some(metric.why_absent().to_owned()),
                None => Some("nothing has been read yet".to_owned()),
            };
            MetricSource {
                metric: metric.name().to_owned(),
                unit: metric.unit().to_owned(),
                meaning: metric.docs().to_owned(),
                source: metric.source().to_owned(),
                is_available,
                reason,
            }
        })
        .collect()
}

/// A table of the present as DataFusion sees it.
#[derive(Debug)]
pub(crate) struct PresentProvider {
    store: Arc<Store>,
    table: PresentTable,
    schema: SchemaRef,
}

impl PresentProvider {
    pub(crate) fn new(store: Arc<Store>, table: PresentTable) -> Self {
        Self {
            store,
            table,
            schema: table.definition().schema(),
        }
    }

    /// The rows of this process and of all workers that answer.
    async fn rows(&self) -> Result<Vec<RecordBatch>> {
        let mut batches = vec![self.store.present().rows(self.table)?];
        let Some(fetched) = self.store.fetched() else {
            return Ok(batches);
        };
        let name = self.table.definition().name;
        for (worker_id, answer) in fetched.ask_all(PRESENT, name.as_bytes(), WAIT).await {
            let rows = answer.and_then(|bytes| self.rows_of(worker_id, &bytes));
            match rows {
                Ok(rows) => batches.extend(rows),
                Err(error) => tracing::warn!("sys.{name} lacks worker {worker_id}: {error}"),
            }
        }
        Ok(batches)
    }

    /// The rows that a worker answered, with its number.
    fn rows_of(&self, worker_id: i64, bytes: &[u8]) -> Result<Vec<RecordBatch>, RemoteSysError> {
        let reader = StreamReader::try_new(bytes, None)?;
        if reader.schema() != self.schema {
            let other = "these are not the columns that this version has";
            return Err(RemoteSysError::Failed(other.to_owned()));
        }
        let number = |batch: RecordBatch| {
            if !self.table.begins_with_worker() {
                return Ok(batch);
            }
            let worker = Int64Array::from(vec![worker_id; batch.num_rows()]);
            let mut columns = batch.columns().to_vec();
            columns[0] = Arc::new(worker);
            RecordBatch::try_new(batch.schema(), columns)
        };
        Ok(reader
            .map(|batch| batch.and_then(number))
            .collect::<Result<_, _>>()?)
    }
}

#[async_trait]
impl TableProvider for PresentProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = MemTable::try_new(self.schema(), vec![self.rows().await?])?;
        rows.scan(state, projection, filters, limit).await
    }
}
