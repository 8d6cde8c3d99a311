//! Rewrites and instrumentation of plans.

mod join_order;
mod nesting;
mod records;
