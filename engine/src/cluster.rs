//! A database over several processes: a master with the catalog, and workers with segments.
//!
//! The crate `skewer-node` is what these processes do. This is how a program starts them.

use std::future::Future;
use std::net::SocketAddr;

pub use skewer_net::NetOptions;
pub use skewer_net::identity::{ClusterDirectory, IdentityError, JoinToken, NodeId, Revocation};
pub use skewer_node::{ClockEstimate, ClusterOptions, Member, MemberState, WorkerOptions};

use crate::error::Error;

/// The master of a cluster: who the workers are.
#[derive(Debug)]
pub struct Master(pub(crate) skewer_node::Master);

impl Master {
    /// Where workers reach it.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// All workers that have ever joined, by number.
    pub fn members(&self) -> Vec<Member> {
        self.0.members()
    }
}

/// A worker of a cluster: runs tasks, and keeps segments.
///
/// Dropped, it ends as if it had been killed.
#[derive(Debug)]
pub struct Worker(skewer_node::Worker);

impl Worker {
    /// Joins the cluster, if it has not yet, and begins to take part. Returns when the master has
    /// let it.
    ///
    /// # Errors
    /// [`Error::Cluster`] if it cannot join, cannot listen, or the master does not let it take
    /// part; [`Error::Locked`] if another process has its directory open, [`Error::Invalid`] if
    /// that is another worker's or a database, or if queries may call functions that are not among
    /// its own.
    pub fn start(options: WorkerOptions) -> Result<Self, Error> {
        Ok(Self(skewer_node::Worker::start(options)?))
    }

    /// Its number in the cluster.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Where the other nodes reach it.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Where it expects the master.
    pub fn master(&self) -> &str {
        self.0.master()
    }

    /// Takes part until `stop` is done; then queries that need it may end, for as long as it was
    /// told.
    ///
    /// # Errors
    /// [`Error::Cluster`] if it must not take part any more, as when it was revoked.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        Ok(self.0.run(stop)?)
    }
}
