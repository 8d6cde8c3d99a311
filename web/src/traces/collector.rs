//! Where spans are sent: one request of HTTP/1.1 for each, over TLS if the address says so.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::TraceOptions;
use super::otlp::rejected;
use crate::error::WebError;

/// The path of traces below the address of a collector.
const PATH: &str = "/v1/traces";
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// An answer that is longer says nothing about spans.
const LONGEST_ANSWER: usize = 64 << 10;

/// Where systems keep the certificates of authorities.
const SYSTEM_CERTIFICATES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Why a collector has not taken spans.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It may take them later.
    Later(String),
    /// It will never take them.
    Never(String),
}

/// A collector of traces.
pub(super) struct Collector {
    endpoint: String,
    authority: Authority,
    port: u16,
    path: String,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Collector {
    /// Without the headers, which may have secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Collector {
    /// A collector that is spoken to when there are spans.
    pub(super) fn new(options: &TraceOptions) -> Result<Self, WebError> {
        let endpoint = options.endpoint.as_str();
        let failed = |reason: String| WebError::Collector {
            endpoint: endpoint.to_owned(),
            reason,
        };
        let uri: Uri = endpoint
            .parse()
            .map_err(|error| failed(format!("{error}")))?;
        let expected = || failed("it is an address as http://localhost:4318".to_owned());
        let authority = uri.authority().cloned().ok_or_else(expected)?;
        let is_secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(expected()),
        };
        let tls = match is_secure {
            true => Some(connector(options.certificate.as_deref()).map_err(failed)?),
            false => None,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let pair = (name.parse::<HeaderName>(), value.parse::<HeaderValue>());
            let (Ok(name), Ok(value)) = pair else {
                return Err(failed(format!(
                    "{name} cannot be the name of a header, or its value not one"
                )));
            };
            headers.insert(name, value);
        }
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            port: authority
                .port_u16()
                .unwrap_or(if is_secure { 443 } else { 80 }),
            path: match path.ends_with(PATH) {
                true => path.to_owned(),
                false => format!("{path}{PATH}"),
            },
            endpoint: endpoint.to_owned(),
            authority,
            headers,
            tls,
        })
    }

    /// The address as given.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends spans; gives how many of them the collector did not take.
    pub(super) async fn send(&self, body: &str) -> Result<u64, Refusal> {
        let exchange = tokio::time::timeout(PATIENCE, self.exchange(body)).await;
        let exchange =
            exchange.unwrap_or_else(|_| Err(format!("it did not answer within {PATIENCE:?}")));
        let (status, answer) = exchange.map_err(Refusal::Later)?;
        let reason = || {
            let text: String = String::from_utf8_lossy(&answer).chars().take(200).collect();
            format!("it answered {status}: {}", text.trim())
        };
        match status {
            status if status.is_success() => Ok(rejected(&answer)),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Refusal::Later(reason())),
            _ => Err(Refusal::Never(reason())),
        }
    }

    async fn exchange(&self, body: &str) -> Result<(StatusCode, Vec<u8>), String> {
        let host = self.authority.host().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, self.port)).await;
        let stream = stream.map_err(|error| format!("it cannot be reached: {error}"))?;
        let request = self.request(body).map_err(|error| error.to_string())?;
        match &self.tls {
            None => answer(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|error| error.to_string())?;
                let stream = tls.connect(name, stream).await;
                let stream = stream.map_err(|error| format!("TLS failed: {error}"))?;
                answer(stream, request).await
            }
        }
    }

    fn request(&self, body: &str) -> Result<Request<Body>, axum::http::Error> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, self.authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("skewer/", env!("CARGO_PKG_VERSION")))
            .body(Body::from(body.to_owned()))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

/// Sends a request over a connection of its own; gives status and text of the answer.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Body>,
) -> Result<(StatusCode, Vec<u8>), String> {
    let said = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(said)?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), LONGEST_ANSWER).await;
        Ok::<_, String>((status, body.map(|body| body.to_vec()).unwrap_or_default()))
    };
    let driven = async {
        // If it breaks, the answer is an error.
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answered = answered => answered,
        never = driven => match never {},
    }
}

/// Speaks TLS to collectors whose certificates an authority has signed.
fn connector(certificate: Option<&Path>) -> Result<TlsConnector, String> {
    let path: PathBuf = match certificate {
        Some(path) => path.to_owned(),
        None => SYSTEM_CERTIFICATES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
            .ok_or("this system has no certificates of authorities: name a file with some")?,
    };
    let shown = path.display();
    let unreadable = |error| format!("{shown} has no certificates: {error}");
    let certificates = CertificateDer::pem_file_iter(&path).map_err(unreadable)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.flatten());
    if roots.is_empty() {
        return Err(format!("{shown} has no certificates"));
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_of_http() {
        let path = |endpoint: &str| {
            let collector = Collector::new(&TraceOptions::new(endpoint));
            collector.map(|collector| (collector.port, collector.path))
        };
        let traces = |port: u16, path: &str| (port, path.to_owned());
        assert_eq!(
            path("http://localhost:4318").unwrap(),
            traces(4318, "/v1/traces")
        );
        assert_eq!(
            path("http://[::1]/otlp/").unwrap(),
            traces(80, "/otlp/v1/traces")
        );
        assert_eq!(
            path("http://a/v1/traces").unwrap(),
            traces(80, "/v1/traces")
        );
        for wrong in [
            "",
            "localhost:4318",
            "/v1/traces",
            "ftp://localhost",
            "http://",
        ] {
            let error = path(wrong).unwrap_err().to_string();
            assert!(error.contains("traces cannot be sent to"), "{error}");
        }
    }
}
