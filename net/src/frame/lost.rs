//! Nodes that are gone, as a query meets them.

use std::error::Error as StdError;

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use thiserror::Error;

/// A node that a query needs does not answer any more.
///
/// It is found in a query's error with [`LostWorker::in_error`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} was lost: {reason}")]
pub struct LostWorker {
    /// Which, as people call it.
    pub name: String,
    /// What became of it, as far as one knows.
    pub reason: String,
}

impl LostWorker {
    /// The lost worker behind an error, however deep it is wrapped.
    pub fn in_error(error: &DataFusionError) -> Option<&Self> {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::in_error(inner)
            }
            DataFusionError::Shared(inner) => Self::in_error(inner),
            DataFusionError::Collection(errors) => errors.iter().find_map(Self::in_error),
            DataFusionError::External(inner) => Self::behind(&**inner),
            DataFusionError::ArrowError(inner, _) => match &**inner {
                ArrowError::ExternalError(inner) => Self::behind(&**inner),
                _ => None,
            },
            _ => None,
        }
    }

    fn behind<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> Option<&'a Self> {
        match error.downcast_ref::<Self>() {
            Some(lost) => Some(lost),
            None => error
                .downcast_ref::<DataFusionError>()
                .and_then(Self::in_error),
        }
    }
}

impl From<LostWorker> for DataFusionError {
    fn from(lost: LostWorker) -> Self {
        Self::External(Box::new(lost))
    }
}
