//! The cluster's network: who may speak, what is said, and how it travels.
//!
//! - [`identity`]: the cluster's authority, certificates, join tokens, revocation;
//! - [`frame`]: the wire protocol as pure functions: bytes in, messages out.

pub mod frame;
pub mod identity;
