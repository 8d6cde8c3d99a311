//! What workers are told of each other.
//!
//! A worker asks with the version that it knows and is answered with what has changed since: a
//! cluster of N workers sends N short messages when somebody comes or goes, and not N lists of N.
//! When many come at once, their arrivals are told together; a loss is told at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::members::{Entries, Member, MemberState, Members};

/// How long an arrival may wait for others to be told with it, for each worker that there is: all
/// of them are told, at some 100 µs of the master's processor time each.
const PAUSE: Duration = Duration::from_micros(100);

/// Who takes part: what has changed since the version that the worker knows, all if it knows none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MembershipDelta {
    /// The version that it knows then.
    pub version: u64,
    /// Those who do.
    pub present: Vec<PresentMember>,
    /// Those who do not, and why.
    pub lost: Vec<(u32, String)>,
    /// Whose certificates are not valid any more: all of them, if there are others than before.
    pub revoked: Option<Vec<String>>,
}

/// A worker that takes part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PresentMember {
    /// Its number.
    pub number: u32,
    /// As errors call it.
    pub name: String,
    /// Where it answers.
    pub address: SocketAddr,
    /// The number that its process has drawn for itself.
    pub incarnation: u64,
}

/// What a worker is to be told.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// This, now.
    News(MembershipDelta),
    /// Something, after this time, or as soon as it gets urgent.
    Later(Duration),
    /// Nothing has changed.
    Nothing,
}

impl Members {
    /// What a worker is told now that knows version `known`, 0 if it knows nothing; `revoked` are
    /// the certificates that are not valid any more.
    ///
    /// # Errors
    /// Those of `revoked`: without the list there is no answer.
    pub fn delta_since<E>(
        &self,
        known: u64,
        revoked: impl Fn() -> Result<Vec<String>, E>,
    ) -> Result<Answer, E> {
        let now = self.clocks.now().steady;
        let entries = self.entries.read();
        let version = entries.version;
        let complete = known == 0 || known > version;
        if !complete && known == version {
            return Ok(Answer::Nothing);
        }
        let since = if complete { 0 } else { known };
        let news = entries.log.range(since + 1..).map(|(_, number)| number);
        let news = news.filter_map(|number| entries.by_number.get(number));
        if !complete && entries.urgent <= known {
            let oldest = news.clone().map(|entry| entry.changed.0).min();
            let pause = self.pause(&entries, oldest, now);
            if !pause.is_zero() {
                return Ok(Answer::Later(pause));
            }
        }
        let mut delta = MembershipDelta {
            version,
            present: Vec::new(),
            lost: Vec::new(),
            revoked: (entries.revoked > since).then(revoked).transpose()?,
        };
        let mut tell = |member: &Member| match (&member.state, member.address) {
            (MemberState::Lost(reason), _) => delta.lost.push((member.number, reason.to_string())),
            (_, Some(address)) => delta.present.push(PresentMember {
                number: member.number,
                name: member.title(),
                address,
                incarnation: member.incarnation,
            }),
            (_, None) => {}
        };
        match complete {
            true => entries
                .by_number
                .values()
                .for_each(|entry| tell(&entry.member)),
            false => news.for_each(|entry| tell(&entry.member)),
        }
        Ok(Answer::News(delta))
    }

    /// How long news that are as old as this may still wait for others.
    fn pause(&self, entries: &Entries, oldest: Option<Instant>, now: Instant) -> Duration {
        let workers = u32::try_from(entries.by_number.len()).unwrap_or(u32::MAX);
        let age = oldest.map_or(Duration::MAX, |oldest| {
            now.saturating_duration_since(oldest)
        });
        (PAUSE * workers).saturating_sub(age)
    }

    /// Marks a worker as changed, so that the other workers learn its new state.
    pub(super) fn changed(&self, entries: &mut Entries, number: u32, is_urgent: bool) {
        let now = self.clocks.now().steady;
        let version = entries.next_version(is_urgent);
        if let Some(entry) = entries.by_number.get_mut(&number) {
            entries.log.remove(&entry.changed.1);
            entries.log.insert(version, number);
            entry.changed = (now, version);
        }
    }

