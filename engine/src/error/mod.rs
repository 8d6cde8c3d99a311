//! What can go wrong, split by what the caller can do about it. `conversion` makes these errors of
//! the errors of other crates.

mod conversion;

use std::time::Duration;

use skewer_compat::suggest::did_you_mean;
use skewer_files::file_and_line;
use skewer_net::NetError;
use skewer_sql::{ObjectKind, SyntaxError};
use thiserror::Error as ThisError;

/// Why a statement failed. Its text is fit for a person; the session goes on after it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
/// use skewer::{Database, Error};
///
/// let session = Database::in_memory()?.session();
/// session.sql("CREATE TABLE songs (title TEXT)").await?;
/// match session.sql("SELECT * FROM sogns").await {
///     Err(Error::UnknownTable { suggestions, .. }) => assert_eq!(suggestions, ["songs"]),
///     other => panic!("{:?}", other.err()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a statement; shows the line with a caret.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),

    /// What is wrong with a part of a statement; shows the line with a caret.
    #[error("{error}\n{}", place.marked())]
    Placed {
        /// What is wrong.
        error: Box<Error>,
        /// Where.
        place: SyntaxError,
    },

    /// A table or view that does not exist.
    #[error("there is no table {name}{}", did_you_mean(suggestions))]
    UnknownTable {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A column that no table of the query has.
    #[error("there is no column {name}{}", did_you_mean(suggestions))]
    UnknownColumn {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A function that does not exist.
    #[error("there is no function {name}{}", did_you_mean(suggestions))]
    UnknownFunction {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A schema that does not exist.
    #[error("there is no schema {name}{}", did_you_mean(suggestions))]
    UnknownSchema {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A setting that does not exist.
    #[error("there is no setting {name}{}", did_you_mean(suggestions))]
    UnknownSetting {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A value that a setting or option cannot have.
    #[error("{name} cannot be '{value}': {expected}")]
    InvalidValue {
        /// The setting or option.
        name: String,
        /// As written.
        value: String,
        /// What it can be.
        expected: String,
    },

    /// A prepared statement that does not exist.
    #[error("there is no prepared statement {name}{}", did_you_mean(suggestions))]
    UnknownPrepared {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A stream or a continuous query that does not exist.
    #[error("there is no {kind} {name}{}", did_you_mean(suggestions))]
    UnknownObject {
        /// What it should be.
        kind: ObjectKind,
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A name that is taken.
    #[error("{kind} {name} exists already")]
    AlreadyExists {
        /// What has the name.
        kind: ObjectKind,
        /// The name.
        name: String,
    },

    /// A table that statements cannot change.
    #[error("{name} cannot be changed: {reason}")]
    ReadOnly {
        /// The table or schema.
        name: String,
        /// Why.
        reason: String,
    },

    /// NULL in a column that is declared NOT NULL.
    #[error(
        "column {column} of table {table} is NOT NULL, but row {row} of the statement has no value for it"
    )]
    NotNull {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Which of the rows that were to be written, from 1.
        row: u64,
    },

    /// Something that SQL has and Skewer has not.
    #[error("not supported: {0}")]
    Unsupported(String),

    /// A statement that makes no sense, as where types do not fit.
    #[error("{0}")]
    Invalid(String),

    /// A value for which an expression cannot be computed.
    #[error("{0}")]
    Execution(String),

    /// A value that cannot be read as another type, as the text `x` as a number.
    #[error("{0}")]
    InvalidCast(String),

    /// A number that does not fit into its type, as of a sum.
    #[error("{0}")]
    OutOfRange(String),

    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,

    /// A file that a statement reads or writes is missing or malformed.
    #[error("{}{message}", file_and_line(path, *line))]
    File {
        /// The file.
        path: String,
        /// The line, from 1, where the file has lines.
        line: Option<u64>,
        /// What is wrong with it.
        message: String,
    },

    /// Another statement changed the same rows, or dropped the table, in between.
    #[error("another statement changed the table at the same time; nothing was written: {0}")]
    Conflict(String),

    /// The query was cancelled, as by dropping its stream.
    #[error("the query was cancelled")]
    Cancelled,

    /// A statement of a read-only session took longer than the session allows.
    #[error("the statement took longer than {0:?}, the limit of this read-only session")]
    TimedOut(Duration),

    /// A read-only session was asked to change something.
    #[error("this session is read-only: it runs SELECT, EXPLAIN and SHOW")]
    ReadOnlySession,

    /// A worker that the statement needs, or ran on, is gone. Nothing was changed.
    #[error("{name} was lost: {reason}{}", rows_of(tables))]
    WorkerLost {
        /// The worker.
        name: String,
        /// What became of it, as far as one knows.
        reason: String,
        /// Tables of the statement that have rows on this worker; empty where it was lost
        /// while it ran.
        tables: Vec<String>,
    },

    /// What the nodes of a cluster say to each other: certificates, tokens, addresses, versions.
    #[error(transparent)]
    Cluster(NetError),

    /// What EXPLAIN PROFILE ran failed; schema `sys` keeps what was recorded until then.
    #[error("{error}\nWhat was recorded until then is query {query_id}: SHOW PROFILE {query_id}")]
    Profiled {
        /// Why it failed.
        error: Box<Error>,
        /// Its id in schema `sys`.
        query_id: i64,
    },

    /// The memory limit was reached where spilling to disk could not help. Names the limit and how
    /// to raise it.
    #[error("{0}")]
    OutOfMemory(String),

    /// A query did not go on for as long as `stall_timeout`. Names the operators that waited, and for
    /// whom.
    #[error("{0}")]
    Stalled(String),

    /// The disk is full. What was committed before is safe.
    #[error("the disk is full, nothing was written: {0}")]
    DiskFull(String),

    /// A file of the database is damaged. Other tables stay readable.
    #[error("{} is damaged: {message}", if path.is_empty() { "a Parquet file" } else { path })]
    Corrupt {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },

    /// Another process has the database open.
    #[error("{0}")]
    Locked(String),

    /// The operating system refused to read or write.
    #[error("{0}")]
    Io(String),

    /// A bug in Skewer.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

fn rows_of(tables: &[String]) -> String {
    match tables {
        [] => String::new(),
        tables => format!("; it has rows of {}", tables.join(", ")),
    }
}
