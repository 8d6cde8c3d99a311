//! A database over several processes: a master with the catalog, and workers with segments.
//!
//! ```text
//!   skewer serve --cluster-listen                 skewer worker
//!   Database                                      Worker
//!    └─ Master                                     ├─ SegmentHome, its part of schema sys
//!        ├─ Members ◀── lifeline (TCP) ─────────── ├─ registration
//!        │          ◀── register, watch, leave ─── │
//!        │          ─── clock ───────────────────▶ ├─ calls
//!        ├─ RemoteReads ─── segment/… ───────────▶ │
//!        └─ NodeTasks ═══ plans and rows ════════▶ └─ NodeTasks ◀═ rows ═▶ of other workers
//! ```
//!
//! * [`options`]: how a master is found
//! * [`master`]: the process that has the catalog
//! * `members`: who takes part, as the master sees it
//! * `members_table`: the same as a table, `sys.cluster`
//! * `watching`: how the master notices who is gone
//! * `clock`: how far a worker's clock is off
//! * `remote_reads`: segments of workers, read by the master
//! * `remote_sys`: what workers recorded, read by the master
//! * `tasks_read`: how far the tasks of a query are
//! * [`worker`]: a worker's process
//! * `registration`: a worker's life with its master
//! * `calls`: what nodes ask each other, as bytes
//! * `missing`: queries that need what a lost worker has

mod calls;
mod clock;
pub mod master;
mod members;
pub(crate) mod members_table;
pub(crate) mod missing;
pub mod options;
mod registration;
mod remote_reads;
pub(crate) mod remote_sys;
pub(crate) mod tasks_read;
mod watching;
pub mod worker;

pub use clock::ClockEstimate;
pub use master::Master;
pub use members::{Member, MemberState};
pub use options::ClusterOptions;
pub use skewer_net::NetOptions;
pub use skewer_net::identity::{ClusterDirectory, IdentityError, JoinToken, NodeId, Revocation};
pub use worker::{Worker, WorkerOptions};

/// Of the software, as `sys.workers` and `--version` tell it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
