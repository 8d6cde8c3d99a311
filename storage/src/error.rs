//! Errors, split by what the caller can do about them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Kind of named object, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// A schema.
    Schema,
    /// A table.
    Table,
    /// A view.
    View,
    /// A column.
    Column,
    /// A quarantine.
    Quarantine,
    /// A stream.
    Stream,
    /// A continuous query.
    ContinuousQuery,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Object::Schema => "schema",
            Object::Table => "table",
            Object::View => "view",
            Object::Column => "column",
            Object::Quarantine => "quarantine",
            Object::Stream => "stream",
            Object::ContinuousQuery => "continuous query",
        })
    }
}

/// What can go wrong in storage.
///
/// Except for [`StorageError::Locked`], [`StorageError::Format`] and a corrupt catalog, which are
/// errors of opening, an error fails the statement and leaves the database usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another process (or this one) has the database open: close that first.
    #[error("database {} is already open in process {}", path.display(), owner(pid))]
    Locked {
        /// The process that holds the lock; `None` if it has not yet written its id.
        pid: Option<u32>,
        /// Directory of the database.
        path: PathBuf,
    },
    /// A file is damaged: restore it, or drop the table it belongs to.
    #[error("file {} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Another transaction changed the same thing first: run the statement again.
    #[error("conflict with a concurrent change: {detail}")]
    Conflict {
        /// What was changed.
        detail: String,
    },
    /// The name is unknown.
    #[error("{object} {name} does not exist")]
    NotFound {
        /// Kind of the object.
        object: Object,
        /// Its name, qualified by schema where it has one.
        name: String,
    },
    /// The name is taken.
    #[error("{object} {name} already exists")]
    AlreadyExists {
        /// Kind of the object that has the name.
        object: Object,
        /// Its name, qualified by schema where it has one.
        name: String,
    },
    /// The device or the quota is full: free some space and run the statement again.
    #[error("disk full while writing {}", path.display())]
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// The file system failed in another way.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
    /// Columns of this type cannot be stored: cast them to another type.
    #[error("column {column} has type {data_type}, which tables cannot store")]
    UnsupportedType {
        /// Name of the column.
        column: String,
        /// Its Arrow type.
        data_type: String,
    },
    /// The change makes no sense (reserved or duplicate names, rows that do not fit the table).
    #[error("{detail}")]
    Invalid {
        /// Why.
        detail: String,
    },
    /// A worker is not there, or not the process any more that it was: start it again, or see
    /// why it ended. Nothing was changed.
    #[error("{worker}: {detail}")]
    WorkerLost {
        /// Its name.
        worker: String,
        /// What became of it.
        detail: String,
    },
    /// A segment was asked for that another node has: the plan was made for that one.
    #[error("segment {location} is on node {owner}, this is node {node}")]
    WrongNode {
        /// The segment's place.
        location: String,
        /// Who has it.
        owner: u32,
        /// Who was asked.
        node: u32,
    },
    /// A directory of segments belongs to another node or cluster: give the right one.
    #[error("{} belongs to node {found}, not to node {expected}", path.display())]
    OtherHome {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// The database was written by another version of Skewer: open it with that.
    #[error(
        "database {} has storage format {found}, this version of Skewer reads formats 1 to {supported}",
        path.display()
    )]
    Format {
        /// Directory of the database.
        path: PathBuf,
        /// Format of the database.
        found: u64,
        /// The latest format that this build reads and writes.
        supported: u64,
    },
    /// A defect in Skewer.
    #[error("internal error in storage: {detail}")]
    Internal {
        /// What happened.
        detail: String,
    },
}

fn owner(pid: &Option<u32>) -> String {
    pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string())
}

impl StorageError {
    /// An I/O failure on `path`, with a full device told apart.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { path, source },
        }
    }

    /// The same error for another statement, whose changes were written together with those of
    /// the first.
    pub(crate) fn shared(&self) -> Self {
        match self {
            Self::DiskFull { path } => Self::DiskFull { path: path.clone() },
            Self::Corrupt { path, detail } => Self::corrupt(path, detail),
            Self::Io { path, source } => Self::Io {
                path: path.clone(),
                source: io::Error::new(source.kind(), source.to_string()),
            },
            other => Self::Internal {
                detail: other.to_string(),
            },
        }
    }

    pub(crate) fn corrupt(path: &Path, detail: impl fmt::Display) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            detail: detail.to_string(),
        }
    }

    pub(crate) fn not_found(object: Object, name: impl Into<String>) -> Self {
        Self::NotFound {
            object,
            name: name.into(),
        }
    }

    pub(crate) fn exists(object: Object, name: impl Into<String>) -> Self {
        Self::AlreadyExists {
            object,
            name: name.into(),
        }
    }

    pub(crate) fn invalid(detail: impl fmt::Display) -> Self {
        Self::Invalid {
            detail: detail.to_string(),
        }
    }
}
