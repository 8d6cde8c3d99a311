//! Who takes part, as the master sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use skewer_net::LostWorker;
use skewer_net::identity::{NodeId, PeerIdentity};
use skewer_storage::{Membership, StorageError, Writer};

use super::clock_offset::{ClockEstimate, ClockReadings};
use super::clocks::Clocks;

/// What is said of a worker that has a certificate and has not come yet.
pub(crate) const ABSENT: &str = "it has not come since the master started";

/// Each worker is asked for the time so often.
const HEARTBEAT: Duration = Duration::from_secs(1);

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
pub struct Arrival {
    /// Who its certificate says it is.
    pub peer: PeerIdentity,
    /// Where it answers.
    pub address: SocketAddr,
    /// The number that its process has drawn for itself.
    pub incarnation: u64,
    /// Of its software.
    pub version: String,
}

/// Whom a heartbeat concerns: number and process.
#[derive(Debug, Default, PartialEq)]
pub struct Beat {
    /// Those that are to be asked for the time now.
    pub ask: Vec<(u32, u64)>,
    /// Those that have been silent for too long, and for how long.
    pub silent: Vec<(u32, u64, Duration)>,
}

/// What the master knows beyond what it tells.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) member: Member,
    peer: Option<PeerIdentity>,
    heard: Instant,
    /// Not yet if it has just arrived: its times cannot be corrected before its clock is known.
    asked: Option<Instant>,
    /// When what is told of it has changed, and of which version that is.
    pub(super) changed: (Instant, u64),
    readings: ClockReadings,
    /// Each query that runs on it has a clone.
    used: Arc<()>,
}

/// All workers of the cluster. What workers are told of each other is in `deltas`.
#[derive(Debug)]
pub struct Members {
    pub(super) clocks: Arc<dyn Clocks>,
    pub(super) entries: RwLock<Entries>,
    /// Held while somebody comes or goes, and while what workers wrote is published.
    changing: Mutex<()>,
}

#[derive(Debug)]
pub(super) struct Entries {
    pub(super) by_number: BTreeMap<u32, Entry>,
    /// The version of the list; it ascends.
    pub(super) version: u64,
    /// The version of the last change that does not bear waiting.
    pub(super) urgent: u64,
    /// Whose last change was which version.
    pub(super) log: BTreeMap<u64, u32>,
    /// The version of the last change to the list of revocations.
    pub(super) revoked: u64,
}

/// The workers that a query runs on, which are not let go before it ends.
#[derive(Debug)]
pub struct Present {
    /// Their numbers.
    pub numbers: Vec<u32>,
    /// The version of the list by which they take part.
    pub version: u64,
    _used: Vec<Arc<()>>,
}

/// The queries that run on a worker that is about to end.
#[derive(Debug)]
pub struct RunningQueries(Weak<()>);

impl RunningQueries {
    /// Whether all of them have ended.
    pub fn are_over(&self) -> bool {
        // The entry has one.
        self.0.strong_count() <= 1
    }
}

impl Members {
    /// The workers that have certificates, numbers and names; none of them has come.
    pub fn new(known: impl IntoIterator<Item = (u32, String)>, clocks: Arc<dyn Clocks>) -> Self {
        /// All that is known at the start is of the first version.
        const FIRST: u64 = 1;
        let now = clocks.now();
        let absent = |(number, name): (u32, String)| {
            let member = Member {
                number,
                name,
                address: None,
                incarnation: 0,
                state: MemberState::Lost(ABSENT.into()),
                since: now.wall,
                last_heartbeat: None,
                clock: None,
                version: String::new(),
            };
            (number, Entry::new(member, None, (now.steady, FIRST)))
        };
        Self {
            entries: RwLock::new(Entries {
                by_number: known.into_iter().map(absent).collect(),
                version: FIRST,
                urgent: FIRST,
                log: BTreeMap::new(),
                revoked: FIRST,
            }),
            clocks,
            changing: Mutex::default(),
        }
    }

    /// The version of the list. Each change of what is told raises it.
    pub fn version(&self) -> u64 {
        self.entries.read().version
    }

