//! Segments of workers, read by the master: footers for statistics, rows that are looked up by
//! their ids, and plans that stay on the master.

use std::ops::Range;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use skewer_net::identity::NodeId;
use skewer_net::{FailureClass, NetError};
use skewer_storage::{RemoteSegments, Result, SegmentName, StorageError, TableId};
use tokio::sync::{Semaphore, mpsc};

use crate::master::Inner;
use crate::rpc_messages::{self, Abandoned, Dropped, ReadSegment};

/// An answer has at most so many bytes: frames are limited to 64 MiB, and a slow worker should
/// not be asked for more at a time than it can send soon.
const PIECE: u64 = 16 << 20;

/// Reads through the master's node.
#[derive(Debug)]
pub(crate) struct RemoteReads {
    master: Weak<Inner>,
    notices: mpsc::Sender<Notice>,
}

/// So many notices wait at most, and so many are under way at once. A notice that finds no place
/// is left out: workers hear all of it again when they register.
const WAITING: usize = 4096;
const UNDER_WAY: usize = 64;

/// What a worker is told without waiting for it.
#[derive(Debug)]
struct Notice {
    node: u32,
    method: &'static str,
    body: Vec<u8>,
}

impl RemoteReads {
    pub(crate) fn start(master: Weak<Inner>) -> Arc<Self> {
        let (notices, mut pending) = mpsc::channel::<Notice>(WAITING);
        let places = Arc::new(Semaphore::new(UNDER_WAY));
        let tells = Weak::clone(&master);
        tokio::spawn(async move {
            while let Some(notice) = pending.recv().await {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                let Some(master) = tells.upgrade() else {
                    return;
                };
                // Each on its own: one that does not answer holds up no other.
                tokio::spawn(async move {
                    let _place = place;
                    let Notice { node, method, body } = notice;
                    if let Err(error) = master.node.call(NodeId(node), method, body).await {
                        tracing::debug!(worker = node, method, %error, "a worker was not told");
                    }
                });
            }
        });
        Arc::new(Self { master, notices })
    }

    fn tell(&self, node: u32, method: &'static str, body: datafusion::common::Result<Vec<u8>>) {
        if let Ok(body) = body {
            // Without a receiver the master is ending.
            if self
                .notices
                .try_send(Notice { node, method, body })
                .is_err()
            {
                tracing::debug!(worker = node, method, "a worker was not told");
            }
        }
    }

    async fn piece(
        &self,
        master: &Inner,
        segment: SegmentName,
        range: Option<Range<u64>>,
    ) -> Result<Vec<u8>> {
        if let Some(lost) = master.members.lost(segment.owner)
            && master.members.incarnation_of(segment.owner).is_none()
        {
            return Err(StorageError::WorkerLost {
                worker: lost.name,
                detail: lost.reason,
            });
        }
        let question = ReadSegment {
            owner: segment.owner,
            table: segment.table.0,
            id: segment.id,
            range: range.map(|range| (range.start, range.end)),
        };
        let body = rpc_messages::encode(&question).map_err(|error| StorageError::Internal {
            detail: error.to_string(),
        })?;
        let answer = master
            .node
            .call(NodeId(segment.owner), rpc_messages::READ, body);
        answer.await.map_err(|error| failure(segment, error))
    }
}

fn failure(segment: SegmentName, error: NetError) -> StorageError {
    let worker = NodeId(segment.owner).to_string();
    match error {
        NetError::Lost(lost) => StorageError::WorkerLost {
            worker: lost.name,
            detail: lost.reason,
        },
        NetError::Remote(failure) if failure.class() != FailureClass::Bug => {
            StorageError::Corrupt {
                path: segment.location().as_ref().into(),
                detail: format!("{failure} (on {})", failure.node),
            }
        }
        other => StorageError::WorkerLost {
            worker,
            detail: other.to_string(),
        },
    }
}

#[async_trait]
impl RemoteSegments for RemoteReads {
    async fn read(&self, segment: SegmentName, range: Option<Range<u64>>) -> Result<Bytes> {
        let Some(master) = self.master.upgrade() else {
            return Err(StorageError::WorkerLost {
                worker: NodeId(segment.owner).to_string(),
                detail: "the master is ending".to_owned(),
            });
        };
        let Some(range) = range else {
            // In pieces, too: its end is where less comes than was asked for.
            let mut whole = BytesMut::new();
            loop {
                let from = whole.len() as u64;
                let piece = self
                    .piece(&master, segment, Some(from..from + PIECE))
                    .await?;
                let last = (piece.len() as u64) < PIECE;
                whole.extend_from_slice(&piece);
                if last {
                    return Ok(whole.freeze());
                }
            }
        };
        if range.end - range.start <= PIECE {
            return Ok(self.piece(&master, segment, Some(range)).await?.into());
        }
        let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
        let mut from = range.start;
        while from < range.end {
            let until = range.end.min(from + PIECE);
            let piece = self.piece(&master, segment, Some(from..until)).await?;
            let short = (piece.len() as u64) < until - from;
            whole.extend_from_slice(&piece);
            if short {
                break;
            }
            from = until;
        }
        Ok(whole.freeze())
    }

    fn dropped(&self, node: u32, table: TableId, segments: &[u64]) {
        let dropped = Dropped {
            table: table.0,
            segments: segments.to_vec(),
        };
        self.tell(node, rpc_messages::DROPPED, rpc_messages::encode(&dropped));
    }

    fn abandoned(&self, node: u32, table: TableId, segments: Range<u64>) {
        let abandoned = Abandoned {
            table: table.0,
            from: segments.start,
            until: segments.end,
        };
        self.tell(
            node,
            rpc_messages::ABANDONED,
            rpc_messages::encode(&abandoned),
        );
    }
}
