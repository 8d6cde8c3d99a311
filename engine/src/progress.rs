//! How far a statement is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use skewer_cluster::rows_read::{AskTasks, RowsRead, Scan, leaves};
use skewer_exec::waits::Waits;
use tokio::runtime::Handle;

/// Other processes are asked at most so often how far they are, and only while somebody looks.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// How far a statement is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// Rows returned or written so far.
    pub rows: u64,
    /// Share of its input that has been read, 0 to 1; `None` where the size of the input is not
    /// known.
    pub fraction: Option<f64>,
    /// Whether it waits for admission, since as many others run as may.
    pub queued: bool,
}

/// Looks at a running statement from another task; cheap to clone, and it stays valid after the
/// end.
#[derive(Debug, Clone, Default)]
pub struct ProgressHandle {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rows: AtomicU64,
    scans: Mutex<Vec<Scan>>,
    /// Scans in other processes, if there are any.
    elsewhere: Mutex<Option<Elsewhere>>,
    /// About how many rows there will be; 0 if that is not known.
    expected: AtomicU64,
    queued: AtomicBool,
    waits: Arc<Waits>,
    finished: AtomicBool,
}

/// The parts of a statement in other processes.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    tasks: Arc<dyn AskTasks>,
    runtime: Handle,
    /// The last answer.
    known: Option<RowsRead>,
    asked: Option<Instant>,
}

impl Elsewhere {
    /// `tasks` are asked on `runtime`.
    pub(crate) fn new(tasks: Arc<dyn AskTasks>, runtime: Handle) -> Self {
        Self {
            tasks,
            runtime,
            known: None,
            asked: None,
        }
    }
}

impl ProgressHandle {
    /// How far the statement is now.
    pub fn now(&self) -> Progress {
        Progress {
            rows: self.inner.rows.load(Ordering::Relaxed),
            fraction: self.fraction(),
            queued: self.inner.queued.load(Ordering::Relaxed),
        }
    }

    /// Which operators of the statement wait now, and for which of their inputs: for somebody who looks
    /// into why it does not go on. Of a cluster, those in this process.
    pub fn waits(&self) -> String {
        self.inner.waits.describe()
    }

    /// What the operators of the statement do.
    pub(crate) fn operators(&self) -> &Arc<Waits> {
        &self.inner.waits
    }

    fn fraction(&self) -> Option<f64> {
        let expected = self.inner.expected.load(Ordering::Relaxed);
        if expected > 0 {
            // An estimate: more rows than expected are no more than nearly all.
            let rows = self.inner.rows.load(Ordering::Relaxed);
            return Some((rows as f64 / expected as f64).min(0.99));
        }
        let here = {
            let scans = self.inner.scans.lock();
            let read = scans.iter().map(|scan| Scan::read(&*scan.plan, scan.rows));
            read.fold(RowsRead::NOTHING, RowsRead::and)
        };
        let RowsRead { rows, of } = here.and(self.elsewhere());
        let of = of.filter(|of| *of > 0)?;
        Some(rows as f64 / of as f64)
    }

    /// What has been read in other processes when they were last asked; asks again if that is
    /// some time ago.
    fn elsewhere(&self) -> RowsRead {
        let mut elsewhere = self.inner.elsewhere.lock();
        let Some(elsewhere) = elsewhere.as_mut() else {
            return RowsRead::NOTHING;
        };
        if elsewhere
            .asked
            .is_none_or(|asked| asked.elapsed() >= ASKED_EVERY)
        {
            elsewhere.asked = Some(Instant::now());
            let (tasks, progress) = (Arc::clone(&elsewhere.tasks), self.clone());
            elsewhere.runtime.spawn(async move {
                let read = tasks.read().await;
                if let Some(elsewhere) = progress.inner.elsewhere.lock().as_mut() {
                    elsewhere.known = Some(read);
                }
            });
        }
        elsewhere.known.unwrap_or_default()
    }

    pub(crate) fn add_rows(&self, rows: u64) {
        self.inner.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn set_queued(&self, queued: bool) {
        self.inner.queued.store(queued, Ordering::Relaxed);
    }

    /// About how many rows there will be, where the leaves do not know.
    pub(crate) fn expect_rows(&self, rows: Option<u64>) {
        self.inner
            .expected
            .store(rows.unwrap_or(0), Ordering::Relaxed);
    }

    /// Watches the leaves of `plan`.
    pub(crate) fn watch(&self, plan: &Arc<dyn ExecutionPlan>) {
        *self.inner.scans.lock() = leaves(plan);
    }

    /// Watches the leaves of a task that a worker is about to run, too.
    pub(crate) fn watch_task(&self, plan: &Arc<dyn ExecutionPlan>) {
        let leaves = leaves(plan);
        let mut scans = self.inner.scans.lock();
        // A task may be set up when the query has just been cancelled.
        if !self.is_finished() {
            scans.extend(leaves);
        }
    }

    /// Asks for what tasks in other processes read.
    pub(crate) fn ask(&self, tasks: Option<Elsewhere>) {
        *self.inner.elsewhere.lock() = tasks;
    }

    /// Whether the statement has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.inner.finished.load(Ordering::Acquire)
    }

    /// Lets go of the plan.
    pub(crate) fn finish(&self) {
        let mut scans = self.inner.scans.lock();
        self.inner.finished.store(true, Ordering::Release);
        scans.clear();
        drop(scans);
        self.inner.waits.forget();
        self.ask(None);
    }
}
