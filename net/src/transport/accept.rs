//! Connections from other nodes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use quinn::crypto::rustls::HandshakeData;
use quinn::rustls::pki_types::CertificateDer;
use quinn::{Connection, Endpoint, Incoming, VarInt};

use super::connect::refusal;
use super::node::Inner;
use super::options::FIRST_STREAMS;
use super::serve;
use super::stream::{Inbound, Outbound, PeerName, SendError};
use crate::frame::{FrameKind, Hello};
use crate::identity::PeerIdentity;
use crate::identity::node::Holder;
use crate::identity::tls::ALPN_HELLO;

/// No peer has use for more streams at a time than this.
const MOST_STREAMS: u32 = 1 << 20;

/// How long a caller of another version may take to read that it is refused.
const FAREWELL: Duration = Duration::from_secs(2);

/// Answers until the endpoint is closed, or the node gone.
pub(crate) async fn accept(endpoint: Endpoint, node: Weak<Inner>) {
    while let Some(incoming) = endpoint.accept().await {
        let node = Weak::clone(&node);
        tokio::spawn(async move { connection(incoming, node).await });
    }
}

async fn connection(incoming: Incoming, node: Weak<Inner>) {
    let Some((connection, holder)) = welcome(incoming, &node).await else {
        return;
    };
    let holder = Arc::new(holder);
    let mut allowed = FIRST_STREAMS;
    let open = Arc::new(());
    while let Ok((send, receive)) = connection.accept_bi().await {
        let (Some(node), holder) = (node.upgrade(), Arc::clone(&holder)) else {
            return;
        };
        let counted = Arc::clone(&open);
        // Partitions wait for each other: a stream that may not be opened could wait for ever.
        if Arc::strong_count(&open) > allowed as usize / 2 && allowed < MOST_STREAMS {
            allowed *= 2;
            connection.set_max_concurrent_bi_streams(VarInt::from_u32(allowed));
        }
        tokio::spawn(async move {
            serve::answer(node, holder, send, receive).await;
            drop(counted);
        });
    }
}

/// Makes the connection, if whoever calls may be answered.
async fn welcome(incoming: Incoming, node: &Weak<Inner>) -> Option<(Connection, Holder)> {
    let node = node.upgrade()?;
    let address = incoming.remote_address();
    let timeout = node.options.connect_timeout;
    let connecting = async {
        match address.ip().is_loopback() {
            true => incoming.accept_with(Arc::clone(&node.local_server))?.await,
            false => incoming.await,
        }
    };
    let connection = match tokio::time::timeout(timeout, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            let refusal = refusal(&error).map(|refusal| refusal.to_string());
            tracing::warn!(%address, %error, ?refusal, "a connection was not made");
            return None;
        }
        Err(_) => return None,
    };
    let Some(holder) = holder(&connection) else {
        // The handshake has checked the certificate; this is a second lock on the same door.
        connection.close(0u32.into(), b"no certificate");
        return None;
    };
    let greeted = tokio::time::timeout(timeout, greet(&connection, &node)).await;
    if !greeted.unwrap_or(false) {
        connection.close(0u32.into(), b"no HELLO");
        return None;
    }
    if let Holder::Node(peer) = &holder {
        tracing::debug!(%peer, %address, "connected");
        node.peers.add_asking(peer.node, connection.clone());
        // Revoked or declared dead between the handshake and now.
        if node.trust.revocations().check(peer).is_err() {
            connection.close(0u32.into(), b"revoked");
        }
    }
    Some((connection, holder))
}

/// Whose certificate the handshake has accepted.
fn holder(connection: &Connection) -> Option<Holder> {
    let chain = connection.peer_identity()?;
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Holder::from_certificate(chain.first()?).ok()
}

/// Both HELLOs, on the connection's first stream; whether to go on.
async fn greet(connection: &Connection, node: &Inner) -> bool {
    let Ok((send, receive)) = connection.accept_bi().await else {
        return false;
    };
    let mut question = Inbound::new(receive, PeerName::Other("the caller".to_owned()));
    let Ok(frame) = question.expect(FrameKind::Hello, "a HELLO").await else {
        return false;
    };
    let Ok(theirs) = Hello::decode(&frame.payload) else {
        return false;
    };
    let mut out = Outbound::new(send);
    let hello = Hello::new(node.options.version, &node.name);
    // A caller that has read it stops the stream, which may be before its end is said: that is no
    // reason to hang up.
    match out.frame(FrameKind::Hello, &hello.encode()).await {
        Ok(()) => {
            let _ = out.end().await;
        }
        Err(SendError::ReceiverGone) if connection.close_reason().is_none() => {}
        Err(_) => return false,
    }
    if theirs.version == node.options.version && !only_hello(connection) {
        return true;
    }
    tracing::warn!(
        name = theirs.name,
        software = theirs.software,
        theirs = theirs.version,
        ours = node.options.version,
        "a node was refused that speaks another version of the protocol"
    );
    let _ = tokio::time::timeout(FAREWELL, connection.closed()).await;
    false
}

/// Whether TLS has found that the versions differ.
fn only_hello(connection: &Connection) -> bool {
    let data = connection.handshake_data();
    let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
    data.is_none_or(|data| data.protocol.as_deref() == Some(ALPN_HELLO))
}

/// The node at the other end of a connection on which it asks.
pub(crate) fn peer_of(connection: &Connection) -> Option<PeerIdentity> {
    match holder(connection)? {
        Holder::Node(peer) => Some(peer),
        Holder::Joiner { .. } => None,
    }
}
