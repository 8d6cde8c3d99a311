//! A TCP connection whose end says that a process is gone.
//!
//! QUIC lives in the process: when that is killed nobody says so, and the other side finds out when
//! the connection has been silent for seconds. A TCP connection is closed by the kernel, at once.
//! Each worker keeps one to the master, at the same port number, under the same certificates:
//!
//! ```text
//!   worker                                master
//!   TLS handshake, ALPN skewer-lifeline/1
//!   incarnation, 8 bytes           ─────▶
//!                                  ◀─────  1, one byte: it is seen
//!   (silence)                              (silence)
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::node::Inner;
use crate::error::NetError;
use crate::frame::LostWorker;
use crate::identity::node::Holder;
use crate::identity::tls::SERVER_NAME;
use crate::identity::verify::Refusal;
use crate::identity::{PeerIdentity, tls};

/// What the master says when it has seen a lifeline.
const SEEN: u8 = 1;

/// A host that vanishes without a word is found dead after about [`SILENCE`] and
/// [`PROBES`] · [`BETWEEN_PROBES`].
const SILENCE: Duration = Duration::from_secs(3);
const BETWEEN_PROBES: Duration = Duration::from_secs(1);
const PROBES: u32 = 5;

/// The master's end of all lifelines, before they are there.
#[derive(Debug)]
pub struct Lifelines {
    node: Arc<Inner>,
    listener: TcpListener,
}

/// A connection that has been accepted, whose handshake is still to come.
#[derive(Debug)]
pub struct Incoming {
    node: Arc<Inner>,
    stream: TcpStream,
    address: SocketAddr,
}

/// The master's end of a worker's lifeline. Dropped, it is cut.
#[derive(Debug)]
pub struct Watched {
    /// Whose it is; its certificate has been checked.
    pub peer: PeerIdentity,
    /// Where it comes from.
    pub address: SocketAddr,
    /// The number that the worker's process has drawn for itself.
    pub incarnation: u64,
    stream: server::TlsStream<TcpStream>,
}

/// A worker's end of its lifeline. Dropped, it is cut, and the master takes the worker for lost.
#[derive(Debug)]
pub struct Lifeline {
    stream: client::TlsStream<TcpStream>,
}

impl Lifelines {
    pub(crate) fn new(node: Arc<Inner>, listener: std::net::TcpListener) -> Result<Self, NetError> {
        let address = listener.local_addr();
        let address = address.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        let wrong = |error: io::Error| NetError::Listen {
            address,
            reason: error.to_string(),
        };
        listener.set_nonblocking(true).map_err(wrong)?;
        let listener = TcpListener::from_std(listener).map_err(wrong)?;
        Ok(Self { node, listener })
    }

    /// The next connection. Cancel-safe.
    ///
    /// # Errors
    /// Those of the operating system, as too many open files; the next call may succeed.
    pub async fn accept(&self) -> io::Result<Incoming> {
        let (stream, address) = self.listener.accept().await?;
        Ok(Incoming {
            node: Arc::clone(&self.node),
            stream,
            address,
        })
    }
}

impl Incoming {
    /// Checks who it is, and hears which process.
    ///
    /// # Errors
    /// If it is nobody who may speak, or takes too long to say who it is.
    pub async fn watch(self) -> Result<Watched, NetError> {
        let timeout = self.node.options.connect_timeout;
        let address = self.address;
        let wrong = |reason: String| NetError::Unreachable {
            peer: "a worker's lifeline".to_owned(),
            address: address.to_string(),
            reason,
        };
        let handshake = self.handshake();
        match tokio::time::timeout(timeout, handshake).await {
            Ok(Ok(watched)) => Ok(watched),
            Ok(Err(error)) => Err(wrong(error.to_string())),
            Err(_) => Err(wrong("it did not say who it is in time".to_owned())),
        }
    }

    async fn handshake(self) -> io::Result<Watched> {
        keep_alive(&self.stream)?;
        let node = &self.node;
        let config = tls::lifeline_server(&node.credentials, &node.trust, node.options.version)
            .map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut stream = acceptor.accept(self.stream).await?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let peer = match certificate.map(Holder::from_certificate) {
            Some(Ok(Holder::Node(peer))) if !peer.node.is_master() => peer,
            _ => return Err(io::Error::other("only workers have lifelines")),
        };
        let incarnation = stream.read_u64().await?;
        stream.write_u8(SEEN).await?;
        stream.flush().await?;
        Ok(Watched {
            peer,
            address: self.address,
            incarnation,
            stream,
        })
    }
}

impl Watched {
    /// Returns when the worker's process is gone, or its host.
    pub async fn ended(&mut self) {
        silence(&mut self.stream).await;
    }
}

