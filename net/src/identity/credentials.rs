//! One node's certificate and key.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::time::ASN1Time;

use super::authority::{Authority, cluster_of};
use super::clock::unix_seconds;
use super::error::IdentityError;
use super::node::{NodeId, PeerIdentity};
use super::private_file::{check_private, write_private, write_public};

const AUTHORITY: &str = "ca.crt";
const CERTIFICATE: &str = "node.crt";
const KEY: &str = "node.key";

/// What a node proves its identity with, and what it judges others by.
pub struct Credentials {
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
    identity: PeerIdentity,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials of {}", self.identity)
    }
}

impl Clone for Credentials {
    fn clone(&self) -> Self {
        Self {
            authority: self.authority.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            identity: self.identity.clone(),
        }
    }
}

impl Credentials {
    /// Those of a node whose key was made in the same place as the authority: of the master, and
    /// in tests.
    ///
    /// # Errors
    /// If the operating system has no randomness.
    pub fn issued_by(
        authority: &Authority,
        node: NodeId,
        name: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Self, IdentityError> {
        let (key, request) = key_and_request()?;
        let certificate = authority.issue(&request, node, name, now, lifetime)?;
        Self::new(authority.certificate().clone(), certificate, &key)
    }

    /// The same node's, of the same key, certified anew: only the certificate differs from what
    /// [`Credentials::write`] wrote, and only it is written. Whenever that is cut off, the key beside
    /// it is its own.
    pub(crate) fn renew(
        &self,
        authority: &Authority,
        now: SystemTime,
        lifetime: Duration,
        directory: &Path,
    ) -> Result<Self, IdentityError> {
        let wrong = IdentityError::cryptography("reading a key");
        let key = KeyPair::try_from(&self.key).map_err(wrong)?;
        let request = request_of(&key)?;
        let (node, name) = (self.identity.node, &self.identity.name);
        let certificate = authority.issue(&request, node, name, now, lifetime)?;
        let text = pem("CERTIFICATE", &certificate);
        let renewed = Self::new(self.authority.clone(), certificate, &key)?;
        write_public(&directory.join(CERTIFICATE), text.as_bytes())?;
        Ok(renewed)
    }

    /// Those that an authority answered a signing request with.
    ///
    /// # Errors
    /// If the certificate is no node's, or of another cluster than the authority's.
    pub(crate) fn new(
        authority: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: &KeyPair,
    ) -> Result<Self, IdentityError> {
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        Self::assemble(authority, certificate, key)
    }

    fn assemble(
        authority: CertificateDer<'static>,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, IdentityError> {
        let identity = PeerIdentity::from_certificate(&certificate)?;
        let expected = cluster_of(&authority)?;
        if identity.cluster != expected {
            return Err(IdentityError::OtherCluster {
                peer: identity.to_string(),
                expected: expected.to_string(),
                found: identity.cluster.to_string(),
            });
        }
        Ok(Self {
            authority,
            certificate,
            key,
            identity,
        })
    }

    /// Who the certificate says one is.
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// Whether the certificate is valid at a time.
    ///
    /// # Errors
    /// If it is malformed.
    pub(crate) fn valid_at(&self, time: SystemTime) -> Result<bool, IdentityError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&self.certificate)
            .map_err(IdentityError::malformed)?;
        let seconds = i64::try_from(unix_seconds(time)).map_err(IdentityError::malformed)?;
        let time = ASN1Time::from_timestamp(seconds).map_err(IdentityError::malformed)?;
        Ok(parsed.validity().is_valid_at(time))
    }

    /// The certificate of the cluster's authority.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    /// Writes them into a directory: `ca.crt`, `node.crt`, and `node.key` with mode 0600.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), IdentityError> {
        std::fs::create_dir_all(directory)
            .map_err(|error| IdentityError::file(directory, error))?;
        // The key first: a certificate without its key is never found.
        let key = pem("PRIVATE KEY", self.key.secret_der());
        write_private(&directory.join(KEY), key.as_bytes())?;
        let authority = pem("CERTIFICATE", &self.authority);
        write_public(&directory.join(AUTHORITY), authority.as_bytes())?;
        let certificate = pem("CERTIFICATE", &self.certificate);
        write_public(&directory.join(CERTIFICATE), certificate.as_bytes())
    }

    /// Whether [`Credentials::write`] has been here.
    pub fn exist(directory: &Path) -> bool {
        directory.join(CERTIFICATE).exists()
    }

    /// Reads what [`Credentials::write`] wrote.
    ///
    /// # Errors
    /// If a file is missing or malformed, or others may read the key.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let authority = load_certificate(&directory.join(AUTHORITY))?;
        let certificate = load_certificate(&directory.join(CERTIFICATE))?;
        let path = directory.join(KEY);
        check_private(&path)?;
        let key = PrivateKeyDer::from_pem_file(&path)
            .map_err(|error| IdentityError::file(&path, error))?;
        Self::assemble(authority, certificate, key)
    }
}

pub(crate) fn load_certificate(path: &Path) -> Result<CertificateDer<'static>, IdentityError> {
    CertificateDer::from_pem_file(path).map_err(|error| IdentityError::file(path, error))
}

/// A new key, and the request to certify it.
pub(crate) fn key_and_request() -> Result<(KeyPair, Vec<u8>), IdentityError> {
    let key = KeyPair::generate().map_err(IdentityError::cryptography("making a key"))?;
    let request = request_of(&key)?;
    Ok((key, request))
}

/// A signing request, signed with its own key.
fn request_of(key: &KeyPair) -> Result<Vec<u8>, IdentityError> {
    let request = CertificateParams::default()
        .serialize_request(key)
        .map_err(IdentityError::cryptography("making a signing request"))?;
    Ok(request.der().to_vec())
}

/// DER in the armour that people recognise.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
