//! Distributed execution: one query over several workers, each of which runs its part of the plan
//! on its share of the data.
//!
//! Dependencies go down only: this crate knows `skewer-optimizer`, `skewer-exec`,
//! `skewer-profiling`, `skewer-storage` and `skewer-net`, and the crate `datafusion-distributed`,
//! which cuts plans.
//!
//! A query's life with workers:
//!
//! 1. [`Workers::query`] prepares a session: who the workers are, how to reach them, and what
//!    their tasks need.
//! 2. [`Distributed`] looks whether all of the physical plan can be sent ([`distributability`]), has
//!    `datafusion-distributed` cut it into stages at its exchanges, but those that [`colocation`]
//!    finds needless, and decides who scans what ([`placement`]).
//! 3. `skewer_optimizer::instrument_stages` numbers the operators of all stages ([`stage_boundaries`]).
//! 4. When the plan is executed each stage is encoded ([`codec`]) and set up on the workers that
//!    run it; batches come back through their channels ([`local`]: workers in this process,
//!    without a socket and without copying a batch; [`node`]: in others, over QUIC).
//! 5. A worker's tasks report to the worker's own recorder ([`task`]), exchanges to that of the
//!    worker that receives ([`shuffle_metrics`]).
//!
//! Modules:
//!
//! * [`workers`]: the workers of a database, and the session of a query
//! * [`distributed`]: from a physical plan to a distributed one
//! * [`distributability`]: which plans can be sent
//! * [`placement`]: which worker scans which segments and runs which task
//! * `sys`: which node scans what of schema `sys`
//! * [`colocation`]: which rows need not be sent to each other, since they are on one worker
//! * [`write`](mod@write): rows into segments on the workers that will own them
//! * [`stage_boundaries`]: where a distributed plan is cut
//! * [`cooperation`]: plans and tasks that yield in time
//! * [`codec`]: our operators as bytes
//! * `records`: what operators of the record level say of records
//! * [`profile`]: how a query is recorded, as it travels with plans
//! * [`local`]: workers in this process
//! * [`node`]: workers in processes of their own
//! * [`queries`]: the queries that a worker process runs tasks of
//! * [`rows_read`]: how many rows the scans of a plan have read
//! * [`task`]: what a task knows of itself
//! * [`shuffle_metrics`]: counting what crosses exchanges
//! * [`explain`]: a distributed plan as text

pub mod codec;
pub mod colocation;
pub mod cooperation;
pub mod distributability;
pub mod distributed;
pub mod explain;
pub mod local;
pub mod node;
pub mod placement;
pub mod profile;
pub mod queries;
mod records;
pub mod rows_read;
pub mod shuffle_metrics;
pub mod stage_boundaries;
mod sys;
pub mod task;
pub mod workers;
pub mod write;

pub use colocation::ShardOf;
pub use cooperation::{cooperative, cooperative_tasks};
pub use distributed::Distributed;
pub use node::{ExtendTask, NodeOptions, NodeTasks, QueryOfTask, WatchTask};
pub use placement::Placement;
pub use profile::{ProfileError, QueryProfile};
pub use queries::WorkerQueries;
pub use stage_boundaries::is_exchange_between_workers;
pub use task::{WorkerQuery, WorkerTask};
pub use workers::{
    CollectMetrics, PrepareTask, QueryTasks, WorkerAddress, WorkerTransport, Workers, has_workers,
};
pub use write::{RowIds, SegmentDestination};
