//! A cluster's identity as files: what `skewer cluster init` makes.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;

use super::authority::{Authority, NODE_LIFETIME};
use super::credentials::{Credentials, load_certificate, pem};
use super::error::IdentityError;
use super::node::{NodeId, PeerIdentity};
use super::private_file::{check_private, write_private, write_public};
use super::revocation::Revocations;
use super::token::{JoinToken, TokenStore};

/// The master's directory.
///
/// | file | what it is |
/// |---|---|
/// | `ca.crt`, `ca.key` | the authority; the key has mode 0600 |
/// | `node.crt`, `node.key` | the master's own certificate; the key has mode 0600 |
/// | `tokens/` | one file per join token, named by its hash |
/// | `workers/<n>.crt` | the certificate of each worker that has joined |
/// | `revoked` | the revocation list, one entry per line |
/// | `address` | where the master has listened last |
#[derive(Debug, Clone)]
pub struct ClusterDirectory {
    path: PathBuf,
}

impl ClusterDirectory {
    /// Makes a new cluster: its authority and the master's certificate.
    ///
    /// # Errors
    /// [`IdentityError::Exists`] if there is one; or if files cannot be written.
    pub fn init(path: &Path, master: &str, now: SystemTime) -> Result<Self, IdentityError> {
        if path.join("ca.key").exists() {
            return Err(IdentityError::Exists {
                path: path.to_owned(),
            });
        }
        std::fs::create_dir_all(path).map_err(|error| IdentityError::file(path, error))?;
        let authority = Authority::create(now)?;
        let credentials =
            Credentials::issued_by(&authority, NodeId::MASTER, master, now, NODE_LIFETIME)?;
        credentials.write(path)?;
        // Last, because it says that the cluster is there.
        write_private(&path.join("ca.key"), authority.key_pem().as_bytes())?;
        Self::open(path)
    }

    /// Opens what [`ClusterDirectory::init`] has made.
    ///
    /// # Errors
    /// If there is nothing, or others may read the authority's key.
    pub fn open(path: &Path) -> Result<Self, IdentityError> {
        check_private(&path.join("ca.key"))?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// The authority.
    ///
    /// # Errors
    /// If its files are damaged.
    pub fn authority(&self) -> Result<Authority, IdentityError> {
        let path = self.path.join("ca.key");
        check_private(&path)?;
        let text =
            std::fs::read_to_string(&path).map_err(|error| IdentityError::file(&path, error))?;
        let key = KeyPair::from_pem(&text).map_err(|error| IdentityError::file(&path, error))?;
        Authority::from_parts(load_certificate(&self.path.join("ca.crt"))?, key)
    }

    /// The master's own credentials.
    ///
    /// # Errors
    /// If their files are damaged.
    pub fn credentials(&self) -> Result<Credentials, IdentityError> {
        Credentials::load(&self.path)
    }

    /// The master's own credentials, which are made anew if they are not valid at `now` or more
    /// than half of their time is over.
    ///
    /// # Errors
    /// If their files are damaged, or cannot be written.
    pub fn renewed_credentials(&self, now: SystemTime) -> Result<Credentials, IdentityError> {
        let own = self.credentials()?;
        if own.valid_at(now)? && own.valid_at(now + NODE_LIFETIME / 2)? {
            return Ok(own);
        }
        own.renew(&self.authority()?, now, NODE_LIFETIME, &self.path)
    }

    /// The join tokens.
    pub fn tokens(&self) -> TokenStore {
        TokenStore::new(&self.path.join("tokens"))
    }

    /// The revocation list.
    pub fn revocations(&self) -> Arc<Revocations> {
        Arc::new(Revocations::in_file(&self.path.join("revoked")))
    }

    /// Remembers where the master listens.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set_address(&self, address: &str) -> Result<(), IdentityError> {
        write_public(
            &self.path.join("address"),
            format!("{address}\n").as_bytes(),
        )
    }

