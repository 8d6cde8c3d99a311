//! What rustls and quinn are configured with: TLS 1.3 only, both sides with certificates.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{CipherSuite, client, server};

use super::clock::{Clock, TlsClock};
use super::credentials::Credentials;
use super::error::IdentityError;
use super::node::NodeId;
use super::token::JoinToken;
use super::verify::{AnswererCheck, CallerCheck, Expected, Trust, Verdict};

/// The name in the handshake's SNI. Certificates are checked for the node's number instead.
pub(crate) const SERVER_NAME: &str = "skewer";

/// What a connection speaks if both sides have this version of the protocol.
pub(crate) fn alpn(version: u16) -> Vec<u8> {
    format!("skewer/{version}").into_bytes()
}

/// What it speaks if they have not: a HELLO from each side, which tells the versions, then the
/// end. The layout of HELLO never changes.
pub(crate) const ALPN_HELLO: &[u8] = b"skewer";

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    // A few percent of a shuffle's time is encryption, and 128 bits are enough.
    let preferred = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != preferred);
    Arc::new(provider)
}

fn wrong(error: impl ToString) -> IdentityError {
    IdentityError::malformed(error)
}

/// What a lifeline speaks, over TCP.
pub(crate) fn alpn_lifeline(version: u16) -> Vec<u8> {
    format!("skewer-lifeline/{version}").into_bytes()
}

/// Answers those whom `trust` lets in.
pub(crate) fn server(
    credentials: &Credentials,
    trust: &Trust,
    version: u16,
) -> Result<QuicServerConfig, IdentityError> {
    let speaks = vec![alpn(version), ALPN_HELLO.to_vec()];
    let config = answering(credentials, trust, speaks)?;
    QuicServerConfig::try_from(config).map_err(wrong)
}

/// The same over TCP, for lifelines.
pub(crate) fn lifeline_server(
    credentials: &Credentials,
    trust: &Trust,
    version: u16,
) -> Result<rustls::ServerConfig, IdentityError> {
    answering(credentials, trust, vec![alpn_lifeline(version)])
}

fn answering(
    credentials: &Credentials,
    trust: &Trust,
    speaks: Vec<Vec<u8>>,
) -> Result<rustls::ServerConfig, IdentityError> {
    let provider = provider();
    let check = CallerCheck::new(trust.clone(), Arc::clone(&provider))?;
    let clock = Arc::new(TlsClock(Arc::clone(&trust.clock)));
    // The authority too: a joiner compares its fingerprint with the token's.
    let chain = vec![
        credentials.certificate.clone(),
        credentials.authority.clone(),
    ];
    let mut config = rustls::ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&TLS13])
        .map_err(wrong)?
        .with_client_cert_verifier(Arc::new(check))
        .with_single_cert(chain, credentials.key.clone_key())
        .map_err(wrong)?;
    config.alpn_protocols = speaks;
    // A resumed session would skip the check for revocation.
    config.session_storage = Arc::new(server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Calls a node of the cluster.
pub(crate) fn client(
    credentials: &Credentials,
    trust: &Trust,
    node: NodeId,
    version: u16,
) -> Result<(QuicClientConfig, Verdict), IdentityError> {
    let expected = Expected::Node {
        trust: trust.clone(),
        node,
    };
    let certificate = (credentials.certificate.clone(), credentials.key.clone_key());
    quic(expected, certificate, &trust.clock, version)
}

/// Calls the master over TCP, for a lifeline.
pub(crate) fn lifeline_client(
    credentials: &Credentials,
    trust: &Trust,
    version: u16,
) -> Result<(rustls::ClientConfig, Verdict), IdentityError> {
    let expected = Expected::Node {
        trust: trust.clone(),
        node: NodeId::MASTER,
    };
    let certificate = (credentials.certificate.clone(), credentials.key.clone_key());
    calling(
        expected,
        certificate,
        &trust.clock,
        vec![alpn_lifeline(version)],
    )
}

/// Calls the master that made a token.
pub(crate) fn joiner(
    token: &JoinToken,
    clock: &Arc<dyn Clock>,
    version: u16,
) -> Result<(QuicClientConfig, Verdict), IdentityError> {
    let expected = Expected::TokensMaster {
        token: token.clone(),
    };
    quic(expected, token.certificate()?, clock, version)
}

type Certificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn quic(
    expected: Expected,
    certificate: Certificate,
    clock: &Arc<dyn Clock>,
    version: u16,
) -> Result<(QuicClientConfig, Verdict), IdentityError> {
    let speaks = vec![alpn(version), ALPN_HELLO.to_vec()];
    let (config, verdict) = calling(expected, certificate, clock, speaks)?;
    let config = QuicClientConfig::try_from(config).map_err(wrong)?;
    Ok((config, verdict))
}

fn calling(
    expected: Expected,
    (certificate, key): Certificate,
    clock: &Arc<dyn Clock>,
    speaks: Vec<Vec<u8>>,
) -> Result<(rustls::ClientConfig, Verdict), IdentityError> {
    let provider = provider();
    let verdict = Verdict::default();
    let check = AnswererCheck {
        expected,
        verdict: Arc::clone(&verdict),
        provider: Arc::clone(&provider),
    };
    let clock = Arc::new(TlsClock(Arc::clone(clock)));
    let mut config = rustls::ClientConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&TLS13])
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_client_auth_cert(vec![certificate], key)
        .map_err(wrong)?;
    config.alpn_protocols = speaks;
    config.resumption = client::Resumption::disabled();
    Ok((config, verdict))
}
