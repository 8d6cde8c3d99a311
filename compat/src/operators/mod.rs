//! Operators in place of DataFusion's, and what operators need to share the machine.
//!
//! * [`exchange`]: an exchange that spills without deadlock
//! * [`spilling_join`]: a hash join whose build side may exceed memory
//! * [`selection`]: a filter that evaluates few conditions on many rows, and many on few
//! * [`partial_groups`]: the first stage of an aggregate, with short cuts to the groups of rows
//! * [`materialized`]: rows that several places of a plan read, computed once
//! * [`conservative_properties`]: drops plan properties that DataFusion derives wrongly
//! * [`scheduling`]: fair use of processors, and cancellation
//! * [`cooperation`]: operators that yield in time, and can be cancelled
//! * [`slices`]: batches cut into slices that take a bounded time
//! * [`memory_pool`]: a memory pool whose limit can change
//! * [`batch_bytes`]: the memory of a batch
//! * [`pass_through!`](crate::pass_through): the methods of an operator that passes for another one

pub mod batch_bytes;
pub mod conservative_properties;
pub mod cooperation;
pub mod exchange;
pub mod materialized;
pub mod memory_pool;
pub mod partial_groups;
mod pass_through;
pub mod scheduling;
pub mod selection;
pub mod slices;
pub mod spilling_join;
