//! A bad network between two sockets: packets are lost, late and out of order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;

use crate::support::anywhere;

/// What happens to packets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Of a thousand packets, how many are lost.
    pub(crate) lost: u64,
    /// Each packet takes between none and this many milliseconds longer: later ones overtake it.
    pub(crate) late: u64,
    /// Larger packets do not fit; 0 means that all do.
    pub(crate) largest: usize,
    /// The same for the same packets in the same order.
    pub(crate) seed: u64,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    dice: AtomicU64,
    cut: AtomicBool,
    dropped: AtomicU64,
    callers: AtomicUsize,
    largest: AtomicUsize,
}

impl Proxy {
    /// Forwards to `target` whatever arrives, and back.
    pub(crate) fn new(target: SocketAddr, weather: Weather) -> Self {
        Self::in_turn(vec![target], weather)
    }

    /// Forwards what the first caller sends to the first target, what the second sends to the
    /// second, and so on; all further callers have the last target.
    pub(crate) fn in_turn(targets: Vec<SocketAddr>, weather: Weather) -> Self {
        let state = Arc::new(State {
            weather,
            dice: AtomicU64::new(weather.seed | 1),
            cut: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            callers: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
        });
        let socket = std::net::UdpSocket::bind(anywhere()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = Arc::new(UdpSocket::from_std(socket).unwrap());
        let address = socket.local_addr().unwrap();
        tokio::spawn(forward(socket, targets, Arc::clone(&state)));
        Self { address, state }
    }

    /// From now on nothing comes through.
    pub(crate) fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::SeqCst)
    }

    /// How many addresses something came from.
    pub(crate) fn callers(&self) -> usize {
        self.state.callers.load(Ordering::SeqCst)
    }

    /// Bytes of the largest packet that came, without the headers of IP and UDP.
    pub(crate) fn largest(&self) -> usize {
        self.state.largest.load(Ordering::SeqCst)
    }
}

async fn forward(socket: Arc<UdpSocket>, targets: Vec<SocketAddr>, state: Arc<State>) {
    let mut upstream: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut packet = vec![0; 65_536];
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        let up = match upstream.entry(from) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                let up = Arc::new(UdpSocket::bind(anywhere()).await.unwrap());
                let caller = state.callers.fetch_add(1, Ordering::SeqCst);
                let target = targets[caller.min(targets.len() - 1)];
                up.connect(target).await.unwrap();
                tokio::spawn(back(
                    Arc::clone(&up),
                    Arc::clone(&socket),
                    from,
                    Arc::clone(&state),
                ));
                Arc::clone(new.insert(up))
            }
        };
        // It is connected to the caller's target.
        pass(&state, &up, from, &packet[..length]);
    }
}

async fn back(up: Arc<UdpSocket>, socket: Arc<UdpSocket>, to: SocketAddr, state: Arc<State>) {
    let mut packet = vec![0; 65_536];
    while let Ok(length) = up.recv(&mut packet).await {
        pass(&state, &socket, to, &packet[..length]);
    }
}

fn pass(state: &Arc<State>, socket: &Arc<UdpSocket>, to: SocketAddr, packet: &[u8]) {
    let dice = state.dice.fetch_add(1, Ordering::SeqCst);
    let roll = |salt: u64| {
        // SplitMix64.
        let mut z = dice.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    state.largest.fetch_max(packet.len(), Ordering::SeqCst);
    let weather = &state.weather;
    let too_large = weather.largest > 0 && packet.len() > weather.largest;
    if state.cut.load(Ordering::SeqCst) || too_large || roll(1) % 1_000 < weather.lost {
        state.dropped.fetch_add(1, Ordering::SeqCst);
        return;
    }
    let late = Duration::from_millis(roll(2) % (weather.late + 1));
    let (socket, packet) = (Arc::clone(socket), packet.to_vec());
    tokio::spawn(async move {
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        // A connected socket knows where to.
        let _ = match socket.peer_addr() {
            Ok(_) => socket.send(&packet).await,
            Err(_) => socket.send_to(&packet, to).await,
        };
    });
}
