//! Reasons why files cannot be read or written, split by what the caller can do about them.

use std::io;
use std::path::PathBuf;

use datafusion::common::DataFusionError;
use skewer_compat::suggest::did_you_mean;
use thiserror::Error as ThisError;

/// Why files cannot be read as a table, or written.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum FilesError {
    /// A file is missing or malformed.
    #[error("{}{message}", file_and_line(path, *line))]
    File {
        /// The file, folder or pattern.
        path: String,
        /// The line, from 1, where the file has lines.
        line: Option<u64>,
        /// What is wrong with it.
        message: String,
    },

    /// The operating system refused to read or write a file.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },

    /// A file cannot be written in its format.
    #[error("{}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<DataFusionError>,
    },

    /// An option that files do not have.
    #[error("there is no setting {name}{}", did_you_mean(suggestions))]
    UnknownOption {
        /// As written.
        name: String,
        /// Near names, best first.
        suggestions: Vec<String>,
    },

    /// A value that an option cannot have.
    #[error("{name} cannot be '{value}': {expected}")]
    InvalidValue {
        /// The option.
        name: String,
        /// As written.
        value: String,
        /// What it can be.
        expected: String,
    },

    /// A file or location that Skewer does not read.
    #[error("not supported: {0}")]
    Unsupported(String),

    /// A statement that does not say enough about its files.
    #[error("{0}")]
    Invalid(String),

    /// The statement that waited for the files has ended.
    #[error("the query was cancelled")]
    Cancelled,

    /// DataFusion failed.
    #[error(transparent)]
    DataFusion(Box<DataFusionError>),

    /// A bug in Skewer.
    #[error("internal error, please report it: {0}")]
    Internal(String),
}

/// The prefix of a message: the path and the line, as far as they are known.
pub fn file_and_line(path: &str, line: Option<u64>) -> String {
    match line {
        _ if path.is_empty() => String::new(),
        Some(line) => format!("{path}, line {line}: "),
        None => format!("{path}: "),
    }
}

impl From<DataFusionError> for FilesError {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(Box::new(error))
    }
}