impl Lifeline {
    /// Connects to the master at `address`.
    pub(crate) async fn connect(
        node: &Inner,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Self, NetError> {
        let timeout = node.options.connect_timeout;
        let (config, verdict) =
            tls::lifeline_client(&node.credentials, &node.trust, node.options.version)?;
        let handshake = async {
            let stream = TcpStream::connect(address).await?;
            keep_alive(&stream)?;
            let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
            let connector = TlsConnector::from(Arc::new(config));
            let mut stream = connector.connect(name, stream).await?;
            stream.write_u64(incarnation).await?;
            stream.flush().await?;
            // Only now it is known that the master accepts our certificate.
            match stream.read_u8().await? {
                SEEN => Ok(Self { stream }),
                other => Err(io::Error::other(format!("it answered {other}"))),
            }
        };
        let error = match tokio::time::timeout(timeout, handshake).await {
            Ok(Ok(lifeline)) => return Ok(lifeline),
            Ok(Err(error)) => error,
            Err(_) => io::Error::other(format!("no answer within {timeout:?}")),
        };
        if let Some(identity) = verdict.lock().take() {
            return Err(identity.into());
        }
        let peer = "the master".to_owned();
        match refusal(&error) {
            Some(reason) => Err(NetError::Refused { peer, reason }),
            None => Err(NetError::Unreachable {
                peer,
                address: address.to_string(),
                reason: error.to_string(),
            }),
        }
    }

    /// Returns when the master is gone, or has cut the lifeline.
    pub async fn ended(&mut self) {
        silence(&mut self.stream).await;
    }

    /// The same as an error.
    pub fn lost(&self) -> LostWorker {
        LostWorker {
            name: "the master".to_owned(),
            reason: "it has ended, or has given this worker up".to_owned(),
        }
    }
}

/// Reads until there is nothing to read any more. What is said has no meaning yet.
async fn silence(stream: &mut (impl AsyncRead + Unpin)) {
    let mut ignored = [0; 64];
    while !matches!(stream.read(&mut ignored).await, Ok(0) | Err(_)) {}
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let probes = TcpKeepalive::new()
        .with_time(SILENCE)
        .with_interval(BETWEEN_PROBES)
        .with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)?;
    stream.set_nodelay(true)
}

/// What a TLS alert says.
fn refusal(error: &io::Error) -> Option<Refusal> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match inner {
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::NoApplicationProtocol => Some(Refusal::OtherVersion),
            alert => Refusal::of_alert(u8::from(*alert)),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::identity::authority::NODE_LIFETIME;
    use crate::identity::{Authority, Credentials, NodeId, Revocations, Trust};
    use crate::{NetOptions, Node, PeerAddress};

    fn anywhere() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    /// Credentials of a node and what it trusts.
    fn node_of(authority: &Authority, node: u32) -> (Credentials, Trust) {
        let now = SystemTime::now();
        let own = Credentials::issued_by(authority, NodeId(node), "node", now, NODE_LIFETIME);
        let trust = Trust::new(authority.certificate(), Arc::new(Revocations::in_memory()));
        (own.unwrap(), trust.unwrap())
    }

    fn worker_of(authority: &Authority, master: SocketAddr) -> Node {
        let (own, trust) = node_of(authority, 3);
        let worker = Node::bind(anywhere(), own, trust, NetOptions::default()).unwrap();
        worker.set_peer(PeerAddress::new(NodeId::MASTER, "the master", master));
        worker
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_end_of_a_process_is_seen_at_once_and_it_is_known_which_process_it_was() {
        let authority = Authority::create(SystemTime::now()).unwrap();
        let (own, trust) = node_of(&authority, 0);
        let (master, lifelines) =
            Node::bind_master(anywhere(), own, trust, NetOptions::default()).unwrap();
        let address = master.local_address().unwrap();
        let worker = worker_of(&authority, address);
        let watching =
            tokio::spawn(async move { lifelines.accept().await.unwrap().watch().await.unwrap() });
        let lifeline = worker.lifeline(4711).await.unwrap();
        let mut watched = watching.await.unwrap();
        assert_eq!((watched.peer.node, watched.incarnation), (NodeId(3), 4711));
        let alive = tokio::time::timeout(Duration::from_millis(50), watched.ended()).await;
        assert!(alive.is_err());
        drop(lifeline);
        let dead = tokio::time::timeout(Duration::from_secs(1), watched.ended()).await;
        assert!(dead.is_ok());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_the_cluster_s_certificate_there_is_no_lifeline() {
        let authority = Authority::create(SystemTime::now()).unwrap();
        let (own, trust) = node_of(&authority, 0);
        let (master, lifelines) =
            Node::bind_master(anywhere(), own, trust, NetOptions::default()).unwrap();
        let address = master.local_address().unwrap();
        let watching = tokio::spawn(async move {
            let mut refused = 0;
            for _ in 0..2 {
                let watched = lifelines.accept().await.unwrap().watch().await;
                refused += u32::from(watched.is_err());
            }
            refused
        });
        let other = Authority::create(SystemTime::now()).unwrap();
        let stranger = worker_of(&other, address);
        assert!(stranger.lifeline(1).await.is_err());
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(&[0; 64]).await.unwrap();
        silence(&mut plain).await;
        assert_eq!(watching.await.unwrap(), 2);
    }
}
