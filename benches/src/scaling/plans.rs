//! What a query is to a master and N workers before its first row: how it is placed, what is sent,
//! and over how many streams it will be read.
//!
//! Planner, placement and encoding are the database's own. Only the way to the workers is
//! simulated: it takes a plan, notes its size, and answers nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, NetworkBoundaryExt, NetworkBroadcastExec, NetworkShuffleExec,
    SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use skewer_cluster::codec::encode_plan;
use skewer_cluster::{Distributed, QueryTasks, WorkerAddress, WorkerTransport, Workers};
use skewer_exec::NumberedExec;
use skewer_net::frame::Request;
use skewer_net::identity::NodeId;
use skewer_net::worker_url;
use skewer_optimizer::{PlanRequest, plan_query_on};
use skewer_profiling::{Level, Recorder, RecorderLimits};
use skewer_storage::{SegmentName, TableId};
use url::Url;

use crate::error::BenchError;

/// The queries: a grouping, and a join of two large tables with a grouping above.
pub const QUERIES: [(&str, &str); 2] = [
    ("a grouping", "SELECT k, sum(v) FROM facts GROUP BY k"),
    (
        "a join and a grouping",
        "SELECT d.v, count(*) FROM facts f JOIN details d ON f.k = d.k GROUP BY d.v",
    ),
];

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Workers.
    pub workers: u32,
    /// Partitions of each, usually its cores.
    pub partitions: usize,
    /// Segments of each table on each worker.
    pub segments: u64,
    /// Rows of each table on each worker.
    pub rows: u64,
}

/// A part of a plan that workers run, as schema `sys` numbers it.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Tasks: one per worker that runs it.
    pub tasks: usize,
    /// What it reads of other stages.
    pub reads: Vec<Read>,
    /// The partitions of each operator in a task, exchanges included.
    pub operators: Vec<usize>,
}

/// An exchange, as one task that reads sees it.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// Tasks that it reads from.
    pub senders: usize,
    /// Streams to each of them.
    pub streams: usize,
    /// Whether rows are divided by a hash.
    pub is_shuffle: bool,
}

/// What was found for one query.
#[derive(Debug, Clone)]
pub struct Findings {
    /// How much there is.
    pub size: Size,
    /// The master's part first.
    pub stages: Vec<Stage>,
    /// Plans that were sent, one per task.
    pub plans: u64,
    /// Their bytes, all together.
    pub plan_bytes: u64,
    /// What the planner took.
    pub planning: Duration,
    /// What encoding and sending took, with nobody at the other end.
    pub sending: Duration,
}

impl Findings {
    /// Streams of the whole query.
    pub fn streams(&self) -> usize {
        let of = |stage: &Stage| {
            let reads = stage.reads.iter().map(|read| read.senders * read.streams);
            stage.tasks * reads.sum::<usize>()
        };
        self.stages.iter().map(of).sum()
    }

    /// Streams on which one worker reads, over all stages; as many others read from it.
    pub fn streams_of_worker(&self) -> usize {
        let of = |stage: &Stage| {
            let reads = stage.reads.iter().map(|read| read.senders * read.streams);
            reads.sum::<usize>()
        };
        self.stages.iter().skip(1).map(of).sum()
    }
}

