//! Queries as they end, for programs that follow them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use skewer_profiling::Level;
use skewer_sql::TraceParent;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// A statement that has ended, and whose rows schema `sys` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedQuery {
    /// Its id in schema `sys`.
    pub query_id: i64,
    /// How much was recorded of it.
    pub level: Level,
    /// The span of its caller.
    pub trace_parent: Option<TraceParent>,
}

/// The statements that end from now on, in the order of their ends: [`Database::ended_queries`].
///
/// No statement waits for whoever reads this. What does not fit into the queue is missed.
///
/// [`Database::ended_queries`]: crate::Database::ended_queries
#[derive(Debug)]
pub struct EndedQueries {
    queue: mpsc::Receiver<EndedQuery>,
    missed: Arc<AtomicU64>,
}

impl EndedQueries {
    /// Waits until a statement has ended; gives at most `most`. Empty once the database is closed.
    pub async fn next(&mut self, most: usize) -> Vec<EndedQuery> {
        let mut ended = Vec::new();
        self.queue.recv_many(&mut ended, most).await;
        ended
    }

    /// At most `most` of the statements that have ended already.
    pub fn waiting(&mut self, most: usize) -> Vec<EndedQuery> {
        let waiting = std::iter::from_fn(|| self.queue.try_recv().ok());
        waiting.take(most).collect()
    }

    /// How many statements were missed so far.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// Whoever follows a database's queries.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Vec<Follower>>);

#[derive(Debug)]
struct Follower {
    queue: mpsc::Sender<EndedQuery>,
    missed: Arc<AtomicU64>,
}

impl Followers {
    /// Follows queries; so many may wait to be read.
    pub(crate) fn follow(&self, waiting: usize) -> EndedQueries {
        let (sender, queue) = mpsc::channel(waiting.max(1));
        let missed = Arc::<AtomicU64>::default();
        self.0.lock().push(Follower {
            queue: sender,
            missed: Arc::clone(&missed),
        });
        EndedQueries { queue, missed }
    }

    /// Tells that a query has ended. Waits for nobody.
    pub(crate) fn tell(&self, ended: EndedQuery) {
        self.0
            .lock()
            .retain(|follower| match follower.queue.try_send(ended) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    follower.missed.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(TrySendError::Closed(_)) => false,
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_slow_misses_queries_and_holds_up_nobody() {
        let followers = Followers::default();
        let ended = |query_id| EndedQuery {
            query_id,
            level: Level::Counters,
            trace_parent: None,
        };
        let mut slow = followers.follow(2);
        drop(followers.follow(1));
        for query_id in 1..=5 {
            followers.tell(ended(query_id));
        }
        assert_eq!(followers.0.lock().len(), 1, "who is gone is not told");
        assert_eq!(slow.missed(), 3);
        assert_eq!(slow.next(1).await, [ended(1)]);
        assert_eq!(slow.waiting(9), [ended(2)]);
        assert_eq!(slow.waiting(9), []);
        drop(followers);
        assert_eq!(slow.next(9).await, []);
    }
}
