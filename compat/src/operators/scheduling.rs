//! Sharing the processors among queries, and ending queries that are cancelled.
//!
//! A thread cannot be taken from a poll: an operator may sort a million rows in one, or call a function that
//! takes seconds for a row. So there are more threads than processors, and [`Scheduler`] decides who uses
//! them:
//!
//! * A query that has not run for long ([`SHORT`]) shares its own permits with nobody: it runs at once,
//!   also while others compute.
//! * Queries that have run for longer share as many permits as there are processors. A poll may keep one for
//!   seconds. Whoever has waited for [`PATIENCE`] may work overtime, but no more than so many again: a sort
//!   computes the keys of each batch in a task of its own, and would take all threads.
//!
//! So one query never runs on more threads than there are processors, which would disturb what the profiler
//! measures. While a task is polled its thread knows the query: what takes long asks [`check_cancelled`] and
//! [`poll_time`]. Tasks that operators spawn meanwhile belong to the query, too ([`inherit_queries`]).

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use datafusion::common::{Result, exec_err};
use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn, select};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::coop::unconstrained;
use tokio::time::timeout;

/// A query that has used the processors for no longer than this, on all threads together, does not wait for
/// others.
pub const SHORT: Duration = Duration::from_millis(100);

/// After such a wait for a permit a task may work overtime: others may keep theirs for a poll that takes
/// seconds.
const PATIENCE: Duration = Duration::from_millis(200);

/// Who may use the processors. One for all queries of a database, or of a worker.
#[derive(Debug)]
pub struct Scheduler {
    processors: usize,
    /// Shared by queries that have run for long.
    permits: Arc<Semaphore>,
    /// Shared by tasks that have waited for a permit for long.
    overtime: Arc<Semaphore>,
}

impl Scheduler {
    /// Long queries run on `processors` threads together.
    pub fn new(processors: usize) -> Arc<Self> {
        let processors = processors.max(1);
        Arc::new(Self {
            processors,
            permits: Arc::new(Semaphore::new(processors)),
            overtime: Arc::new(Semaphore::new(processors)),
        })
    }

    /// A query that begins, and ends when `cancellation` says so.
    pub fn query(self: &Arc<Self>, cancellation: Cancellation) -> Arc<RunningQuery> {
        Arc::new(RunningQuery {
            cancellation,
            used_ns: AtomicU64::new(0),
            permits: Arc::new(Semaphore::new(self.processors)),
            scheduler: Arc::clone(self),
        })
    }
}

/// Whether a statement has been cancelled. Clones are about the same statement.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<Cancelled>);

#[derive(Debug, Default)]
struct Cancelled {
    is_cancelled: AtomicBool,
    told: Notify,
}

impl Cancellation {
    /// Cancels the statement: what computes for it ends as soon as it looks, and what waits is woken.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Waits until the statement is cancelled.
    pub async fn cancelled(&self) {
        let mut told = std::pin::pin!(self.0.told.notified());
        // From here on a call of `notify_waiters` is not missed.
        told.as_mut().enable();
        if !self.is_cancelled() {
            told.await;
        }
    }
}

/// A query, as the scheduler sees it.
#[derive(Debug)]
pub struct RunningQuery {
    cancellation: Cancellation,
    /// What polls of its tasks have taken.
    used_ns: AtomicU64,
    /// Used as long as the query is short.
    permits: Arc<Semaphore>,
    scheduler: Arc<Scheduler>,
}

impl RunningQuery {
    /// Tells the query that it is cancelled, or asks whether it is.
    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    fn permits(&self) -> &Arc<Semaphore> {
        match self.used_ns.load(Ordering::Relaxed) < SHORT.as_nanos() as u64 {
            true => &self.permits,
            false => &self.scheduler.permits,
        }
    }

