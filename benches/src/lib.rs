//! Experiments that hold the database to its promises; `docs/benchmarks.md` has their results.
//!
//! Each is a binary: `overhead`, `injected_delay`, `many_segments`.
//!
//! * [`data`]: the three applications' tables and TPC-H, generated
//! * [`corpus`]: databases with those tables, kept between runs
//! * [`workload`]: the queries
//! * [`measure`]: wall and processor time of one run
//! * [`table`]: Markdown tables
//! * [`document`]: a section of the page of results, with machine, date and revision
//! * [`error`]: what can go wrong

pub mod corpus;
pub mod data;
pub mod document;
pub mod error;
pub mod measure;
pub mod table;
pub mod workload;
