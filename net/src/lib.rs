//! The cluster's network: who may speak, what is said, and how it travels.
//!
//! - [`identity`]: the cluster's authority, certificates, join tokens, revocation;
//! - [`frame`]: the wire protocol as pure functions: bytes in, messages out;
//! - [`transport`]: nodes that talk over QUIC, and datafusion-distributed's view of them;
//! - [`error`]: what can go wrong between nodes.
//!
//! It depends on no sibling crate. `docs/wire-format.md` has the byte tables.

pub mod error;
pub mod frame;
pub mod identity;
pub mod transport;

pub use error::NetError;
pub use frame::{FailureClass, LostWorker, RemoteFailure};
pub use transport::{CallHandler, NetOptions, Node, PeerAddress, QuicResolver, Services, join};
