//! Who takes part, as the master sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use skewer_net::LostWorker;
use skewer_net::identity::{NodeId, PeerIdentity};
use skewer_storage::{Membership, StorageError, Writer};
use tokio::sync::watch;

use super::calls::{MemberAt, MemberList};
use super::clock::{ClockEstimate, ClockReadings};

/// What is said of a worker that has a certificate and has not come yet.
const ABSENT: &str = "it has not come since the master started";

/// Between two looks whether queries that need a worker are over.
const LOOK: Duration = Duration::from_millis(5);

/// What has become of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberState {
    /// It takes part.
    Alive,
    /// It ends when the queries that run on it have ended; no others do.
    Leaving,
    /// It takes no part, for this reason.
    Lost(Arc<str>),
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "alive",
            Self::Leaving => "leaving",
            Self::Lost(_) => "lost",
        })
    }
}

/// A worker, as the master sees it.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its number; the owner of its segments, and `worker_id` in schema `sys`.
    pub number: u32,
    /// How people call it.
    pub name: String,
    /// Where it answers; `None` before it has come.
    pub address: Option<SocketAddr>,
    /// The number that its process has drawn for itself.
    pub incarnation: u64,
    /// What has become of it.
    pub state: MemberState,
    /// Since when.
    pub since: SystemTime,
    /// When it has last answered.
    pub last_heartbeat: Option<SystemTime>,
    /// What its clock is ahead of the master's.
    pub clock: Option<ClockEstimate>,
    /// Of its software.
    pub version: String,
}

impl Member {
    /// As errors call it.
    pub fn title(&self) -> String {
        title(self.number, &self.name)
    }
}

/// A worker's number, and its name if that says more.
fn title(number: u32, name: &str) -> String {
    let node = NodeId(number);
    if name.is_empty() || name == format!("worker-{number}") {
        node.to_string()
    } else {
        format!("{node} ({name})")
    }
}

/// A worker that registers.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) peer: PeerIdentity,
    pub(crate) address: SocketAddr,
    pub(crate) incarnation: u64,
    pub(crate) version: String,
}

/// What the master knows beyond what it tells.
#[derive(Debug)]
struct Entry {
    member: Member,
    peer: Option<PeerIdentity>,
    heard: Instant,
    readings: ClockReadings,
    /// Each query that runs on it has a clone.
    used: Arc<()>,
}

/// All workers of the cluster.
#[derive(Debug)]
pub(crate) struct Members {
    entries: RwLock<BTreeMap<u32, Entry>>,
    /// Held while somebody comes or goes, and while what workers wrote is published.
    changing: Mutex<()>,
    /// The version of the list; it ascends.
    version: watch::Sender<u64>,
}

/// The workers that a query runs on, which are not let go before it ends.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) numbers: Vec<u32>,
    pub(crate) version: u64,
    _used: Vec<Arc<()>>,
}

impl Members {
    /// The workers that have certificates; none of them has come.
    pub(crate) fn new(known: impl IntoIterator<Item = (u32, String)>) -> Self {
        let absent = |(number, name): (u32, String)| {
            let member = Member {
                number,
                name,
                address: None,
                incarnation: 0,
                state: MemberState::Lost(ABSENT.into()),
                since: SystemTime::now(),
                last_heartbeat: None,
                clock: None,
                version: String::new(),
            };
            (number, Entry::new(member, None))
        };
        Self {
            entries: RwLock::new(known.into_iter().map(absent).collect()),
            changing: Mutex::default(),
            version: watch::Sender::new(1),
        }
    }

    /// All workers that have ever joined, by number.
    pub(crate) fn list(&self) -> Vec<Member> {
        let now = Instant::now();
        let entries = self.entries.read();
        let members = entries.values().map(|entry| Member {
            clock: entry.readings.estimate(now),
            ..entry.member.clone()
        });
        members.collect()
    }

    /// Those that new queries run on.
    pub(crate) fn present(&self) -> Present {
        let entries = self.entries.read();
        let alive = || {
            let entries = entries.values();
            entries.filter(|entry| entry.member.state == MemberState::Alive)
        };
        Present {
            numbers: alive().map(|entry| entry.member.number).collect(),
            version: *self.version.borrow(),
            _used: alive().map(|entry| Arc::clone(&entry.used)).collect(),
        }
    }

    /// Which process a worker is, if it takes part.
    pub(crate) fn incarnation_of(&self, number: u32) -> Option<u64> {
        let entries = self.entries.read();
        let member = &entries.get(&number)?.member;
        (!matches!(member.state, MemberState::Lost(_))).then_some(member.incarnation)
    }

