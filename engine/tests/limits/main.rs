//! What bounds a query: cancelling it, the memory limit, and the budget of its profile.

mod cancellation;
mod memory_limit;
mod profile_budget;
mod turns;
