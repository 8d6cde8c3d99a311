//! Who takes part, as a master and N workers find out over a simulated network.
//!
//! The logic is the database's own: [`Members`] at the master, a [`MemberView`] at each worker, messages
//! as they are encoded. Network and clocks are simulated: a message takes a while, the master's
//! link has a bandwidth, and the master handles one message at a time, each of which costs what
//! it has been measured to cost over QUIC.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::Result;
use skewer_net::identity::{ClusterId, NodeId, PeerIdentity};
use skewer_node::membership::{
    Answer, Arrival, MemberView, Members, MembershipDelta, SimulatedClocks,
};
use skewer_node::rpc_messages::{Watch, decode, encode};

/// How the network and the master's machine are.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    /// From node to node.
    pub delay: Duration,
    /// Of the master's link, per second.
    pub bytes_per_second: u64,
    /// The master's processor time for a message that it sends or receives.
    pub message_cost: Duration,
    /// How long a worker may be silent.
    pub patience: Duration,
}

impl Default for Network {
    /// Two machines of a data centre, 10 Gbit/s, and the database's own patience.
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(250),
            bytes_per_second: 10_000_000_000 / 8,
            message_cost: Duration::from_micros(50),
            patience: Duration::from_secs(10),
        }
    }
}

/// Headers of IP, UDP, QUIC and our frames, about.
const HEADERS: u64 = 100;

/// How often the master looks whom to ask for the time.
const BEAT: Duration = Duration::from_millis(100);

/// Steady operation is watched for so long.
const STEADY: Duration = Duration::from_secs(30);

/// What the master sent and received in some time.
#[derive(Debug, Default, Clone, Copy)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes.
    pub bytes: u64,
    /// Processor time that the logic took, as measured here: without the network's.
    pub logic: Duration,
}

/// What was found with some number of workers.
#[derive(Debug, Clone, Copy)]
pub struct Findings {
    /// How many.
    pub workers: u32,
    /// All of them started within a second …
    pub start: Traffic,
    /// … and from the last one's registration on it took so long until all knew all.
    pub all_know_all: Duration,
    /// In a second in which nothing happens.
    pub steady: Traffic,
    /// A worker's process was killed.
    pub killed: Traffic,
    /// From its death until all others knew it.
    pub killed_known: Duration,
    /// From the moment when a host fell silent until all others knew it.
    pub silent_known: Duration,
}

/// Starts `workers` workers, watches them, kills one, and lets one fall silent.
///
/// # Errors
/// If a message cannot be decoded.
pub fn simulate(workers: u32, network: Network) -> Result<Findings> {
    let mut cluster = Cluster::new(workers, network);
    let second = Duration::from_secs(1);
    for number in 1..=workers {
        cluster.at(second * number / workers, Event::Register(number));
    }
    cluster.run_until(second)?;
    let registered = cluster.now;
    // Everything that was caused has happened well within this.
    cluster.run_until(second * 5)?;
    let start = cluster.take_traffic();
    let all_know_all = cluster.last_told().saturating_sub(registered);
    assert!(
        cluster
            .workers
            .values()
            .all(|worker| worker.view.others() as u32 == workers - 1),
        "every worker knows all others"
    );

    cluster.run_until(cluster.now + STEADY)?;
    let steady = cluster.take_traffic();
    let seconds = STEADY.as_secs();
    let steady = Traffic {
        messages: steady.messages / seconds,
        bytes: steady.bytes / seconds,
        logic: steady.logic / STEADY.as_secs() as u32,
    };

    let dies = cluster.now;
    cluster.at(dies, Event::Kill(1));
    cluster.run_until(dies + second)?;
    let killed = cluster.take_traffic();
    // Heartbeats have gone on meanwhile.
    let killed = Traffic {
        messages: killed.messages.saturating_sub(steady.messages),
        bytes: killed.bytes.saturating_sub(steady.bytes),
        logic: killed.logic.saturating_sub(steady.logic),
    };
    let killed_known = cluster.last_told().saturating_sub(dies);

    cluster.run_until(dies + second * 5)?;
    let falls_silent = cluster.now;
    cluster
        .workers
        .get_mut(&2)
        .into_iter()
        .for_each(|worker| worker.is_silent = true);
    cluster.run_until(falls_silent + network.patience * 2)?;
    let silent_known = cluster.last_told().saturating_sub(falls_silent);
    Ok(Findings {
        workers,
        start,
        all_know_all,
        steady,
        killed,
        killed_known: if workers > 1 {
            killed_known
        } else {
            Duration::ZERO
        },
        silent_known: if workers > 2 {
            silent_known
        } else {
            Duration::ZERO
        },
    })
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker's registration has come.
    Register(u32),
    /// A worker's question has come, what has changed.
    Watch(u32, Vec<u8>),
    /// News that were held back are due.
    Due(u32),
    /// News have come to a worker.
    Told(u32, Vec<u8>),
    /// The master looks whom to ask for the time.
    Beat,
    /// A worker's time has come.
    Time(u32),
    /// A worker's process is killed.
    Kill(u32),
    /// The master has seen that its lifeline has ended.
    Ended(u32),
}

