//! A process of a cluster: runs tasks, and reaches the other processes over QUIC.
//!
//! ```text
//!   master                                worker 1                         worker 2
//!   sessions of queries
//!     │ ProcessTransport
//!     ▼
//!   NodeTasks ── Node ══ plans, rows ══▶ Node ── NodeTasks ◀══ rows ══ Node ── NodeTasks
//! ```
//!
//! The master is as others are: where it owns segments, it runs tasks, and workers read from them.
//! What is in the process itself goes by reference, through the channel of [`local`](crate::local).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, exec_err, plan_datafusion_err};
use datafusion::execution::{FunctionRegistry, SessionState, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, DistributedTaskContext,
    ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse, SetPlanRequest, Worker,
    WorkerChannel, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
    WorkerSessionBuilder, WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use skewer_net::identity::NodeId;
use skewer_net::{LostWorker, QuicResolver, TaskEnd, node_of_url, worker_url};
use tokio::sync::watch;
use url::Url;

use crate::codec::encode_plan;
use crate::local::{LocalChannel, reach_itself_through_its_channel, unknown_profile};
use crate::profile::QueryProfile;
use crate::shuffle_metrics::{SendingTask, count_received};
use crate::task::{WorkerQuery, WorkerTask, one_batch_per_spill_file};
use crate::workers::{PrepareTask, QueryTasks, WorkerAddress, WorkerTransport, Workers};

/// The options of a query's session that are not the usual ones, as JSON.
static OPTIONS: HeaderName = HeaderName::from_static("skewer-options");

/// The version of the list of members by which a query was planned.
static MEMBERS: HeaderName = HeaderName::from_static("skewer-members");

/// How long a task waits to be told of the members that its query was planned for: they are told
/// at once, so this is the time of a message on a busy machine.
const MEMBERS_KNOWN: Duration = Duration::from_secs(5);

/// What is done to the session of each task: it may have to know where it runs.
pub type ExtendTask = Arc<dyn Fn(&mut SessionConfig) + Send + Sync>;

/// Finds the query that a new task belongs to.
pub type QueryOfTask = Arc<dyn Fn(&QueryProfile) -> WorkerQuery + Send + Sync>;

/// Is shown the plan of each task of another process's queries, as it is run.
pub type WatchTask = Arc<dyn Fn(&QueryProfile, &Arc<dyn ExecutionPlan>) + Send + Sync>;

/// What a process of a cluster needs to run tasks.
pub struct NodeOptions {
    /// Its number.
    pub node: NodeId,
    /// The channels to the others.
    pub quic: QuicResolver,
    /// A session with the functions that tasks have, and their memory. All processes need the
    /// same functions.
    pub session: SessionState,
    /// Where what tasks record goes; none for the master, whose tasks are all of its own queries.
    pub query_of_task: Option<QueryOfTask>,
    /// The version of the list of members that this process knows.
    pub members: watch::Receiver<u64>,
    /// What is done with the plan of each task.
    pub prepare: PrepareTask,
    /// Who watches tasks; those of the process's own queries are watched by who prepares them.
    pub watch: Option<WatchTask>,
    /// What is done to the session of each task.
    pub extend: ExtendTask,
    /// Of the software.
    pub version: &'static str,
}

/// Runs the tasks of a process. Clones are the same.
#[derive(Clone)]
pub struct NodeTasks {
    inner: Arc<Inner>,
}

impl fmt::Debug for NodeTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tasks of {}", self.inner.options.node)
    }
}

struct Inner {
    options: NodeOptions,
    url: Url,
    /// Holds this weakly: what is registered with the network does not keep the process's data.
    worker: Worker,
    /// The queries that this process plans and runs tasks of, by their numbers in schema `sys`. A
    /// statement may be several.
    own: Mutex<HashMap<i64, Vec<OwnQuery>>>,
}

/// A query of this process.
#[derive(Clone)]
struct OwnQuery {
    worker: WorkerQuery,
    prepare: PrepareTask,
}

