//! Windows, timeouts, packet sizes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::NetError;
use crate::frame::{Compression, PROTOCOL_VERSION};

const MIB: usize = 1024 * 1024;

/// How a node talks. The defaults are measured ones; all nodes of a cluster should have the same.
#[derive(Debug, Clone)]
pub struct NetOptions {
    /// How long a node may be silent before its connections are given up. 3 s gave false alarms on
    /// busy machines; membership knows of most deaths much earlier.
    pub idle_timeout: Duration,
    /// How often a connection without traffic says that it is alive; less often where there are
    /// hundreds of other nodes.
    pub keep_alive: Duration,
    /// How long a node may take to answer the first packet.
    pub connect_timeout: Duration,
    /// The most bytes of one stream that are under way or unread: what a slow consumer makes its
    /// producer and itself hold, per partition.
    pub stream_window: usize,
    /// About the most bytes that are unread on all streams together on which a node reads: in a
    /// large cluster the windows of streams are so small that one stream from each other node to
    /// each core keeps within this.
    pub receive_budget: usize,
    /// The most bytes of one connection that are sent and not acknowledged.
    pub send_window: usize,
    /// Asked of the operating system for the UDP socket, which may give less
    /// (`sysctl net.core.rmem_max`).
    pub socket_buffer: usize,
    /// The largest UDP payload that is tried: 1472 bytes fill an Ethernet frame. Connections begin
    /// with 1200 and find out what the path lets through.
    pub largest_payload: u16,
    /// The same between two nodes on one machine, by its loopback device, which lets 65,507 bytes
    /// through. With more than 6550, ten packets, which quinn hands to the operating system at once,
    /// are more than it takes.
    pub largest_local_payload: u16,
    /// Threads that move packets and answer heartbeats, apart from those that run queries: one
    /// moves 0.5 GB/s or more, encrypted. With 0 it is those: for many nodes in one process.
    pub io_threads: usize,
    /// How batches are compressed that this node sends.
    pub compression: Compression,
    /// The version of the protocol; another one than [`PROTOCOL_VERSION`] only makes sense to be
    /// refused in tests.
    pub version: u16,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            stream_window: 4 * MIB,
            receive_budget: 256 * MIB,
            send_window: 16 * MIB,
            socket_buffer: 8 * MIB,
            largest_payload: 1472,
            largest_local_payload: 6500,
            io_threads: cores().min(MOST_IO_THREADS),
            compression: Compression::None,
            version: PROTOCOL_VERSION,
        }
    }
}

/// As many threads fill a network of 25 Gbit/s.
const MOST_IO_THREADS: usize = 4;

/// How many streams a peer may have open at first; `accept` allows more as they are used. quinn
/// makes an entry for each that is allowed: a million took seconds, and a thousand workers have
/// two thousand connections.
pub(crate) const FIRST_STREAMS: u32 = 256;

/// No window is smaller: some 40 packets, which a round trip of 0.5 ms turns into 128 MB/s for each
/// stream, and there are thousands of them.
const LEAST_WINDOW: usize = 64 * 1024;

/// What is sent before anything is acknowledged: an unloaded network between database nodes takes
/// it, and short shuffles are over before a smaller window would have grown.
const FIRST_WINDOW: usize = 4 * MIB;

impl NetOptions {
    /// The window of streams on which a node reads that has `peers` other nodes and `cores` cores:
    /// a shuffle is a stream from each node to each core.
    pub(crate) fn window_among(&self, peers: usize, cores: usize) -> usize {
        let streams = peers.max(1).saturating_mul(cores.max(1));
        let share = self.receive_budget / streams;
        share.max(LEAST_WINDOW).min(self.stream_window)
    }

    /// How often a connection on which this node asks says that it is alive, if it knows `peers`
    /// other nodes: a thousand connections in each direction would keep a quarter of a core busy.
    /// Often enough that one that gets lost does not look like the end.
    fn keep_alive_among(&self, peers: usize) -> Duration {
        let hundreds = u32::try_from(peers / 100).unwrap_or(u32::MAX).max(1);
        let slowed = self.keep_alive.saturating_mul(hundreds);
        slowed.min(self.idle_timeout * 2 / 5).max(self.keep_alive)
    }

    /// For a connection on which this node asks one at `address`, if it knows `peers` others;
    /// `receive_buffer` is what its socket really has.
    pub(crate) fn asking(
        &self,
        address: IpAddr,
        receive_buffer: usize,
        peers: usize,
    ) -> TransportConfig {
        let window = self.window_among(peers, cores());
        let mut config = self.transport(self.payload_to(address), receive_buffer, window);
        config.keep_alive_interval(Some(self.keep_alive_among(peers)));
        config
    }

