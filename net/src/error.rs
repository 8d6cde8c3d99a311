//! What can go wrong between nodes, split by what the caller can do about it.

use std::net::SocketAddr;

use datafusion::common::DataFusionError;
use thiserror::Error;
use url::Url;

use crate::frame::{FrameError, LostWorker, RemoteFailure};
use crate::identity::IdentityError;
use crate::identity::verify::Refusal;

/// Why nodes do not understand each other. Its text is fit for a person.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum NetError {
    /// A certificate or token, ours or theirs, that this side does not accept.
    #[error(transparent)]
    Identity(#[from] IdentityError),

    /// The other side does not accept us.
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// Who.
        peer: String,
        /// As far as it says.
        reason: Refusal,
    },

    /// The other side speaks another version of the protocol.
    #[error(
        "{peer} ({software}) speaks version {theirs} of the cluster's protocol and this node \
         version {ours}: all nodes of a cluster need the same version of Skewer"
    )]
    OtherVersion {
        /// Who.
        peer: String,
        /// Their software and its version.
        software: String,
        /// Our version.
        ours: u16,
        /// Theirs.
        theirs: u16,
    },

    /// A text that is no address.
    #[error("'{text}' is no address, as 127.0.0.1:7433 or host-a:7433 are")]
    Address {
        /// As written.
        text: String,
    },

    /// Nobody answers.
    #[error("{peer} does not answer at {address}: {reason}")]
    Unreachable {
        /// Who was called.
        peer: String,
        /// Where.
        address: String,
        /// As far as one knows.
        reason: String,
    },

    /// A node that answered before is gone.
    #[error(transparent)]
    Lost(#[from] LostWorker),

    /// A node that is not among the known ones.
    #[error("there is no worker {url} in the cluster")]
    UnknownWorker {
        /// What was looked for.
        url: Url,
    },

    /// Bytes that are not what the protocol says.
    #[error("what {peer} sent is not the protocol: {error}")]
    Protocol {
        /// Who.
        peer: String,
        /// What is wrong.
        error: FrameError,
    },

    /// It answered that it failed.
    #[error("{0} (on {node})", node = .0.node)]
    Remote(RemoteFailure),

    /// This node itself has been shut down.
    #[error("this node has been shut down")]
    ShutDown,

    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {reason}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the operating system says.
        reason: String,
    },
}

impl From<NetError> for DataFusionError {
    /// To a query, a worker that does not answer, or answers with a cut-off stream, is lost.
    fn from(error: NetError) -> Self {
        match error {
            NetError::Lost(lost) => lost.into(),
            NetError::Unreachable {
                peer,
                address,
                reason,
            } => LostWorker {
                name: peer,
                reason: format!("it does not answer at {address}: {reason}"),
            }
            .into(),
            NetError::Protocol {
                peer,
                error: error @ FrameError::Truncated,
            } => LostWorker {
                name: peer,
                reason: error.to_string(),
            }
            .into(),
            NetError::Remote(failure) => failure.into_datafusion(),
            NetError::Protocol { .. } => Self::Internal(error.to_string()),
            other => Self::External(Box::new(other)),
        }
    }
}
