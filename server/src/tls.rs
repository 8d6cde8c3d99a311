//! Certificates: one that is given, or one that signs itself, made at the first start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pgwire::api::auth::sasl::scram::ScramServerAuth;
use pgwire::tokio::TlsAcceptor;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::ServerError;
use crate::users::write_private;

/// Within the database's directory.
const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";

/// Where a certificate chain and its key are, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The server's certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What connections are encrypted with.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    /// SCRAM bound to the certificate: whoever stands between sees that passwords do not fit.
    pub(crate) scram: ScramServerAuth,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Identity {
    /// The certificate in the database's directory, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub fn own(data: &Path) -> Result<Self, ServerError> {
        let own = Self {
            certificate: data.join(CERTIFICATE),
            key: data.join(KEY),
        };
        if own.certificate.exists() && own.key.exists() {
            return Ok(own);
        }
        let names = [
            "localhost".to_owned(),
            "skewer".to_owned(),
            "127.0.0.1".to_owned(),
        ];
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| {
            ServerError::Certificate {
                path: own.certificate.clone(),
                reason: error.to_string(),
            }
        })?;
        let write = |path: &Path, text: &str| {
            write_private(path, text.as_bytes()).map_err(|source| ServerError::File {
                path: path.to_owned(),
                source,
            })
        };
        // The key first: a certificate without key is never found.
        write(&own.key, &made.signing_key.serialize_pem())?;
        write(&own.certificate, &made.cert.pem())?;
        Ok(own)
    }

    /// What to encrypt with, for protocols that clients name by ALPN.
    ///
    /// # Errors
    /// If certificate or key cannot be read, or do not fit.
    pub fn tls_config(&self, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, ServerError> {
        let pem = self.pem()?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|error| unfit(&self.certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unfit(
                &self.certificate,
                "there is no certificate in it".to_owned(),
            ));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unfit(&self.key, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| unfit(&self.certificate, error.to_string()))?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }

    fn pem(&self) -> Result<Vec<u8>, ServerError> {
        std::fs::read(&self.certificate).map_err(|source| ServerError::File {
            path: self.certificate.clone(),
            source,
        })
    }

    pub(crate) fn load(&self) -> Result<Tls, ServerError> {
        // How clients that begin with TLS at once say what they want to speak in it.
        let config = self.tls_config(&[b"postgresql"])?;
        let pem = self.pem()?;
        let mut scram = ScramServerAuth::new();
        scram
            .configure_certificate(&pem)
            .map_err(|error| unfit(&self.certificate, error.to_string()))?;
        Ok(Tls {
            acceptor: TlsAcceptor::from(config),
            scram,
        })
    }
}

fn unfit(path: &Path, reason: String) -> ServerError {
    ServerError::Certificate {
        path: path.to_owned(),
        reason,
    }
}