/// Plans a query for workers that are not there, and sends it to nobody. What operators there are
/// goes to `recorder`.
///
/// # Errors
/// Those of planning.
pub async fn simulate(
    size: Size,
    sql: &str,
    level: Level,
) -> Result<(Findings, Arc<Recorder>), BenchError> {
    let recorder = Recorder::new(1, level, 1.0, RecorderLimits::default());
    let store = ObjectStoreUrl::parse("skewer-segments://cluster")?;
    let config = SessionConfig::new().with_target_partitions(size.partitions);
    let context = SessionContext::new_with_config(config);
    for (number, name) in [(1, "facts"), (2, "details")] {
        let table = Segments::new(size, TableId(number), store.clone());
        context.register_table(name, Arc::new(table))?;
    }
    // The planner only looks whether there is one.
    let nothing = Arc::new(datafusion::object_store::memory::InMemory::new());
    context.register_object_store(store.as_ref(), nothing);
    let list = (1..=size.workers).map(|number| WorkerAddress {
        number,
        url: worker_url(NodeId(number)),
    });
    let sent = Arc::new(Sent::default());
    let workers = Workers::new(list.collect(), Arc::new(Nowhere(Arc::clone(&sent))));
    let state = workers.query(context.state(), store, &recorder, Arc::new(Ok))?;

    let started = Instant::now();
    let plan = state.create_logical_plan(sql).await?;
    let plan = state.optimize(&plan)?;
    let distributed = Distributed::of_session(state.config());
    let request = PlanRequest {
        distribution: distributed.as_ref().map(|distributed| distributed as _),
        ..PlanRequest::default()
    };
    let plan = plan_query_on(&plan, &state, &recorder, request).await?;
    let planning = started.elapsed();
    let stages = stages_of(&plan);
    let expected: u64 = stages.iter().skip(1).map(|stage| stage.tasks as u64).sum();

    let started = Instant::now();
    let mut stream = execute_stream(plan, state.task_ctx())?;
    // Plans are sent when the result is first asked for, in the background.
    let _ = stream.next().now_or_never();
    while sent.plans.load(Ordering::Acquire) < expected {
        if started.elapsed() > Duration::from_secs(600) {
            return Err(BenchError::Unexpected("plans were not sent".to_owned()));
        }
        // The result may be what gets them sent.
        let _ = tokio::time::timeout(Duration::from_millis(1), stream.next()).await;
    }
    let sending = started.elapsed();
    drop(stream);
    let findings = Findings {
        size,
        stages,
        plans: sent.plans.load(Ordering::Acquire),
        plan_bytes: sent.bytes.load(Ordering::Acquire),
        planning,
        sending,
    };
    Ok((findings, recorder))
}

/// The stages of a plan, the one that makes the result first.
fn stages_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<Stage> {
    let mut waiting = vec![(Arc::clone(plan), 1)];
    let mut stages = Vec::new();
    let mut next = 0;
    while let Some((plan, tasks)) = waiting.get(next).cloned() {
        next += 1;
        let mut stage = Stage {
            tasks,
            reads: Vec::new(),
            operators: Vec::new(),
        };
        walk(&plan, &mut stage, &mut waiting);
        stages.push(stage);
    }
    stages
}

type Waiting = Vec<(Arc<dyn ExecutionPlan>, usize)>;

fn walk(plan: &Arc<dyn ExecutionPlan>, stage: &mut Stage, waiting: &mut Waiting) {
    if let Some(numbered) = plan.downcast_ref::<NumberedExec>() {
        let operator = &numbered.observed().inner;
        let partitions = operator.output_partitioning().partition_count();
        stage.operators.push(partitions);
        return walk(operator, stage, waiting);
    }
    if let Some(boundary) = plan.as_network_boundary() {
        let input = boundary.input_stage();
        let senders = input.task_count();
        let partitions = plan.output_partitioning().partition_count();
        let is_shuffle = plan.is::<NetworkShuffleExec>();
        // Where rows are gathered, each partition is one of one sender's.
        let streams = match is_shuffle || plan.is::<NetworkBroadcastExec>() {
            true => partitions,
            false => partitions.div_ceil(senders.max(1)),
        };
        stage.reads.push(Read {
            senders,
            streams,
            is_shuffle,
        });
        if let Some(below) = input.local_plan() {
            waiting.push((Arc::clone(below), senders));
        }
        return;
    }
    for child in plan.children() {
        walk(child, stage, waiting);
    }
}

/// A table whose segments are on all workers.
#[derive(Debug)]
struct Segments {
    schema: SchemaRef,
    files: Vec<PartitionedFile>,
    size: Size,
    store: ObjectStoreUrl,
}

/// About what a row of two numbers takes in a segment.
const ROW_BYTES: u64 = 16;

