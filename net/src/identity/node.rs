//! Names of clusters and nodes, and what a certificate says about its holder.

use std::fmt;

use ring::rand::SecureRandom;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::error::IdentityError;
use super::token::JOINER;

/// A cluster's name: 16 hexadecimal digits, random.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterId(String);

impl ClusterId {
    /// A new one.
    pub fn random() -> Self {
        Self(hex(&random_bytes::<8>()))
    }

    /// One from its digits.
    ///
    /// # Errors
    /// If these are not 16 lowercase hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if text.len() == 16 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdentityError::malformed(format!(
                "'{text}' is no cluster's name"
            )))
        }
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node of a cluster: 0 is the master, workers count from 1. The same number as `worker_id` in
/// the tables of schema `sys`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The master.
    pub const MASTER: Self = Self(0);

    /// Whether it is the master.
    pub fn is_master(self) -> bool {
        self == Self::MASTER
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_master() {
            f.write_str("the master")
        } else {
            write!(f, "worker {}", self.0)
        }
    }
}

/// What a certificate says about its holder.
///
/// The URI among the certificate's alternative names is the authority's word:
/// `skewer://<cluster>/master` or `skewer://<cluster>/worker/<n>`; the common name is the node's
/// name, which people read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// The cluster.
    pub cluster: ClusterId,
    /// Which node of it.
    pub node: NodeId,
    /// How people call the node; it stands in errors.
    pub name: String,
    /// The certificate's serial number, in hexadecimal digits.
    pub serial: String,
}

impl PeerIdentity {
    /// The URI that stands in certificates.
    pub fn uri(cluster: &ClusterId, node: NodeId) -> String {
        if node.is_master() {
            format!("skewer://{cluster}/master")
        } else {
            format!("skewer://{cluster}/worker/{}", node.0)
        }
    }

    /// Reads a certificate. Whether to believe it is another question.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`] if it is no certificate of a node.
    pub fn from_certificate(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        match Holder::from_certificate(certificate)? {
            Holder::Node(identity) => Ok(identity),
            Holder::Joiner { .. } => Err(IdentityError::malformed(
                "it belongs to somebody who has yet to join",
            )),
        }
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.node.is_master() || self.name == format!("worker-{}", self.node.0) {
            write!(f, "{}", self.node)
        } else {
            write!(f, "{} ({})", self.node, self.name)
        }
    }
}

/// Whose certificate it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A node's.
    Node(PeerIdentity),
    /// Somebody's who proves to have a join token: the certificate's key is made from it.
    Joiner { public_key: Vec<u8> },
}

impl Holder {
    pub(crate) fn from_certificate(
        certificate: &CertificateDer<'_>,
    ) -> Result<Self, IdentityError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(IdentityError::malformed)?;
        let names = parsed
            .subject_alternative_name()
            .map_err(IdentityError::malformed)?;
        let uri = names
            .iter()
            .flat_map(|names| &names.value.general_names)
            .find_map(|name| match name {
                GeneralName::URI(uri) => Some(*uri),
                _ => None,
            });
        let uri = uri.ok_or_else(|| IdentityError::malformed("it names no node"))?;
        if uri == JOINER {
            let public_key = parsed.public_key().subject_public_key.data.to_vec();
            return Ok(Self::Joiner { public_key });
        }
        let (cluster, node) =
            parse_uri(uri).ok_or_else(|| IdentityError::malformed(format!("it names '{uri}'")))?;
        let name = parsed.subject().iter_common_name().next();
        let name = name
            .and_then(|name| name.as_str().ok())
            .unwrap_or_default()
            .to_owned();
        Ok(Self::Node(PeerIdentity {
            cluster,
            node,
            name,
            serial: hex(parsed.raw_serial()),
        }))
    }
}

fn parse_uri(uri: &str) -> Option<(ClusterId, NodeId)> {
    let (cluster, node) = uri.strip_prefix("skewer://")?.split_once('/')?;
    let cluster = ClusterId::parse(cluster).ok()?;
    let node = match node.strip_prefix("worker/") {
        Some(number) => NodeId(number.parse().ok().filter(|number| *number > 0)?),
        None if node == "master" => NodeId::MASTER,
        None => return None,
    };
    Some((cluster, node))
}

/// Bytes that nobody can guess.
///
/// # Panics
/// If the operating system has no randomness: nothing secret can be made then.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .expect("the operating system gives random bytes");
    bytes
}

/// A number that nobody can guess, and nobody has drawn before.
///
/// # Panics
/// If the operating system has no randomness.
pub fn random_number() -> u64 {
    u64::from_le_bytes(random_bytes())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_cluster_and_a_node() {
        let cluster = ClusterId::random();
        for node in [NodeId::MASTER, NodeId(1), NodeId(4_000_000_000)] {
            let uri = PeerIdentity::uri(&cluster, node);
            assert_eq!(parse_uri(&uri), Some((cluster.clone(), node)));
        }
        for wrong in [
            "skewer://0123456789abcdef/worker/0",
            "skewer://0123456789abcdef/worker/-1",
            "skewer://0123456789ABCDEF/master",
            "skewer://0123456789abcdef/masters",
            "https://0123456789abcdef/master",
            "",
        ] {
            assert_eq!(parse_uri(wrong), None, "{wrong}");
        }
    }
}
