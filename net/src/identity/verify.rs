//! The checks of every handshake.
//!
//! Both sides show a certificate of the cluster's authority and check the other's: signature,
//! time, cluster, revocation; a caller also that the node it meant answers. What does not pass
//! gets a TLS alert and nothing else. Sessions are never resumed, because resuming would skip
//! these checks.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};

use super::authority::cluster_of;
use super::clock::{Clock, SystemClock};
use super::error::IdentityError;
use super::node::{ClusterId, Holder, NodeId, PeerIdentity};
use super::revocation::Revocations;
use super::token::{JoinToken, TokenHash, TokenStore, fingerprint};

/// What a node judges others by.
#[derive(Debug, Clone)]
pub struct Trust {
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) cluster: ClusterId,
    pub(crate) revocations: Arc<Revocations>,
    pub(crate) tokens: Option<TokenStore>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Trust {
    /// Trusts what an authority has signed and `revocations` do not name, by the operating
    /// system's clock; lets nobody join.
    ///
    /// # Errors
    /// If the authority's certificate is malformed.
    pub fn new(
        authority: &CertificateDer<'static>,
        revocations: Arc<Revocations>,
    ) -> Result<Self, IdentityError> {
        let mut roots = RootCertStore::empty();
        roots
            .add(authority.clone())
            .map_err(IdentityError::malformed)?;
        Ok(Self {
            roots: Arc::new(roots),
            cluster: cluster_of(authority)?,
            revocations,
            tokens: None,
            clock: Arc::new(SystemClock),
        })
    }

    /// Lets those in who have a token of this store, to join and nothing else: the master's.
    #[must_use]
    pub fn with_tokens(mut self, tokens: TokenStore) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Judges by another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The revocation list that each handshake asks.
    pub fn revocations(&self) -> &Arc<Revocations> {
        &self.revocations
    }

    /// What comes after the signature and the time: the right cluster, and not revoked.
    fn admit(&self, peer: &PeerIdentity) -> Result<(), IdentityError> {
        if peer.cluster != self.cluster {
            return Err(IdentityError::OtherCluster {
                peer: peer.to_string(),
                expected: self.cluster.to_string(),
                found: peer.cluster.to_string(),
            });
        }
        self.revocations.check(peer)
    }
}

/// Where a caller finds why it hung up: TLS has only alerts for it.
pub(crate) type Verdict = Arc<Mutex<Option<IdentityError>>>;

/// Checks those who call.
#[derive(Debug)]
pub(crate) struct CallerCheck {
    trust: Trust,
    chain: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
}

impl CallerCheck {
    pub(crate) fn new(trust: Trust, provider: Arc<CryptoProvider>) -> Result<Self, IdentityError> {
        let roots = Arc::clone(&trust.roots);
        let chain = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(IdentityError::malformed)?;
        Ok(Self {
            trust,
            chain,
            provider,
        })
    }

    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), IdentityError> {
        match Holder::from_certificate(end_entity)? {
            Holder::Joiner { public_key } => {
                // The handshake's signature proves that the joiner has the key.
                let tokens = self.trust.tokens.as_ref();
                let tokens = tokens.ok_or(IdentityError::TokenUnknown)?;
                let now = self.trust.clock.now();
                tokens
                    .check(&TokenHash::of_public_key(&public_key), now)
                    .map(|_| ())
            }
            Holder::Node(peer) => {
                self.chain
                    .verify_client_cert(end_entity, intermediates, now)
                    .map_err(|error| unfit(error, end_entity, &peer))?;
                self.trust.admit(&peer)
            }
        }
    }
}