impl Segments {
    fn new(size: Size, table: TableId, store: ObjectStoreUrl) -> Self {
        let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, false));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let rows = size.rows / size.segments;
        let file = |owner, id| {
            let name = SegmentName { owner, table, id };
            let statistics = Self::statistics(&schema, rows);
            PartitionedFile::new(name.location().to_string(), rows * ROW_BYTES)
                .with_statistics(Arc::new(statistics))
        };
        let segments = (1..=size.workers).flat_map(|owner| {
            let first = u64::from(owner) * size.segments;
            (first..first + size.segments).map(move |id| (owner, id))
        });
        let files = segments.map(|(owner, id)| file(owner, id)).collect();
        Self {
            schema,
            files,
            size,
            store,
        }
    }

    fn statistics(schema: &Schema, rows: u64) -> Statistics {
        Statistics {
            num_rows: Precision::Exact(rows as usize),
            total_byte_size: Precision::Inexact((rows * ROW_BYTES) as usize),
            column_statistics: Statistics::unknown_column(schema),
        }
    }
}

#[async_trait]
impl TableProvider for Segments {
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
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = state.config_options().execution.target_partitions;
        let per_group = self.files.len().div_ceil(partitions);
        let groups = self.files.chunks(per_group);
        let groups: Vec<_> = groups.map(|files| FileGroup::new(files.to_vec())).collect();
        let rows = self.size.rows * u64::from(self.size.workers);
        let source = Arc::new(ParquetSource::new(self.schema()));
        let config = FileScanConfigBuilder::new(self.store.clone(), source)
            .with_file_groups(groups)
            .with_statistics(Self::statistics(&self.schema, rows))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        ParquetFormat::default()
            .create_physical_plan(state, config)
            .await
    }
}

/// What was sent to workers that are not there.
#[derive(Default)]
struct Sent {
    plans: AtomicU64,
    bytes: AtomicU64,
}

/// The way to workers that are not there.
struct Nowhere(Arc<Sent>);

impl fmt::Debug for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nowhere")
    }
}

impl WorkerTransport for Nowhere {
    fn channels(&self, _: &Workers, _: &QueryTasks) -> Arc<dyn ChannelResolver + Send + Sync> {
        Arc::new(Self(Arc::clone(&self.0)))
    }
}

#[async_trait]
impl ChannelResolver for Nowhere {
    async fn get_worker_client_for_url(&self, _: &Url) -> Result<Box<dyn WorkerChannel>> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl WorkerChannel for Nowhere {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        mut request: SetPlanRequest,
        _: BoxStream<'static, CoordinatorToWorkerMsg>,
        _: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        // As the channels to processes do.
        request.plan = encode_plan(request.plan)?;
        let plan = Box::new(request);
        let (_, payload) = Request::SetPlan { headers, plan }.encode(context)?;
        self.0
            .bytes
            .fetch_add(payload.len() as u64, Ordering::AcqRel);
        self.0.plans.fetch_add(1, Ordering::AcqRel);
        Ok(futures::stream::pending().boxed())
    }

    async fn execute_task(
        &mut self,
        _: HeaderMap,
        request: ExecuteTaskRequest,
        _: ExecutionPlanMetricsSet,
        _: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let partitions = request.target_partition_start..request.target_partition_end;
        Ok(partitions
            .map(|_| futures::stream::pending().boxed())
            .collect())
    }

    async fn get_worker_info(&mut self, _: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        Err(DataFusionError::NotImplemented(
            "nobody is there".to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_worker_reads_from_every_other_one() {
        let size = Size {
            workers: 5,
            partitions: 3,
            segments: 2,
            rows: 1_000_000,
        };
        let (found, _) = simulate(size, QUERIES[0].1, Level::Counters).await.unwrap();
        let tasks: Vec<usize> = found.stages.iter().map(|stage| stage.tasks).collect();
        assert_eq!(tasks, [1, 5, 5], "{found:?}");
        let shuffle = found.stages[1].reads[0];
        assert!(
            shuffle.is_shuffle && shuffle.senders == 5 && shuffle.streams == 3,
            "{found:?}"
        );
        assert_eq!(found.streams_of_worker(), 15);
        assert_eq!(found.streams(), 5 * 15 + 5 * 3);
        assert_eq!(found.plans, 10);
        assert!(found.plan_bytes > 1_000, "{found:?}");
    }
}
