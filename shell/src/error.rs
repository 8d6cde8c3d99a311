//! Why the shell could not do what it was asked.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::format::WriteError;

/// A statement, a dot command or a file failed.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The database refused or failed.
    #[error(transparent)]
    Database(#[from] skewer::Error),
    /// A server could not be reached, or refused.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        reason: String,
    },
    /// What a server said of a statement.
    #[error("{0}")]
    Remote(String),
    /// A database could not be served, or its users not be changed.
    #[error(transparent)]
    Server(#[from] skewer_server::ServerError),
    /// The profiler's page could not be served.
    #[error(transparent)]
    Web(#[from] skewer_web::WebError),
    /// A cluster's certificates or tokens.
    #[error(transparent)]
    Identity(#[from] skewer::cluster::IdentityError),
    /// The result could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An error that the log has already.
    #[error(transparent)]
    Logged(Box<ShellError>),
    /// Ctrl-C.
    #[error("cancelled")]
    Cancelled,
    /// A script or directory could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The operating system refused what the shell needs to start.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// A dot command that does not exist or was used wrongly; says what to do.
    #[error("{0}")]
    Usage(String),
    /// The demo did not find what it had planted.
    #[error("the demo failed: {0}")]
    Demo(String),
    /// A step of a script failed.
    #[error("{script}, line {line}: {error}")]
    InScript {
        /// Its file.
        script: String,
        /// Where the step begins, from 1.
        line: u64,
        /// What failed.
        error: Box<ShellError>,
    },
}

/// What shells report for a process that SIGINT ended.
const INTERRUPTED: u8 = 130;
/// What shells report for a process that SIGPIPE ended.
const BROKEN_PIPE: u8 = 141;

impl ShellError {
    /// Whether Ctrl-C was the cause.
    pub fn is_cancelled(&self) -> bool {
        match self {
            ShellError::Cancelled | ShellError::Database(skewer::Error::Cancelled) => true,
            ShellError::InScript { error, .. } => error.is_cancelled(),
            _ => false,
        }
    }

    /// Whether the reader of the output went away: nobody is there to be told.
    pub fn is_broken_pipe(&self) -> bool {
        match self {
            ShellError::Write(error) => error.is_broken_pipe(),
            ShellError::InScript { error, .. } => error.is_broken_pipe(),
            _ => false,
        }
    }

    /// Whether nobody is to be told any more.
    pub fn is_told(&self) -> bool {
        self.is_broken_pipe() || matches!(self, ShellError::Logged(_))
    }

    /// The process's exit status for this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            error if error.is_cancelled() => ExitCode::from(INTERRUPTED),
            error if error.is_broken_pipe() => ExitCode::from(BROKEN_PIPE),
            _ => ExitCode::FAILURE,
        }
    }
}

impl From<io::Error> for ShellError {
    /// Of writes to standard output; files have [`ShellError::File`].
    fn from(error: io::Error) -> ShellError {
        ShellError::Write(WriteError::Io(error))
    }
}
