//! What is asked of a node: the first frame of every stream but the first.

use datafusion::common::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion_distributed::{
    ExecuteTaskRequest, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey,
    WorkUnitFeedDeclaration,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use url::Url;

use super::body::{Reader, Writer};
use super::codec::Frame;
use super::error::FrameError;
use super::kind::FrameKind;

/// What is asked.
pub enum Request {
    /// Here is a task's plan.
    SetPlan {
        /// The coordinator's configuration.
        headers: HeaderMap,
        /// The plan, encoded.
        plan: Box<SetPlanRequest>,
    },
    /// Run partitions of a task.
    Execute {
        /// Which.
        task: ExecuteTaskRequest,
        /// Nobody wants what they produce: start and drop them, so that partitions of the same
        /// task which others read do not wait for these.
        discard: bool,
    },
    /// Which version of the software are you?
    Info,
    /// Something that the application understands.
    Call {
        /// What of it.
        method: String,
        /// Its own encoding.
        body: Vec<u8>,
    },
    /// Make me a worker of your cluster.
    Join {
        /// How people shall call the worker.
        name: Option<String>,
        /// The signing request for its key, DER.
        request: Vec<u8>,
    },
}

impl Request {
    /// Reads the first frame of a stream.
    ///
    /// # Errors
    /// If it is no request, or malformed.
    pub fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let mut body = Reader::new(frame.kind, &frame.payload);
        let request = match frame.kind {
            FrameKind::SetPlan => set_plan(&mut body)?,
            FrameKind::Execute => execute(&mut body)?,
            FrameKind::Info => Self::Info,
            FrameKind::Call => Self::Call {
                method: body.text()?,
                body: body.bytes()?.to_vec(),
            },
            FrameKind::Join => Self::Join {
                name: body.option(Reader::text)?,
                request: body.bytes()?.to_vec(),
            },
            found => {
                return Err(FrameError::Unexpected {
                    found,
                    expected: "a request",
                });
            }
        };
        body.finish()?;
        Ok(request)
    }

    /// The frame's kind and payload. Plans and partitionings are encoded with the codecs of
    /// `context`, if they are not yet.
    ///
    /// # Errors
    /// If a plan has a node that no codec knows.
    pub fn encode(self, context: &Arc<TaskContext>) -> DataFusionResult<(FrameKind, Vec<u8>)> {
        let mut body = Writer::default();
        let kind = match self {
            Self::SetPlan { headers, plan } => {
                body.count(headers.len());
                for (name, value) in &headers {
                    body.text(name.as_str());
                    body.bytes(value.as_bytes());
                }
                task_key(&mut body, &plan.task_key);
                body.size(plan.task_count);
                body.text(plan.target_worker_url.as_str());
                body.size(plan.query_start_time_ns);
                body.count(plan.work_unit_feed_declarations.len());
                for feed in &plan.work_unit_feed_declarations {
                    body.uuid(&feed.id);
                    body.size(feed.partitions);
                }
                body.bytes(&plan.plan.encode(context)?);
                FrameKind::SetPlan
            }
            Self::Execute { task, discard } => {
                task_key(&mut body, &task.task_key);
                body.size(task.target_partition_start);
                body.size(task.target_partition_end);
                body.bool(discard);
                match task.producer_head {
                    ProducerHead::None => body.u8(0),
                    ProducerHead::BroadcastExec { output_partitions } => {
                        body.u8(1);
                        body.size(output_partitions);
                    }
                    ProducerHead::RepartitionExec { partitioning } => {
                        body.u8(2);
                        body.bytes(&partitioning.encode(context)?);
                    }
                }
                FrameKind::Execute
            }
            Self::Info => FrameKind::Info,
            Self::Call {
                method,
                body: bytes,
            } => {
                body.text(&method);
                body.bytes(&bytes);
                FrameKind::Call
            }
            Self::Join { name, request } => {
                body.option(name, |body, name| body.text(&name));
                body.bytes(&request);
                FrameKind::Join
            }
        };
        Ok((kind, body.finish()))
    }
}

fn set_plan(body: &mut Reader<'_>) -> Result<Request, FrameError> {
    let mut headers = HeaderMap::new();
    for (name, value) in body.list(8, |body| Ok((body.text()?, body.bytes()?)))? {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| body.wrong(error))?;
        let value = HeaderValue::from_bytes(value).map_err(|error| body.wrong(error))?;
        headers.append(name, value);
    }
    let task_key = read_task_key(body)?;
    let task_count = body.size()?;
    let url = body.text()?;
    let target_worker_url = Url::parse(&url).map_err(|error| body.wrong(error))?;
    let query_start_time_ns = body.size()?;
    let work_unit_feed_declarations = body.list(24, |body| {
        Ok(WorkUnitFeedDeclaration {
            id: body.uuid()?,
            partitions: body.size()?,
        })
    })?;
    let plan = SetPlanRequest {
        task_key,
        task_count,
        plan: MaybeEncoded::Encoded(body.bytes()?.to_vec()),
        work_unit_feed_declarations,
        target_worker_url,
        query_start_time_ns,
    };
    Ok(Request::SetPlan {
        headers,
        plan: Box::new(plan),
    })
}

fn execute(body: &mut Reader<'_>) -> Result<Request, FrameError> {
    let task_key = read_task_key(body)?;
    let target_partition_start = body.size()?;
    let target_partition_end = body.size()?;
    if target_partition_start > target_partition_end {
        return Err(body.wrong("its partitions end before they start"));
    }
    let discard = body.bool()?;
    let producer_head = match body.u8()? {
        0 => ProducerHead::None,
        1 => ProducerHead::BroadcastExec {
            output_partitions: body.size()?,
        },
        2 => ProducerHead::RepartitionExec {
            partitioning: MaybeEncoded::Encoded(body.bytes()?.to_vec()),
        },
        other => return Err(body.wrong(format!("there is no head {other}"))),
    };
    Ok(Request::Execute {
        task: ExecuteTaskRequest {
            task_key,
            target_partition_start,
            target_partition_end,
            producer_head,
        },
        discard,
    })
}

fn task_key(body: &mut Writer, key: &TaskKey) {
    body.uuid(&key.query_id);
    body.size(key.stage_id);
    body.size(key.task_number);
}

fn read_task_key(body: &mut Reader<'_>) -> Result<TaskKey, FrameError> {
    Ok(TaskKey {
        query_id: body.uuid()?,
        stage_id: body.size()?,
        task_number: body.size()?,
    })
}
