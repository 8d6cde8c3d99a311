//! The processes of a cluster: a master with the catalog, and workers with segments.
//!
//! ```text
//!   skewer serve --cluster-listen                 skewer worker
//!   Master                                        Worker
//!    ├─ Members ◀── lifeline (TCP) ────────────── ├─ SegmentHome, its part of schema sys
//!    │          ◀── register, watch, leave ────── ├─ registration
//!    │          ─── clock ──────────────────────▶ │
//!    ├─ RemoteReads ─── segment/… ──────────────▶ │
//!    └─ NodeTasks ═══ plans and rows ═══════════▶ └─ NodeTasks ◀═ rows ═▶ of other workers
//! ```
//!
//! A worker's life, with the file for each step:
//!
//! 1. [`Worker::start`] joins with a token, locks its directory and listens ([`worker`]).
//! 2. It opens its lifeline and registers; the master says who the others are (`registration`).
//! 3. The master answers from [`membership`], and notices who is gone (`failure_detector`).
//! 4. A query asks [`Master::workers_of`] who runs it ([`master`]). Its tasks run in `skewer-cluster`.
//! 5. [`Worker::run`] tells the master before it ends, and waits for the queries that run on it.
//!
//! The crate knows no statements and no sessions of users: the engine (`skewer`) starts a [`Master`] next to its
//! storage, and the binary starts a [`Worker`].
//!
//! * [`options`]: how a master is found
//! * [`master`]: the process that has the catalog
//! * [`membership`]: who takes part, without I/O: as the master sees it, and as workers are told
//! * `watched_members`: the same with the system's clocks and tasks that wait, for the master
//! * `cluster_table`: the same as a table, `sys.cluster`
//! * `failure_detector`: how the master notices who is gone
//! * `remote_reads`: segments of workers, read by the master
//! * `remote_sys`: what workers recorded, read by the master
//! * `links`: what QUIC measured on a node's connections
//! * `tasks_read`: how far the tasks of a query are
//! * [`worker`]: a worker's process
//! * `registration`: a worker's life with its master
//! * [`rpc_messages`]: what nodes ask each other, as bytes
//! * [`availability_check`]: queries that need what a lost worker has
//! * [`task_session`]: the session of tasks, [`functions`]: functions of the program in it
//! * [`environment`]: threads, memory and temporary files, [`spill_directory`]: where operators spill to
//! * [`error`]: what can go wrong

pub mod availability_check;
mod cluster_table;
pub mod environment;
pub mod error;
mod failure_detector;
pub mod functions;
mod links;
pub mod master;
pub mod membership;
pub mod options;
mod registration;
mod remote_reads;
mod remote_sys;
pub mod rpc_messages;
pub mod spill_directory;
pub mod task_session;
mod tasks_read;
mod watched_members;
pub mod worker;

pub use availability_check::check_availability;
pub use environment::Environment;
pub use error::Error;
pub use functions::Functions;
pub use master::Master;
pub use membership::{ClockEstimate, Member, MemberState};
pub use options::ClusterOptions;
pub use spill_directory::SpillDirectory;
pub use task_session::task_session;
pub use worker::{Worker, WorkerOptions};

/// Of the software, as `sys.workers` and `--version` tell it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
