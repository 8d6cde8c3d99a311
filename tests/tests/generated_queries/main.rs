//! Generated queries: profiled they return what they return unprofiled, and the lineage of every
//! row is what a naive evaluator that carries sets of row ids says.
//!
//! Deterministic. `SKEWER_SEED=n` generates other queries, `SKEWER_CASES=n` another number of them.
//!
//! - [`cases`]: the cases of a test, and the sessions that run them
//! - [`generator`]: queries with everything
//! - [`same_results`]: they return the same at every level
//! - [`extremes`]: values at the ends of their types, under every setting
//! - [`frames`]: window frames of these
//! - [`naive`]: queries that a naive evaluator understands, and the evaluator
//! - [`join_order`]: they return the same in any order of their joins
//! - [`kept_plans`]: they return the same with the plan of an earlier run
//! - [`constant_keys`]: whether or not the planner sees that a key has one value
//! - [`remedies`]: whatever is done about skew
//! - [`lineage`]: their lineage is what it says
//! - [`closure`]: so is that of recursive queries that return a row once
//! - [`quarantines`]: they return with quarantines what they return where the rows have been deleted
//! - [`spilling`]: queries end, with the same rows, where there is too little memory

mod cases;
mod closure;
mod constant_keys;
mod extremes;
mod frames;
mod generator;
mod join_order;
mod kept_plans;
mod lineage;
mod naive;
mod quarantines;
mod remedies;
mod same_results;
mod spilling;
