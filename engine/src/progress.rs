//! How far a statement is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use parking_lot::Mutex;
use skewer_cluster::is_exchange_between_workers;

/// How far a statement is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Progress {
    /// Rows returned or written so far.
    pub rows: u64,
    /// Share of its input that has been read, 0 to 1; `None` where the size of the input is not
    /// known.
    pub fraction: Option<f64>,
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
    /// About how many rows there will be; 0 if that is not known.
    expected: AtomicU64,
    finished: AtomicBool,
}

/// A leaf of the plan and how many rows it will read.
#[derive(Debug)]
struct Scan {
    plan: Arc<dyn ExecutionPlan>,
    rows: Option<usize>,
}

impl ProgressHandle {
    /// How far the statement is now.
    pub fn now(&self) -> Progress {
        Progress {
            rows: self.inner.rows.load(Ordering::Relaxed),
            fraction: self.fraction(),
        }
    }

    fn fraction(&self) -> Option<f64> {
        let expected = self.inner.expected.load(Ordering::Relaxed);
        if expected > 0 {
            // An estimate: more rows than expected are no more than nearly all.
            let rows = self.inner.rows.load(Ordering::Relaxed);
            return Some((rows as f64 / expected as f64).min(0.99));
        }
        let scans = self.inner.scans.lock();
        let mut total = 0.0;
        let mut done = 0.0;
        for scan in scans.iter() {
            let rows = scan.rows? as f64;
            let read = scan.plan.metrics().and_then(|m| m.output_rows());
            total += rows;
            done += (read.unwrap_or(0) as f64).min(rows);
        }
        (total > 0.0).then(|| done / total)
    }

    pub(crate) fn add_rows(&self, rows: u64) {
        self.inner.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// About how many rows there will be, where the leaves do not know.
    pub(crate) fn expect_rows(&self, rows: Option<u64>) {
        self.inner
            .expected
            .store(rows.unwrap_or(0), Ordering::Relaxed);
    }

    /// Watches the leaves of `plan`.
    pub(crate) fn watch(&self, plan: &Arc<dyn ExecutionPlan>) {
        let mut leaves = Vec::new();
        collect_leaves(plan, &mut leaves);
        *self.inner.scans.lock() = leaves;
    }

    /// Watches the leaves of a task that a worker is about to run, too.
    pub(crate) fn watch_task(&self, plan: &Arc<dyn ExecutionPlan>) {
        let mut leaves = Vec::new();
        collect_leaves(plan, &mut leaves);
        let mut scans = self.inner.scans.lock();
        // A task may be set up when the query has just been cancelled.
        if !self.inner.finished.load(Ordering::Acquire) {
            scans.extend(leaves);
        }
    }

    /// Lets go of the plan.
    pub(crate) fn finish(&self) {
        let mut scans = self.inner.scans.lock();
        self.inner.finished.store(true, Ordering::Release);
        scans.clear();
    }
}

fn collect_leaves(plan: &Arc<dyn ExecutionPlan>, leaves: &mut Vec<Scan>) {
    // The tasks below are watched when they are set up.
    if is_exchange_between_workers(plan) {
        return;
    }
    let children = plan.children();
    if children.is_empty() {
        let rows = StatisticsContext::new()
            .compute(&**plan, &StatisticsArgs::new())
            .ok()
            .and_then(|statistics| statistics.num_rows.get_value().copied());
        leaves.push(Scan {
            plan: Arc::clone(plan),
            rows,
        });
    }
    for child in children {
        collect_leaves(child, leaves);
    }
}