#[derive(Debug)]
struct Worker {
    view: MemberView,
    incarnation: u64,
    /// The version that it knows, while its question waits for an answer.
    waits: Option<u64>,
    /// Whether the answer is being held back, for others to be told with it.
    is_held_back: bool,
    is_silent: bool,
    /// When it was told something.
    told: Duration,
}

struct Cluster {
    network: Network,
    clocks: Arc<SimulatedClocks>,
    members: Members,
    workers: BTreeMap<u32, Worker>,
    id: ClusterId,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    /// Numbers events, so that those of one moment keep their order.
    sequence: u64,
    now: Duration,
    /// The master is busy until then, …
    busy: Duration,
    /// … and its link.
    link_busy: Duration,
    traffic: Traffic,
}

impl Cluster {
    fn new(workers: u32, network: Network) -> Self {
        let clocks = Arc::new(SimulatedClocks::new(Instant::now()));
        let worker = |number| {
            let worker = Worker {
                view: MemberView::new(number),
                incarnation: u64::from(number) + 1_000,
                waits: None,
                is_held_back: false,
                is_silent: false,
                told: Duration::ZERO,
            };
            (number, worker)
        };
        let mut cluster = Self {
            network,
            members: Members::new([], Arc::clone(&clocks) as _),
            clocks,
            workers: (1..=workers).map(worker).collect(),
            id: ClusterId::random(),
            events: BinaryHeap::new(),
            sequence: 0,
            now: Duration::ZERO,
            busy: Duration::ZERO,
            link_busy: Duration::ZERO,
            traffic: Traffic::default(),
        };
        cluster.at(Duration::ZERO, Event::Beat);
        cluster
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn take_traffic(&mut self) -> Traffic {
        std::mem::take(&mut self.traffic)
    }

    /// When the last of the workers was told something.
    fn last_told(&self) -> Duration {
        self.workers
            .values()
            .map(|worker| worker.told)
            .max()
            .unwrap_or_default()
    }

    fn run_until(&mut self, end: Duration) -> Result<()> {
        while let Some(Reverse((time, _, _))) = self.events.peek() {
            if *time > end {
                break;
            }
            if let Some(Reverse((time, _, event))) = self.events.pop() {
                self.now = time;
                self.clocks.set(time);
                self.happen(event)?;
            }
        }
        self.now = end;
        self.clocks.set(end);
        Ok(())
    }

    /// The master has received so many bytes, or sends them; when they are through.
    fn message(&mut self, bytes: usize) -> Duration {
        let bytes = bytes as u64 + HEADERS;
        self.traffic.messages += 1;
        self.traffic.bytes += bytes;
        self.busy = self.busy.max(self.now) + self.network.message_cost;
        let nanos = bytes * 1_000_000_000 / self.network.bytes_per_second;
        self.link_busy = self.link_busy.max(self.busy) + Duration::from_nanos(nanos);
        self.link_busy
    }

    /// What the master's logic does, with the time that it takes.
    fn logic<T>(&mut self, does: impl FnOnce(&Members) -> T) -> T {
        let started = Instant::now();
        let result = does(&self.members);
        self.traffic.logic += started.elapsed();
        result
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        let network = self.network;
        match event {
            Event::Register(number) => {
                self.message(64);
                let incarnation = self.workers[&number].incarnation;
                let arrival = Arrival {
                    peer: PeerIdentity {
                        cluster: self.id.clone(),
                        node: NodeId(number),
                        name: format!("worker-{number}"),
                        serial: String::new(),
                    },
                    address: SocketAddr::from((number.to_be_bytes(), 7434)),
                    incarnation,
                    version: String::new(),
                };
                self.logic(|members| members.register(arrival, |_| ()));
                let answered = self.message(8);
                // It asks as soon as it has been answered.
                self.ask(number, answered + network.delay)?;
                self.wake(false)?;
            }
            Event::Watch(number, question) => {
                self.message(question.len());
                let Watch { known, .. } = decode(&question)?;
                if let Some(worker) = self.workers.get_mut(&number) {
                    worker.waits = Some(known);
                    worker.is_held_back = false;
                }
                self.answer(number)?;
            }
            Event::Due(number) => {
                if let Some(worker) = self.workers.get_mut(&number)
                    && worker.is_held_back
                {
                    worker.is_held_back = false;
                    self.answer(number)?;
                }
            }
            Event::Told(number, news) => {
                let delta: MembershipDelta = decode(&news)?;
                let now = self.now;
                if let Some(worker) = self.workers.get_mut(&number)
                    && !worker.is_silent
                {
                    worker.view.learn(delta);
                    worker.told = now;
                    self.ask(number, now)?;
                }
            }
            Event::Beat => {
                let beat = self.logic(|members| members.beat(network.patience));
                for (number, incarnation, _) in beat.silent {
                    self.logic(|members| members.lose(number, incarnation, "silent", || {}));
                    self.wake(true)?;
                }
                for (number, _) in beat.ask {
                    let sent = self.message(8);
                    if !self.workers[&number].is_silent {
                        self.at(sent + network.delay * 2, Event::Time(number));
                    }
                }
                self.at(self.now + BEAT, Event::Beat);
            }
            Event::Time(number) => {
                self.message(16);
                let incarnation = self.workers[&number].incarnation;
                let theirs = self.now.as_nanos() as i64;
                let round_trip = network.delay * 2;
                self.logic(|members| {
                    members.heard(number, incarnation, theirs, theirs, round_trip);
                });
            }
            Event::Kill(number) => {
                if let Some(worker) = self.workers.get_mut(&number) {
                    worker.is_silent = true;
                    self.at(self.now + network.delay, Event::Ended(number));
                }
            }
            Event::Ended(number) => {
                self.message(0);
                let incarnation = self.workers[&number].incarnation;
                self.logic(|members| members.lose(number, incarnation, "it has ended", || {}));
                self.wake(true)?;
            }
        }
        Ok(())
    }

    /// A worker asks what has changed.
    fn ask(&mut self, number: u32, at: Duration) -> Result<()> {
        let worker = &self.workers[&number];
        let question = encode(&Watch {
            incarnation: worker.incarnation,
            known: worker.view.known(),
        })?;
        self.at(at + self.network.delay, Event::Watch(number, question));
        Ok(())
    }

    /// Something has changed: those who wait are answered, also those whose news are held back
    /// if it is urgent.
    fn wake(&mut self, is_urgent: bool) -> Result<()> {
        let waiting = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.waits.is_some() && (is_urgent || !worker.is_held_back));
        let waiting: Vec<u32> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            self.answer(number)?;
        }
        Ok(())
    }

    /// Answers a worker that waits, if there is something to say.
    fn answer(&mut self, number: u32) -> Result<()> {
        let Some(known) = self.workers[&number].waits else {
            return Ok(());
        };
        let nobody = || -> Result<Vec<String>> { Ok(Vec::new()) };
        let answer = self.logic(|members| match members.delta_since(known, nobody)? {
            Answer::News(delta) => encode(&delta).map(Ok),
            other => Ok(Err(other)),
        })?;
        let Some(worker) = self.workers.get_mut(&number) else {
            return Ok(());
        };
        match answer {
            Ok(news) => {
                worker.waits = None;
                worker.is_held_back = false;
                let sent = self.message(news.len());
                self.at(sent + self.network.delay, Event::Told(number, news));
            }
            Err(Answer::Later(pause)) => {
                worker.is_held_back = true;
                self.at(self.now + pause, Event::Due(number));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_known_to_all_within_milliseconds_and_costs_two_messages_a_worker() {
        let network = Network::default();
        let found = simulate(20, network).unwrap();
        // To the master, to the workers, and 19 messages one after another.
        let least = network.delay * 2;
        let most = least + network.message_cost * 60 + Duration::from_millis(1);
        assert!((least..most).contains(&found.killed_known), "{found:?}");
        // The end of the lifeline, and news and the next question of 19 workers; heartbeats are not
        // the same in every second.
        assert!((35..=43).contains(&found.killed.messages), "{found:?}");
    }

    #[test]
    fn a_silent_host_is_known_to_all_shortly_after_the_master_has_lost_patience() {
        let network = Network::default();
        let found = simulate(10, network).unwrap();
        let second = Duration::from_secs(1);
        let expected = network.patience - second * 2..network.patience + second;
        assert!(expected.contains(&found.silent_known), "{found:?}");
    }

    #[test]
    fn heartbeats_are_two_messages_a_second_and_worker() {
        let found = simulate(30, Network::default()).unwrap();
        assert!((50..=60).contains(&found.steady.messages), "{found:?}");
    }

    #[test]
    fn a_burst_of_arrivals_costs_each_worker_far_fewer_messages_than_there_are_arrivals() {
        let found = simulate(100, Network::default()).unwrap();
        // 100 arrivals in a second are told at most every 10 ms.
        assert!(found.start.messages < 100 * 100 * 2, "{found:?}");
        assert!(found.all_know_all < Duration::from_millis(100), "{found:?}");
    }
}
