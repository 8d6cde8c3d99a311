//! Why somebody is refused.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::node::NodeId;

/// What is wrong with a certificate, a token, or the files they are kept in. Its text is a
/// sentence for the person who has to do something about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Its time is over.
    #[error(
        "the certificate of {peer} expired at {at}: the master renews its own when it starts, a \
         worker's is renewed by `skewer worker --join` with a token of `skewer cluster token \
         --worker N`; or compare the clocks of both machines"
    )]
    Expired {
        /// Whose.
        peer: String,
        /// When.
        at: String,
    },

    /// Its time has not come, as where one clock is wrong.
    #[error(
        "the certificate of {peer} is not valid before {at}: compare the clocks of both machines"
    )]
    NotYetValid {
        /// Whose.
        peer: String,
        /// From when it is valid.
        at: String,
    },

    /// Signed by somebody else.
    #[error("the certificate of {peer} was not signed by this cluster's authority")]
    OtherAuthority {
        /// Whom it names.
        peer: String,
    },

    /// Of another cluster.
    #[error("{peer} belongs to the cluster {found}, not to {expected}")]
    OtherCluster {
        /// Whose.
        peer: String,
        /// The cluster that was expected.
        expected: String,
        /// The one that its certificate names.
        found: String,
    },

    /// Revoked.
    #[error("the certificate of {peer} has been revoked")]
    Revoked {
        /// Whose.
        peer: String,
    },

    /// Somebody else of the same cluster answers at that address.
    #[error("{found} answered where {expected} was expected")]
    WrongPeer {
        /// Who was called.
        expected: String,
        /// Who answered.
        found: String,
    },

    /// Not a certificate of a Skewer node.
    #[error("that is no certificate of a cluster node: {reason}")]
    Malformed {
        /// What does not fit.
        reason: String,
    },

    /// A token that was not copied as a whole, or is none.
    #[error("that is no join token, or a part of it is missing: copy it again, as a whole")]
    TokenDamaged,

    /// A token that the cluster did not make.
    #[error("the cluster does not know this join token: ask for a new one")]
    TokenUnknown,

    /// A token that is too old.
    #[error("the join token has expired: ask for a new one")]
    TokenExpired,

    /// A token that another worker, or an earlier attempt, has used.
    #[error("the join token has been used already; each is good for one worker: ask for a new one")]
    TokenUsed,

    /// A token that renews the certificate of another worker than the one that shows it.
    #[error("the join token renews the certificate of {expected}, and this is {found}")]
    TokenOfOther {
        /// Whom it is for.
        expected: NodeId,
        /// Who has it.
        found: NodeId,
    },

    /// Whoever answers at the token's address is not who made it.
    #[error("the master at {address} is not the one that made the join token")]
    NotTheTokensMaster {
        /// Where it was looked for.
        address: String,
    },

    /// A key or certificate cannot be made or read.
    #[error("{action}: {reason}")]
    Cryptography {
        /// What was tried.
        action: &'static str,
        /// Why not.
        reason: String,
    },

    /// A file cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system says, or what is wrong with it.
        reason: String,
    },

    /// A private key that others may read.
    #[error("{} can be read by others (mode {mode:04o}): chmod 600 it, and think about who has a copy", path.display())]
    Exposed {
        /// The key.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },

    /// Something is there already.
    #[error("{} is the directory of a cluster already", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
}

impl IdentityError {
    pub(crate) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn cryptography(action: &'static str) -> impl FnOnce(rcgen::Error) -> Self {
        move |error| Self::Cryptography {
            action,
            reason: error.to_string(),
        }
    }

    pub(crate) fn malformed(reason: impl ToString) -> Self {
        Self::Malformed {
            reason: reason.to_string(),
        }
    }
}
