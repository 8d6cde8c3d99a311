//! How a worker runs.

use std::path::PathBuf;
use std::time::Duration;

use skewer_net::NetOptions;
use skewer_net::identity::JoinToken;
use skewer_storage::StorageOptions;

use crate::functions::Functions;

/// How long a worker that starts waits for its master.
const WAIT: Duration = Duration::from_secs(30);

/// How long queries may go on after the worker was told to end.
const DRAIN: Duration = Duration::from_secs(10);

/// How a worker runs.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Its directory: segments, certificate, what it recorded.
    pub data: PathBuf,
    /// The invitation to a cluster; not needed by a worker that has joined.
    pub join: Option<JoinToken>,
    /// How people call it, from when it joins; `worker-<n>` by default.
    pub name: Option<String>,
    /// Where the other nodes reach it, over UDP, as `0.0.0.0:7434`; port 0 is any.
    pub listen: String,
    /// Where the master is; by default where it was when the worker joined.
    pub master: Option<String>,
    /// How long to wait for the master at the start: to join it, and as long again to take part.
    pub wait: Duration,
    /// How long queries may go on after the worker was told to end.
    pub drain: Duration,
    /// Bytes that the operators of all queries may hold; unlimited without.
    pub memory_limit: Option<usize>,
    /// Threads that run queries; as many as the machine has without.
    pub threads: Option<usize>,
    /// Where operators spill to; the system's directory for temporary files without.
    pub temp_directory: Option<PathBuf>,
    /// Functions that queries call here: the same as the master has.
    pub functions: Functions,
    /// How segments are kept; for tests the disk, which can be one that fails.
    #[doc(hidden)]
    pub storage: StorageOptions,
    /// How nodes talk.
    pub net: NetOptions,
}

impl WorkerOptions {
    /// A worker whose directory is `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            join: None,
            name: None,
            listen: "0.0.0.0:0".to_owned(),
            master: None,
            wait: WAIT,
            drain: DRAIN,
            memory_limit: None,
            threads: None,
            temp_directory: None,
            functions: Functions::default(),
            storage: StorageOptions::default(),
            net: NetOptions::default(),
        }
    }
}
