//! Who may speak in a cluster: an authority, certificates, join tokens, revocation.
//!
//! - [`node`]: names of clusters and nodes, and what a certificate says about its holder;
//! - [`authority`]: the cluster's own certificate authority;
//! - [`credentials`]: one node's certificate and key;
//! - [`token`]: one-time, expiring invitations, and the store that redeems them;
//! - [`revocation`]: who is no longer trusted;
//! - [`directory`]: all of it as files, keys with mode 0600;
//! - [`verify`]: the checks of every handshake;
//! - [`tls`]: what rustls and quinn are configured with;
//! - [`clock`]: the time that certificates and tokens are judged by;
//! - [`error`]: why somebody is refused.

pub mod authority;
pub mod clock;
pub mod credentials;
pub mod directory;
pub mod error;
pub mod node;
pub mod revocation;
pub mod tls;
pub mod token;
pub mod verify;

mod private_file;

pub use authority::Authority;
pub use clock::{Clock, SystemClock};
pub use credentials::Credentials;
pub use directory::ClusterDirectory;
pub use error::IdentityError;
pub use node::{ClusterId, NodeId, PeerIdentity, random_number};
pub use revocation::{Revocation, Revocations};
pub use token::{JoinToken, TokenHash, TokenStore};
pub use verify::Trust;
