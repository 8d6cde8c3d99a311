//! `sys.links`: what QUIC measured on the connections of a node.

use std::sync::Arc;
use std::time::Duration;

use skewer_net::{LinkStats, Node};
use skewer_profiling::{Link, SysTables};

/// Lets `sys` have the connections of a node, as long as `node` finds it.
pub(crate) fn report(sys: &SysTables, node: impl Fn() -> Option<Node> + Send + Sync + 'static) {
    sys.set_links(Arc::new(move || {
        let links = node().map(|node| node.links()).unwrap_or_default();
        links.iter().map(link).collect::<Vec<_>>()
    }));
}

fn link(stats: &LinkStats) -> Link {
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    Link {
        peer_id: i64::from(stats.peer.0),
        rtt_ns: nanos(stats.rtt),
        min_rtt_ns: nanos(stats.shortest_rtt),
        sent_packets: count(stats.sent_packets),
        lost_packets: count(stats.lost_packets),
        congestion_events: count(stats.congestion_events),
        window_bytes: count(stats.window_bytes),
        sent_bytes: count(stats.sent_bytes),
        received_bytes: count(stats.received_bytes),
    }
}
