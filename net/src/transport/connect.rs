//! Connections to other nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, TransportConfig};

use super::options::NetOptions;
use super::stream::{Inbound, Outbound, PeerName, SendError, reason};
use crate::error::NetError;
use crate::frame::{FrameKind, Hello, LostWorker};
use crate::identity::tls::SERVER_NAME;
use crate::identity::verify::{Refusal, Verdict};

/// Whom to call, and how.
pub(crate) struct Call<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) address: SocketAddr,
    /// For errors.
    pub(crate) peer: &'a str,
    pub(crate) tls: Arc<QuicClientConfig>,
    pub(crate) verdict: Verdict,
    pub(crate) transport: Arc<TransportConfig>,
    pub(crate) options: &'a NetOptions,
    /// Our own name.
    pub(crate) name: &'a str,
}

impl Call<'_> {
    /// Connects, checks who answers, and that both speak the same version.
    pub(crate) async fn connect(self) -> Result<Connection, NetError> {
        let timeout = self.options.connect_timeout;
        match tokio::time::timeout(timeout, self.handshake()).await {
            Ok(result) => result,
            Err(_) => Err(self.unreachable(format!("no answer within {timeout:?}"))),
        }
    }

    async fn handshake(&self) -> Result<Connection, NetError> {
        let tls: Arc<QuicClientConfig> = Arc::clone(&self.tls);
        let mut config = ClientConfig::new(tls);
        config.transport_config(Arc::clone(&self.transport));
        let connecting = self
            .endpoint
            .connect_with(config, self.address, SERVER_NAME)
            .map_err(|error| self.unreachable(error))?;
        let connection = connecting.await.map_err(|error| self.refused(&error))?;
        let theirs = self.hello(&connection).await?;
        if theirs.version != self.options.version {
            connection.close(0u32.into(), b"another version of the protocol");
            return Err(NetError::OtherVersion {
                peer: self.peer.to_owned(),
                software: theirs.software,
                ours: self.options.version,
                theirs: theirs.version,
            });
        }
        Ok(connection)
    }

    /// Both HELLOs. TLS lets a caller begin before its certificate has been looked at: whether it
    /// was accepted shows here.
    async fn hello(&self, connection: &Connection) -> Result<Hello, NetError> {
        let closed = |error: ConnectionError| self.refused(&error);
        let (send, receive) = connection.open_bi().await.map_err(closed)?;
        let mut out = Outbound::new(send);
        let hello = Hello::new(self.options.version, self.name);
        match out.frame(FrameKind::Hello, &hello.encode()).await {
            Ok(()) => {}
            Err(SendError::Frame(error)) => {
                return Err(NetError::Protocol {
                    peer: self.name.to_owned(),
                    error,
                });
            }
            Err(SendError::ReceiverGone) => return Err(self.refused_by(connection).await),
        }
        let _ = out.end().await;
        let mut answer = Inbound::new(receive, PeerName::Other(self.peer.to_owned()));
        match answer.expect(FrameKind::Hello, "a HELLO").await {
            Ok(frame) => Hello::decode(&frame.payload).map_err(|error| answer.wrong(error)),
            Err(NetError::Lost(_)) => Err(self.refused_by(connection).await),
            Err(error) => Err(error),
        }
    }

    async fn refused_by(&self, connection: &Connection) -> NetError {
        self.refused(&connection.closed().await)
    }

    /// Why there is no connection.
    fn refused(&self, error: &ConnectionError) -> NetError {
        if let Some(identity) = self.verdict.lock().take() {
            return NetError::Identity(identity);
        }
        let peer = self.peer.to_owned();
        match refusal(error) {
            Some(reason) => NetError::Refused { peer, reason },
            None => match error {
                ConnectionError::ApplicationClosed(_) => NetError::Lost(LostWorker {
                    name: peer,
                    reason: reason(error),
                }),
                _ => self.unreachable(reason(error)),
            },
        }
    }

    fn unreachable(&self, reason: impl ToString) -> NetError {
        NetError::Unreachable {
            peer: self.peer.to_owned(),
            address: self.address.to_string(),
            reason: reason.to_string(),
        }
    }
}

/// What a TLS alert says, whichever side raised it.
pub(crate) fn refusal(error: &ConnectionError) -> Option<Refusal> {
    let code = match error {
        ConnectionError::TransportError(error) => error.code,
        ConnectionError::ConnectionClosed(close) => close.error_code,
        _ => return None,
    };
    // QUIC puts TLS alerts at 0x100 (RFC 9001, section 4.8).
    let alert = u64::from(code).checked_sub(0x100)?;
    Refusal::of_alert(u8::try_from(alert).ok()?)
}
