//! Requests and their answers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, ProducerHead, SetPlanRequest, TaskKey, Worker,
};
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use quinn::{RecvStream, SendStream};
use tokio::sync::mpsc::Sender;

use super::node::Inner;
use super::peers::Peer;
use super::services::Services;
use super::stream::{Inbound, Outbound, PeerName, ReceiverGone, SendError};
use super::task_end::{RunningTask, TaskEnd};
use crate::error::NetError;
use crate::frame::body::{Reader, Writer};
use crate::frame::{
    BatchEncoder, FrameError, FrameKind, RemoteFailure, Request, codec, coordinator, encode,
};
use crate::identity::node::Holder;
use crate::identity::{PeerIdentity, TokenHash};
use crate::panics::Panic;

/// Answers one stream. It is read where packets are moved; what it asks for is done where queries
/// run, unless the answer has to be prompt.
pub(crate) async fn answer(
    node: Arc<Inner>,
    holder: Arc<Holder>,
    send: SendStream,
    receive: RecvStream,
) {
    let whose = match &*holder {
        Holder::Node(peer) => peer.to_string(),
        Holder::Joiner { .. } => "somebody who wants to join".to_owned(),
    };
    let mut question = Inbound::new(receive, PeerName::Other(whose));
    let out = Outbound::new(send);
    let Ok(frame) = question.next().await else {
        // Cut off before anything was asked.
        return;
    };
    let request = Request::decode(&frame);
    let calls = node
        .services
        .get()
        .and_then(|services| services.calls.as_ref());
    let is_prompt = match (&request, calls) {
        (Ok(Request::Call { method, .. }), Some(calls)) => calls.is_prompt(method),
        _ => false,
    };
    let queries = node.queries.clone();
    let answering = async move {
        let default = Services::default();
        let services = node.services.get().unwrap_or(&default);
        let outcome = respond(&node, services, &holder, request, question, out).await;
        // Nobody is left to be told.
        let (Ok(()) | Err(ReceiverGone)) = outcome;
    };
    match is_prompt {
        true => answering.await,
        // It fails where the runtime has been shut down, and then nobody waits.
        false => drop(queries.spawn(answering).await),
    }
}

async fn respond(
    node: &Inner,
    services: &Services,
    holder: &Holder,
    request: Result<Request, FrameError>,
    question: Inbound,
    out: Outbound,
) -> Result<(), ReceiverGone> {
    match (request, holder) {
        (Err(error), _) => fail(out, node, internal_datafusion_err!("{error}")).await,
        (Ok(Request::Join { name, request }), Holder::Joiner { public_key }) => {
            let hash = TokenHash::of_public_key(public_key);
            let admitted = admit(node, services, hash, name, request).await;
            reply(out, node, admitted).await
        }
        (Ok(_), Holder::Joiner { .. }) => fail(out, node, refused("join first")).await,
        (Ok(Request::Join { .. }), Holder::Node(_)) => {
            fail(out, node, refused("this node is in a cluster already")).await
        }
        (Ok(Request::Call { method, body }), Holder::Node(peer)) => {
            called(out, node, services, peer, &method, body).await
        }
        (Ok(request), Holder::Node(_)) => match &services.worker {
            Some(worker) => work(out, question, node, worker, request).await,
            None => fail(out, node, refused("this node runs no tasks")).await,
        },
    }
}

fn refused(text: &str) -> DataFusionError {
    DataFusionError::Execution(text.to_owned())
}

async fn fail(out: Outbound, node: &Inner, error: DataFusionError) -> Result<(), ReceiverGone> {
    out.fail(&RemoteFailure::from_error(&error, &node.name))
        .await
}

/// Sends a whole answer.
async fn reply(mut out: Outbound, node: &Inner, body: Result<Vec<u8>>) -> Result<(), ReceiverGone> {
    let sent = match body {
        Ok(body) => out.frame(FrameKind::Reply, &body).await,
        Err(error) => return fail(out, node, error).await,
    };
    match sent {
        Ok(()) => out.end().await,
        Err(SendError::ReceiverGone) => Err(ReceiverGone),
        Err(SendError::Frame(error)) => fail(out, node, internal_datafusion_err!("{error}")).await,
    }
}