    fn used(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.used_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// Says that a part of a query is over although the query goes on.
pub type IsOver = Arc<dyn Fn() -> bool + Send + Sync>;

type Waiting = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// One stream of a query, where it is polled by a task.
pub struct ScheduledStream {
    query: Arc<RunningQuery>,
    is_over: Option<IsOver>,
    /// What earlier polls have taken.
    used: Duration,
    waiting: Option<Waiting>,
}

impl fmt::Debug for ScheduledStream {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("ScheduledStream")
            .field("query", &self.query)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl ScheduledStream {
    /// A stream of `query`, whose part of it may be over before the query is.
    pub fn new(query: Arc<RunningQuery>, is_over: Option<IsOver>) -> Self {
        Self {
            query,
            is_over,
            used: Duration::ZERO,
            waiting: None,
        }
    }

    /// Polls, as soon as the query may use a processor. Within the poll of another stream it may already.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if CURRENT.with_borrow(Option::is_some) {
            return poll(cx);
        }
        // What is cancelled notices when it is polled: it need not wait for that.
        let permit = match self.is_cancelled() {
            true => None,
            false => ready!(self.permit(cx)),
        };
        let began = Instant::now();
        CURRENT.set(Some(Current {
            query: Arc::clone(&self.query),
            is_over: self.is_over.clone(),
            began,
            used_before: self.used,
        }));
        let polling = Polling {
            stream: self,
            began,
            _permit: permit,
        };
        let polled = poll(cx);
        drop(polling);
        polled
    }

    fn is_cancelled(&self) -> bool {
        self.query.cancellation.is_cancelled() || self.is_over.as_ref().is_some_and(|over| over())
    }

    /// The right to use a processor. `None` where nobody could wait for it.
    fn permit(&mut self, cx: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.waiting.is_none() {
            let permits = Arc::clone(self.query.permits());
            if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
                return Poll::Ready(Some(permit));
            }
            if tokio::runtime::Handle::try_current().is_err() {
                // Nobody could wake it up.
                return Poll::Ready(None);
            }
            let overtime = Arc::clone(&self.query.scheduler.overtime);
            let acquired = async move {
                // It keeps its place among those that wait.
                let mut permit = pin!(permits.acquire_owned());
                if let Ok(permit) = timeout(PATIENCE, &mut permit).await {
                    return permit.ok();
                }
                let overtime = pin!(overtime.acquire_owned());
                select(permit, overtime).await.factor_first().0.ok()
            };
            self.waiting = Some(Box::pin(unconstrained(acquired)));
        }
        let Some(waiting) = &mut self.waiting else {
            return Poll::Ready(None);
        };
        let permit = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(permit)
    }
}

/// A poll under way; it ends when this is dropped, also by a panic.
struct Polling<'a> {
    stream: &'a mut ScheduledStream,
    began: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        CURRENT.set(None);
        let took = self.began.elapsed();
        self.stream.used += took;
        self.stream.query.used(took);
    }
}

/// The poll under way on a thread.
struct Current {
    query: Arc<RunningQuery>,
    is_over: Option<IsOver>,
    began: Instant,
    /// What earlier polls of the same stream have taken.
    used_before: Duration,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Has tasks that DataFusion's operators spawn belong to the query of the task that spawns them: a sort, for
/// example, sorts each batch in one. It does nothing in a program that has set a
/// [tracer](JoinSetTracer) of its own, a process can have only one.
pub fn inherit_queries() {
    // That it is there already is as good.
    let _ = set_join_set_tracer(&InheritQueries);
}

struct InheritQueries;

impl JoinSetTracer for InheritQueries {
    fn trace_future(
        &self,
        mut task: BoxFuture<'static, Box<dyn Any + Send>>,
    ) -> BoxFuture<'static, Box<dyn Any + Send>> {
        let current = CURRENT.with_borrow(|current| {
            let current = current.as_ref()?;
            let query = Arc::clone(&current.query);
            Some(ScheduledStream::new(query, current.is_over.clone()))
        });
        match current {
            Some(mut scheduled) => {
                poll_fn(move |cx| scheduled.poll(cx, |cx| task.poll_unpin(cx))).boxed()
            }
            None => task,
        }
    }

    fn trace_block(
        &self,
        block: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> {
        block
    }
}

/// Whether nobody wants what this thread computes.
pub fn is_cancelled() -> bool {
    CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|current| {
            current.query.cancellation.is_cancelled()
                || current.is_over.as_ref().is_some_and(|over| over())
        })
    })
}

/// Ends a computation that nobody wants.
///
/// # Errors
/// If the query that this thread works for is over.
pub fn check_cancelled() -> Result<()> {
    match is_cancelled() {
        true => exec_err!("the query is over"),
        false => Ok(()),
    }
}

/// How long the poll under way on this thread has taken so far; zero outside of any.
pub fn poll_time(now: Instant) -> Duration {
    CURRENT.with_borrow(|current| match current {
        Some(current) => now.duration_since(current.began),
        None => Duration::ZERO,
    })
}

