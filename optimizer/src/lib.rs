//! From an optimized logical plan to a physical plan that records what it does.
//!
//! Dependencies go down only: this crate knows `skewer-exec`, `skewer-profiling` and `skewer-compat`.
//!
//! * [`plan_query`](plan_query()): the entry: a plan for each profile level
//! * [`join_order`]: the order of joins, by estimated cost
//! * [`lineage`]: the logical rewrite that carries record ids and latencies
//! * [`costly`]: which expressions are worth timing
//! * [`evaluates_costly`]: which operators evaluate what may take long for a row
//! * `interruptible_calls`: functions that end when their query is cancelled
//! * [`timed_node`]: the logical node of a timed evaluation, and its planning
//! * [`instrument`]: numbering and wrapping physical operators
//! * `details`: what operators show of themselves, without what the profiler added
//! * [`distribution`]: plans that run on several workers
//! * `reusable_plan`: physical plans that later runs of a query are copied from
//! * [`remedies`]: plans whose exchanges spread heavy keys

pub mod costly;
mod costly_operators;
mod details;
mod disabled_optimizations;
pub mod distribution;
pub mod instrument;
mod interruptible_calls;
pub mod join_order;
pub mod lineage;
mod plan_query;
pub mod remedies;
mod reusable_plan;
pub mod timed_node;

pub use costly_operators::evaluates_costly;
pub use interruptible_calls::interruptible;
pub use plan_query::{PlanRequest, plan_query, plan_query_on};
pub use reusable_plan::ReusablePlan;