    /// The list of certificates that are not valid any more has changed: workers keep a copy.
    pub fn revocations_changed(&self) {
        let mut entries = self.entries.write();
        entries.revoked = entries.next_version(true);
    }
}

impl Entries {
    /// The version of a change, which is the version of the list from now on.
    fn next_version(&mut self, is_urgent: bool) -> u64 {
        self.version += 1;
        if is_urgent {
            self.urgent = self.version;
        }
        self.version
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use super::super::clocks::SimulatedClocks;
    use super::super::tests::arrival;
    use super::*;

    fn still() -> (Arc<SimulatedClocks>, Members) {
        let clocks = Arc::new(SimulatedClocks::new(Instant::now()));
        let members = Members::new([], Arc::clone(&clocks) as _);
        (clocks, members)
    }

    fn nobody() -> Result<Vec<String>, Infallible> {
        Ok(Vec::new())
    }

    #[test]
    fn without_the_list_of_the_revoked_there_is_no_answer() {
        let (_, members) = still();
        let unreadable = || Err("too many open files");
        assert!(members.delta_since(0, unreadable).is_err());
    }

    fn news(members: &Members, known: u64) -> MembershipDelta {
        match members.delta_since(known, nobody).unwrap() {
            Answer::News(list) => list,
            other => panic!("{other:?}"),
        }
    }

    fn numbers(list: &MembershipDelta) -> Vec<u32> {
        list.present.iter().map(|member| member.number).collect()
    }

    #[test]
    fn only_what_has_changed_is_told_and_whoever_knows_nothing_is_told_all() {
        let (clocks, members) = still();
        for number in 1..=5 {
            members.register(arrival(number, 1), drop);
        }
        let all = news(&members, 0);
        assert_eq!(numbers(&all), [1, 2, 3, 4, 5]);
        assert_eq!(
            members.delta_since(all.version, nobody).unwrap(),
            Answer::Nothing
        );
        members.lose(2, 1, "it ended", || {});
        let change = news(&members, all.version);
        assert_eq!((numbers(&change), change.lost.len()), (vec![], 1));
        members.register(arrival(2, 2), drop);
        clocks.advance(Duration::from_secs(1));
        let change = news(&members, change.version);
        assert_eq!((numbers(&change), change.lost.len()), (vec![2], 0));
        let late = news(&members, all.version);
        assert_eq!((numbers(&late), late.lost.len()), (vec![2], 0));
        assert_eq!(numbers(&news(&members, 0)), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn arrivals_are_told_together_and_a_loss_ends_the_waiting() {
        let (clocks, members) = still();
        members.register(arrival(1, 1), drop);
        members.register(arrival(2, 1), drop);
        let known = news(&members, 0).version;
        members.register(arrival(3, 1), drop);
        let pause = PAUSE * 3;
        assert_eq!(
            members.delta_since(known, nobody).unwrap(),
            Answer::Later(pause)
        );
        clocks.advance(pause / 3);
        members.register(arrival(4, 1), drop);
        // It waits for the first of them.
        assert_eq!(
            members.delta_since(known, nobody).unwrap(),
            Answer::Later(pause)
        );
        members.lose(1, 1, "it ended", || {});
        let list = news(&members, known);
        assert_eq!((numbers(&list), list.lost.len()), (vec![3, 4], 1));
        members.register(arrival(5, 1), drop);
        clocks.advance(PAUSE * 5);
        assert_eq!(numbers(&news(&members, list.version)), [5]);
    }

    #[test]
    fn another_process_of_a_worker_that_was_there_is_told_at_once() {
        let (_, members) = still();
        members.register(arrival(1, 1), drop);
        let known = news(&members, 0).version;
        members.register(arrival(1, 2), drop);
        assert_eq!(numbers(&news(&members, known)), [1]);
    }
}
