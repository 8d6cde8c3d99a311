//! Counting what crosses exchanges, where it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use skewer_compat::operators::batch_bytes::batch_bytes;
use skewer_profiling::ticks::Ticks;
use skewer_profiling::{Level, OpenStream, TuplesSent};

use crate::task::WorkerTask;

/// `batches`, which partition `partition` of stage `stage` sends from worker `source` to the task
/// of `context`: reports to the task's recorder what came.
pub fn count_received(
    batches: BoxStream<'static, Result<RecordBatch>>,
    context: &Arc<TaskContext>,
    stage: usize,
    source: u32,
    partition: usize,
) -> BoxStream<'static, Result<RecordBatch>> {
    let Some(place) = WorkerTask::of_session(context.session_config()) else {
        return batches;
    };
    if place.recorder.level() == Level::Off {
        return batches;
    }
    let Some(exchange_id) = place.exchange_of(stage) else {
        return batches;
    };
    let total = TuplesSent {
        exchange_id,
        source_worker: i64::from(source),
        destination_worker: place.recorder.worker_id(),
        partition: partition as i64,
        tuples: 0,
        bytes: 0,
        sent_at: None,
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
