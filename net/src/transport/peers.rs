//! The other nodes, as membership sees them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use quinn::{Connection, VarInt};
use tokio::sync::watch;
use url::Url;

use crate::error::NetError;
use crate::frame::LostWorker;
use crate::identity::NodeId;

/// Where a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// Which.
    pub node: NodeId,
    /// How people call it; stands in errors.
    pub name: String,
    /// Where it answers.
    pub address: SocketAddr,
    /// By which datafusion-distributed knows it: [`worker_url`] unless said otherwise.
    pub url: Url,
}

impl PeerAddress {
    /// A node at an address, under its usual URL.
    pub fn new(node: NodeId, name: &str, address: SocketAddr) -> Self {
        Self {
            node,
            name: name.to_owned(),
            address,
            url: worker_url(node),
        }
    }
}

/// The URL by which datafusion-distributed knows a node: `skewer://worker-3`. It does not change
/// with the node's address.
pub fn worker_url(node: NodeId) -> Url {
    let host = match node.is_master() {
        true => "master".to_owned(),
        false => format!("worker-{}", node.0),
    };
    Url::parse(&format!("skewer://{host}")).expect("such a URL is well-formed")
}

/// The node that has a [`worker_url`].
pub fn node_of_url(url: &Url) -> Option<NodeId> {
    if url.scheme() != "skewer" {
        return None;
    }
    match url.host_str()?.strip_prefix("worker-") {
        Some(number) => Some(NodeId(number.parse().ok()?)),
        None => (url.host_str()? == "master").then_some(NodeId::MASTER),
    }
}

/// QUIC's code for connections that membership closes.
pub(crate) const CLOSED_BY_MEMBERSHIP: VarInt = VarInt::from_u32(1);

/// One other node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) at: PeerAddress,
    /// Why membership holds it for dead, if it does.
    lost: watch::Sender<Option<Arc<str>>>,
    /// The connection on which it is asked. The lock is held while connecting, so that many
    /// questions at once make one connection.
    pub(crate) connection: tokio::sync::Mutex<Option<Connection>>,
}

/// What QUIC measured on a connection since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStats {
    /// The other node.
    pub peer: NodeId,
    /// The round trip now, smoothed.
    pub rtt: Duration,
    /// The shortest round trip that was measured.
    pub shortest_rtt: Duration,
    /// UDP datagrams sent.
    pub sent_packets: u64,
    /// Packets sent that are taken for lost.
    pub lost_packets: u64,
    /// How often congestion was seen.
    pub congestion_events: u64,
    /// Bytes that may be under way at once.
    pub window_bytes: u64,
    /// Bytes sent in UDP datagrams.
    pub sent_bytes: u64,
    /// Bytes received in UDP datagrams.
    pub received_bytes: u64,
}

impl Peer {
    fn link(&self) -> Option<LinkStats> {
        let connection = self.connection.try_lock().ok()?;
        let connection = connection.as_ref()?;
        if connection.close_reason().is_some() {
            return None;
        }
        let stats = connection.stats();
        Some(LinkStats {
            peer: self.at.node,
            rtt: stats.path.rtt,
            shortest_rtt: stats.path.min_rtt,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            congestion_events: stats.path.congestion_events,
            window_bytes: stats.path.cwnd,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
        })
    }

    pub(crate) fn new(at: PeerAddress) -> Self {
        Self {
            at,
            lost: watch::Sender::new(None),
            connection: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn lost(&self, reason: &str) -> LostWorker {
        LostWorker {
            name: self.at.name.clone(),
            reason: reason.to_owned(),
        }
    }

    /// Holds it for dead.
    fn give_up(&self, reason: &str) {
        self.lost.send_replace(Some(reason.into()));
        // If the lock is held somebody is connecting, and has just been told.
        if let Ok(mut connection) = self.connection.try_lock()
            && let Some(connection) = connection.take()
        {
            connection.close(CLOSED_BY_MEMBERSHIP, reason.as_bytes());
        }
    }

    /// Why membership holds it for dead.
    pub(crate) fn lost_because(&self) -> Option<Arc<str>> {
        self.lost.borrow().clone()
    }

    /// Returns as soon as membership holds it for dead.
    pub(crate) async fn declared_lost(&self) -> LostWorker {
        let mut changes = self.lost.subscribe();
        loop {
            if let Some(reason) = self.lost_because() {
                return self.lost(&reason);
            }
            // The sender is ours: it is there as long as we are.
            let _ = changes.changed().await;
        }
    }
}

/// All other nodes that this one knows.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_node: RwLock<HashMap<NodeId, Arc<Peer>>>,
    /// Connections on which others ask.
    asking: RwLock<HashMap<NodeId, Vec<Connection>>>,
}

impl Peers {
    pub(crate) fn set(&self, at: PeerAddress) {
        let mut peers = self.by_node.write();
        let known = peers.get(&at.node);
        if known.is_some_and(|peer| peer.at == at && peer.lost_because().is_none()) {
            return;
        }
        peers.insert(at.node, Arc::new(Peer::new(at)));
    }

