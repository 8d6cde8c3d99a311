//! What workers are told of each other.
//!
//! A worker asks with the version that it knows and is answered with what has changed since: a
//! cluster of N workers sends N short messages when somebody comes or goes, and not N lists of N.
//! When many come at once, their arrivals are told together; a loss is told at once.

use std::time::{Duration, Instant};

use datafusion::common::Result;

use super::members::{Entries, MemberState, Members};
use super::rpc_messages::{MemberAt, MemberList};

/// How long an arrival may wait for others to be told with it, for each worker that there is: all
/// of them are told, at some 100 µs of the master's processor time each.
const PAUSE: Duration = Duration::from_micros(100);

/// What a worker is to be told.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// This, now.
    News(MemberList),
    /// Something, after this time, or as soon as it gets urgent.
    Later(Duration),
    /// Nothing has changed.
    Nothing,
}

impl Members {
    /// What a worker is told now that knows version `known`, 0 if it knows nothing; `revoked` are
    /// the certificates that are not valid any more.
    pub fn answer(&self, known: u64, revoked: impl Fn() -> Result<Vec<String>>) -> Result<Answer> {
        let now = self.clocks.now().steady;
        let entries = self.entries.read();
        let version = *self.version.borrow();
        let complete = known == 0 || known > version;
        if !complete && known == version {
            return Ok(Answer::Nothing);
        }
        let since = if complete { 0 } else { known };
        let news = entries.log.range(since + 1..).map(|(_, number)| number);
        let news = news.filter_map(|number| entries.by_number.get(number));
        if !complete && *self.urgent.borrow() <= known {
            let oldest = news.clone().map(|entry| entry.changed.0).min();
            let pause = self.pause(&entries, oldest, now);
            if !pause.is_zero() {
                return Ok(Answer::Later(pause));
            }
        }
        let mut list = MemberList {
            version,
            present: Vec::new(),
            lost: Vec::new(),
            revoked: (entries.revoked > since).then(revoked).transpose()?,
        };
        let mut tell = |member: &super::members::Member| match (&member.state, member.address) {
            (MemberState::Lost(reason), _) => list.lost.push((member.number, reason.to_string())),
            (_, Some(address)) => list.present.push(MemberAt {
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
        Ok(Answer::News(list))
    }

    /// How long news that are as old as this may still wait for others.
    fn pause(&self, entries: &Entries, oldest: Option<Instant>, now: Instant) -> Duration {
        let workers = u32::try_from(entries.by_number.len()).unwrap_or(u32::MAX);
        let age = oldest.map_or(Duration::MAX, |oldest| {
            now.saturating_duration_since(oldest)
        });
        (PAUSE * workers).saturating_sub(age)
    }

    /// What a worker is told that knows version `known`, as soon as there is something to tell.
    pub(crate) async fn after(
        &self,
        known: u64,
        revoked: impl Fn() -> Result<Vec<String>>,
    ) -> Result<MemberList> {
        // The senders are ours: they are there as long as we are.
        let mut version = self.version.subscribe();
        let mut urgent = self.urgent.subscribe();
        loop {
            version.mark_unchanged();
            urgent.mark_unchanged();
            match self.answer(known, &revoked)? {
                Answer::News(list) => return Ok(list),
                Answer::Nothing => {
                    let _ = version.changed().await;
                }
                // Further arrivals wake nobody: in a burst all workers wait here.
                Answer::Later(pause) => tokio::select! {
                    _ = urgent.changed() => {}
                    () = tokio::time::sleep(pause) => {}
                },
            }
        }
    }

    /// Notes that what is told of a worker has changed, and wakes those who wait for news.
    pub(super) fn changed(&self, entries: &mut Entries, number: u32, is_urgent: bool) {
        let now = self.clocks.now().steady;
        let version = *self.version.borrow() + 1;
        if let Some(entry) = entries.by_number.get_mut(&number) {
            entries.log.remove(&entry.changed.1);
            entries.log.insert(version, number);
            entry.changed = (now, version);
        }
        self.publish(version, is_urgent);
    }

    /// Lets the workers know that somebody was revoked.
    pub(crate) fn revocations_changed(&self) {
        let mut entries = self.entries.write();
        let version = *self.version.borrow() + 1;
        entries.revoked = version;
        self.publish(version, true);
    }

    fn publish(&self, version: u64, is_urgent: bool) {
        if is_urgent {
            self.urgent.send_replace(version);
        }
        self.version.send_replace(version);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::members::ABSENT;
    use super::super::members::tests::arrival;
    use super::super::now::Still;
    use super::*;

    fn still() -> (Arc<Still>, Members) {
        let clocks = Still::new();
        let members = Members::with_clocks([], Arc::clone(&clocks) as _);
        (clocks, members)
    }

    fn nobody() -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    #[test]
    fn without_the_list_of_the_revoked_there_is_no_answer() {
        let unreadable = || datafusion::common::exec_err!("too many open files");
        assert!(Members::new([]).answer(0, unreadable).is_err());
    }

    fn news(members: &Members, known: u64) -> MemberList {
        match members.answer(known, nobody).unwrap() {
            Answer::News(list) => list,
            other => panic!("{other:?}"),
        }
    }

    fn numbers(list: &MemberList) -> Vec<u32> {
        list.present.iter().map(|member| member.number).collect()
    }

    #[tokio::test]
    async fn who_knows_the_present_list_is_told_of_the_next() {
        let members = Members::new([(3, "host-3".to_owned())]);
        let first = members.after(0, || Ok(vec!["node 4".to_owned()]));
        let first = first.await.unwrap();
        assert_eq!(first.lost, [(3, ABSENT.to_owned())]);
        assert_eq!(first.revoked, Some(vec!["node 4".to_owned()]));
        let next = members.after(first.version, nobody);
        let mut next = std::pin::pin!(next);
        let wait = Duration::from_millis(30);
        assert!(tokio::time::timeout(wait, &mut next).await.is_err());
        members.register(arrival(3, 1), drop);
        let next = next.await.unwrap();
        assert_eq!((next.present.len(), next.lost.len()), (1, 0));
        assert_eq!(next.revoked, None);
        members.revocations_changed();
        let last = members.after(next.version, nobody).await.unwrap();
        assert_eq!((last.present.len(), last.revoked), (0, Some(vec![])));
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
            members.answer(all.version, nobody).unwrap(),
            Answer::Nothing
        );
        members.lose(2, 1, "it ended", || {});
        let change = news(&members, all.version);
        assert_eq!((numbers(&change), change.lost.len()), (vec![], 1));
        members.register(arrival(2, 2), drop);
        clocks.go_on(Duration::from_secs(1));
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
        assert_eq!(members.answer(known, nobody).unwrap(), Answer::Later(pause));
        clocks.go_on(pause / 3);
        members.register(arrival(4, 1), drop);
        // It waits for the first of them.
        assert_eq!(members.answer(known, nobody).unwrap(), Answer::Later(pause));
        members.lose(1, 1, "it ended", || {});
        let list = news(&members, known);
        assert_eq!((numbers(&list), list.lost.len()), (vec![3, 4], 1));
        members.register(arrival(5, 1), drop);
        clocks.go_on(PAUSE * 5);
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
