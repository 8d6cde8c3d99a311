//! Which input records make a query slow: total, source and remediated latency of each result
//! row, from the lineage and the latencies that were recorded.
//!
//! How deep the recursion of the definitions goes depends on the query's plan, so the SQL is
//! written for each query: one step for each operator that captured lineage.
//!
//! - [`shape`]: which operators captured lineage from which; [`captured`] reads it
//! - [`latency`]: the SQL of `sys.output_latency`, `sys.intermediate_latency` and
//!   `sys.expensive_inputs`
//! - [`anomalies`]: the SQL of `sys.anomaly_candidates`
//! - [`trace`]: the SQL of `backward_trace` and `forward_trace`
//! - [`trace_arguments`]: whether a trace asks for a row and a table that its query has
//! - [`steps`]: SQL in steps of which each is computed once
//! - [`expanded`]: tables that are such SQL

pub(crate) mod anomalies;
mod captured;
pub(crate) mod expanded;
mod inputs;
mod latency;
mod shape;
mod steps;
mod trace;
mod trace_arguments;

pub(crate) use shape::Shape;
