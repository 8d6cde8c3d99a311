//! Skewer: a SQL database that explains itself in SQL.
//!
//! ```
//! use skewer::{Database, Error};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let database = Database::in_memory()?; // Database::open("music.skewer")? keeps it
//!     let session = database.session();
//!     session.sql("CREATE TABLE songs (title VARCHAR, seconds BIGINT)").await?;
//!     let insert = "INSERT INTO songs VALUES ($1, $2)";
//!     session.sql_with(insert, &skewer::params!["Skewered", 187]).await?;
//!
//!     let sql = "SELECT title, seconds FROM songs WHERE seconds > 180";
//!     let songs: Vec<(String, i64)> = session.query_as(sql).await?;
//!     assert_eq!(songs, [("Skewered".to_owned(), 187)]);
//!
//!     // Where did the time go, and on which records?
//!     let profile = session.profile(sql).await?;
//!     println!("{}", skewer::report::text(&profile).texts().join("\n"));
//!     database.close().await
//! }
//! ```
//!
//! A [`Database`] lives in a directory or in memory; a [`Session`] runs statements; a
//! [`QueryStream`] returns their results as Arrow batches. Schema `sys` records what each query did,
//! and a [`Profile`] is what the record tells. Module [`blocking`] has the same for programs without
//! async code.
//!
//! [`arrow`] and [`datafusion`] are the versions that Skewer uses: a program that takes them from
//! here never has two.
//!
//! # For people who change the crate
//!
//! The life of a query is told in `statements/mod.rs`.
//!
//! * `database`: storage, threads, memory; `session`: settings, functions, statements
//! * `prepared`: statements with parameters, and rows appended from a stream
//! * `rows`: rows as Rust values
//! * `query_stream`: results as they come, `progress`: how far a statement is
//! * `settings`: what can be SET; `error`: what can go wrong
//! * `catalog`: what names mean to one statement
//! * `statements`: one file per statement
//! * `remedies`: what is done about skew that earlier runs of a statement have shown
//! * `streams`: streams, their sources, and continuous queries that run in micro-batches
//! * `join_order`: statistics of a query's tables, and the order of its joins
//! * `planning`: from a logical plan to operators, `cancellation`: how they learn that their statement is
//!   cancelled
//! * [`cluster`]: a database over several processes
//! * `admission`: how many statements run queries at once, `running_table`: which, as a table
//! * `record`: a statement's row in `sys.queries`, `tables_read`: the tables that it read, `query_totals`: totals of
//!   the statements that have ended; `quarantines_table`: `sys.quarantines`; `ended_queries`: the same one by one, for programs that follow them
//! * `trace_parent`: the caller's span of a statement
//! * `profile`: profiles for programs, and EXPLAIN PROFILE's rows
//! * `detectors`: views of users that find causes of slow queries
//! * `compaction`: small segments merged in the background
//! * `last_query_id`: the function of that name

mod admission;
pub mod blocking;
mod cancellation;
mod catalog;
pub mod cluster;
mod compaction;
mod database;
mod detectors;
mod ended_queries;
mod error;
mod functions;
mod join_order;
mod last_query_id;
mod plan_cache;
mod planning;
mod prepared;
mod profile;
mod progress;
mod quarantines_table;
mod query_stream;
mod query_totals;
mod record;
mod remedies;
mod rows;
mod running_table;
mod session;
mod settings;
mod statements;
mod streams;
mod tables_read;
mod trace_parent;

pub use cluster::{ClusterOptions, Worker, WorkerOptions};
pub use database::{Database, DatabaseBuilder};
pub use datafusion;
pub use datafusion::arrow;
pub use ended_queries::{EndedQueries, EndedQuery};
pub use error::Error;
pub use functions::Functions;
pub use prepared::StatementDescription;
pub use profile::report_document;
pub use progress::{Progress, ProgressHandle};
pub use query_stream::QueryStream;
pub use rows::{FromRow, FromValue};
pub use session::{ReadOnly, Session};
pub use settings::{parse_cache_size, parse_memory_limit};
pub use skewer_compat::functions::read_array::{Item, read_array};
pub use skewer_compat::functions::zones::read_time;
pub use skewer_diagnosis as diagnosis;
pub use skewer_diagnosis::{Profile, ProfileDiff};
pub use skewer_net::log_panics;
pub use skewer_profiling::{Level as ProfileLevel, LineageMode, Retention};
pub use skewer_report as report;
pub use skewer_sql::{ObjectKind, ScriptStatement, SyntaxError, TraceParent, is_complete, split};

/// The README's program, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
