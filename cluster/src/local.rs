//! Workers in this process: batches go from one to the other by reference.
//!
//! Plans are encoded and decoded as on the way to another machine: every task gets operators of
//! its own, whose state and dynamic filters it shares with no other task.

use std::sync::{Arc, LazyLock, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, DistributedTaskContext,
    ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse, SetPlanRequest, Worker,
    WorkerChannel, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
    WorkerSessionBuilder, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use skewer_net::TaskEnd;
use url::Url;

use crate::codec::encode_plan;
use crate::profile::{ProfileError, QueryProfile};
use crate::shuffle_metrics::{SendingTask, count_received};
use crate::task::{WorkerQuery, WorkerTask, one_batch_per_spill_file};
use crate::workers::{QueryTasks, WorkerTransport, Workers};
use crate::write::SegmentDestination;

/// The workers of one query. Who plans the query holds them; its tasks find each other through
/// them, and end with them.
pub struct LocalChannels {
    workers: Workers,
    tasks: Vec<Worker>,
}

/// Reaches workers in this process.
#[derive(Debug, Clone, Copy)]
pub struct InProcess;

impl WorkerTransport for InProcess {
    fn channels(
        &self,
        workers: &Workers,
        query: &QueryTasks,
    ) -> Arc<dyn ChannelResolver + Send + Sync> {
        let environment = query.state.runtime_env();
        Arc::new_cyclic(|channels: &Weak<LocalChannels>| LocalChannels {
            workers: workers.clone(),
            tasks: workers
                .list()
                .iter()
                .map(|at| {
                    let recorder = query.recorder.of_worker(i64::from(at.number));
                    let sessions = TaskSessions {
                        query: query.clone(),
                        worker: WorkerQuery::new(recorder),
                        channels: Weak::clone(channels),
                    };
                    Worker::from_session_builder(sessions).with_runtime_env(Arc::clone(environment))
                })
                .collect(),
        })
    }
}

impl LocalChannels {
    fn channel(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let mut workers = self.workers.list().iter().zip(&self.tasks);
        let Some((at, worker)) = workers.find(|(at, _)| at.url == *url) else {
            return exec_err!("there is no worker at {url}");
        };
        Ok(Box::new(LocalChannel::new(at.number, worker)))
    }
}

#[async_trait]
impl ChannelResolver for LocalChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        self.channel(url)
    }
}

/// How tasks find the workers without keeping them.
struct TaskChannels(Weak<LocalChannels>);

#[async_trait]
impl ChannelResolver for TaskChannels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        match self.0.upgrade() {
            Some(channels) => channels.channel(url),
            None => exec_err!("the query is over"),
        }
    }
}

/// Makes the session of each task of a worker: that of the query, with the task's own place.
struct TaskSessions {
    query: QueryTasks,
    worker: WorkerQuery,
    channels: Weak<LocalChannels>,
}

/// Stands for the worker of this process in the sessions of tasks. They would otherwise reach
/// their own worker past its channel, where nothing is counted, and each task would keep its
/// worker, which keeps the task.
static NOBODY: LazyLock<Worker> = LazyLock::new(Worker::default);

#[async_trait]
impl WorkerSessionBuilder for TaskSessions {
    async fn build_session_state(&self, mut task: WorkerQueryContext) -> Result<SessionState> {
        let mut config = task.builder.config().take().unwrap_or_default();
        let number = config
            .get_extension::<DistributedTaskContext>()
            .map_or(0, |task| task.task_index);
        // Options and codecs of the query, extensions of the task.
        let mut of_query = self.query.state.config().clone();
        *config.options_mut() = std::mem::take(of_query.options_mut());
        one_batch_per_spill_file(config.options_mut());
        if let Some(place) = of_query.get_extension::<SegmentDestination>() {
            config.set_extension(place);
        }
        reach_itself_through_its_channel(&mut config)?;
        config.set_distributed_channel_resolver(TaskChannels(Weak::clone(&self.channels)));
        let profile = QueryProfile::of_headers(&task.headers).map_err(unknown_profile)?;
        // The rest may have changed since the task was planned: with a budget, the rate falls.
        if profile.query_id != self.worker.recorder.query_id() {
            return exec_err!("a task of another query: {profile}");
        }
        WorkerTask::new(&self.worker, number).register(&mut config);
        if let Some(end) = TaskEnd::from_headers(&task.headers) {
            config.set_extension(Arc::new(end));
        }
        let prepare = Arc::clone(&self.query.prepare);
        config.set_distributed_worker_plan_rewrite_handler(
            move |event: WorkerPlanRewriteEvent<'_>| {
                Ok(WorkerPlanRewriteEventResponse::new(prepare(event.plan)?))
            },
        );
        let mut state = self.query.state.clone();
        *state.config_mut() = config;
        Ok(state)
    }
}

/// Makes the task whose session's `config` this is reach its own worker as it does others.
pub(crate) fn reach_itself_through_its_channel(config: &mut SessionConfig) -> Result<()> {
    let nobody =
        Url::parse("in-process://nobody").map_err(|error| exec_datafusion_err!("{error}"))?;
    config.set_distributed_local_worker_context(NOBODY.to_local_worker_context(nobody));
    Ok(())
}

pub(crate) fn unknown_profile(error: ProfileError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The way to a worker in this process.
pub(crate) struct LocalChannel {
    number: u32,
    worker: Worker,
}

impl LocalChannel {
    pub(crate) fn new(number: u32, worker: &Worker) -> Self {
        Self {
            number,
            worker: worker.clone(),
        }
    }
}

#[async_trait]
impl WorkerChannel for LocalChannel {
    async fn coordinator_channel(
        &mut self,
        mut headers: HeaderMap,
        mut request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        _: ExecutionPlanMetricsSet,
        _: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        request.plan = encode_plan(request.plan)?;
        // It ends with the query.
        let running = TaskEnd::begin(&mut headers);
        let messages = futures::stream::unfold((messages, running), |state| async move {
            let (mut messages, running) = state;
            let message = messages.next().await?;
            Some((Ok(message), (messages, running)))
        });
        let messages = messages.boxed();
        self.worker
            .coordinator_channel(headers, request, messages)
            .await
    }

    async fn execute_task(
        &mut self,
        _: HeaderMap,
        request: ExecuteTaskRequest,
        _: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let sender = SendingTask::of_request(self.number, &request);
        let first = request.target_partition_start;
        let (streams, _) = self.worker.execute_task(request).await?;
        let streams = streams
            .into_iter()
            .enumerate()
            .map(|(n, stream)| count_received(stream.boxed(), context, sender, first + n));
        Ok(streams.collect())
    }

    async fn get_worker_info(&mut self, _: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        Ok(GetWorkerInfoResponse {
            version: self.worker.version().to_owned(),
        })
    }
}