    /// The version of the last change that does not bear waiting: a loss, or a revocation.
    pub fn urgent_version(&self) -> u64 {
        self.entries.read().urgent
    }

    /// All workers that have ever joined, by number.
    pub fn list(&self) -> Vec<Member> {
        let now = self.clocks.now().steady;
        let entries = self.entries.read();
        let members = entries.by_number.values().map(|entry| Member {
            clock: entry.readings.estimate(now),
            ..entry.member.clone()
        });
        members.collect()
    }

    /// Those that new queries run on.
    pub fn present(&self) -> Present {
        let entries = self.entries.read();
        let alive = || {
            let entries = entries.by_number.values();
            entries.filter(|entry| entry.member.state == MemberState::Alive)
        };
        Present {
            numbers: alive().map(|entry| entry.member.number).collect(),
            version: entries.version,
            _used: alive().map(|entry| Arc::clone(&entry.used)).collect(),
        }
    }

    /// Which process a worker is, if it takes part.
    pub fn incarnation_of(&self, number: u32) -> Option<u64> {
        let entries = self.entries.read();
        let member = &entries.by_number.get(&number)?.member;
        (!matches!(member.state, MemberState::Lost(_))).then_some(member.incarnation)
    }

    /// Why a worker takes no part; `None` if it does.
    pub fn lost(&self, number: u32) -> Option<LostWorker> {
        let entries = self.entries.read();
        let Some(entry) = entries.by_number.get(&number) else {
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
    pub fn register<T>(&self, arrival: Arrival, before: impl FnOnce(bool) -> T) -> T {
        let _changing = self.changing.lock();
        let number = arrival.peer.node.0;
        let known = self
            .entries
            .read()
            .by_number
            .get(&number)
            .map(|entry| entry.member.incarnation);
        let result = before(known != Some(arrival.incarnation));
        let now = self.clocks.now();
        let member = Member {
            number,
            name: arrival.peer.name.clone(),
            address: Some(arrival.address),
            incarnation: arrival.incarnation,
            state: MemberState::Alive,
            since: now.wall,
            last_heartbeat: Some(now.wall),
            clock: None,
            version: arrival.version,
        };
        let mut entries = self.entries.write();
        let mut entry = Entry::new(member, Some(arrival.peer), (now.steady, 0));
        let mut replaces = false;
        if let Some(before) = entries.by_number.get(&number) {
            entry.changed = before.changed;
            replaces = before.is_here() && before.member.incarnation != arrival.incarnation;
        }
        entries.by_number.insert(number, entry);
        self.changed(&mut entries, number, replaces);
        result
    }

    /// A worker is gone; `false` if it was already, or is another process by now. `after` is
    /// called before anything else that workers wrote is published.
    pub fn lose(&self, number: u32, incarnation: u64, reason: &str, after: impl FnOnce()) -> bool {
        let _changing = self.changing.lock();
        {
            let now = self.clocks.now();
            let mut entries = self.entries.write();
            let Some(entry) = entries.by_number.get_mut(&number) else {
                return false;
            };
            let member = &mut entry.member;
            if member.incarnation != incarnation || matches!(member.state, MemberState::Lost(_)) {
                return false;
            }
            member.state = MemberState::Lost(reason.into());
            member.since = now.wall;
            tracing::warn!(
                worker = number,
                name = member.name,
                reason,
                "a worker is lost"
            );
            self.changed(&mut entries, number, true);
        }
        after();
        true
    }

    /// A worker is about to end: no further query runs on it. Returns those that do;
    /// `None` if it is another process by now.
    pub fn leave(&self, number: u32, incarnation: u64) -> Option<RunningQueries> {
        let mut entries = self.entries.write();
        let entry = entries.by_number.get_mut(&number)?;
        if entry.member.incarnation != incarnation {
            return None;
        }
        if entry.member.state == MemberState::Alive {
            entry.member.state = MemberState::Leaving;
            entry.member.since = self.clocks.now().wall;
            tracing::info!(worker = number, "a worker is about to end");
        }
        Some(RunningQueries(Arc::downgrade(&entry.used)))
    }

    /// A worker has said what its clock shows.
    pub fn heard(
        &self,
        number: u32,
        incarnation: u64,
        asked_ns: i64,
        theirs_ns: i64,
        round_trip: Duration,
    ) {
        let now = self.clocks.now();
        let mut entries = self.entries.write();
        if let Some(entry) = entries.by_number.get_mut(&number)
            && entry.member.incarnation == incarnation
        {
            entry.heard = now.steady;
            entry.member.last_heartbeat = Some(now.wall);
            entry
                .readings
                .add(asked_ns, theirs_ns, round_trip, entry.heard);
        }
    }

    /// Whom to ask for the time now, and who has been silent for longer than `patience`. To be
    /// asked several times a second: so not all workers are asked at once.
    pub fn beat(&self, patience: Duration) -> Beat {
        let now = self.clocks.now().steady;
        let mut entries = self.entries.write();
        let mut beat = Beat::default();
        for entry in entries
            .by_number
            .values_mut()
            .filter(|entry| entry.is_here())
        {
            let (number, incarnation) = (entry.member.number, entry.member.incarnation);
            let silent = now.saturating_duration_since(entry.heard);
            if silent > patience {
                beat.silent.push((number, incarnation, silent));
            } else if entry
                .asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= HEARTBEAT)
            {
                entry.asked = Some(now);
                beat.ask.push((number, incarnation));
            }
        }
        beat
    }

    /// Those that take part, with what their certificates say.
    pub fn identities(&self) -> Vec<(PeerIdentity, u64)> {
        let entries = self.entries.read();
        let here = entries.by_number.values().filter(|entry| entry.is_here());
        here.filter_map(|entry| Some((entry.peer.clone()?, entry.member.incarnation)))
            .collect()
    }
}

impl Entry {
    fn new(member: Member, peer: Option<PeerIdentity>, changed: (Instant, u64)) -> Self {
        Self {
            member,
            peer,
            heard: changed.0,
            asked: None,
            changed,
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
    use super::super::clocks::SimulatedClocks;
    use super::super::tests::arrival;
    use super::*;

    fn clocks() -> Arc<SimulatedClocks> {
        Arc::new(SimulatedClocks::new(Instant::now()))
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
    fn who_arrives_is_asked_for_the_time_at_once_and_then_once_a_second() {
        let patience = Duration::from_secs(10);
        let clocks = clocks();
        let members = Members::new([], Arc::clone(&clocks) as _);
        members.register(arrival(1, 5), drop);
        let mut asked = Vec::new();
        for tenth in 0..25 {
            for (number, incarnation) in members.beat(patience).ask {
                asked.push(tenth);
                members.heard(number, incarnation, 0, 0, Duration::from_millis(1));
            }
            clocks.advance(Duration::from_millis(100));
        }
        assert_eq!(asked, [0, 10, 20]);
        clocks.advance(patience);
        let silent = members.beat(patience).silent;
        assert_eq!(silent.len(), 1, "{silent:?}");
    }

    #[test]
    fn what_a_process_wrote_is_published_only_while_it_is_still_that_process() {
        let members = Members::new([(1, "host-1".to_owned())], clocks());
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
        let members = Members::new([], clocks());
        members.register(arrival(2, 5), drop);
        members.register(arrival(2, 6), drop);
        assert!(!members.lose(2, 5, "late news", || unreachable!()));
        assert_eq!(members.present().numbers, [2]);
        assert!(members.lose(2, 6, "gone", || {}));
        assert!(!members.lose(2, 6, "gone again", || unreachable!()));
        assert_eq!(members.present().numbers, [0u32; 0]);
        assert_eq!(members.lost(2).unwrap().name, "worker 2 (host-2)");
    }

    #[test]
    fn a_worker_that_leaves_gets_no_query_and_its_queries_are_over_when_the_last_one_is() {
        let members = Members::new([], clocks());
        members.register(arrival(1, 5), drop);
        members.register(arrival(2, 5), drop);
        assert!(members.leave(1, 4).is_none());
        let query = members.present();
        let queries = members.leave(1, 5).unwrap();
        assert!(!queries.are_over());
        assert_eq!(members.present().numbers, [2]);
        drop(query);
        assert!(queries.are_over());
    }
}
