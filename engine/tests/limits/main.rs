//! What bounds a query: cancelling it, and the memory limit.

mod cancellation;
mod memory_limit;
