//! Why the server does not start, and answers that are errors.

use std::io;
use std::net::SocketAddr;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use skewer_server::ServerError;

/// Why the web server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The address cannot be listened at.
    #[error("cannot listen for browsers at {address}: {source}")]
    Listen {
        /// As given.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// Beyond loopback there must be users.
    #[error(
        "{address} can be reached from other machines, and the database has no users: add one with \
         `skewer user add NAME`, or use --http-listen 127.0.0.1:8432"
    )]
    NoUsers {
        /// The address to listen at.
        address: SocketAddr,
    },
    /// Spans cannot be sent to the collector of traces.
    #[error("traces cannot be sent to {endpoint}: {reason}")]
    Collector {
        /// As given.
        endpoint: String,
        /// Why not.
        reason: String,
    },
    /// Users or certificate cannot be read.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// An answer that is an error: its status and a sentence.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String);

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self(status, message.into())
    }
}

impl From<skewer::Error> for Failure {
    fn from(error: skewer::Error) -> Self {
        let status = match &error {
            skewer::Error::TimedOut(_) | skewer::Error::OutOfMemory(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            skewer::Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}
