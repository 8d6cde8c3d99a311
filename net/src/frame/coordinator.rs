//! What a query's coordinator and its tasks tell each other after the plan.

use datafusion_distributed::{
    CoordinatorToWorkerMsg, LoadInfo, MaybeEncoded, TaskMetrics, WorkUnitBatch, WorkUnitMsg,
    WorkerToCoordinatorMsg,
};

use super::body::{Reader, Writer};
use super::codec::Frame;
use super::error::FrameError;
use super::kind::FrameKind;
use super::metrics;

/// A message to a task.
pub fn encode_to_worker(message: CoordinatorToWorkerMsg) -> (FrameKind, Vec<u8>) {
    let CoordinatorToWorkerMsg::WorkUnitBatch(units) = message else {
        return (FrameKind::WorkUnitsEnd, Vec::new());
    };
    let mut body = Writer::default();
    body.count(units.batch.len());
    for unit in units.batch {
        body.uuid(&unit.id);
        body.size(unit.partition);
        body.size(unit.created_timestamp_unix_nanos);
        body.size(unit.sent_timestamp_unix_nanos);
        body.size(unit.received_timestamp_unix_nanos);
        body.size(unit.processed_timestamp_unix_nanos);
        match unit.body {
            MaybeEncoded::Encoded(bytes) => body.bytes(&bytes),
            MaybeEncoded::Decoded(unit) => body.bytes(&unit.encode_to_bytes()),
        }
    }
    (FrameKind::WorkUnits, body.finish())
}

/// Reads a message to a task; `None` is END.
///
/// # Errors
/// If it is something else, or malformed.
pub fn decode_to_worker(frame: &Frame) -> Result<Option<CoordinatorToWorkerMsg>, FrameError> {
    let mut body = Reader::new(frame.kind, &frame.payload);
    let message = match frame.kind {
        FrameKind::WorkUnits => {
            let batch = body.list(60, |body| {
                Ok(WorkUnitMsg {
                    id: body.uuid()?,
                    partition: body.size()?,
                    created_timestamp_unix_nanos: body.size()?,
                    sent_timestamp_unix_nanos: body.size()?,
                    received_timestamp_unix_nanos: body.size()?,
                    processed_timestamp_unix_nanos: body.size()?,
                    body: MaybeEncoded::Encoded(body.bytes()?.to_vec()),
                })
            })?;
            CoordinatorToWorkerMsg::WorkUnitBatch(WorkUnitBatch { batch })
        }
        FrameKind::WorkUnitsEnd => CoordinatorToWorkerMsg::WorkUnitEos,
        FrameKind::End => return Ok(None),
        found => {
            return Err(FrameError::Unexpected {
                found,
                expected: "a work unit",
            });
        }
    };
    body.finish()?;
    Ok(Some(message))
}

/// A message to the coordinator.
pub fn encode_to_coordinator(message: WorkerToCoordinatorMsg) -> (FrameKind, Vec<u8>) {
    let mut body = Writer::default();
    let kind = match message {
        WorkerToCoordinatorMsg::TaskMetrics(metrics) => {
            body.count(metrics.pre_order_plan_metrics.len());
            for set in &metrics.pre_order_plan_metrics {
                metrics::encode(&mut body, set);
            }
            metrics::encode(&mut body, &metrics.task_metrics);
            FrameKind::TaskMetrics
        }
        WorkerToCoordinatorMsg::LoadInfo(info) => {
            body.size(info.partition);
            body.size(info.rows_ready);
            body.size(info.rows_pulled_from_leaf);
            body.bool(info.reached_eos);
            body.count(info.per_column_bytes_ready.len());
            for bytes in info.per_column_bytes_ready {
                body.size(bytes);
            }
            for percentages in [
                info.per_column_ndv_percentage,
                info.per_column_null_percentage,
            ] {
                body.count(percentages.len());
                for percentage in percentages {
                    body.f32(percentage);
                }
            }
            FrameKind::LoadInfo
        }
        WorkerToCoordinatorMsg::LoadInfoEos => FrameKind::LoadInfoEnd,
    };
    (kind, body.finish())
}

/// Reads a message to the coordinator; `None` is END.
///
/// # Errors
/// If it is something else, or malformed.
pub fn decode_to_coordinator(frame: &Frame) -> Result<Option<WorkerToCoordinatorMsg>, FrameError> {
    let mut body = Reader::new(frame.kind, &frame.payload);
    let message = match frame.kind {
        FrameKind::TaskMetrics => WorkerToCoordinatorMsg::TaskMetrics(TaskMetrics {
            pre_order_plan_metrics: body.list(4, metrics::decode)?,
            task_metrics: metrics::decode(&mut body)?,
        }),
        FrameKind::LoadInfo => WorkerToCoordinatorMsg::LoadInfo(LoadInfo {
            partition: body.size()?,
            rows_ready: body.size()?,
            rows_pulled_from_leaf: body.size()?,
            reached_eos: body.bool()?,
            per_column_bytes_ready: body.list(8, Reader::size)?,
            per_column_ndv_percentage: body.list(4, Reader::f32)?,
            per_column_null_percentage: body.list(4, Reader::f32)?,
        }),
        FrameKind::LoadInfoEnd => WorkerToCoordinatorMsg::LoadInfoEos,
        FrameKind::End => return Ok(None),
        found => {
            return Err(FrameError::Unexpected {
                found,
                expected: "a task's report",
            });
        }
    };
    body.finish()?;
    Ok(Some(message))
}