    /// Why a worker takes no part; `None` if it does.
    pub(crate) fn lost(&self, number: u32) -> Option<LostWorker> {
        let entries = self.entries.read();
        let Some(entry) = entries.get(&number) else {
            return Some(LostWorker {
                name: title(number, ""),
                reason: "the cluster has no such worker".to_owned(),
            });
        };
        let reason = match &entry.member.state {
            MemberState::Alive => return None,
            MemberState::Leaving => "it is about to end",
            MemberState::Lost(reason) => reason,
        };
        Some(LostWorker {
            name: entry.member.title(),
            reason: reason.to_owned(),
        })
    }

    /// Lets a worker take part; `before` is called with whether it is another process than
    /// before, while nothing that workers wrote is published.
    pub(crate) fn register<T>(&self, arrival: Arrival, before: impl FnOnce(bool) -> T) -> T {
        let _changing = self.changing.lock();
        let number = arrival.peer.node.0;
        let known = self
            .entries
            .read()
            .get(&number)
            .map(|entry| entry.member.incarnation);
        let result = before(known != Some(arrival.incarnation));
        let member = Member {
            number,
            name: arrival.peer.name.clone(),
            address: Some(arrival.address),
            incarnation: arrival.incarnation,
            state: MemberState::Alive,
            since: SystemTime::now(),
            last_heartbeat: Some(SystemTime::now()),
            clock: None,
            version: arrival.version,
        };
        let entry = Entry::new(member, Some(arrival.peer));
        self.entries.write().insert(number, entry);
        self.changed();
        result
    }

    /// A worker is gone; `false` if it was already, or is another process by now. `after` is
    /// called before anything else that workers wrote is published.
    pub(crate) fn lose(
        &self,
        number: u32,
        incarnation: u64,
        reason: &str,
        after: impl FnOnce(),
    ) -> bool {
        let _changing = self.changing.lock();
        {
            let mut entries = self.entries.write();
            let Some(entry) = entries.get_mut(&number) else {
                return false;
            };
            let member = &mut entry.member;
            if member.incarnation != incarnation || matches!(member.state, MemberState::Lost(_)) {
                return false;
            }
            member.state = MemberState::Lost(reason.into());
            member.since = SystemTime::now();
            tracing::warn!(
                worker = number,
                name = member.name,
                reason,
                "a worker is lost"
            );
        }
        self.changed();
        after();
        true
    }