impl ClientCertVerifier for CallerCheck {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A joiner's certificate is of no authority; hints would make it keep it to itself.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.check(end_entity, intermediates, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
            Err(error) => {
                tracing::warn!(%error, "a caller was refused");
                Err(alert(&error).into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::BadSignature.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Who is expected to answer.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// A node of our cluster.
    Node { trust: Trust, node: NodeId },
    /// The master that made a token.
    TokensMaster { token: JoinToken },
}

/// Checks those who answer.
#[derive(Debug)]
pub(crate) struct AnswererCheck {
    pub(crate) expected: Expected,
    pub(crate) verdict: Verdict,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl AnswererCheck {
    fn check(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), IdentityError> {
        let peer = PeerIdentity::from_certificate(end_entity)?;
        let chain = |roots: &RootCertStore| {
            let parsed = ParsedCertificate::try_from(end_entity);
            let algorithms = self.provider.signature_verification_algorithms.all;
            parsed
                .and_then(|parsed| {
                    verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], now, algorithms)
                })
                .map_err(|error| unfit(error, end_entity, &peer))
        };
        match &self.expected {
            Expected::Node { trust, node } => {
                chain(&trust.roots)?;
                trust.admit(&peer)?;
                if peer.node != *node {
                    return Err(IdentityError::WrongPeer {
                        expected: node.to_string(),
                        found: peer.to_string(),
                    });
                }
                Ok(())
            }
            Expected::TokensMaster { token } => {
                let other = || IdentityError::NotTheTokensMaster {
                    address: token.address.clone(),
                };
                let authority = intermediates
                    .iter()
                    .find(|certificate| fingerprint(certificate) == token.authority)
                    .ok_or_else(other)?;
                let mut roots = RootCertStore::empty();
                roots
                    .add(authority.clone().into_owned())
                    .map_err(|_| other())?;
                chain(&roots)?;
                if peer.node.is_master() {
                    Ok(())
                } else {
                    Err(other())
                }
            }
        }
    }
}

impl ServerCertVerifier for AnswererCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.check(end_entity, intermediates, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(error) => {
                let alert = alert(&error);
                *self.verdict.lock() = Some(error);
                Err(alert.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::BadSignature.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// What is wrong with a certificate, as rustls found it.
fn unfit(
    error: rustls::Error,
    certificate: &CertificateDer<'_>,
    peer: &PeerIdentity,
) -> IdentityError {
    let validity = x509_parser::parse_x509_certificate(certificate)
        .map(|(_, parsed)| parsed.validity().clone());
    let peer = peer.to_string();
    match (error, validity) {
        (
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ),
            Ok(validity),
        ) => IdentityError::Expired {
            peer,
            at: validity.not_after.to_string(),
        },
        (
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ),
            Ok(validity),
        ) => IdentityError::NotYetValid {
            peer,
            at: validity.not_before.to_string(),
        },
        (
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ),
            _,
        ) => IdentityError::OtherAuthority { peer },
        (error, _) => IdentityError::malformed(error),
    }
}

/// The certificate error whose alert tells the other side what [`Refusal::of_alert`] reads.
fn alert(error: &IdentityError) -> CertificateError {
    match error {
        IdentityError::Expired { .. }
        | IdentityError::NotYetValid { .. }
        | IdentityError::TokenExpired => CertificateError::Expired,
        IdentityError::OtherAuthority { .. } | IdentityError::NotTheTokensMaster { .. } => {
            CertificateError::UnknownIssuer
        }
        IdentityError::Revoked { .. } | IdentityError::TokenUsed => CertificateError::Revoked,
        IdentityError::WrongPeer { .. } => CertificateError::NotValidForName,
        IdentityError::Malformed { .. } => CertificateError::BadEncoding,
        _ => CertificateError::ApplicationVerificationFailure,
    }
}

/// Why the other side refuses us, as far as a TLS alert tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// We show no certificate.
    #[error("it answers nobody without a certificate of its cluster")]
    NoCertificate,
    /// Ours has expired, or one of the clocks is wrong.
    #[error(
        "our certificate has expired, which a token of `skewer cluster token --worker N` mends, or \
         one of the two clocks is wrong"
    )]
    Expired,
    /// Ours has been revoked.
    #[error("our certificate has been revoked")]
    Revoked,
    /// Ours is of another authority.
    #[error("our certificate is not of its cluster's authority")]
    OtherAuthority,
    /// It is not whom we took it for.
    #[error("it is another node than the one that was called")]
    WrongPeer,
    /// It does not speak our version of the protocol.
    #[error("it does not speak our version of the protocol")]
    OtherVersion,
    /// Something else about our certificate or token.
    #[error("it does not know our certificate or token")]
    Denied,
}

impl Refusal {
    /// Reads a TLS alert; `None` if it is not about identity.
    pub(crate) fn of_alert(alert: u8) -> Option<Self> {
        // The numbers of RFC 8446, section 6.
        Some(match alert {
            44 => Self::Revoked,
            45 => Self::Expired,
            48 => Self::OtherAuthority,
            42 => Self::WrongPeer,
            116 => Self::NoCertificate,
            120 => Self::OtherVersion,
            43 | 46 | 49 | 51 => Self::Denied,
            _ => return None,
        })
    }
}
