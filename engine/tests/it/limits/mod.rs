//! What bounds a query: cancelling it, the memory limit, a time in which nothing happens, the budget of its
//! profile, and the rate of its sample.

mod cancellation;
mod cancelled_profile;
mod memory_limit;
mod profile_budget;
mod read_only;
mod sample_rate;
mod stalls;
mod turns;
