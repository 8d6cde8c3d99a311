//! Repairs of DataFusion: golden plans, and canaries that tell when a gap has closed.

mod canaries;
mod plans;
