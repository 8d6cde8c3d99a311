//! The cluster's network.
//!
//! - [`identity`]: who may speak: the authority, certificates, join tokens, revocation;
pub mod identity;
