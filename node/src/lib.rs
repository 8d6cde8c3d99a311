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
//! * [`options`]: how a master is found
//! * [`master`]: the process that has the catalog
//! * [`membership`]: who takes part, without I/O: as the master sees it, and as workers are told
//! * `watched_members`: the same with the system's clocks and tasks that wait, for the master
//! * `cluster_table`: the same as a table, `sys.cluster`
//! * `failure_detector`: how the master notices who is gone
//! * `remote_reads`: segments of workers, read by the master
//! * `remote_sys`: what workers recorded, read by the master
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
