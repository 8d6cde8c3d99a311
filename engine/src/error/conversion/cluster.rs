//! Errors of workers and of tasks, as errors that a person understands.

use skewer_net::{FailureClass, LostWorker, NetError, Panic, RemoteFailure};
use skewer_node::Error as NodeError;
use tokio::task::JoinError;

use crate::error::Error;

impl Error {
    /// An operator, or a function that one calls, has panicked.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        Self::from_panic(Panic::from_payload(panic))
    }

    fn from_panic(panic: Panic) -> Self {
        match panic {
            Panic::TooLarge(text) => Self::Execution(text),
            Panic::Bug(text) => Self::Internal(text),
        }
    }

    pub(super) fn from_join(error: &JoinError) -> Self {
        match Panic::of_task(error) {
            Some(panic) => Self::from_panic(panic),
            None if error.is_cancelled() => Self::Cancelled,
            None => Self::Internal(error.to_string()),
        }
    }

    pub(super) fn from_lost(lost: &LostWorker) -> Self {
        Self::WorkerLost {
            name: lost.name.clone(),
            reason: lost.reason.clone(),
            tables: Vec::new(),
        }
    }

    pub(super) fn from_net(error: &NetError) -> Self {
        match error {
            NetError::Lost(lost) => Self::from_lost(lost),
            NetError::Remote(failure) => Self::from_remote(failure),
            other => Self::Cluster(other.clone()),
        }
    }

    /// What has no variant of its own on the wire.
    pub(super) fn from_remote(failure: &RemoteFailure) -> Self {
        match failure.class() {
            FailureClass::Cancelled => Self::Cancelled,
            FailureClass::User => Self::Execution(failure.text.clone()),
            _ => Self::Execution(format!("{} (on {})", failure.text, failure.node)),
        }
    }
}

impl From<NetError> for Error {
    fn from(error: NetError) -> Self {
        Self::from_net(&error)
    }
}

impl From<NodeError> for Error {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Invalid(text) => Self::Invalid(text),
            NodeError::Net(error) => Self::from_net(&error),
            NodeError::Storage(error) => Self::from_storage(&error),
            NodeError::DataFusion(error) => Self::from_datafusion(&error),
            NodeError::WorkerLost {
                name,
                reason,
                tables,
            } => Self::WorkerLost {
                name,
                reason,
                tables,
            },
            NodeError::File { .. } => Self::Io(error.to_string()),
            NodeError::Threads(error) => Self::from_io(&error),
            NodeError::Stopped => Self::Cancelled,
        }
    }
}
