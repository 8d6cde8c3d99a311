//! Admission: how many statements run queries at once. The others wait in order of arrival.
//!
//! ```text
//! arrive ──▶ waiting ──▶ running ──▶ gone        waiting: from the first to the last
//!                └──── cancelled ─────▲
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use skewer_compat::operators::scheduling::Cancellation;
use skewer_profiling::Recorder;
use tokio::sync::Notify;

use crate::progress::ProgressHandle;

/// How many run at once unless said otherwise: as many as PostgreSQL has connections.
pub(crate) const DEFAULT_LIMIT: usize = 100;

/// The queue of the statements that run queries, or wait to.
#[derive(Debug)]
pub(crate) struct AdmissionQueue {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` for any number.
    limit: Option<usize>,
    running: usize,
    /// In the order in which they came.
    waiting: VecDeque<u64>,
    /// By the order in which they came.
    statements: BTreeMap<u64, Entry>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    statement: QueuedStatement,
    is_admitted: bool,
    /// Told when it is.
    admitted: Arc<Notify>,
}

/// A statement that runs queries, or waits to.
#[derive(Debug, Clone)]
pub(crate) struct QueuedStatement {
    pub(crate) query_id: i64,
    pub(crate) sql: String,
    /// When it came.
    pub(crate) since: SystemTime,
    pub(crate) progress: ProgressHandle,
    pub(crate) cancellation: Cancellation,
    /// What its operators report to.
    pub(crate) recorder: Weak<Recorder>,
}

/// A statement may run queries until this is dropped; then the next one is admitted.
#[derive(Debug)]
pub(crate) struct Admission {
    queue: Arc<AdmissionQueue>,
    number: u64,
    /// Whether others were before it.
    pub(crate) has_waited: bool,
}

impl AdmissionQueue {
    /// So many statements run at once.
    pub(crate) fn new(limit: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                limit,
                running: 0,
                waiting: VecDeque::new(),
                statements: BTreeMap::new(),
                last: 0,
            }),
        })
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        self.state.lock().limit
    }

    /// Statements that run go on, if they are more.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        let mut state = self.state.lock();
        state.limit = limit;
        state.admit();
    }

    /// Waits until a statement is admitted. Dropping the future gives the place in the queue up.
    pub(crate) async fn admit(self: &Arc<Self>, statement: QueuedStatement) -> Admission {
        let progress = statement.progress.clone();
        let (mut admission, admitted) = {
            let mut state = self.state.lock();
            state.last += 1;
            let number = state.last;
            let admitted = Arc::new(Notify::new());
            let entry = Entry {
                statement,
                is_admitted: false,
                admitted: Arc::clone(&admitted),
            };
            state.statements.insert(number, entry);
            state.waiting.push_back(number);
            state.admit();
            let admission = Admission {
                queue: Arc::clone(self),
                number,
                has_waited: false,
            };
            (admission, admitted)
        };
        while !admission.is_granted() {
            admission.has_waited = true;
            progress.set_queued(true);
            admitted.notified().await;
        }
        progress.set_queued(false);
        admission
    }

    /// Cancels a statement that runs or waits; `false` if there is none of the id.
    pub(crate) fn cancel(&self, query_id: i64) -> bool {
        let state = self.state.lock();
        let mut statements = state.statements.values();
        let found = statements.find(|entry| entry.statement.query_id == query_id);
        if let Some(entry) = found {
            entry.statement.cancellation.cancel();
        }
        found.is_some()
    }

    /// All of them, each with whether it is admitted.
    pub(crate) fn list(&self) -> Vec<(QueuedStatement, bool)> {
        let state = self.state.lock();
        let statements = state.statements.values();
        statements
            .map(|entry| (entry.statement.clone(), entry.is_admitted))
            .collect()
    }
}

impl State {
    /// Admits statements that wait, as far as the limit allows.
    fn admit(&mut self) {
        while self.limit.is_none_or(|limit| self.running < limit) {
            let Some(next) = self.waiting.pop_front() else {
                return;
            };
            if let Some(entry) = self.statements.get_mut(&next) {
                entry.is_admitted = true;
                self.running += 1;
                entry.admitted.notify_one();
            }
        }
    }
}

impl Admission {
    fn is_granted(&self) -> bool {
        let state = self.queue.state.lock();
        let entry = state.statements.get(&self.number);
        entry.is_some_and(|entry| entry.is_admitted)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        let Some(entry) = state.statements.remove(&self.number) else {
            return;
        };
        if entry.is_admitted {
            state.running -= 1;
            state.admit();
        } else {
            let number = self.number;
            state.waiting.retain(|waiting| *waiting != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn statement(query_id: i64) -> QueuedStatement {
        QueuedStatement {
            query_id,
            sql: String::new(),
            since: SystemTime::UNIX_EPOCH,
            progress: ProgressHandle::default(),
            cancellation: Cancellation::default(),
            recorder: Weak::new(),
        }
    }

    /// The ids of those that run, and of those that wait.
    fn seen(queue: &AdmissionQueue) -> (Vec<i64>, Vec<i64>) {
        let (running, waiting): (Vec<_>, Vec<_>) = queue
            .list()
            .into_iter()
            .partition(|(_, is_admitted)| *is_admitted);
        let ids = |statements: Vec<(QueuedStatement, bool)>| {
            let ids = statements.iter().map(|(statement, _)| statement.query_id);
            ids.collect()
        };
        (ids(running), ids(waiting))
    }

    #[test]
    fn admissions_come_in_the_order_of_arrival_and_cancelled_ones_are_passed_over() {
        let queue = AdmissionQueue::new(Some(2));
        let first = queue.admit(statement(1)).now_or_never().unwrap();
        let second = queue.admit(statement(2)).now_or_never().unwrap();
        assert!(!first.has_waited && !second.has_waited);
        let waits = statement(3);
        let progress = waits.progress.clone();
        let mut third = Box::pin(queue.admit(waits));
        let mut fourth = Box::pin(queue.admit(statement(4)));
        let mut fifth = Box::pin(queue.admit(statement(5)));
        for future in [&mut third, &mut fourth, &mut fifth] {
            assert!(future.as_mut().now_or_never().is_none());
        }
        assert!(progress.now().queued);
        assert_eq!(seen(&queue), (vec![1, 2], vec![3, 4, 5]));
        drop(fourth);
        drop(first);
        // It is admitted, and cancelled before it knows.
        assert_eq!(seen(&queue), (vec![2, 3], vec![5]));
        drop(third);
        let fifth = fifth.now_or_never().unwrap();
        assert!(fifth.has_waited);
        assert_eq!(seen(&queue), (vec![2, 5], vec![]));
        drop((second, fifth));
        assert_eq!(seen(&queue), (vec![], vec![]));
    }

    #[test]
    fn a_limit_that_is_raised_lets_those_in_that_wait() {
        let queue = AdmissionQueue::new(Some(1));
        let _first = queue.admit(statement(1)).now_or_never().unwrap();
        let mut second = Box::pin(queue.admit(statement(2)));
        let mut third = Box::pin(queue.admit(statement(3)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        queue.set_limit(Some(2));
        let second = second.now_or_never().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        queue.set_limit(Some(1));
        drop(second);
        assert!(third.as_mut().now_or_never().is_none());
        queue.set_limit(None);
        assert!(third.now_or_never().is_some());
    }
}
