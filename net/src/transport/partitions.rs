//! The partitions of a task that one consumer reads: one stream each.
//!
//! All of them are opened when the first is polled, because the producer fills them together; each
//! has its own window, so that one that is read later holds up no other. One that is dropped is
//! stopped; if none was ever polled, the producer is told to discard them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, internal_err};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use datafusion_distributed::{BytesCounterMetric, BytesMetricExt};
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use quinn::Connection;
use tokio::runtime::Handle;

use super::peers::Peer;
use super::stream::{Inbound, PeerName};
use crate::error::NetError;
use crate::frame::{BatchDecoder, FrameError, FrameKind};

/// What a consumer reads of one task.
pub(crate) struct Group {
    pub(crate) peer: Arc<Peer>,
    pub(crate) connection: Connection,
    /// What is written to each partition's stream: EXECUTE and END.
    pub(crate) requests: Vec<Bytes>,
    /// What is written if nobody wants any.
    pub(crate) discard: Bytes,
    pub(crate) metrics: GroupMetrics,
}

/// What datafusion-distributed shows of a connection.
pub(crate) struct GroupMetrics {
    bytes: BytesCounterMetric,
    messages: Count,
    decoding: Time,
}

impl GroupMetrics {
    pub(crate) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        Self {
            bytes: MetricBuilder::new(metrics).bytes_counter("bytes_transferred"),
            messages: MetricBuilder::new(metrics).global_counter("msg_count"),
            decoding: MetricBuilder::new(metrics).elapsed_compute(0),
        }
    }
}

type Opening = Shared<BoxFuture<'static, Result<(), NetError>>>;

struct Partitions {
    group: Group,
    slots: Mutex<Slots>,
    /// Streams that have not been dropped.
    handles: AtomicUsize,
    runtime: Handle,
}

struct Slots {
    opening: Option<Opening>,
    partitions: Vec<Slot>,
}

enum Slot {
    /// Not opened yet.
    Waiting,
    /// Opened, not polled yet.
    Open(Box<Inbound>),
    /// Polled, or dropped.
    Gone,
}

impl Group {
    /// One stream per partition. Must be called within a tokio runtime.
    pub(crate) fn streams(self) -> Vec<BoxStream<'static, Result<RecordBatch>>> {
        let count = self.requests.len();
        let partitions = Arc::new(Partitions {
            group: self,
            slots: Mutex::new(Slots {
                opening: None,
                partitions: (0..count).map(|_| Slot::Waiting).collect(),
            }),
            handles: AtomicUsize::new(count),
            runtime: Handle::current(),
        });
        let handles: Vec<_> = (0..count)
            .map(|index| StreamHandle {
                partitions: Arc::clone(&partitions),
                index,
            })
            .collect();
        handles.into_iter().map(StreamHandle::stream).collect()
    }
}

impl Partitions {
    /// Opens all streams, once.
    fn open(self: &Arc<Self>) -> Opening {
        let mut slots = self.slots.lock();
        if let Some(opening) = &slots.opening {
            return opening.clone();
        }
        let partitions = Arc::clone(self);
        // Spawned, so that it is finished whoever is dropped meanwhile.
        let task = self
            .runtime
            .spawn(async move { partitions.open_all().await });
        let opening =
            async move {
                match task.await {
                    Ok(result) => result,
                    // The runtime is shutting down, or `open_all` has panicked.
                    Err(error) => std::panic::resume_unwind(error.try_into_panic().unwrap_or_else(
                        |cancelled| Box::new(format!("opening streams: {cancelled}")),
                    )),
                }
            };
        let opening = opening.boxed().shared();
        slots.opening = Some(opening.clone());
        opening
    }

    async fn open_all(&self) -> Result<(), NetError> {
        for (index, request) in self.group.requests.iter().enumerate() {
            let stream = self.send(request.clone()).await?;
            let slot = &mut self.slots.lock().partitions[index];
            // If it was dropped meanwhile, dropping the stream stops it.
            if let Slot::Waiting = slot {
                *slot = Slot::Open(Box::new(stream));
            }
        }
        Ok(())
    }

    /// Opens a stream and asks on it.
    async fn send(&self, request: Bytes) -> Result<Inbound, NetError> {
        let whose = PeerName::Peer(Arc::clone(&self.group.peer));
        let opened = self.group.connection.open_bi().await;
        let (mut send, receive) = opened.map_err(|error| whose.lost(&error))?;
        // If it cannot be written, reading says why.
        if send.write_chunk(request).await.is_ok() {
            let _ = send.finish();
        }
        Ok(Inbound::new(receive, whose))
    }
}

/// A partition's stream.
struct StreamHandle {
    partitions: Arc<Partitions>,
    index: usize,
}

struct Reading {
    handle: StreamHandle,
    stream: Option<(Box<Inbound>, BatchDecoder)>,
}

impl StreamHandle {
    fn stream(self) -> BoxStream<'static, Result<RecordBatch>> {
        let reading = Reading {
            handle: self,
            stream: None,
        };
        futures::stream::try_unfold(reading, Reading::next).boxed()
    }
}

impl Reading {
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        let partitions = Arc::clone(&self.handle.partitions);
        let (inbound, decoder) = match &mut self.stream {
            Some(stream) => stream,
            None => {
                partitions.open().await?;
                let slot = &mut partitions.slots.lock().partitions[self.handle.index];
                let Slot::Open(inbound) = std::mem::replace(slot, Slot::Gone) else {
                    return internal_err!("a partition's stream was read twice");
                };
                self.stream.insert((inbound, BatchDecoder::default()))
            }
        };
        let frame = inbound.next().await?;
        match frame.kind {
            FrameKind::Batch => {
                let metrics = &partitions.group.metrics;
                let _timer = metrics.decoding.timer();
                metrics.messages.add(1);
                metrics.bytes.add_bytes(frame.payload.len());
                let batch = decoder.decode(&frame.payload);
                let batch = batch.map_err(|error| inbound.wrong(error))?;
                inbound.add_rows(batch.num_rows());
                Ok(Some((batch, self)))
            }
            FrameKind::End => Ok(None),
            found => {
                let expected = "a batch";
                Err(inbound
                    .wrong(FrameError::Unexpected { found, expected })
                    .into())
            }
        }
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        let partitions = &self.partitions;
        let opened = {
            let mut slots = partitions.slots.lock();
            // Dropping an open one stops it.
            slots.partitions[self.index] = Slot::Gone;
            slots.opening.is_some()
        };
        if partitions.handles.fetch_sub(1, Ordering::AcqRel) == 1 && !opened {
            let partitions = Arc::clone(partitions);
            let request = partitions.group.discard.clone();
            let runtime = partitions.runtime.clone();
            runtime.spawn(async move {
                // The connection's end discards them too.
                if let Ok(mut stream) = partitions.send(request).await {
                    let _ = stream.next().await;
                }
            });
        }
    }
}
