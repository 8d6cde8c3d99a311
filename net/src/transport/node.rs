//! A node: its socket, whom it knows, whom it serves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use quinn::{Connection, Endpoint, ServerConfig, TransportConfig};
use tokio::runtime::Handle;

use super::accept;
use super::channel::QuicResolver;
use super::connect::Call;
use super::lifeline::{Lifeline, Lifelines};
use super::options::NetOptions;
use super::peers::{CLOSED_BY_MEMBERSHIP, LinkStats, Peer, PeerAddress, Peers};
use super::serve;
use super::services::Services;
use super::threads::IoThreads;
use crate::error::NetError;
use crate::identity::{Credentials, NodeId, PeerIdentity, Revocation, Trust, tls};

/// How long a node waits for others to hear that it ends, and for its own threads.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// A node of a cluster. Clones are the same node, which ends with [`Node::shutdown`], or when the last
/// of them is dropped and nothing is being answered any more.
///
/// The order of things: [`Node::bind`] takes the port and can ask others at once; with
/// [`Node::resolver`] a `Worker`'s sessions are built; [`Node::serve`] begins to answer. Membership
/// says with [`Node::set_peer`] who is where, and with [`Node::close_worker`] who is dead.
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint,
    pub(crate) credentials: Credentials,
    pub(crate) trust: Trust,
    pub(crate) options: NetOptions,
    /// What the socket has.
    receive_buffer: usize,
    /// How nodes on this machine are answered.
    pub(crate) local_server: Arc<ServerConfig>,
    pub(crate) peers: Peers,
    pub(crate) services: OnceLock<Services>,
    /// As the other nodes are told.
    pub(crate) name: String,
    /// What runs queries.
    pub(crate) queries: Handle,
    pub(crate) io: IoThreads,
}

impl Node {
    /// Takes the UDP port; 0 lets the operating system choose. Must be called within the tokio
    /// runtime that is to run what others ask for; packets have threads of their own.
    ///
    /// # Errors
    /// [`NetError::Listen`] if the port is taken or not allowed, [`NetError::Identity`] if
    /// certificate and key do not fit.
    pub fn bind(
        address: SocketAddr,
        credentials: Credentials,
        trust: Trust,
        options: NetOptions,
    ) -> Result<Self, NetError> {
        let (socket, receive_buffer) = options.socket(address)?;
        let wrong = |error: std::io::Error| NetError::Listen {
            address,
            reason: error.to_string(),
        };
        let io = IoThreads::start(options.io_threads).map_err(wrong)?;
        let answering = |address: IpAddr| Arc::new(options.answering(address, receive_buffer));
        let server = tls::server(&credentials, &trust, options.version)?;
        let mut server = ServerConfig::with_crypto(Arc::new(server));
        let mut local_server = server.clone();
        server.transport_config(answering(Ipv4Addr::UNSPECIFIED.into()));
        local_server.transport_config(answering(Ipv4Addr::LOCALHOST.into()));
        let endpoint = Endpoint::new(options.endpoint(), Some(server), socket, io.quic());
        let endpoint = endpoint.map_err(wrong)?;
        let name = credentials.identity().to_string();
        Ok(Self {
            inner: Arc::new(Inner {
                endpoint,
                credentials,
                trust,
                options,
                receive_buffer,
                local_server: Arc::new(local_server),
                peers: Peers::default(),
                services: OnceLock::new(),
                name,
                queries: Handle::current(),
                io,
            }),
        })
    }