    /// Where the master has listened last; `None` if it never has.
    pub fn address(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.path.join("address")).ok()?;
        Some(text.trim().to_owned())
    }

    /// Makes a join token that leads to `address`, a `host:port` where workers reach the master.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub fn token(
        &self,
        address: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<JoinToken, IdentityError> {
        let authority = load_certificate(&self.path.join("ca.crt"))?;
        let token = JoinToken::new(address, &authority, now, lifetime);
        self.tokens().add(&token)?;
        Ok(token)
    }

    /// Makes a token that renews the certificate of a worker, which keeps its number, and so its
    /// rows.
    ///
    /// # Errors
    /// If there is no such worker, [`IdentityError::Revoked`], or if it cannot be stored.
    pub fn renewal_token(
        &self,
        worker: NodeId,
        address: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<JoinToken, IdentityError> {
        let peer = self.worker(worker)?;
        self.revocations().check(&peer)?;
        let authority = load_certificate(&self.path.join("ca.crt"))?;
        let token = JoinToken::new(address, &authority, now, lifetime).renewing(worker);
        self.tokens().add(&token)?;
        Ok(token)
    }

    /// Certifies a worker that has joined before, under its number. Without a name it keeps its
    /// own.
    ///
    /// # Errors
    /// If there is no such worker, [`IdentityError::Revoked`], if the request is malformed, or if
    /// files cannot be written.
    pub fn renew(
        &self,
        worker: NodeId,
        request: &[u8],
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let peer = self.worker(worker)?;
        self.revocations().check(&peer)?;
        let name = name.unwrap_or(&peer.name);
        let certificate = self
            .authority()?
            .issue(request, worker, name, now, NODE_LIFETIME)?;
        write_public(
            &self.certificate_of(worker),
            pem("CERTIFICATE", &certificate).as_bytes(),
        )?;
        Ok(certificate)
    }

    /// Certifies a new worker under the next free number. Without a name it is `worker-<n>`.
    ///
    /// # Errors
    /// If the request is malformed, or files cannot be written.
    pub fn admit(
        &self,
        request: &[u8],
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<(NodeId, CertificateDer<'static>), IdentityError> {
        let authority = self.authority()?;
        let workers = self.path.join("workers");
        std::fs::create_dir_all(&workers).map_err(|error| IdentityError::file(&workers, error))?;
        let last = self.workers()?.into_iter().max().unwrap_or(NodeId::MASTER);
        let mut node = NodeId(last.0 + 1);
        // The empty file reserves the number against another admission.
        let path = loop {
            let path = workers.join(format!("{}.crt", node.0));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    file.flush()
                        .map_err(|error| IdentityError::file(&path, error))?;
                    break path;
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => node.0 += 1,
                Err(error) => return Err(IdentityError::file(&path, error)),
            }
        };
        let own = format!("worker-{}", node.0);
        let name = name.unwrap_or(&own);
        let issued = authority.issue(request, node, name, now, NODE_LIFETIME);
        let written = issued.and_then(|certificate| {
            write_public(&path, pem("CERTIFICATE", &certificate).as_bytes())?;
            Ok(certificate)
        });
        match written {
            Ok(certificate) => Ok((node, certificate)),
            Err(error) => {
                // Nobody has the number yet. If it cannot be given back it is skipped.
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// The numbers of all workers that have ever joined.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn workers(&self) -> Result<Vec<NodeId>, IdentityError> {
        let workers = self.path.join("workers");
        let entries = match std::fs::read_dir(&workers) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(IdentityError::file(&workers, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| IdentityError::file(&workers, error))?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".crt"));
            found.extend(number.and_then(|number| number.parse().ok()).map(NodeId));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// What a worker's certificate says.
    ///
    /// # Errors
    /// If there is no such worker.
    pub fn worker(&self, node: NodeId) -> Result<PeerIdentity, IdentityError> {
        PeerIdentity::from_certificate(&load_certificate(&self.certificate_of(node))?)
    }

    fn certificate_of(&self, worker: NodeId) -> PathBuf {
        self.path.join("workers").join(format!("{}.crt", worker.0))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::credentials::key_and_request;
    use super::super::revocation::Revocation;
    use super::*;

    #[test]
    fn keys_have_mode_0600_and_an_exposed_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let cluster =
            ClusterDirectory::init(directory.path(), "master", SystemTime::now()).unwrap();
        for key in ["ca.key", "node.key"] {
            let metadata = std::fs::metadata(directory.path().join(key)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o600, "{key}");
        }
        let own = cluster.credentials().unwrap();
        assert_eq!(own.identity().node, NodeId::MASTER);
        let key = directory.path().join("ca.key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(
            ClusterDirectory::open(directory.path()),
            Err(IdentityError::Exposed { mode: 0o640, .. })
        ));
        assert!(matches!(
            ClusterDirectory::init(directory.path(), "master", SystemTime::now()),
            Err(IdentityError::Exists { .. })
        ));
    }

    #[test]
    fn workers_are_numbered_from_one_and_never_twice() {
        let directory = tempfile::tempdir().unwrap();
        let cluster =
            ClusterDirectory::init(directory.path(), "master", SystemTime::now()).unwrap();
        let cluster = ClusterDirectory::open(&cluster.path).unwrap();
        for number in 1..=3 {
            let (_, request) = key_and_request().unwrap();
            let name = (number == 2).then_some("host-b");
            let (node, _) = cluster.admit(&request, name, SystemTime::now()).unwrap();
            assert_eq!(node, NodeId(number));
        }
        assert_eq!(cluster.worker(NodeId(2)).unwrap().name, "host-b");
        assert_eq!(cluster.worker(NodeId(3)).unwrap().name, "worker-3");
        assert_eq!(cluster.workers().unwrap().len(), 3);
        assert!(cluster.worker(NodeId(4)).is_err());
    }

    #[test]
    fn a_worker_that_is_certified_again_keeps_its_number_and_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - 2 * NODE_LIFETIME;
        let cluster = ClusterDirectory::init(directory.path(), "master", long_ago).unwrap();
        let (_, request) = key_and_request().unwrap();
        cluster.admit(&request, Some("host-a"), long_ago).unwrap();
        let now = SystemTime::now();
        let first = cluster.worker(NodeId(1)).unwrap();
        cluster.renew(NodeId(1), &request, None, now).unwrap();
        let renewed = cluster.worker(NodeId(1)).unwrap();
        assert_eq!((renewed.node, &*renewed.name), (NodeId(1), "host-a"));
        assert_ne!(renewed.serial, first.serial);
        assert!(cluster.renew(NodeId(2), &request, None, now).is_err());
        let revoked = Revocation::Node(NodeId(1));
        cluster.revocations().add(revoked).unwrap();
        assert!(matches!(
            cluster.renew(NodeId(1), &request, None, now),
            Err(IdentityError::Revoked { .. })
        ));
        let hour = Duration::from_secs(3600);
        assert!(matches!(
            cluster.renewal_token(NodeId(1), "db:1", now, hour),
            Err(IdentityError::Revoked { .. })
        ));
        assert_eq!(cluster.workers(), Ok(vec![NodeId(1)]));
    }

    #[test]
    fn the_master_s_certificate_is_made_anew_when_half_of_its_time_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let made = SystemTime::now();
        let cluster = ClusterDirectory::init(directory.path(), "main", made).unwrap();
        let key = || std::fs::read(directory.path().join("node.key")).unwrap();
        let first_key = key();
        let serial = |now| {
            let credentials = cluster.renewed_credentials(now).unwrap();
            assert_eq!(credentials.identity().name, "main");
            assert_eq!(credentials.identity().node, NodeId::MASTER);
            assert!(credentials.valid_at(now).unwrap());
            credentials.identity().serial.clone()
        };
        let day = Duration::from_secs(24 * 3600);
        let first = serial(made);
        assert_eq!(serial(made + NODE_LIFETIME / 2 - day), first);
        let second = serial(made + NODE_LIFETIME / 2 + day);
        assert_ne!(second, first);
        // Also one that was made while the clock was wrong.
        let third = serial(made);
        assert_ne!(third, second);
        assert_eq!(serial(made), third);
        assert_ne!(serial(made + 2 * NODE_LIFETIME), third);
        // A crash while it is renewed leaves a certificate of this key, the former or the new one.
        assert_eq!(key(), first_key);
        let kept = cluster.credentials().unwrap().identity().serial.clone();
        assert_eq!(kept, serial(made + 2 * NODE_LIFETIME));
    }

    #[test]
    fn a_request_whose_signature_is_wrong_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let cluster =
            ClusterDirectory::init(directory.path(), "master", SystemTime::now()).unwrap();
        let (_, mut request) = key_and_request().unwrap();
        let last = request.len() - 1;
        request[last] ^= 1;
        assert!(matches!(
            cluster.admit(&request, None, SystemTime::now()),
            Err(IdentityError::Cryptography { .. })
        ));
        assert_eq!(cluster.workers(), Ok(Vec::new()));
    }
}
