//! Everything that exists only because DataFusion, sqlparser or datafusion-distributed lack it or get it wrong.
//!
//! This crate depends on no other crate of the workspace. It knows nothing of profiling, of schema `sys`, or of
//! workers. It shrinks with each release of DataFusion.
//!
//! * [`statement`]: rewrites of parsed statements
//! * [`logical`]: rewrites of logical plans
//! * [`rules`]: DataFusion's optimizer rules, with guards
//! * [`functions`], [`operators`]: replacements of DataFusion's
//! * [`distribution`]: repairs of plans that are sent to workers
//! * [`session`]: a DataFusion session with the repaired rules and functions
//! * [`session_zone`]: columns whose instants are shown in the time zone of the session
//! * [`gaps`]: the registry of what is missing or wrong, with a query for each
//! * [`suggest`]: "did you mean …?"

pub mod distribution;
pub mod functions;
pub mod gaps;
pub mod logical;
pub mod operators;
pub mod rules;
pub mod session;
pub mod session_zone;
pub mod statement;
pub mod suggest;
