//! Errors of reading a profile.

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use thiserror::Error;

/// Why a profile cannot be read.
#[derive(Debug, Error)]
pub enum Error {
    /// The request cannot be met; the text says why and what to do instead.
    #[error("{0}")]
    Invalid(String),
    /// The source could not run a statement. It carries the source's own error where it has one.
    #[error(transparent)]
    Source(#[from] DataFusionError),
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::Source(error.into())
    }
}
