//! Experiments that hold the database to its promises; `docs/benchmarks.md` has their results.
//!
//! Each is a binary of the same name, which only calls the module here: so what they share is
//! compiled once.
//!
//! * [`overhead`]: what each profile level costs
//! * [`injected_delay`]: whether a delayed record is found
//! * [`false_blame`]: whether a busy machine makes a profile blame a record
//! * [`isolation`]: PerfDebug's table: accuracy, precision, overhead
//! * [`log_growth`]: how long isolation takes as the log grows
//! * [`sampling`]: what tracing a share of the records costs
//! * [`many_segments`]: how long a database with many segments takes to open
//! * [`many_clients`]: small statements a second, of many connections
//! * [`web_views`]: how long the views of the profiler's page take
//! * [`transport`]: the shuffle over QUIC against that over gRPC
//! * [`scaling`]: what grows with the number of workers
//! * [`versus`]: Skewer against DuckDB and plain DataFusion
//!
//! * [`data`]: the three applications' tables and TPC-H, generated
//! * [`corpus`]: databases with those tables, kept between runs
//! * [`workload`]: the queries
//! * [`measure`]: wall and processor time of one run
//! * [`table`]: Markdown tables
//! * [`document`]: a section of the page of results, with machine, date and revision
//! * [`allocator`]: memory that was freed is kept; [`ledger`]: where memory is
//! * [`error`]: what can go wrong

pub mod allocator;
pub mod corpus;
pub mod data;
pub mod document;
pub mod error;
pub mod false_blame;
pub mod injected_delay;
pub mod isolation;
pub mod ledger;
pub mod log_growth;
pub mod many_clients;
pub mod many_segments;
pub mod measure;
pub mod overhead;
pub mod sampling;
pub mod scaling;
pub mod table;
pub mod transport;
pub mod versus;
pub mod web_views;
pub mod workload;