    /// For connections on which others ask, from any address like this one: what comes on them are
    /// questions, and whoever asks keeps them alive.
    pub(crate) fn answering(&self, address: IpAddr, receive_buffer: usize) -> TransportConfig {
        self.transport(self.payload_to(address), receive_buffer, self.stream_window)
    }

    fn payload_to(&self, address: IpAddr) -> u16 {
        match address.is_loopback() {
            true => self.largest_local_payload,
            false => self.largest_payload,
        }
    }

    fn transport(
        &self,
        largest_payload: u16,
        receive_buffer: usize,
        stream_window: usize,
    ) -> TransportConfig {
        let mut config = TransportConfig::default();
        let idle = IdleTimeout::try_from(self.idle_timeout)
            .unwrap_or_else(|_| IdleTimeout::from(VarInt::MAX));
        config
            .max_idle_timeout(Some(idle))
            .max_concurrent_bidi_streams(VarInt::from_u32(FIRST_STREAMS))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .stream_receive_window(window(stream_window))
            // Unbounded per connection: a partition that nobody reads yet must not stop its
            // siblings, or both wait for each other.
            .receive_window(VarInt::MAX)
            .send_window(self.send_window as u64)
            .datagram_receive_buffer_size(None);
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(largest_payload);
        config.mtu_discovery_config(Some(discovery));
        // A burst that is larger than the other side's buffer is lost and sent again.
        let mut cubic = CubicConfig::default();
        cubic.initial_window(FIRST_WINDOW.min(receive_buffer / 2) as u64);
        config.congestion_controller_factory(Arc::new(cubic));
        config
    }

    pub(crate) fn endpoint(&self) -> EndpointConfig {
        let mut config = EndpointConfig::default();
        let largest = self.largest_payload.max(self.largest_local_payload);
        // Receive buffers are this times the packets of a batch; a refused size stays the default.
        let _ = config.max_udp_payload_size(largest.max(1472));
        config
    }

    /// Whether a node could listen on `address` now.
    ///
    /// # Errors
    /// [`NetError::Listen`] if it could not, with the reason.
    pub fn can_listen(&self, address: SocketAddr) -> Result<(), NetError> {
        self.socket(address).map(drop)
    }

    /// A UDP socket with large buffers, and its receive buffer's size.
    pub(crate) fn socket(&self, address: SocketAddr) -> Result<(UdpSocket, usize), NetError> {
        let wrong = |error: std::io::Error| NetError::Listen {
            address,
            reason: error.to_string(),
        };
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(wrong)?;
        // The operating system gives what it allows; more is not an error.
        let _ = socket.set_recv_buffer_size(self.socket_buffer);
        let _ = socket.set_send_buffer_size(self.socket_buffer);
        socket.bind(&address.into()).map_err(wrong)?;
        // Linux reports twice what was asked for, to account for its own bookkeeping.
        let buffer = socket.recv_buffer_size().map_err(wrong)? / 2;
        if buffer < self.socket_buffer / 4 {
            tracing::warn!(
                bytes = buffer,
                wanted = self.socket_buffer,
                "the UDP receive buffer is small, packets will be lost under load: \
                 raise it with sysctl net.core.rmem_max"
            );
        }
        Ok((socket.into(), buffer))
    }
}

/// The machine's.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn window(bytes: usize) -> VarInt {
    VarInt::from_u64(bytes as u64).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_with_the_number_of_nodes_so_that_all_streams_keep_within_the_budget() {
        let options = NetOptions::default();
        assert_eq!(options.window_among(0, 0), options.stream_window);
        assert_eq!(options.window_among(3, 8), options.stream_window);
        for peers in [10, 100, 500] {
            let window = options.window_among(peers, 8);
            assert!(
                window < options.stream_window && window >= LEAST_WINDOW,
                "{peers}: {window}"
            );
            assert!(
                window * peers * 8 <= options.receive_budget,
                "{peers}: {window}"
            );
        }
        assert_eq!(options.window_among(1_000_000, 8), LEAST_WINDOW);
        let small = NetOptions {
            stream_window: 1000,
            ..options
        };
        assert_eq!(small.window_among(1, 1), 1000);
    }

    #[test]
    fn in_large_clusters_idle_connections_say_less_often_that_they_are_alive_but_often_enough() {
        let options = NetOptions::default();
        assert_eq!(options.keep_alive_among(0), options.keep_alive);
        assert_eq!(options.keep_alive_among(199), options.keep_alive);
        assert_eq!(options.keep_alive_among(300), options.keep_alive * 3);
        assert!(options.keep_alive_among(usize::MAX) * 2 < options.idle_timeout);
        let hasty = NetOptions {
            idle_timeout: Duration::from_secs(1),
            ..options
        };
        assert_eq!(hasty.keep_alive_among(1_000), hasty.keep_alive);
    }
}
