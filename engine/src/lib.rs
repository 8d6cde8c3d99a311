//! Skewer: a SQL database that explains itself in SQL.
//!
//! A [`Database`] lives in a directory or in memory; a [`Session`] runs statements; a
//! [`QueryStream`] gives their results as Arrow batches. What every query did is in tables of
//! schema `sys`.
//!
//! The life of a query is told in [`statements`].
//!
//! * [`database`]: storage, threads, memory
//! * [`session`]: settings, functions, statements
//! * [`functions`]: those that a program brings along
//! * [`prepared`]: statements with parameters, and rows appended from a stream
//! * [`query_stream`]: results as they come, [`progress`]: how far a statement is
//! * [`settings`]: what can be SET
//! * [`error`]: what can go wrong
//! * `catalog`: what names mean to one statement
//! * [`statements`]: one file per statement
//! * `planning`: from a logical plan to operators, `cooperation`: operators that can be cancelled, and share
//!   the processors, `cancellation`: how they are told
//! * [`cluster`]: a database over several processes
//! * `environment`: threads, memory and temporary files, `spill_directory`: where operators spill to
//! * `admission`: how many statements run queries at once, `running_table`: which, as a table,
//!   `one_more_table`: such tables in schema `sys`
//! * `record`: a statement's row in `sys.queries`, `tables_read`: the tables that it read
//! * [`report`]: EXPLAIN PROFILE
//! * `compaction`: small segments merged in the background
//! * `last_query_id`: the function of that name

mod admission;
mod cancellation;
mod catalog;
pub mod cluster;
mod compaction;
mod cooperation;
pub mod database;
mod environment;
pub mod error;
pub mod functions;
mod last_query_id;
mod one_more_table;
mod planning;
pub mod prepared;
pub mod progress;
pub mod query_stream;
mod record;
pub mod report;
mod running_table;
pub mod session;
pub mod settings;
mod spill_directory;
pub mod statements;
mod tables_read;

pub use cluster::{ClusterOptions, Worker, WorkerOptions};
pub use database::{Database, DatabaseBuilder};
pub use error::Error;
pub use functions::Functions;
pub use prepared::Description;
pub use progress::{Progress, ProgressHandle};
pub use query_stream::QueryStream;
pub use session::Session;
pub use skewer_compat::functions::read_array::{Item, read_array};
pub use skewer_compat::functions::zones::read_time;
pub use skewer_net::log_panics;
pub use skewer_profiling::{Level, LineageMode, Retention};
pub use skewer_sql::{Piece, is_complete, split};

/// The README's program, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
