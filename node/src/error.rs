//! Errors of starting a process of a cluster, and of taking part, split by what the caller can do about them.

use std::io;

use datafusion::common::DataFusionError;
use skewer_net::NetError;
use skewer_storage::StorageError;

/// What can go wrong with a node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options, or a node's directory, do not fit: change them.
    #[error("{0}")]
    Invalid(String),

    /// What nodes say to each other: certificates, tokens, addresses, versions.
    #[error(transparent)]
    Net(#[from] NetError),

    /// The node's directory cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),

    /// A plan or a message cannot be made or read.
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),

    /// A query needs rows that a lost worker has.
    #[error("{name} was lost: {reason}; it has rows of {}", tables.join(", "))]
    WorkerLost {
        /// The worker.
        name: String,
        /// What became of it, as far as one knows.
        reason: String,
        /// The tables that it has rows of.
        tables: Vec<String>,
    },

    /// A file or directory cannot be read or written.
    #[error("{file}: {error}")]
    File {
        /// The file or directory.
        file: String,
        /// Why.
        error: io::Error,
    },

    /// The operating system gives no threads.
    #[error(transparent)]
    Threads(io::Error),

    /// The worker was stopped while it was about to take part.
    #[error("the worker was stopped")]
    Stopped,
}

/// An error of another crate, as DataFusion carries it.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
