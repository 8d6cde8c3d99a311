//! Rows that several places of a plan read, in the rewrite: the same ones, with the same records.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;

use super::{LineageRewrite, TrackedPlan};
use crate::shared_rows::Shared;

impl LineageRewrite {
    /// The same rows wherever they are read, with the same records.
    pub(super) fn shared_rows(&mut self, shared: &Shared) -> Result<TrackedPlan> {
        let number = shared.number();
        if let Some(known) = self.shared.get(&number) {
            return Ok(known.clone());
        }
        // They are made once, also if the first place is in a recursive term.
        let recursions = std::mem::take(&mut self.recursions);
        let rows = self.rewrite(shared.rows());
        self.recursions = recursions;
        let TrackedPlan { plan, records } = rows?;
        let plan = Shared::plan(Arc::new(plan), number);
        let tracked = TrackedPlan { plan, records };
        self.shared.insert(number, tracked.clone());
        Ok(tracked)
    }

    /// `plan` with shared rows made at one place, as they have been rewritten, also for places that have not
    /// been, as the values that a subquery is asked for.
    ///
    /// # Errors
    /// None of its own; those of rewriting a plan.
    pub fn with_shared_rows(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let shared = self.shared.values().filter_map(|tracked| {
            let shared = Shared::of(&tracked.plan)?;
            Some((shared.number(), Arc::clone(shared.rows())))
        });
        Shared::made_at_one_place(plan, &shared.collect())
    }
}
