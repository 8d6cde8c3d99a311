//! A master and workers in processes of their own, over QUIC on loopback.

mod bad_input;
mod cancellation;
mod commands;
mod failures;
mod functions;
mod placement;
mod profiles;
mod reads;
mod spilling;
mod sys_tables;
mod trust;
