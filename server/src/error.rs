//! Why the server does not start, and how statements' errors look on the wire.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pgwire::error::ErrorInfo;
use skewer::Error;

/// Why the server does not start, or a user cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The database cannot be opened.
    #[error(transparent)]
    Database(#[from] Error),
    /// The address to listen at means nothing here.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// As given.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// Another process listens there.
    #[error("cannot listen at {address}: the port is in use by another process")]
    PortInUse {
        /// As given.
        address: String,
    },
    /// Beyond loopback there must be users.
    #[error(
        "{address} can be reached from other machines, and the database has no users: add one \
         with `skewer user add NAME --data {}`, or listen at 127.0.0.1", data.display()
    )]
    NoUsers {
        /// The address to listen at.
        address: SocketAddr,
        /// The database's directory.
        data: PathBuf,
    },
    /// A file about users, a key or a certificate cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of users is damaged.
    #[error("{}, line {line}: {reason}", path.display())]
    Users {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A user's name or password that cannot be.
    #[error("{0}")]
    InvalidUser(&'static str),
    /// A certificate or key that TLS cannot use.
    #[error("{}: {reason}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What a client is told when a statement fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqlError {
    /// Whether the connection ends with it.
    pub(crate) fatal: bool,
    /// The five characters that drivers look at.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// In characters of the statement's text, from 1.
    pub(crate) position: Option<usize>,
    pub(crate) column: Option<Box<Column>>,
}

/// The column that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) table: Option<String>,
    pub(crate) name: String,
}

impl SqlError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            fatal: false,
            code,
            message: message.into(),
            hint: None,
            position: None,
            column: None,
        }
    }

    pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            fatal: true,
            ..Self::new(code, message)
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What a client sends that the protocol does not allow.
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::new("08P01", message)
    }

    pub(crate) fn unsupported(what: impl std::fmt::Display) -> Self {
        Self::new("0A000", format!("not supported: {what}"))
    }

    /// The statement was stopped on request.
    pub(crate) fn cancelled() -> Self {
        Self::new("57014", "the statement was cancelled on request")
    }

    /// What the engine says about `sql`.
    pub(crate) fn of_engine(error: &Error, sql: &str) -> Self {
        let mut found = Self::new(code(error), error.to_string());
        match error {
            Error::Profiled { error, query_id } => {
                found = Self::of_engine(error, sql);
                found.hint = Some(format!(
                    "what was recorded until then: SHOW PROFILE {query_id}"
                ));
            }
            Error::Placed { error, place } => {
                found = Self::of_engine(error, sql);
                found.position = position(sql, place.line, place.column);
            }
            Error::Syntax(syntax) => {
                found.message = format!("syntax error: {}", syntax.message);
                found.position = position(sql, syntax.line, syntax.column);
            }
            Error::UnknownTable { name, .. }
            | Error::UnknownColumn { name, .. }
            | Error::UnknownFunction { name, .. } => {
                found.position = occurrence(sql, name);
            }
            Error::NotNull { table, column, .. } => {
                found.column = Some(Box::new(Column {
                    table: Some(table.clone()),
                    name: column.clone(),
                }));
            }
            _ => {}
        }
        found
    }

    pub(crate) fn info(self) -> ErrorInfo {
        let severity = if self.fatal { "FATAL" } else { "ERROR" };
        let mut info = ErrorInfo::new(severity.to_owned(), self.code.to_owned(), self.message);
        info.severity_nonlocalized = Some(severity.to_owned());
        info.hint = self.hint;
        info.position = self.position.map(|position| position.to_string());
        if let Some(column) = self.column {
            info.table = column.table;
            info.column = Some(column.name);
        }
        info
    }
}