async fn called(
    out: Outbound,
    node: &Inner,
    services: &Services,
    peer: &PeerIdentity,
    method: &str,
    body: Vec<u8>,
) -> Result<(), ReceiverGone> {
    let Some(calls) = &services.calls else {
        return fail(out, node, refused("this node answers no calls")).await;
    };
    let answer = AssertUnwindSafe(calls.call(peer, method, body)).catch_unwind();
    tokio::select! {
        answer = answer => reply(out, node, answer.unwrap_or_else(panicked)).await,
        receiver_gone = out.receiver_gone() => Err(receiver_gone),
    }
}

async fn admit(
    node: &Inner,
    services: &Services,
    hash: TokenHash,
    name: Option<String>,
    request: Vec<u8>,
) -> Result<Vec<u8>> {
    let Some(directory) = services.admissions.clone() else {
        return Err(refused("only the master lets workers join"));
    };
    let now = node.trust.clock.now();
    let authority = node.credentials.authority.clone();
    let admitted = tokio::task::spawn_blocking(move || {
        // Used up first: a crash in between costs a token, not the promise that it is good once.
        let name = name.as_deref();
        match directory.tokens().redeem(&hash, now)? {
            None => directory.admit(&request, name, now),
            Some(worker) => {
                let certificate = directory.renew(worker, &request, name, now)?;
                Ok((worker, certificate))
            }
        }
    });
    let admitted = admitted
        .await
        .map_err(|error| internal_datafusion_err!("{error}"))?;
    let (number, certificate) =
        admitted.map_err(|error| DataFusionError::External(Box::new(error)))?;
    tracing::info!(worker = number.0, "a worker has been certified");
    let mut body = Writer::default();
    body.u32(number.0);
    body.bytes(&authority);
    body.bytes(&certificate);
    Ok(body.finish())
}

async fn work(
    out: Outbound,
    question: Inbound,
    node: &Inner,
    worker: &Worker,
    request: Request,
) -> Result<(), ReceiverGone> {
    match request {
        Request::SetPlan { headers, plan } => {
            set_plan(out, question, node, worker, headers, *plan).await
        }
        Request::Execute {
            task,
            discard: true,
        } => discard(out, node, worker, task).await,
        Request::Execute { task, .. } => execute(out, node, worker, task).await,
        Request::Info => {
            let mut body = Writer::default();
            body.text(worker.version());
            reply(out, node, Ok(body.finish())).await
        }
        Request::Call { .. } | Request::Join { .. } => {
            fail(out, node, internal_datafusion_err!("that is no work")).await
        }
    }
}

/// Between two looks of a worker's cache at what it no longer has.
const CACHE_LOOKS: Duration = Duration::from_millis(350);

/// Has a worker drop what it keeps of a task when that is over. Its cache drops what was taken out
/// of it, with memory and temporary files, only when it is used again, and not at once.
async fn evict_task(worker: Worker, end: TaskEnd, mut task_key: TaskKey) {
    end.ended().await;
    // A task that there never is.
    task_key.query_id = Default::default();
    (task_key.stage_id, task_key.task_number) = (0, 0);
    for _ in 0..3 {
        tokio::time::sleep(CACHE_LOOKS).await;
        let nothing = ExecuteTaskRequest {
            task_key,
            target_partition_start: 0,
            target_partition_end: 0,
            producer_head: ProducerHead::None,
        };
        // To look for it is all: it would be waited for.
        let _ = worker.execute_task(nothing).now_or_never();
    }
}

/// How many messages to a task may wait.
const MESSAGES: usize = 16;

