//! The members of a cluster, with tasks that wait for what becomes of them.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use crate::membership::{Answer, Arrival, Clocks, Members, MembershipDelta, Now};

/// Between two looks whether queries that need a worker are over.
const LOOK: Duration = Duration::from_millis(5);

/// The clocks of the system.
#[derive(Debug, Clone, Copy, Default)]
struct SystemClocks;

impl Clocks for SystemClocks {
    fn now(&self) -> Now {
        Now {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }
}

/// [`Members`] by the clocks of the system. Its own methods also wake whoever waits in
/// [`after`](Self::after).
#[derive(Debug)]
pub(crate) struct WatchedMembers {
    members: Members,
    /// The version of the list, for those who wait for a later one.
    version: watch::Sender<u64>,
    /// The version of the last change that does not bear waiting.
    urgent: watch::Sender<u64>,
}

impl Deref for WatchedMembers {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}

impl WatchedMembers {
    /// The workers that have certificates; none of them has come.
    pub(crate) fn new(known: impl IntoIterator<Item = (u32, String)>) -> Self {
        let members = Members::new(known, Arc::new(SystemClocks));
        Self {
            version: watch::Sender::new(members.version()),
            urgent: watch::Sender::new(members.urgent_version()),
            members,
        }
    }

    /// [`Members::register`].
    pub(crate) fn register<T>(&self, arrival: Arrival, before: impl FnOnce(bool) -> T) -> T {
        let result = self.members.register(arrival, before);
        self.wake();
        result
    }

    /// [`Members::lose`]. Those who wait are woken before `after` is called.
    pub(crate) fn lose(
        &self,
        number: u32,
        incarnation: u64,
        reason: &str,
        after: impl FnOnce(),
    ) -> bool {
        self.members.lose(number, incarnation, reason, || {
            self.wake();
            after();
        })
    }

    /// [`Members::revocations_changed`].
    pub(crate) fn revocations_changed(&self) {
        self.members.revocations_changed();
        self.wake();
    }

    /// A worker is about to end: no further query runs on it. Returns when those that do are
    /// over.
    pub(crate) async fn leave(&self, number: u32, incarnation: u64) {
        let Some(queries) = self.members.leave(number, incarnation) else {
            return;
        };
        while !queries.are_over() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What a worker is told that knows version `known`, as soon as there is something to tell.
    ///
    /// # Errors
    /// Those of `revoked`, which says which certificates are not valid any more.
    pub(crate) async fn after<E>(
        &self,
        known: u64,
        revoked: impl Fn() -> Result<Vec<String>, E>,
    ) -> Result<MembershipDelta, E> {
        // The senders are ours: they are there as long as we are.
        let mut version = self.version.subscribe();
        let mut urgent = self.urgent.subscribe();
        loop {
            version.mark_unchanged();
            urgent.mark_unchanged();
            match self.members.delta_since(known, &revoked)? {
                Answer::News(delta) => return Ok(delta),
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

    /// Wakes those who wait for a later version. Others may change the members meanwhile, and wake the same.
    fn wake(&self) {
        let raise = |sender: &watch::Sender<u64>, version: u64| {
            sender.send_if_modified(|known| {
                let is_later = version > *known;
                *known = version.max(*known);
                is_later
            });
        };
        raise(&self.urgent, self.members.urgent_version());
        raise(&self.version, self.members.version());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::membership::ABSENT;
    use crate::membership::tests::arrival;

    fn nobody() -> Result<Vec<String>, Infallible> {
        Ok(Vec::new())
    }

    #[tokio::test]
    async fn who_knows_the_present_list_is_told_of_the_next() {
        let members = WatchedMembers::new([(3, "host-3".to_owned())]);
        let first = members.after(0, || Ok::<_, Infallible>(vec!["node 4".to_owned()]));
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

    #[tokio::test]
    async fn a_worker_that_leaves_gets_no_query_any_more_and_may_go_when_the_last_one_is_over() {
        let members = WatchedMembers::new([]);
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
}
