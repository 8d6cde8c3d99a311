//! The same database for programs without async code: each call returns when its statement has
//! ended.
//!
//! ```
//! # fn main() -> Result<(), skewer::Error> {
//! use skewer::blocking::Database;
//!
//! let database = Database::in_memory()?;
//! let session = database.session();
//! session.execute("CREATE TABLE ratings (movie BIGINT, stars BIGINT)")?;
//! session.execute("INSERT INTO ratings VALUES (1, 5), (1, 4), (2, 1)")?;
//! let sql = "SELECT movie, avg(stars) FROM ratings GROUP BY movie ORDER BY movie";
//! let rows: Vec<(i64, f64)> = session.query_as(sql)?;
//! assert_eq!(rows, [(1, 4.5), (2, 1.0)]);
//! database.close()?;
//! # Ok(()) }
//! ```
//!
//! The calls must not be made from async code: they would block its thread.

use std::path::Path;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::ScalarValue;
use futures::StreamExt;
use futures::executor::block_on;
use skewer_diagnosis::Profile;

use crate::error::Error;
use crate::query_stream::QueryStream;
use crate::rows::{FromRow, from_batches};

/// A database. See [`skewer::Database`](crate::Database).
#[derive(Debug, Clone)]
pub struct Database(crate::Database);

impl Database {
    /// Opens the database in a directory, which is created if it is not there.
    ///
    /// # Errors
    /// The errors of [`DatabaseBuilder::build`](crate::DatabaseBuilder::build).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        crate::Database::open(path).map(Self)
    }

    /// A database that is gone when it is dropped.
    ///
    /// # Errors
    /// If the operating system gives no threads.
    pub fn in_memory() -> Result<Self, Error> {
        crate::Database::in_memory().map(Self)
    }

    /// A new session, with default settings and nothing prepared.
    pub fn session(&self) -> Session {
        Session(self.0.session())
    }

    /// Writes what schema `sys` has only in memory, and lets go of this handle.
    ///
    /// # Errors
    /// If schema `sys` cannot be written.
    pub fn close(self) -> Result<(), Error> {
        block_on(self.0.close())
    }
}

impl From<crate::Database> for Database {
    fn from(database: crate::Database) -> Self {
        Self(database)
    }
}

/// A session. See [`skewer::Session`](crate::Session).
#[derive(Debug, Clone)]
pub struct Session(crate::Session);

impl Session {
    /// Runs a query and returns all its rows.
    ///
    /// # Errors
    /// The errors of [`Session::sql`](crate::Session::sql).
    pub fn query(&self, sql: &str) -> Result<Vec<RecordBatch>, Error> {
        block_on(async { self.0.sql(sql).await?.collect().await })
    }

    /// Runs a query and returns its batches as they come. Dropping the iterator cancels the query.
    ///
    /// # Errors
    /// The errors of [`Session::sql`](crate::Session::sql).
    pub fn stream(&self, sql: &str) -> Result<Batches, Error> {
        block_on(self.0.sql(sql)).map(Batches)
    }

    /// Runs a query and converts its rows to tuples.
    ///
    /// # Errors
    /// The errors of [`Session::query_as`](crate::Session::query_as).
    pub fn query_as<T: FromRow>(&self, sql: &str) -> Result<Vec<T>, Error> {
        from_batches(&self.query(sql)?)
    }

    /// Runs a query with values for its parameters, and converts its rows to tuples.
    ///
    /// # Errors
    /// The errors of [`Session::query_as_with`](crate::Session::query_as_with).
    pub fn query_as_with<T: FromRow>(
        &self,
        sql: &str,
        values: &[ScalarValue],
    ) -> Result<Vec<T>, Error> {
        block_on(self.0.query_as_with(sql, values))
    }

    /// Runs a statement and returns the number of rows that it changed: the column `count` of a result
    /// of one row. Other statements return 0; run queries with [`query`](Self::query).
    ///
    /// # Errors
    /// The errors of [`Session::sql`](crate::Session::sql).
    pub fn execute(&self, sql: &str) -> Result<u64, Error> {
        self.query(sql).map(|answer| changed_rows(&answer))
    }

    /// Runs a statement with values for its parameters, and returns the number of rows that it
    /// changed.
    ///
    /// # Errors
    /// The errors of [`Session::sql_with`](crate::Session::sql_with).
    pub fn execute_with(&self, sql: &str, values: &[ScalarValue]) -> Result<u64, Error> {
        let answer = block_on(async { self.0.sql_with(sql, values).await?.collect().await });
        answer.map(|answer| changed_rows(&answer))
    }

    /// Runs a statement at level `records` and returns its profile.
    ///
    /// # Errors
    /// The errors of [`Session::profile`](crate::Session::profile).
    pub fn profile(&self, sql: &str) -> Result<Profile, Error> {
        block_on(self.0.profile(sql))
    }

    /// Makes a batch readable as table `name` in this session.
    ///
    /// # Errors
    /// The errors of [`Session::register_batch`](crate::Session::register_batch).
    pub fn register_batch(&self, name: &str, batch: RecordBatch) -> Result<(), Error> {
        self.0.register_batch(name, batch)
    }

    /// The session for async code.
    pub fn as_async(&self) -> &crate::Session {
        &self.0
    }
}

/// The batches of a result, as they come.
#[derive(Debug)]
pub struct Batches(QueryStream);

impl Batches {
    /// The names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.next())
    }
}

/// The number in the column `count` of a statement that changes something.
fn changed_rows(answer: &[RecordBatch]) -> u64 {
    let count = answer.first().and_then(|batch| {
        let count = batch.column_by_name("count")?;
        count.as_primitive_opt::<Int64Type>()
    });
    match count {
        Some(count) if count.len() == 1 => count.value(0).unsigned_abs(),
        _ => 0,
    }
}