    /// A worker is about to end: no further query runs on it. Returns when those that do are
    /// over.
    pub(crate) async fn leave(&self, number: u32, incarnation: u64) {
        let used = {
            let mut entries = self.entries.write();
            match entries.get_mut(&number) {
                Some(entry) if entry.member.incarnation == incarnation => {
                    if entry.member.state == MemberState::Alive {
                        entry.member.state = MemberState::Leaving;
                        entry.member.since = SystemTime::now();
                        tracing::info!(worker = number, "a worker is about to end");
                    }
                    Arc::downgrade(&entry.used)
                }
                _ => return,
            }
        };
        // The entry has one.
        while used.strong_count() > 1 {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A worker has said what its clock shows.
    pub(crate) fn heard(
        &self,
        number: u32,
        incarnation: u64,
        asked_ns: i64,
        theirs_ns: i64,
        round_trip: Duration,
    ) {
        let mut entries = self.entries.write();
        if let Some(entry) = entries.get_mut(&number)
            && entry.member.incarnation == incarnation
        {
            entry.heard = Instant::now();
            entry.member.last_heartbeat = Some(SystemTime::now());
            entry
                .readings
                .add(asked_ns, theirs_ns, round_trip, entry.heard);
        }
    }

    /// Those that should be asked for the time: number, process, how long they have been silent.
    pub(crate) fn to_be_heard(&self) -> Vec<(u32, u64, Duration)> {
        let entries = self.entries.read();
        let here = entries.values().filter(|entry| entry.is_here());
        here.map(|entry| {
            let member = &entry.member;
            (member.number, member.incarnation, entry.heard.elapsed())
        })
        .collect()
    }

    /// Those that take part, with what their certificates say.
    pub(crate) fn identities(&self) -> Vec<(PeerIdentity, u64)> {
        let entries = self.entries.read();
        let here = entries.values().filter(|entry| entry.is_here());
        here.filter_map(|entry| Some((entry.peer.clone()?, entry.member.incarnation)))
            .collect()
    }

    /// What a worker is told when it knows version `known`: as soon as there is another.
    pub(crate) async fn after(&self, known: u64, revoked: impl Fn() -> Vec<String>) -> MemberList {
        let mut version = self.version.subscribe();
        // The sender is ours: it is there as long as we are.
        let _ = version.wait_for(|version| *version != known).await;
        let version = *self.version.borrow();
        let entries = self.entries.read();
        let mut list = MemberList {
            version,
            present: Vec::new(),
            lost: Vec::new(),
            revoked: revoked(),
        };
        for Entry { member, .. } in entries.values() {
            match (&member.state, member.address) {
                (MemberState::Lost(reason), _) => {
                    list.lost.push((member.number, reason.to_string()));
                }
                (_, Some(address)) => list.present.push(MemberAt {
                    number: member.number,
                    name: member.title(),
                    address,
                    incarnation: member.incarnation,
                }),
                (_, None) => {}
            }
        }
        list
    }

    /// Tells the workers, as when somebody was revoked.
    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

impl Entry {
    fn new(member: Member, peer: Option<PeerIdentity>) -> Self {
        Self {
            member,
            peer,
            heard: Instant::now(),
            readings: ClockReadings::default(),
            used: Arc::new(()),
        }
    }

    fn is_here(&self) -> bool {
        !matches!(self.member.state, MemberState::Lost(_))
    }
}

impl Membership for Members {
    fn while_present(
        &self,
        writers: &[Writer],
        publish: &mut dyn FnMut(),
    ) -> skewer_storage::Result<()> {
        let _changing = self.changing.lock();
        for writer in writers {
            if self.incarnation_of(writer.node) == Some(writer.incarnation) {
                continue;
            }
            let lost = self.lost(writer.node).unwrap_or_else(|| LostWorker {
                name: title(writer.node, ""),
                reason: "it was restarted".to_owned(),
            });
            return Err(StorageError::WorkerLost {
                worker: lost.name,
                detail: lost.reason,
            });
        }
        publish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use skewer_net::identity::ClusterId;

    use super::*;

    fn arrival(number: u32, incarnation: u64) -> Arrival {
        Arrival {
            peer: PeerIdentity {
                cluster: ClusterId::random(),
                node: NodeId(number),
                name: format!("host-{number}"),
                serial: "aa".to_owned(),
            },
            address: SocketAddr::from(([127, 0, 0, 1], 7000)),
            incarnation,
            version: "1".to_owned(),
        }
    }

    fn publishes(members: &Members, node: u32, incarnation: u64) -> Result<bool, String> {
        let mut published = false;
        let writers = [Writer { node, incarnation }];
        members
            .while_present(&writers, &mut || published = true)
            .map_err(|error| error.to_string())?;
        Ok(published)
    }

    #[test]
    fn what_a_process_wrote_is_published_only_while_it_is_still_that_process() {
        let members = Members::new([(1, "host-1".to_owned())]);
        let absent = publishes(&members, 1, 5).unwrap_err();
        assert!(
            absent.contains("host-1") && absent.contains("not come"),
            "{absent}"
        );
        assert!(members.register(arrival(1, 5), |restarted| restarted));
        assert_eq!(publishes(&members, 1, 5), Ok(true));
        assert!(!members.register(arrival(1, 5), |restarted| restarted));
        assert!(members.register(arrival(1, 6), |restarted| restarted));
        assert!(publishes(&members, 1, 5).unwrap_err().contains("restarted"));
        assert_eq!(publishes(&members, 1, 6), Ok(true));
        assert!(members.lose(1, 6, "its process has ended", || {}));
        assert!(publishes(&members, 1, 6).unwrap_err().contains("has ended"));
    }

    #[test]
    fn the_end_of_an_earlier_process_does_not_end_the_present_one() {
        let members = Members::new([]);
        members.register(arrival(2, 5), drop);
        members.register(arrival(2, 6), drop);
        assert!(!members.lose(2, 5, "late news", || unreachable!()));
        assert_eq!(members.present().numbers, [2]);
        assert!(members.lose(2, 6, "gone", || {}));
        assert!(!members.lose(2, 6, "gone again", || unreachable!()));
        assert_eq!(members.present().numbers, [0u32; 0]);
        assert_eq!(members.lost(2).unwrap().name, "worker 2 (host-2)");
    }

    #[tokio::test]
    async fn a_worker_that_leaves_gets_no_query_any_more_and_may_go_when_the_last_one_is_over() {
        let members = Members::new([]);
        members.register(arrival(1, 5), drop);
        members.register(arrival(2, 5), drop);
        let query = members.present();
        let leaving = members.leave(1, 5);
        let mut leaving = std::pin::pin!(leaving);
        let wait = Duration::from_millis(30);
        assert!(tokio::time::timeout(wait, &mut leaving).await.is_err());
        assert_eq!(members.present().numbers, [2]);
        drop(query);
        leaving.await;
    }

    #[tokio::test]
    async fn who_knows_the_present_list_is_told_of_the_next() {
        let members = Members::new([(3, "host-3".to_owned())]);
        let first = members.after(0, Vec::new).await;
        assert_eq!(first.lost, [(3, ABSENT.to_owned())]);
        let next = members.after(first.version, || vec!["node 4".to_owned()]);
        let mut next = std::pin::pin!(next);
        let wait = Duration::from_millis(30);
        assert!(tokio::time::timeout(wait, &mut next).await.is_err());
        members.register(arrival(3, 1), drop);
        let next = next.await;
        assert_eq!((next.present.len(), next.lost.len()), (1, 0));
        assert_eq!(next.revoked, ["node 4"]);
    }
}
