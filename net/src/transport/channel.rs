//! datafusion-distributed's channels to workers.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, Label, MetricBuilder};
use datafusion_distributed::{
    BytesMetricExt, ChannelResolver, CoordinatorToWorkerMsg, DISTRIBUTED_DATAFUSION_TASK_ID_LABEL,
    ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse, SetPlanRequest, WorkerChannel,
    WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::HeaderMap;
use quinn::Connection;
use url::Url;

use super::node::Inner;
use super::partitions::{Group, GroupMetrics};
use super::peers::Peer;
use super::serve;
use super::stream::{Inbound, Outbound, PeerName, ReceiverGone, SendError};
use crate::error::NetError;
use crate::frame::{FrameError, FrameKind, Request, codec, coordinator, encode};

/// Reaches workers by their URLs, over the connections of a [`Node`](super::Node).
///
/// Whatever goes wrong comes out as a `DataFusionError`: a worker that is gone as one in which
/// [`crate::LostWorker::in_error`] finds its name, a failure on the worker as an error of the class that
/// it was there.
///
/// It does not keep the node alive: a node holds the sessions that hold this.
#[derive(Debug, Clone)]
pub struct QuicResolver {
    node: Weak<Inner>,
}

impl QuicResolver {
    pub(crate) fn new(node: &Arc<Inner>) -> Self {
        Self {
            node: Arc::downgrade(node),
        }
    }
}

#[async_trait]
impl ChannelResolver for QuicResolver {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let node = self.node.upgrade().ok_or(NetError::ShutDown)?;
        let peer = node.peers.by_url(url)?;
        let connection = node.connection(&peer).await?;
        Ok(Box::new(QuicChannel {
            node,
            peer,
            connection,
        }))
    }
}

/// One worker, as a coordinator or a consumer sees it.
struct QuicChannel {
    node: Arc<Inner>,
    peer: Arc<Peer>,
    connection: Connection,
}

impl QuicChannel {
    fn whose(&self) -> PeerName {
        PeerName::Peer(Arc::clone(&self.peer))
    }
}

#[async_trait]
impl WorkerChannel for QuicChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let request = Request::SetPlan {
            headers,
            plan: Box::new(set_plan_request),
        };
        let (kind, payload) = request.encode(task_ctx)?;
        MetricBuilder::new(&metrics)
            .with_label(Label::new(DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, "0"))
            .bytes_counter("plan_bytes_sent")
            .add_bytes(payload.len());
        // Refused here, where the error still reaches the query.
        let request = encode(kind, &payload).map_err(too_large)?;
        let opened = self.connection.open_bi().await;
        let (send, receive) = opened.map_err(|error| self.whose().lost(&error))?;
        // On its own task: messages go on while the plan is being set, and after the reports have
        // ended.
        tokio::spawn(send_messages(Outbound::new(send), request, c2w_stream));
        let mut reports = Inbound::new(receive, self.whose());
        reports
            .expect(FrameKind::PlanSet, "that the plan is set")
            .await?;
        Ok(futures::stream::try_unfold(reports, report).boxed())
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let range = request.target_partition_start..request.target_partition_end;
        let frame = |from: usize, until: usize, discard: bool| {
            let task = ExecuteTaskRequest {
                task_key: request.task_key,
                target_partition_start: from,
                target_partition_end: until,
                producer_head: request.producer_head.clone(),
            };
            let (kind, payload) = Request::Execute { task, discard }.encode(task_ctx)?;
            let frame = encode(kind, &payload).map_err(too_large)?;
            Ok::<_, DataFusionError>([&frame[..], &codec::end(1, 0)].concat().into())
        };
        let requests = range
            .clone()
            .map(|partition| frame(partition, partition + 1, false));
        let group = Group {
            peer: Arc::clone(&self.peer),
            connection: self.connection.clone(),
            requests: requests.collect::<Result<_>>()?,
            discard: frame(range.start, range.end, true)?,
            metrics: GroupMetrics::new(&metrics),
        };
        Ok(group.streams())
    }

    async fn get_worker_info(
        &mut self,
        _request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let version = serve::info(&self.node, &self.peer).await?;
        Ok(GetWorkerInfoResponse { version })
    }
}

fn too_large(error: FrameError) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("the plan is too large to be sent: {error}"))
}

/// Sends a plan, and what the coordinator says after it.
async fn send_messages(
    mut out: Outbound,
    request: bytes::Bytes,
    mut messages: BoxStream<'static, CoordinatorToWorkerMsg>,
) {
    // If the worker is gone or has refused the plan, its answer says so.
    if let Err(ReceiverGone) = out.encoded(request).await {
        return;
    }
    let mut receiver_gone = std::pin::pin!(out.receiver_gone());
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            _ = &mut receiver_gone => return,
        };
        let Some(message) = message else {
            let _ = out.end().await;
            return;
        };
        let (kind, payload) = coordinator::encode_to_worker(message);
        match out.frame(kind, &payload).await {
            Ok(()) => {}
            Err(SendError::ReceiverGone) => return,
            Err(SendError::Frame(error)) => {
                // The task waits for work that cannot come: without an END it fails.
                tracing::error!(%error, "work units were not sent");
                return;
            }
        }
    }
}

/// Receives a task's next report.
async fn report(mut reports: Inbound) -> Result<Option<(WorkerToCoordinatorMsg, Inbound)>> {
    let frame = reports.next().await?;
    let report = coordinator::decode_to_coordinator(&frame);
    let report = report.map_err(|error| reports.wrong(error))?;
    Ok(report.map(|report| (report, reports)))
}
