//! Counting what crosses exchanges, where it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion_distributed::ExecuteTaskRequest;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use skewer_compat::operators::batch_bytes::batch_bytes;
use skewer_profiling::ticks::Ticks;
use skewer_profiling::{Level, OpenStream, TuplesSent};

use crate::task::WorkerTask;

/// A task that sends rows to others.
#[derive(Debug, Clone, Copy)]
pub struct SendingTask {
    /// The worker that runs it.
    pub worker: u32,
    /// Its stage.
    pub stage: usize,
    /// Its number in the stage.
    pub task: usize,
    /// The partition after the last one that is read of it.
    pub partitions: usize,
}

impl SendingTask {
    /// The task of worker `worker` that `request` is sent to.
    pub fn of_request(worker: u32, request: &ExecuteTaskRequest) -> Self {
        Self {
            worker,
            stage: request.task_key.stage_id,
            task: request.task_key.task_number,
            partitions: request.target_partition_end,
        }
    }
}

/// `batches`, which `sender` sends in its partition `partition` to the task of `context`: reports to the
/// task's recorder what came.
pub fn count_received(
    batches: BoxStream<'static, Result<RecordBatch>>,
    context: &Arc<TaskContext>,
    sender: SendingTask,
    partition: usize,
) -> BoxStream<'static, Result<RecordBatch>> {
    let Some(place) = WorkerTask::of_session(context.session_config()) else {
        return batches;
    };
    if place.recorder.level() == Level::Off {
        return batches;
    }
    let Some(exchange) = place.exchange_of(sender.stage) else {
        return batches;
    };
    // All partitions of each task are gathered; other exchanges make new ones.
    let source = sender.task * sender.partitions + partition;
    let total = TuplesSent {
        exchange_id: exchange.operator_id,
        source_worker: i64::from(sender.worker),
        destination_worker: place.recorder.worker_id(),
        partition: partition as i64,
        tuples: 0,
        bytes: 0,
        sent_at: None,
        source_partition: exchange.gathers.then_some(source as i64),
    };
    let open = place.recorder.open_stream();
    CountedStream {
        batches,
        each: place.recorder.level() >= Level::Calls,
        place,
        total,
        sent: Vec::new(),
        _open: open,
    }
    .boxed()
}

struct CountedStream {
    batches: BoxStream<'static, Result<RecordBatch>>,
    place: Arc<WorkerTask>,
    /// Whether each batch is reported.
    each: bool,
    total: TuplesSent,
    sent: Vec<TuplesSent>,
    _open: OpenStream,
}

impl Stream for CountedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.batches.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Ok(batch))) = &polled {
            let this = &mut *self;
            let (tuples, bytes) = (batch.num_rows() as i64, batch_bytes(batch) as i64);
            let sent_at = Some(this.place.recorder.scale().wall_ns(Ticks::now()));
            if this.each {
                this.sent.push(TuplesSent {
                    tuples,
                    bytes,
                    sent_at,
                    ..this.total.clone()
                });
            } else {
                this.total.tuples += tuples;
                this.total.bytes += bytes;
                this.total.sent_at = sent_at;
            }
        }
        polled
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        let mut sent = std::mem::take(&mut self.sent);
        if !self.each {
            sent.push(self.total.clone());
        }
        if !sent.is_empty() {
            self.place.recorder.tuples_sent(sent);
        }
    }
}