/// The SQLSTATE that PostgreSQL has for such an error.
fn code(error: &Error) -> &'static str {
    match error {
        Error::Profiled { error, .. } | Error::Placed { error, .. } => code(error),
        Error::Syntax(_) => "42601",
        Error::UnknownTable { .. } => "42P01",
        Error::UnknownColumn { .. } => "42703",
        Error::UnknownFunction { .. } => "42883",
        Error::UnknownSchema { .. } => "3F000",
        Error::UnknownSetting { .. } => "42704",
        Error::InvalidValue { .. } => "22023",
        Error::UnknownPrepared { .. } => "26000",
        Error::UnknownObject { .. } => "42704",
        Error::AlreadyExists {
            kind: skewer_sql::ObjectKind::Schema,
            ..
        } => "42P06",
        Error::AlreadyExists { .. } => "42P07",
        Error::ReadOnly { .. } => "42809",
        Error::NotNull { .. } => "23502",
        Error::Unsupported(_) => "0A000",
        Error::Invalid(_) => "42804",
        Error::Execution(_) => "22000",
        Error::InvalidCast(_) => "22P02",
        Error::OutOfRange(_) => "22003",
        Error::DivisionByZero => "22012",
        Error::File { line: Some(_), .. } => "22P04",
        Error::File { path, .. } if !Path::new(path).exists() => "58P01",
        Error::File { .. } | Error::Io(_) => "58030",
        Error::Conflict(_) => "40001",
        Error::Cancelled | Error::Stalled(_) | Error::TimedOut(_) => "57014",
        Error::ReadOnlySession => "25006",
        Error::OutOfMemory(_) => "53200",
        Error::DiskFull(_) => "53100",
        Error::Corrupt { .. } => "XX001",
        Error::Locked(_) => "55006",
        // Bugs, and what later versions of the engine may tell apart.
        _ => "XX000",
    }
}

/// Line and column, from 1, as characters from the beginning of `sql`, from 1.
pub(crate) fn position(sql: &str, line: u64, column: u64) -> Option<usize> {
    let before = usize::try_from(line).ok()?.checked_sub(1)?;
    let column = usize::try_from(column).ok().filter(|column| *column > 0)?;
    let lines = sql.split_inclusive('\n').take(before);
    Some(lines.map(|line| line.chars().count()).sum::<usize>() + column)
}

/// Where `sql` has the last part of `name` as a word, if it has it only once.
fn occurrence(sql: &str, name: &str) -> Option<usize> {
    let word = name.rsplit('.').next()?.trim_matches('"').to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = None;
    let mut start = None;
    let mut quoted = false;
    let chars: Vec<char> = sql.chars().chain(std::iter::once(' ')).collect();
    for (at, c) in chars.iter().enumerate() {
        quoted ^= *c == '\'';
        if is_word(*c) && !quoted {
            start.get_or_insert(at);
        } else if let Some(start) = start.take() {
            let text: String = chars[start..at].iter().collect();
            if text.to_lowercase() == word && found.replace(start + 1).is_some() {
                return None;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_the_beginning() {
        assert_eq!(position("SELECT 1", 1, 8), Some(8));
        assert_eq!(position("SELECT 'ä'\n  FORM t", 2, 3), Some(14));
        assert_eq!(position("SELECT", 0, 0), None);
    }

    #[test]
    fn what_explain_profile_ran_fails_as_it_would_alone() {
        let unknown = Error::UnknownFunction {
            name: "uper".to_owned(),
            suggestions: vec!["upper".to_owned()],
        };
        let profiled = Error::Profiled {
            error: Box::new(unknown.clone()),
            query_id: 7,
        };
        let sql = "EXPLAIN PROFILE SELECT uper(a) FROM t";
        let (alone, found) = (
            SqlError::of_engine(&unknown, sql),
            SqlError::of_engine(&profiled, sql),
        );
        assert_eq!((found.code, found.position), ("42883", Some(24)));
        assert_eq!(
            (found.code, &found.message, found.position),
            (alone.code, &alone.message, alone.position)
        );
        assert!(found.hint.unwrap().ends_with("SHOW PROFILE 7"));
    }

    #[test]
    fn a_name_is_found_only_where_it_is_unambiguous() {
        assert_eq!(occurrence("SELECT * FROM main.songz", "songz"), Some(20));
        assert_eq!(occurrence("SELECT a FROM t WHERE a = 1", "a"), None);
        assert_eq!(occurrence("SELECT 'b', b FROM t", "t.b"), Some(13));
    }
}