/// How long the task under way on this thread has run so far, in all its polls: a clock that stands still
/// while the task waits. Zero outside of any.
pub fn task_time(now: Instant) -> Duration {
    CURRENT.with_borrow(|current| match current {
        Some(current) => current.used_before + now.duration_since(current.began),
        None => Duration::ZERO,
    })
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::task::Waker;

    use datafusion::common::runtime::JoinSet;

    use super::*;

    fn stream(query: &Arc<RunningQuery>) -> ScheduledStream {
        ScheduledStream::new(Arc::clone(query), None)
    }

    /// A query that has run for so long that it shares the processors.
    fn long(scheduler: &Arc<Scheduler>) -> Arc<RunningQuery> {
        let query = scheduler.query(Cancellation::default());
        query.used(SHORT);
        query
    }

    #[tokio::test]
    async fn long_queries_wait_for_each_other_and_short_ones_do_not() {
        let scheduler = Scheduler::new(1);
        let (one, two) = (long(&scheduler), long(&scheduler));
        let short = scheduler.query(Cancellation::default());
        let mut waiting = stream(&two);
        let cx = &mut Context::from_waker(Waker::noop());
        // Threads of their own, as the poll under way is one of another task.
        let polled = stream(&one).poll(cx, |_| {
            std::thread::scope(|scope| {
                let of_short = scope.spawn(|| {
                    let cx = &mut Context::from_waker(Waker::noop());
                    stream(&short).poll(cx, |_| Poll::Ready(1))
                });
                assert_eq!(of_short.join().unwrap(), Poll::Ready(1));
            });
            let runtime = tokio::runtime::Handle::current();
            std::thread::scope(|scope| {
                let of_long = scope.spawn(|| {
                    let _within = runtime.enter();
                    let cx = &mut Context::from_waker(Waker::noop());
                    waiting.poll(cx, |_| Poll::Ready(2))
                });
                assert_eq!(of_long.join().unwrap(), Poll::Pending);
            });
            Poll::Ready(0)
        });
        assert_eq!(polled, Poll::Ready(0));
        let polled = poll_fn(|cx| waiting.poll(cx, |_| Poll::Ready(2)));
        assert_eq!(polled.await, 2);
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let scheduler = Scheduler::new(1);
        let _kept = Arc::clone(&scheduler.permits).try_acquire_owned().unwrap();
        let mut stream = stream(&long(&scheduler));
        let polled = poll_fn(|cx| stream.poll(cx, |_| Poll::Ready(1)));
        assert_eq!(polled.await, 1);
    }

    #[tokio::test]
    async fn only_so_many_work_overtime() {
        let scheduler = Scheduler::new(1);
        let query = long(&scheduler);
        let kept = Arc::clone(&scheduler.permits).try_acquire_owned().unwrap();
        let _overtime = Arc::clone(&scheduler.overtime).try_acquire_owned().unwrap();
        let mut stream = stream(&query);
        let mut waiting = pin!(poll_fn(|cx| stream.poll(cx, |_| Poll::Ready(1))));
        assert!(timeout(3 * PATIENCE, &mut waiting).await.is_err());
        drop(kept);
        assert_eq!(waiting.await, 1);
    }

    #[test]
    fn a_thread_knows_whether_its_query_is_cancelled() {
        let scheduler = Scheduler::new(1);
        let cancellation = Cancellation::default();
        let query = scheduler.query(cancellation.clone());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(check_cancelled().is_ok());
        let polled = stream(&query).poll(cx, |_| {
            assert!(check_cancelled().is_ok());
            cancellation.cancel();
            Poll::Ready(check_cancelled().is_err())
        });
        assert_eq!(polled, Poll::Ready(true));
        assert!(check_cancelled().is_ok());
        let over: IsOver = Arc::new(|| true);
        let query = scheduler.query(Cancellation::default());
        let mut part = ScheduledStream::new(query, Some(over));
        let polled = part.poll(cx, |_| Poll::Ready(is_cancelled()));
        assert_eq!(polled, Poll::Ready(true));
    }

    #[tokio::test]
    async fn tasks_that_are_spawned_belong_to_the_query() {
        inherit_queries();
        let cancellation = Cancellation::default();
        let query = Scheduler::new(1).query(cancellation.clone());
        let cx = &mut Context::from_waker(Waker::noop());
        let mut tasks = JoinSet::new();
        let polled = stream(&query).poll(cx, |_| {
            tasks.spawn(async { check_cancelled().is_err() });
            Poll::Ready(())
        });
        assert_eq!(polled, Poll::Ready(()));
        cancellation.cancel();
        tasks.spawn(async { check_cancelled().is_err() });
        let mut known = vec![];
        while let Some(task) = tasks.join_next().await {
            known.push(task.unwrap());
        }
        known.sort_unstable();
        assert_eq!(known, [false, true]);
    }

    #[test]
    fn a_panic_ends_the_poll() {
        let scheduler = Scheduler::new(1);
        let query = long(&scheduler);
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let cx = &mut Context::from_waker(Waker::noop());
            let _: Poll<()> = stream(&query).poll(cx, |_| panic!("in an operator"));
        }));
        assert!(result.is_err());
        assert_eq!(task_time(Instant::now()), Duration::ZERO);
        assert_eq!(scheduler.permits.available_permits(), 1);
    }
}