impl NodeTasks {
    /// Runs tasks as `options` say.
    pub fn new(options: NodeOptions) -> Self {
        let environment = Arc::clone(options.session.runtime_env());
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| Inner {
            url: worker_url(options.node),
            worker: Worker::from_session_builder(TaskSessions(Weak::clone(inner)))
                .with_runtime_env(environment)
                .with_version(options.version),
            own: Mutex::default(),
            options,
        });
        Self { inner }
    }

    /// For the node's [`Services`](skewer_net::Services).
    pub fn worker(&self) -> Worker {
        self.inner.worker.clone()
    }

    /// The workers with these numbers, for a query that is planned by the members of version
    /// `members`. `guard` is held until the query is over.
    pub fn workers(
        &self,
        numbers: impl IntoIterator<Item = u32>,
        members: u64,
        guard: Arc<dyn Send + Sync>,
    ) -> Workers {
        let at = |number| WorkerAddress {
            number,
            url: worker_url(NodeId(number)),
        };
        let transport = ProcessTransport {
            tasks: Arc::clone(&self.inner),
            members,
            guard,
        };
        Workers::new(numbers.into_iter().map(at).collect(), Arc::new(transport))
    }
}

/// Reaches the processes of a cluster.
struct ProcessTransport {
    tasks: Arc<Inner>,
    members: u64,
    guard: Arc<dyn Send + Sync>,
}

impl fmt::Debug for ProcessTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "members {}", self.members)
    }
}

impl WorkerTransport for ProcessTransport {
    fn channels(&self, _: &Workers, query: &QueryTasks) -> Arc<dyn ChannelResolver + Send + Sync> {
        let number = i64::from(self.tasks.options.node.0);
        let own = OwnQuery {
            worker: WorkerQuery::new(query.recorder.of_worker(number)),
            prepare: Arc::clone(&query.prepare),
        };
        let query_id = query.recorder.query_id();
        let worker = own.worker.clone();
        self.tasks.own.lock().entry(query_id).or_default().push(own);
        Arc::new(QueryChannels {
            channels: Channels {
                tasks: Arc::downgrade(&self.tasks),
                members: self.members,
            },
            tasks: Arc::downgrade(&self.tasks),
            query_id,
            worker,
            _guard: Arc::clone(&self.guard),
        })
    }

    fn headers(&self, options: &ConfigOptions) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(MEMBERS.clone(), HeaderValue::from(self.members));
        headers.insert(OPTIONS.clone(), options_header(options)?);
        Ok(headers)
    }

    fn probe(&self) -> Option<SessionState> {
        Some(self.tasks.options.session.clone())
    }
}

/// The options that are not the usual ones.
fn options_header(options: &ConfigOptions) -> Result<HeaderValue> {
    let usual: HashMap<String, Option<String>> = ConfigOptions::new()
        .entries()
        .into_iter()
        .map(|entry| (entry.key, entry.value))
        .collect();
    let entries = options.entries().into_iter();
    let changed: Vec<(String, String)> = entries
        .filter(|entry| entry.key.starts_with("datafusion."))
        .filter(|entry| usual.get(&entry.key) != Some(&entry.value))
        .filter_map(|entry| Some((entry.key, entry.value?)))
        .collect();
    let unfit =
        |error: String| plan_datafusion_err!("an option cannot be sent to workers: {error}");
    let text = serde_json::to_vec(&changed).map_err(|error| unfit(error.to_string()))?;
    HeaderValue::from_bytes(&text).map_err(|error| unfit(error.to_string()))
}

fn set_options(headers: &HeaderMap, options: &mut ConfigOptions) -> Result<()> {
    let Some(header) = headers.get(&OPTIONS) else {
        return Ok(());
    };
    let changed: Vec<(String, String)> = serde_json::from_slice(header.as_bytes())
        .map_err(|error| DataFusionError::External(Box::new(error)))?;
    for (key, value) in changed {
        options.set(&key, &value)?;
    }
    Ok(())
}

/// Tells functions that depend on options, as on the time zone, which they are.
fn set_functions(state: &mut SessionState) -> Result<()> {
    let options = state.config().options();
    let functions = state.scalar_functions().values();
    let changed: Vec<_> = functions
        .filter_map(|function| function.inner().with_updated_config(options))
        .collect();
    for function in changed {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

/// The channels of one query, for whoever plans it.
struct QueryChannels {
    channels: Channels,
    tasks: Weak<Inner>,
    query_id: i64,
    worker: WorkerQuery,
    _guard: Arc<dyn Send + Sync>,
}

impl Drop for QueryChannels {
    fn drop(&mut self) {
        if let Some(tasks) = self.tasks.upgrade() {
            let mut own = tasks.own.lock();
            if let Some(queries) = own.get_mut(&self.query_id) {
                queries.retain(|query| !Arc::ptr_eq(&query.worker.records, &self.worker.records));
                if queries.is_empty() {
                    own.remove(&self.query_id);
                }
            }
        }
    }
}

#[async_trait]
impl ChannelResolver for QueryChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        self.channels.get_worker_client_for_url(url).await
    }
}

