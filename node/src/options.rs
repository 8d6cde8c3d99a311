//! How a master is found.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skewer_net::{NetError, NetOptions};

/// Within a database's directory, what `skewer cluster init` makes.
const DIRECTORY: &str = "cluster";

/// How long a worker may answer nothing, while its connection stands, before it is given up: a
/// machine may be busy for seconds. Processes that die are noticed at once.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a database is the master of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The cluster's authority, tokens and certificates, made by `skewer cluster init`.
    pub directory: PathBuf,
    /// Where workers reach the master, as `0.0.0.0:7433`; port 0 is any. UDP for QUIC, and the
    /// same port over TCP for lifelines.
    pub listen: String,
    /// How long a worker may answer nothing before it is taken for lost.
    pub heartbeat_timeout: Duration,
    /// How nodes talk.
    pub net: NetOptions,
}

impl ClusterOptions {
    /// The cluster of the database in `data`, listening on all addresses.
    pub fn new(data: &Path) -> Self {
        Self {
            directory: Self::directory_of(data),
            listen: "0.0.0.0:7433".to_owned(),
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            net: NetOptions::default(),
        }
    }

    /// Where the cluster of the database in `data` keeps its authority.
    pub fn directory_of(data: &Path) -> PathBuf {
        data.join(DIRECTORY)
    }

    /// Where to listen.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }
}

/// The address that a text means.
pub(crate) fn resolve(text: &str) -> Result<SocketAddr, NetError> {
    let none = || NetError::Address {
        text: text.to_owned(),
    };
    let mut found = text.to_socket_addrs().map_err(|_| none())?;
    found.next().ok_or_else(none)
}
