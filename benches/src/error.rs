//! What can go wrong in an experiment.

use std::path::PathBuf;

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::parquet::errors::ParquetError;

/// Why an experiment stopped.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The database refused a statement.
    #[error("{0}")]
    Skewer(#[from] skewer::Error),
    /// Plain DataFusion refused a query.
    #[error("plain DataFusion: {0}")]
    DataFusion(#[from] DataFusionError),
    /// Data could not be generated.
    #[error("generating data: {0}")]
    Arrow(#[from] ArrowError),
    /// Generated data could not be written.
    #[error("writing Parquet: {0}")]
    Parquet(#[from] ParquetError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A node could not do its part.
    #[error("{0}")]
    Net(#[from] skewer_net::NetError),
    /// A server refused a statement, or is gone.
    #[error("the server: {}", .0.as_db_error().map_or_else(|| .0.to_string(), |told| told.message().to_owned()))]
    Server(#[from] tokio_postgres::Error),
    /// The terminal or a worker process is gone.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A task of the experiment panicked.
    #[error("{0}")]
    Task(#[from] tokio::task::JoinError),
    /// Two runs of one query disagree, or a result is not what the experiment is about.
    #[error("{0}")]
    Unexpected(String),
}

impl BenchError {
    /// An error of a file operation on `path`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
