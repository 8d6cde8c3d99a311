//! Rows that the scans of a plan have read, of those that there are to read.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::stage_boundaries::is_exchange_between_workers;

/// A leaf of the plan and how many rows it will read.
#[derive(Debug)]
pub struct Scan {
    /// The leaf.
    pub plan: Arc<dyn ExecutionPlan>,
    /// Rows that it will read; `None` if that is not known.
    pub rows: Option<usize>,
}

/// What scans have read, of what there is to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowsRead {
    /// Rows that have been read.
    pub rows: u64,
    /// Rows that there are; `None` if that is not known of some scans.
    pub of: Option<u64>,
}

impl RowsRead {
    /// What no scans have read.
    pub const NOTHING: Self = Self {
        rows: 0,
        of: Some(0),
    };

    /// What both have read.
    pub fn and(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            of: self.of.zip(other.of).map(|(one, two)| one + two),
        }
    }
}

impl Scan {
    /// What the scan `plan` has read so far. Statistics may be wrong, so it is at most `rows`, which were
    /// expected.
    pub fn read(plan: &dyn ExecutionPlan, rows: Option<usize>) -> RowsRead {
        let read = plan.metrics().and_then(|metrics| metrics.output_rows());
        let read = read.unwrap_or(0);
        RowsRead {
            rows: read.min(rows.unwrap_or(read)) as u64,
            of: rows.map(|rows| rows as u64),
        }
    }
}

/// Asks other processes how far their parts of a statement are.
#[async_trait]
pub trait AskTasks: Debug + Send + Sync {
    /// What their scans have read.
    async fn read(&self) -> RowsRead;
}

/// The leaves of a plan that are in this process; those below exchanges between workers are
/// watched when their tasks are set up.
pub fn leaves(plan: &Arc<dyn ExecutionPlan>) -> Vec<Scan> {
    fn collect(plan: &Arc<dyn ExecutionPlan>, leaves: &mut Vec<Scan>) {
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
            collect(child, leaves);
        }
    }
    let mut found = Vec::new();
    collect(plan, &mut found);
    found
}