    /// The same for a master: takes the TCP port of the same number too, where workers keep their
    /// [lifelines](Lifelines).
    ///
    /// # Errors
    /// As [`Node::bind`], for either port.
    pub fn bind_master(
        address: SocketAddr,
        credentials: Credentials,
        trust: Trust,
        options: NetOptions,
    ) -> Result<(Self, Lifelines), NetError> {
        /// If any port is asked for, the UDP port of a free TCP port's number may be taken.
        const ATTEMPTS: usize = 16;
        let mut attempt = 1;
        loop {
            let wrong = |error: std::io::Error| NetError::Listen {
                address,
                reason: error.to_string(),
            };
            let listener = TcpListener::bind(address).map_err(wrong)?;
            let taken = listener.local_addr().map_err(wrong)?;
            match Self::bind(taken, credentials.clone(), trust.clone(), options.clone()) {
                Ok(node) => {
                    let _within = node.io().enter();
                    let lifelines = Lifelines::new(Arc::clone(&node.inner), listener)?;
                    return Ok((node, lifelines));
                }
                Err(NetError::Listen { .. }) if address.port() == 0 && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A worker's lifeline to the master, which has to be known with [`Node::set_peer`]. The master
    /// learns `incarnation`, a number that this process has drawn for itself.
    ///
    /// # Errors
    /// If the master cannot be reached, or one of the two refuses the other.
    pub async fn lifeline(&self, incarnation: u64) -> Result<Lifeline, NetError> {
        let master = self.inner.peers.get(NodeId::MASTER)?;
        Lifeline::connect(&self.inner, master.at.address, incarnation).await
    }

    /// Begins to answer. Until then callers wait.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn serve(&self, services: Services) {
        let first = self.inner.services.set(services);
        assert!(first.is_ok(), "a node begins to serve once");
        let endpoint = self.inner.endpoint.clone();
        self.io()
            .spawn(accept::accept(endpoint, Arc::downgrade(&self.inner)));
    }

    /// Threads that queries do not use, for what has to be noticed or answered in time. Nothing may
    /// block them.
    pub fn io(&self) -> &Handle {
        self.inner.io.handle()
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn local_address(&self) -> Result<SocketAddr, NetError> {
        self.inner
            .endpoint
            .local_addr()
            .map_err(|error| NetError::Listen {
                address: SocketAddr::from(([0, 0, 0, 0], 0)),
                reason: error.to_string(),
            })
    }

    /// Who it is.
    pub fn identity(&self) -> &PeerIdentity {
        self.inner.credentials.identity()
    }

    /// Says where another node is. One that was closed is asked again from now on.
    pub fn set_peer(&self, peer: PeerAddress) {
        self.inner.peers.set(peer);
    }

    /// Says that a node is another process by now, and where: what waits for the earlier one fails
    /// at once with a [`crate::LostWorker`] that has its name and this reason.
    pub fn replace_peer(&self, peer: PeerAddress, reason: &str) {
        self.inner.peers.replace(peer, reason);
    }

    /// Forgets a node; its connections stay as they are.
    pub fn remove_peer(&self, node: NodeId) {
        self.inner.peers.remove(node);
    }

    /// The other nodes that it knows, by number.
    pub fn peers(&self) -> Vec<PeerAddress> {
        self.inner.peers.list()
    }

    /// What datafusion-distributed reaches workers by: for `with_distributed_channel_resolver` of
    /// the coordinator's session and of those that a `Worker` builds.
    pub fn resolver(&self) -> QuicResolver {
        QuicResolver::new(&self.inner)
    }

    /// Connects to a node, if there is no connection yet: the first query need not wait for it.
    ///
    /// # Errors
    /// If the node cannot be reached, or one of the two refuses the other.
    pub async fn connect(&self, node: NodeId) -> Result<(), NetError> {
        let peer = self.inner.peers.get(node)?;
        self.inner.connection(&peer).await.map(drop)
    }

    /// Asks a node something of the application's. It waits as long as the answer takes; dropping
    /// the future withdraws the question, and the other side drops what it was doing for it.
    ///
    /// # Errors
    /// If the node cannot be reached, is lost on the way, or answers with a failure.
    pub async fn call(
        &self,
        node: NodeId,
        method: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, NetError> {
        let peer = self.inner.peers.get(node)?;
        serve::call(&self.inner, &peer, method, body).await
    }

    /// The round trip to a node, as its connection measures it; `None` without one.
    pub fn round_trip(&self, node: NodeId) -> Option<Duration> {
        let peer = self.inner.peers.get(node).ok()?;
        let connection = peer.connection.try_lock().ok()?;
        connection.as_ref().map(Connection::rtt)
    }

    /// What QUIC measured on the connections that this node opened, by peer. A connection that is being made is left
    /// out.
    pub fn links(&self) -> Vec<LinkStats> {
        self.inner.peers.links()
    }

    /// Declares a worker dead: closes its connections in both directions. What waits for it fails
    /// at once with a [`crate::LostWorker`] that has its name and this reason, and it is not asked
    /// again before [`Node::set_peer`].
    ///
    /// This node's connections only: a query in which other workers read from the dead one fails
    /// as soon as those close theirs, so membership has to tell all of them.
    pub fn close_worker(&self, node: NodeId, reason: &str) {
        self.inner.peers.close(node, reason);
    }

    /// Revokes a certificate or all of a node's, and closes what they have open.
    ///
    /// # Errors
    /// If the list cannot be written.
    pub fn revoke(&self, entry: Revocation) -> Result<(), NetError> {
        self.inner.trust.revocations().add(entry)?;
        self.enforce_revocations()
    }

    /// Closes the connections of nodes that have been revoked since they connected, as by
    /// `skewer cluster revoke` in another process. To be called now and then.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn enforce_revocations(&self) -> Result<(), NetError> {
        let revocations = self.inner.trust.revocations();
        // Unreadable is an error here, and not everybody's revocation.
        revocations.entries()?;
        for connection in self.inner.peers.connections() {
            if let Some(peer) = accept::peer_of(&connection)
                && revocations.check(&peer).is_err()
            {
                self.close_worker(peer.node, "its certificate has been revoked");
                connection.close(CLOSED_BY_MEMBERSHIP, b"revoked");
            }
        }
        Ok(())
    }

    /// Closes all connections and waits, at most a second, until the others have heard it; then ends
    /// what runs on [`Node::io`], too. The port is free when the last clone is dropped.
    pub async fn shutdown(&self) {
        self.inner.endpoint.close(0u32.into(), b"it was shut down");
        let idle = self.inner.endpoint.wait_idle();
        let _ = tokio::time::timeout(SHUTDOWN, idle).await;
        self.inner.io.end(SHUTDOWN).await;
    }

    /// Ends at once, as if its process had been killed, and waits for nothing: what runs on
    /// [`Node::io`] may hold the node, which would live on.
    pub fn abandon(&self) {
        self.inner.io.abandon();
    }
}

impl Inner {
    /// For a connection on which this node asks one at `address`, as many as there are nodes that it
    /// knows now.
    pub(crate) fn transport(&self, address: IpAddr) -> TransportConfig {
        let peers = self.peers.count();
        self.options.asking(address, self.receive_buffer, peers)
    }

    /// The connection on which a node is asked; made if there is none.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
    ) -> Result<Connection, NetError> {
        if let Some(reason) = peer.lost_because() {
            return Err(peer.lost(&reason).into());
        }
        if let Ok(slot) = peer.connection.try_lock()
            && let Some(connection) = &*slot
            && connection.close_reason().is_none()
        {
            return Ok(connection.clone());
        }
        let (node, peer) = (Arc::clone(self), Arc::clone(peer));
        // There its steps are in time, whatever the caller's thread does between them.
        let connecting = self
            .io
            .handle()
            .spawn(async move { node.connect(&peer).await });
        connecting.await.unwrap_or(Err(NetError::ShutDown))
    }

    async fn connect(&self, peer: &Peer) -> Result<Connection, NetError> {
        let mut slot = peer.connection.lock().await;
        if let Some(connection) = &*slot
            && connection.close_reason().is_none()
        {
            return Ok(connection.clone());
        }
        let version = self.options.version;
        let (tls, verdict) = tls::client(&self.credentials, &self.trust, peer.at.node, version)?;
        let call = Call {
            endpoint: &self.endpoint,
            address: peer.at.address,
            peer: &peer.at.name,
            tls: Arc::new(tls),
            verdict,
            transport: Arc::new(self.transport(peer.at.address.ip())),
            options: &self.options,
            name: &self.name,
        };
        let connection = tokio::select! {
            connection = call.connect() => connection?,
            lost = peer.declared_lost() => return Err(lost.into()),
        };
        // Declared dead at the very end of the handshake: nobody would close it any more.
        if let Some(reason) = peer.lost_because() {
            connection.close(CLOSED_BY_MEMBERSHIP, reason.as_bytes());
            return Err(peer.lost(&reason).into());
        }
        *slot = Some(connection.clone());
        Ok(connection)
    }
}
