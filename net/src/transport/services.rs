//! What a node does for others.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::Result;
use datafusion_distributed::Worker;

use crate::identity::{ClusterDirectory, PeerIdentity};

/// Answers what the application asks of its own kind, as heartbeats and commits.
#[async_trait]
pub trait CallHandler: Send + Sync {
    /// Answers `method`, asked by `peer`, whose certificate has been checked. Dropped if the peer
    /// does not want the answer any more.
    ///
    /// # Errors
    /// Travel to the caller as [`crate::RemoteFailure`] with this node's name.
    async fn call(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> Result<Vec<u8>>;

    /// Whether `method` is answered however busy the threads are that run queries: on those that
    /// move packets, which its answer must not block.
    fn is_prompt(&self, _method: &str) -> bool {
        false
    }
}

/// What a node does for others. Of what is left out, peers are told that there is none.
#[derive(Clone, Default)]
pub struct Services {
    /// Runs tasks.
    pub worker: Option<Worker>,
    /// Answers calls.
    pub calls: Option<Arc<dyn CallHandler>>,
    /// Lets those join who have a token: the master's directory. Its token store has to be in the
    /// node's `Trust` too, or nobody gets through the handshake.
    pub admissions: Option<ClusterDirectory>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services")
            .field("worker", &self.worker.is_some())
            .field("calls", &self.calls.is_some())
            .field("admissions", &self.admissions)
            .finish()
    }
}
