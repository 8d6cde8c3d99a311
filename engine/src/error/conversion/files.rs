//! Errors of files, disks, and what is in files, as errors that a person understands.

use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use skewer_files::FilesError;
use skewer_storage::StorageError;

use crate::error::Error;

impl Error {
    fn from_files(error: FilesError) -> Self {
        match error {
            FilesError::File {
                path,
                line,
                message,
            } => Self::File {
                path,
                line,
                message,
            },
            FilesError::Io { path, error } => match Self::from_io(&error) {
                Self::Io(message) => Self::File {
                    path: path.display().to_string(),
                    line: None,
                    message,
                },
                other => other,
            },
            FilesError::Write { path, error } => match Self::from_datafusion(&error) {
                Self::Corrupt { message, .. } | Self::Io(message) | Self::File { message, .. } => {
                    Self::File {
                        path: path.display().to_string(),
                        line: None,
                        message,
                    }
                }
                other => other,
            },
            FilesError::UnknownOption { name, suggestions } => {
                Self::UnknownSetting { name, suggestions }
            }
            FilesError::InvalidValue {
                name,
                value,
                expected,
            } => Self::InvalidValue {
                name,
                value,
                expected,
            },
            FilesError::Unsupported(what) => Self::Unsupported(what),
            FilesError::Invalid(what) => Self::Invalid(what),
            FilesError::Cancelled => Self::Cancelled,
            FilesError::DataFusion(error) => Self::from_datafusion(&error),
            other => Self::Internal(other.to_string()),
        }
    }

    pub(super) fn from_arrow(error: &ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => Self::from_foreign(&**inner),
            ArrowError::IoError(_, inner) => Self::from_io(inner),
            ArrowError::NotYetImplemented(text) => Self::Unsupported(text.clone()),
            // Which file it was is found out by `StatementCatalog::diagnose`.
            ArrowError::CsvError(text)
            | ArrowError::JsonError(text)
            | ArrowError::ParseError(text) => Self::File {
                path: String::new(),
                line: None,
                message: text.clone(),
            },
            ArrowError::CastError(text) => Self::InvalidCast(text.clone()),
            ArrowError::ComputeError(text)
            | ArrowError::InvalidArgumentError(text)
            | ArrowError::SchemaError(text) => Self::Execution(text.clone()),
            ArrowError::ArithmeticOverflow(text) => Self::OutOfRange(text.clone()),
            ArrowError::DivideByZero => Self::DivisionByZero,
            ArrowError::ParquetError(text) => Self::unreadable(text.clone()),
            other => Self::Execution(other.to_string()),
        }
    }

    pub(super) fn from_parquet(error: &ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => Self::from_foreign(&**inner),
            other => Self::unreadable(other.to_string()),
        }
    }

    /// Parquet that cannot be decoded; which file it was is found out by
    /// `StatementCatalog::diagnose`.
    fn unreadable(message: String) -> Self {
        Self::Corrupt {
            path: String::new(),
            message,
        }
    }

    pub(super) fn from_object_store(error: &object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { path, .. } => Self::File {
                path: path.clone(),
                line: None,
                message: "there is no such file".to_owned(),
            },
            object_store::Error::Generic { source, .. }
                if let Some(lost @ StorageError::WorkerLost { .. }) = source.downcast_ref() =>
            {
                Self::from_storage(lost)
            }
            other => match io_cause(other) {
                Some(io) if io.kind() == io::ErrorKind::StorageFull => {
                    Self::DiskFull(io.to_string())
                }
                _ => Self::Io(other.to_string()),
            },
        }
    }

    pub(crate) fn from_io(error: &io::Error) -> Self {
        if let Some(inner) = error.get_ref() {
            let inner: &(dyn std::error::Error + Send + Sync + 'static) = inner;
            if inner.is::<Error>() || inner.is::<DataFusionError>() || inner.is::<StorageError>() {
                return Self::from_foreign(inner);
            }
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull(error.to_string())
            }
            io::ErrorKind::OutOfMemory => Self::OutOfMemory(format!("out of memory: {error}")),
            _ => Self::Io(error.to_string()),
        }
    }
}

/// The operating system's error among the causes of `error`.
fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

impl From<FilesError> for Error {
    fn from(error: FilesError) -> Self {
        Self::from_files(error)
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::from_arrow(&error)
    }
}
