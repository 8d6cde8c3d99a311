//! Rows that several places of a plan read, in the rewrite: the same ones, with the same records.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::logical_plan::Projection;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::{AnnotatedPlan, LineageRewrite};
use skewer_compat::logical::common_subplan::Shared;

impl LineageRewrite {
    /// The same rows wherever they are read, with the same records.
    pub(super) fn shared_rows(&mut self, shared: &Shared) -> Result<AnnotatedPlan> {
        let number = shared.number();
        if let Some(known) = self.shared.get(&number).cloned() {
            return self.read_again(known);
        }
        let recursion = shared.recursion().cloned();
        let rows = match recursion {
            Some(_) => self.rewrite(shared.rows()),
            // They are made once, also if the first place is in a recursive term.
            None => {
                let recursions = std::mem::take(&mut self.recursions);
                let rows = self.rewrite(shared.rows());
                self.recursions = recursions;
                rows
            }
        };
        let AnnotatedPlan { plan, records } = rows?;
        let plan = Shared::plan(Arc::new(plan), number, recursion);
        let annotated = AnnotatedPlan { plan, records };
        self.shared.insert(number, annotated.clone());
        Ok(annotated)
    }

    /// The same rows, with names of their own for the hidden columns: a join may have those of several places.
    fn read_again(&mut self, rows: AnnotatedPlan) -> Result<AnnotatedPlan> {
        let hidden = rows.hidden();
        let columns = rows.plan.schema().columns();
        let own = columns
            .into_iter()
            .filter(|column| !hidden.contains(&column.name));
        let mut columns: Vec<Expr> = own.map(Expr::Column).collect();
        let mut names = HashMap::new();
        for (name, column) in hidden.iter().zip(rows.hidden_columns()?) {
            let again = self.name("again");
            columns.push(column.alias(&again));
            for (ids, _) in &mut self.scans {
                if ids.contains(name) {
                    ids.push(again.clone());
                }
            }
            for recursion in &mut self.recursions {
                recursion.read_again(name, &again);
            }
            names.insert(name, again);
        }
        let mut records = rows.records;
        for record in &mut records {
            for name in std::iter::once(&mut record.id).chain(&mut record.latencies) {
                if let Some(again) = names.get(name) {
                    again.clone_into(name);
                }
            }
        }
        let plan = Projection::try_new(columns, Arc::new(rows.plan))?;
        let plan = LogicalPlan::Projection(plan);
        Ok(AnnotatedPlan { plan, records })
    }

    /// `plan` with shared rows made at one place, as they have been rewritten, also for places that have not
    /// been, as the values that a subquery is asked for.
    ///
    /// # Errors
    /// None of its own; those of rewriting a plan.
    pub fn with_shared_rows(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let shared = self.shared.values().filter_map(|annotated| {
            let shared = Shared::from_plan(&annotated.plan)?;
            Some((shared.number(), Arc::clone(shared.rows())))
        });
        Shared::made_at_one_place(plan, &shared.collect())
    }
}
