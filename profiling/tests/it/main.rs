//! Schema `sys`: recording, storing and reading it, and the views over it.

mod anomalies;
mod chunks;
mod definitions;
mod figure5;
mod log;
mod piggyback;
mod remote;
mod support;
mod views;
