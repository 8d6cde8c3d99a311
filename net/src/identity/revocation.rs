//! Who is no longer trusted.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use parking_lot::RwLock;

use super::error::IdentityError;
use super::node::{NodeId, PeerIdentity};
use super::private_file::write_private;

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revocation {
    /// All certificates of a node.
    Node(NodeId),
    /// One certificate, by its serial number in hexadecimal digits.
    Serial(String),
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {}", node.0),
            Self::Serial(serial) => write!(f, "serial {serial}"),
        }
    }
}

impl FromStr for Revocation {
    type Err = IdentityError;

    /// Reads what `to_string` gives.
    fn from_str(line: &str) -> Result<Self, IdentityError> {
        let parse = || match line.trim().split_once(' ')? {
            ("node", number) => Some(Self::Node(NodeId(number.trim().parse().ok()?))),
            ("serial", serial) => Some(Self::Serial(serial.trim().to_owned())),
            _ => None,
        };
        parse().ok_or_else(|| IdentityError::malformed(format!("'{line}' revokes nothing")))
    }
}

impl Revocation {
    fn covers(&self, peer: &PeerIdentity) -> bool {
        match self {
            Self::Node(node) => *node == peer.node,
            Self::Serial(serial) => *serial == peer.serial,
        }
    }
}

/// The revocation list. Every handshake asks it; connections that are open already have to be
/// closed by whoever revokes (`close_worker` of the transport).
///
/// On the master it is a file, read again when it has changed, so that `skewer cluster revoke`
/// works while the master runs; workers are given it with [`Revocations::replace`]. If the file
/// cannot be read, or was there and is gone, nobody is let in.
#[derive(Debug, Default)]
pub struct Revocations {
    path: Option<PathBuf>,
    list: RwLock<List>,
}

#[derive(Debug, Default)]
struct List {
    entries: BTreeSet<Revocation>,
    /// The file's time and length when it was read.
    version: Option<(SystemTime, u64)>,
}

impl Revocations {
    /// A list in memory, empty at first.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// The list in a file, which appears with the first entry.
    pub fn in_file(path: &Path) -> Self {
        Self {
            path: Some(path.to_owned()),
            list: RwLock::default(),
        }
    }

    /// Adds an entry, in the file too.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn add(&self, entry: Revocation) -> Result<(), IdentityError> {
        self.reload()?;
        let mut list = self.list.write();
        list.entries.insert(entry);
        if let Some(path) = &self.path {
            let text: String = list
                .entries
                .iter()
                .map(|entry| format!("{entry}\n"))
                .collect();
            write_private(path, text.as_bytes())?;
        }
        Ok(())
    }

    /// Makes the list be these entries: what a worker does with the master's list.
    pub fn replace(&self, entries: impl IntoIterator<Item = Revocation>) {
        self.list.write().entries = entries.into_iter().collect();
    }

    /// What is on the list.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn entries(&self) -> Result<Vec<Revocation>, IdentityError> {
        self.reload()?;
        Ok(self.list.read().entries.iter().cloned().collect())
    }

    /// Whether somebody is still trusted.
    ///
    /// # Errors
    /// [`IdentityError::Revoked`] if not; [`IdentityError::File`] if the list cannot be read.
    pub fn check(&self, peer: &PeerIdentity) -> Result<(), IdentityError> {
        self.reload()?;
        if self
            .list
            .read()
            .entries
            .iter()
            .any(|entry| entry.covers(peer))
        {
            return Err(IdentityError::Revoked {
                peer: peer.to_string(),
            });
        }
        Ok(())
    }

    fn reload(&self) -> Result<(), IdentityError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let wrong = |error: std::io::Error| IdentityError::file(path, error);
        let version = match std::fs::metadata(path) {
            Ok(metadata) => Some((metadata.modified().map_err(wrong)?, metadata.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(error)),
        };
        if self.list.read().version == version {
            return Ok(());
        }
        // A list that was there does not disappear by itself: those on it are not let in again.
        if version.is_none() {
            return Err(IdentityError::file(
                path,
                "it is gone, and with it who was revoked; restore it, or make an empty file to revoke \
                 nobody",
            ));
        }
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        let parse = |line: &str| {
            line.parse::<Revocation>()
                .map_err(|_| IdentityError::file(path, format!("'{line}' revokes nothing")))
        };
        let entries = text.lines().map(parse).collect::<Result<_, _>>()?;
        *self.list.write() = List { entries, version };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::ClusterId;
    use super::*;

    fn peer(node: u32, serial: &str) -> PeerIdentity {
        PeerIdentity {
            cluster: ClusterId::parse("0123456789abcdef").unwrap(),
            node: NodeId(node),
            name: format!("worker-{node}"),
            serial: serial.to_owned(),
        }
    }

    #[test]
    fn a_list_that_another_process_extends_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        let master = Revocations::in_file(&path);
        assert_eq!(master.check(&peer(3, "aa")), Ok(()));
        let tool = Revocations::in_file(&path);
        tool.add(Revocation::Node(NodeId(3))).unwrap();
        tool.add(Revocation::Serial("bb".to_owned())).unwrap();
        assert!(matches!(
            master.check(&peer(3, "aa")),
            Err(IdentityError::Revoked { .. })
        ));
        assert!(matches!(
            master.check(&peer(4, "bb")),
            Err(IdentityError::Revoked { .. })
        ));
        assert_eq!(master.check(&peer(4, "aa")), Ok(()));
        assert_eq!(master.entries().unwrap().len(), 2);
    }

    #[test]
    fn a_list_that_disappears_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        let list = Revocations::in_file(&path);
        list.add(Revocation::Node(NodeId(3))).unwrap();
        assert_eq!(list.check(&peer(4, "aa")), Ok(()));
        std::fs::remove_file(&path).unwrap();
        for node in [3, 4] {
            let refused = list.check(&peer(node, "aa"));
            assert!(
                matches!(refused, Err(IdentityError::File { .. })),
                "{refused:?}"
            );
        }
        assert!(list.entries().is_err());
        std::fs::write(&path, "").unwrap();
        assert_eq!(list.check(&peer(3, "aa")), Ok(()));
    }

    #[test]
    fn nobody_is_let_in_by_a_damaged_list() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        std::fs::write(&path, "node three\n").unwrap();
        let list = Revocations::in_file(&path);
        assert!(matches!(
            list.check(&peer(4, "aa")),
            Err(IdentityError::File { .. })
        ));
    }
}
