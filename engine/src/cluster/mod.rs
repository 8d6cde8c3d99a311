//! A database over several processes: a master with the catalog, and workers with segments.
//!
//! ```text
//!   skewer serve --cluster-listen                 skewer worker
//!   Database                                      Worker
//!    └─ Master                                     ├─ WorkerStore, its part of schema sys
//!        ├─ Members ◀── lifeline (TCP) ─────────── ├─ registration
//!        │          ◀── register, watch, leave ─── │
//!        │          ─── clock ───────────────────▶ ├─ calls
//!        ├─ RemoteReads ─── segment/… ───────────▶ │
//!        └─ NodeTasks ═══ plans and rows ════════▶ └─ NodeTasks ◀═ rows ═▶ of other workers
//! ```
//!
//! * [`options`]: how a master is found
//! * [`master`]: the process that has the catalog
//! * `members`: who takes part, as the master sees it; `telling`: what workers are told of it
//! * `roster`: the same, as a worker has been told
//! * `members_table`: the same as a table, `sys.cluster`
//! * `watching`: how the master notices who is gone
//! * `now`: clocks that can be simulated, `clock`: how far a worker's clock is off
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
mod now;
pub mod options;
mod registration;
mod remote_reads;
pub(crate) mod remote_sys;
mod roster;
pub(crate) mod tasks_read;
mod telling;
mod watching;
pub mod worker;

pub use clock::ClockEstimate;
pub use master::Master;
pub use members::{Member, MemberState};
pub use options::ClusterOptions;
pub use skewer_net::NetOptions;
pub use skewer_net::identity::{ClusterDirectory, IdentityError, JoinToken, NodeId, Revocation};
pub use worker::{Worker, WorkerOptions};

/// The logic of membership, without network and clocks, for simulations of large clusters.
#[doc(hidden)]
pub mod logic {
    pub use super::calls::{MemberAt, MemberList, Watch, decode, encode};
    pub use super::members::{Arrival, Beat, Members};
    pub use super::now::{Clocks, Now, SystemClocks};
    pub use super::roster::{Change, Roster};
    pub use super::telling::Answer;
}

/// Of the software, as `sys.workers` and `--version` tell it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
