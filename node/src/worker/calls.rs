//! What a worker answers the master, and asks it.

use std::sync::Weak;

use async_trait::async_trait;
use datafusion::common::{Result as DFResult, exec_err, not_impl_err};
use datafusion::object_store::ObjectStoreExt;
use skewer_cluster::rows_read::RowsRead;
use skewer_cluster::write::RowIds;
use skewer_net::identity::{NodeId, PeerIdentity};
use skewer_net::{CallHandler, Node};
use skewer_storage::{SegmentName, StorageError, TableId, WorkerStore};

use super::Inner;
use crate::error::external;
use crate::rpc_messages::{self, Abandoned, Dropped, ReadSegment, ReserveRows, wall_ns};

/// Asks the master for row ids.
#[derive(Debug)]
pub(super) struct FarRowIds(pub(super) Node);

#[async_trait]
impl RowIds for FarRowIds {
    async fn reserve(&self, table: TableId, rows: u64) -> skewer_storage::Result<i64> {
        let question = ReserveRows {
            table: table.0,
            rows,
        };
        let lost = |detail: String| StorageError::WorkerLost {
            worker: NodeId::MASTER.to_string(),
            detail,
        };
        let body = rpc_messages::encode(&question).map_err(|error| lost(error.to_string()))?;
        let answer = self
            .0
            .call(NodeId::MASTER, rpc_messages::ROW_IDS, body)
            .await;
        let answer = answer.map_err(|error| lost(error.to_string()))?;
        rpc_messages::decode(&answer).map_err(|error| lost(error.to_string()))
    }

    fn is_far(&self) -> bool {
        true
    }
}

impl Inner {
    async fn answer(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> DFResult<Vec<u8>> {
        if !peer.node.is_master() {
            return exec_err!("only the master may ask for {method}");
        }
        match method {
            rpc_messages::CLOCK => rpc_messages::encode(&wall_ns()),
            rpc_messages::PROGRESS => {
                let RowsRead { rows, of } = self.tasks_read.read(rpc_messages::decode(&body)?);
                rpc_messages::encode(&(rows, of))
            }
            rpc_messages::READ => self.read(rpc_messages::decode(&body)?).await,
            rpc_messages::DROPPED => {
                let Dropped { table, segments } = rpc_messages::decode(&body)?;
                self.blocking(move |home| home.remove(TableId(table), segments))
                    .await
            }
            rpc_messages::ABANDONED => {
                let Abandoned { table, from, until } = rpc_messages::decode(&body)?;
                self.blocking(move |home| home.abandon(TableId(table), from..until))
                    .await
            }
            _ if method.starts_with("sys/") => {
                let answer = self.queries.call(method, body).await;
                answer.map_err(external)
            }
            other => not_impl_err!("a worker does not know {other}"),
        }
    }

    async fn blocking(
        &self,
        change: impl FnOnce(&WorkerStore) + Send + 'static,
    ) -> DFResult<Vec<u8>> {
        let home = self.home.clone();
        let done = tokio::task::spawn_blocking(move || change(&home)).await;
        done.map_err(external)?;
        Ok(Vec::new())
    }

    async fn read(&self, read: ReadSegment) -> DFResult<Vec<u8>> {
        let name = SegmentName {
            owner: read.owner,
            table: TableId(read.table),
            id: read.id,
        };
        let (store, location) = (self.home.object_store(), name.location());
        let bytes = match read.range {
            Some((from, until)) => {
                let length = store.head(&location).await?.size;
                let until = until.min(length);
                if from >= until {
                    return Ok(Vec::new());
                }
                store.get_range(&location, from..until).await?
            }
            None => store.get(&location).await?.bytes().await?,
        };
        Ok(bytes.into())
    }
}

/// Answers the master.
pub(super) struct Calls(pub(super) Weak<Inner>);

#[async_trait]
impl CallHandler for Calls {
    async fn call(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> DFResult<Vec<u8>> {
        match self.0.upgrade() {
            Some(worker) => worker.answer(peer, method, body).await,
            None => exec_err!("the worker is ending"),
        }
    }

    fn is_prompt(&self, method: &str) -> bool {
        matches!(method, rpc_messages::CLOCK | rpc_messages::PROGRESS)
    }
}
