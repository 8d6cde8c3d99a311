//! Rewrites and instrumentation of plans.

mod nesting;
mod records;
