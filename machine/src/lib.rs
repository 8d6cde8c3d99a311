//! What the machine gives a process, and what it takes away.
//!
//! - [`cgroup`]: the limits of the control groups around the process, versions 1 and 2, and how long it
//!   was throttled.
//! - [`waiting`]: how long a thread that could have run had no processor.
//! - [`metric`]: the readings of a node, their units, and the files that they come from.
//! - [`readings`]: all metrics at a moment.
//! - [`history`]: readings of the last hour one by one, and of the last day by minutes.
//! - [`sampler`]: the thread that reads.
//!
//! Linux tells all of it to programs without privileges. Elsewhere every metric is absent, and says so.

pub mod cgroup;
pub mod history;
pub mod metric;
mod proc;
pub mod readings;
pub mod sampler;
pub mod waiting;