/// Passes on what a task's coordinator says, until that ends: the task is over then. Where packets
/// are moved, since threads that run queries may be too busy with this very task to hear it.
async fn forward_messages(
    mut question: Inbound,
    running: RunningTask,
    forward: Sender<Result<CoordinatorToWorkerMsg>>,
) {
    loop {
        let frame = tokio::select! {
            frame = question.next() => frame,
            // The task has not begun, or does not listen.
            () = forward.closed() => return,
        };
        let message = frame.and_then(|frame| {
            coordinator::decode_to_worker(&frame).map_err(|error| question.wrong(error))
        });
        match message.transpose() {
            Some(Ok(message)) => {
                if forward.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            last => {
                drop(running);
                if let Some(Err(error)) = last {
                    let _ = forward.send(Err(error.into())).await;
                }
                return;
            }
        }
    }
}

/// Takes a task's plan and reports on it. The two directions end on their own: without metrics
/// there is soon nothing to report, and the task goes on.
async fn set_plan(
    mut out: Outbound,
    question: Inbound,
    node: &Inner,
    worker: &Worker,
    mut headers: HeaderMap,
    plan: SetPlanRequest,
) -> Result<(), ReceiverGone> {
    // Whoever has sent the plan keeps the stream open for as long as the query runs.
    let running = TaskEnd::begin(&mut headers);
    if let Some(end) = TaskEnd::from_headers(&headers) {
        tokio::spawn(evict_task(worker.clone(), end, plan.task_key));
    }
    let (forward, messages) = tokio::sync::mpsc::channel(MESSAGES);
    node.io
        .handle()
        .spawn(forward_messages(question, running, forward));
    let messages = futures::stream::unfold(messages, |mut messages| async move {
        Some((messages.recv().await?, messages))
    });
    let mut receiver_gone = std::pin::pin!(out.receiver_gone());
    let set = AssertUnwindSafe(worker.coordinator_channel(headers, plan, messages.boxed()));
    let mut reports = match set.catch_unwind().await.unwrap_or_else(panicked) {
        Ok(reports) => reports,
        Err(error) => return fail(out, node, error).await,
    };
    let mut next = (FrameKind::PlanSet, Vec::new());
    loop {
        match out.frame(next.0, &next.1).await {
            Ok(()) => {}
            Err(SendError::ReceiverGone) => return Err(ReceiverGone),
            Err(SendError::Frame(error)) => {
                return fail(out, node, internal_datafusion_err!("{error}")).await;
            }
        }
        next = tokio::select! {
            biased;
            receiver_gone = &mut receiver_gone => return Err(receiver_gone),
            report = reports.next() => match report {
                Some(Ok(report)) => coordinator::encode_to_coordinator(report),
                Some(Err(error)) => return fail(out, node, error).await,
                None => return out.end().await,
            },
        };
    }
}

/// Runs one partition of a task and sends what it produces, until it ends or nobody wants more.
async fn execute(
    mut out: Outbound,
    node: &Inner,
    worker: &Worker,
    task: ExecuteTaskRequest,
) -> Result<(), ReceiverGone> {
    let mut receiver_gone = std::pin::pin!(out.receiver_gone());
    let mut stream = match start(worker, task).await {
        Ok(mut streams) if streams.len() == 1 => streams.remove(0),
        Ok(streams) => {
            let text = format!(
                "a peer requested {} partitions on one stream",
                streams.len()
            );
            return fail(out, node, internal_datafusion_err!("{text}")).await;
        }
        Err(error) => return fail(out, node, error).await,
    };
    let mut encoder = match BatchEncoder::new(&stream.schema(), node.options.compression) {
        Ok(encoder) => encoder,
        Err(error) => return fail(out, node, error.into()).await,
    };
    loop {
        let next = tokio::select! {
            // The producer first, so that it is polled once even if nobody wants it any more:
            // operators that feed several partitions notice only then that this one is gone.
            biased;
            next = AssertUnwindSafe(stream.next()).catch_unwind() => next,
            receiver_gone = &mut receiver_gone => return Err(receiver_gone),
        };
        let batch = match next {
            Ok(Some(Ok(batch))) => batch,
            Ok(Some(Err(error))) => return fail(out, node, error).await,
            Ok(None) => return out.end().await,
            Err(panic) => {
                let error = panicked::<RecordBatch>(panic).expect_err("a panic is an error");
                return fail(out, node, error).await;
            }
        };
        let frames = match encoder.encode(&batch) {
            Ok(frames) => frames,
            Err(error) => return fail(out, node, error.into()).await,
        };
        drop(batch);
        for frame in frames {
            out.batch(frame.buffers, frame.rows).await?;
        }
        // A stream that always has room never makes tokio switch tasks: cancelled siblings would
        // go on for as long.
        tokio::task::yield_now().await;
    }
}

/// Starts partitions that nobody wants and drops them, so that those who share their producers
/// need not wait for them.
async fn discard(
    out: Outbound,
    node: &Inner,
    worker: &Worker,
    task: ExecuteTaskRequest,
) -> Result<(), ReceiverGone> {
    match start(worker, task).await {
        Ok(streams) => {
            for mut stream in streams {
                // Whatever came first is not wanted.
                let _ = AssertUnwindSafe(stream.next())
                    .catch_unwind()
                    .now_or_never();
            }
            out.end().await
        }
        Err(error) => fail(out, node, error).await,
    }
}

async fn start(
    worker: &Worker,
    task: ExecuteTaskRequest,
) -> Result<Vec<SendableRecordBatchStream>> {
    let started = AssertUnwindSafe(worker.execute_task(task))
        .catch_unwind()
        .await;
    started.unwrap_or_else(panicked).map(|(streams, _)| streams)
}

fn panicked<T>(panic: Box<dyn std::any::Any + Send>) -> Result<T> {
    Err(match Panic::from_payload(panic.as_ref()) {
        Panic::TooLarge(text) => exec_datafusion_err!("{text}"),
        Panic::Bug(text) => internal_datafusion_err!("{text}"),
    })
}

/// Asks a node a question with a short answer.
pub(crate) async fn ask(
    node: &Arc<Inner>,
    peer: &Arc<Peer>,
    kind: FrameKind,
    payload: &[u8],
) -> Result<Vec<u8>, NetError> {
    let connection = node.connection(peer).await?;
    let mut question = encode(kind, payload).map_err(|error| NetError::Protocol {
        peer: node.name.clone(),
        error,
    })?;
    question = [&question[..], &codec::end(1, 0)].concat().into();
    let whose = PeerName::Peer(Arc::clone(peer));
    let lost = |error| NetError::Lost(whose.lost(&error));
    let (mut send, receive) = connection.open_bi().await.map_err(lost)?;
    // If it cannot be written the answer says why.
    if send.write_chunk(question).await.is_ok() {
        let _ = send.finish();
    }
    let mut answer = Inbound::new(receive, whose);
    let frame = answer.expect(FrameKind::Reply, "an answer").await?;
    answer.expect(FrameKind::End, "the end").await?;
    Ok(frame.payload.to_vec())
}

/// Asks a node something of the application's.
pub(crate) async fn call(
    node: &Arc<Inner>,
    peer: &Arc<Peer>,
    method: &str,
    body: Vec<u8>,
) -> Result<Vec<u8>, NetError> {
    let mut payload = Writer::default();
    payload.text(method);
    payload.bytes(&body);
    ask(node, peer, FrameKind::Call, &payload.finish()).await
}

/// Asks a worker for its software's version.
pub(crate) async fn info(node: &Arc<Inner>, peer: &Arc<Peer>) -> Result<String, NetError> {
    let answer = ask(node, peer, FrameKind::Info, &[]).await?;
    let mut body = Reader::new(FrameKind::Reply, &answer);
    body.text().map_err(|error| NetError::Protocol {
        peer: peer.at.name.clone(),
        error,
    })
}