    /// A node is another process by now: what waits for the earlier one fails with this reason.
    /// Connections on which the new one asks already stay.
    pub(crate) fn replace(&self, at: PeerAddress, reason: &str) {
        let before = self
            .by_node
            .write()
            .insert(at.node, Arc::new(Peer::new(at)));
        if let Some(before) = before {
            before.give_up(reason);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.by_node.read().len()
    }

    pub(crate) fn remove(&self, node: NodeId) {
        self.by_node.write().remove(&node);
    }

    pub(crate) fn list(&self) -> Vec<PeerAddress> {
        let mut list: Vec<_> = self
            .by_node
            .read()
            .values()
            .map(|peer| peer.at.clone())
            .collect();
        list.sort_by_key(|peer| peer.node);
        list
    }

    pub(crate) fn get(&self, node: NodeId) -> Result<Arc<Peer>, NetError> {
        let peers = self.by_node.read();
        peers
            .get(&node)
            .cloned()
            .ok_or_else(|| NetError::UnknownWorker {
                url: worker_url(node),
            })
    }

    pub(crate) fn by_url(&self, url: &Url) -> Result<Arc<Peer>, NetError> {
        let peers = self.by_node.read();
        let usual = node_of_url(url).and_then(|node| peers.get(&node));
        let found = match usual.filter(|peer| peer.at.url == *url) {
            Some(usual) => Some(usual),
            // Every exchange asks for every worker: only other URLs are worth a search.
            None => peers.values().find(|peer| peer.at.url == *url),
        };
        found
            .cloned()
            .ok_or_else(|| NetError::UnknownWorker { url: url.clone() })
    }

    /// Notes a connection on which a node asks, and forgets those that are closed.
    pub(crate) fn add_asking(&self, node: NodeId, connection: Connection) {
        let mut asking = self.asking.write();
        let connections = asking.entry(node).or_default();
        connections.retain(|connection| connection.close_reason().is_none());
        connections.push(connection);
    }

    /// All open connections, in both directions; without those that are being made.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let mut open: Vec<_> = self.asking.read().values().flatten().cloned().collect();
        for peer in self.by_node.read().values() {
            let connection = peer.connection.try_lock();
            open.extend(connection.ok().and_then(|connection| connection.clone()));
        }
        open.retain(|connection| connection.close_reason().is_none());
        open
    }

    /// What was measured on the connections on which others are asked.
    pub(crate) fn links(&self) -> Vec<LinkStats> {
        let peers = self.by_node.read();
        let mut links: Vec<_> = peers.values().filter_map(|peer| peer.link()).collect();
        links.sort_by_key(|link| link.peer);
        links
    }

    /// Closes all connections with a node; what waits for it fails now, with this reason.
    pub(crate) fn close(&self, node: NodeId, reason: &str) {
        let peer = self.by_node.read().get(&node).cloned();
        if let Some(peer) = peer {
            peer.give_up(reason);
        }
        for connection in self.asking.write().remove(&node).into_iter().flatten() {
            connection.close(CLOSED_BY_MEMBERSHIP, reason.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_its_url() {
        for node in [NodeId::MASTER, NodeId(1), NodeId(4_000_000_000)] {
            assert_eq!(node_of_url(&worker_url(node)), Some(node));
        }
        for other in ["skewer://worker-x", "http://worker-1", "skewer://host"] {
            assert_eq!(node_of_url(&Url::parse(other).unwrap()), None, "{other}");
        }
    }
}