/// The channels to the workers of a query planned by the members of version `members`.
struct Channels {
    tasks: Weak<Inner>,
    members: u64,
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let Some(tasks) = self.tasks.upgrade() else {
            return exec_err!("the process is ending");
        };
        let Some(NodeId(number)) = node_of_url(url) else {
            return exec_err!("there is no worker at {url}");
        };
        if *url == tasks.url {
            return Ok(Box::new(LocalChannel::new(number, &tasks.worker)));
        }
        tasks.know_members(self.members).await?;
        let channel = tasks.options.quic.get_worker_client_for_url(url).await?;
        Ok(Box::new(RemoteChannel { number, channel }))
    }
}

impl Inner {
    /// Waits until this process knows the members of a version.
    async fn know_members(&self, version: u64) -> Result<()> {
        let mut members = self.options.members.clone();
        let known = members.wait_for(|known| *known >= version);
        match tokio::time::timeout(MEMBERS_KNOWN, known).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => exec_err!("the process is ending"),
            Err(_) => Err(LostWorker {
                name: "the master".to_owned(),
                reason: format!("it has not told {} who the others are", self.options.node),
            }
            .into()),
        }
    }
}

/// Makes the session of each task.
struct TaskSessions(Weak<Inner>);

#[async_trait]
impl WorkerSessionBuilder for TaskSessions {
    async fn build_session_state(&self, mut task: WorkerQueryContext) -> Result<SessionState> {
        let Some(node) = self.0.upgrade() else {
            return exec_err!("the process is ending");
        };
        let mut config = task.builder.config().take().unwrap_or_default();
        let number = config
            .get_extension::<DistributedTaskContext>()
            .map_or(0, |task| task.task_index);
        set_options(&task.headers, config.options_mut())?;
        one_batch_per_spill_file(config.options_mut());
        reach_itself_through_its_channel(&mut config)?;
        let members = task.headers.get(&MEMBERS);
        let members = members.and_then(|version| version.to_str().ok()?.parse().ok());
        config.set_distributed_channel_resolver(Channels {
            tasks: Weak::clone(&self.0),
            members: members.unwrap_or(0),
        });
        let profile = QueryProfile::of_headers(&task.headers).map_err(unknown_profile)?;
        let own = node
            .own
            .lock()
            .get(&profile.query_id)
            .and_then(|own| own.last())
            .cloned();
        let query = match (&own, &node.options.query_of_task) {
            (Some(own), _) => own.worker.clone(),
            (None, Some(query_of_task)) => query_of_task(&profile),
            (None, None) => return exec_err!("the query is over"),
        };
        WorkerTask::new(&query, number).register(&mut config);
        if let Some(end) = TaskEnd::from_headers(&task.headers) {
            config.set_extension(Arc::new(end));
        }
        let watch = node.options.watch.clone().filter(|_| own.is_none());
        let prepare = own.map_or_else(|| Arc::clone(&node.options.prepare), |own| own.prepare);
        config.set_distributed_worker_plan_rewrite_handler(
            move |event: WorkerPlanRewriteEvent<'_>| {
                let plan = prepare(event.plan)?;
                if let Some(watch) = &watch {
                    watch(&profile, &plan);
                }
                Ok(WorkerPlanRewriteEventResponse::new(plan))
            },
        );
        (node.options.extend)(&mut config);
        let mut state = node.options.session.clone();
        *state.config_mut() = config;
        set_functions(&mut state)?;
        Ok(state)
    }
}

/// The way to a worker in another process.
struct RemoteChannel {
    number: u32,
    channel: Box<dyn WorkerChannel>,
}

#[async_trait]
impl WorkerChannel for RemoteChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        mut request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        request.plan = encode_plan(request.plan)?;
        let channel = &mut self.channel;
        channel
            .coordinator_channel(headers, request, messages, metrics, context)
            .await
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let sender = SendingTask::of_request(self.number, &request);
        let first = request.target_partition_start;
        let streams = self
            .channel
            .execute_task(headers, request, metrics, context);
        let streams = streams
            .await?
            .into_iter()
            .enumerate()
            .map(|(n, stream)| count_received(stream, context, sender, first + n));
        Ok(streams.collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        self.channel.get_worker_info(request).await
    }
}
