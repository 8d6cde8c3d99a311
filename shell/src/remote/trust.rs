//! Which server is believed to be the one that was meant.
//!
//! A server may sign its certificate itself, so there are two ways:
//!
//! * `--certificate FILE` names the certificate, or one that has signed it. TLS is required, and
//!   no other server is spoken to.
//! * Without it, any certificate is taken, and authentication must be SCRAM bound to it. Whoever
//!   stands between has another certificate and cannot pass that on: no password is sent, and
//!   the server has proved that it knows the password's verifier. Beyond loopback this is
//!   required of every server; on this machine only of those that ask for a password.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, SslMode};

use crate::error::ShellError;

/// What makes a server the right one.
#[derive(Debug, Clone)]
pub struct Trust {
    verifier: Arc<Verifier>,
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` if any certificate will do.
    named: Option<Named>,
}

/// Certificates that were named: the server's own, or one that has signed it.
#[derive(Debug)]
struct Named {
    certificates: Vec<CertificateDer<'static>>,
    signers: Option<Arc<WebPkiServerVerifier>>,
}

impl Trust {
    /// Trust in the certificates in a file, or in what SCRAM proves.
    ///
    /// # Errors
    /// If the file cannot be read, or has no certificate.
    pub fn new(certificates: Option<&Path>) -> Result<Trust, ShellError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let named = match certificates {
            Some(path) => Some(Named::read(path, &provider)?),
            None => None,
        };
        let verifier = Arc::new(Verifier { provider, named });
        Ok(Trust { verifier })
    }

    /// Makes connections prove who the server is.
    pub fn require(&self, config: &mut Config) {
        config.ssl_mode(SslMode::Require);
        if self.verifier.named.is_none() {
            config.channel_binding(ChannelBinding::Require);
        }
    }

    /// Whether a certificate was named.
    pub fn is_named(&self) -> bool {
        self.verifier.named.is_some()
    }

    /// For rustls.
    pub fn client_config(&self) -> ClientConfig {
        let provider = Arc::clone(&self.verifier.provider);
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let verifier = Arc::clone(&self.verifier);
        let mut config = match builder {
            Ok(builder) => builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth(),
            Err(error) => unreachable!("ring has the default protocol versions: {error}"),
        };
        // What a connection that begins with TLS at once is to speak.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        config
    }
}

impl Named {
    fn read(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Named, ShellError> {
        let file = |source| ShellError::File {
            path: path.to_owned(),
            source,
        };
        let pem = std::fs::read(path).map_err(file)?;
        let invalid =
            |text: String| file(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|error| invalid(error.to_string()))?;
        if certificates.is_empty() {
            return Err(invalid("there is no certificate in it".to_owned()));
        }
        let mut roots = RootCertStore::empty();
        // What cannot sign others can still be the server's own.
        let (signers, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        let signers = match signers {
            0 => None,
            _ => {
                let provider = Arc::clone(provider);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
                Some(
                    verifier
                        .build()
                        .map_err(|error| invalid(error.to_string()))?,
                )
            }
        };
        Ok(Named {
            certificates,
            signers,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(named) = &self.named else {
            return Ok(ServerCertVerified::assertion());
        };
        // Named itself: its own word on its names and dates adds nothing.
        if named.certificates.iter().any(|known| known == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &named.signers {
            Some(signers) => signers.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
