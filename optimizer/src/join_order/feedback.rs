//! Estimates corrected by rows that earlier queries counted.
//!
//! The idea is that of LEO (Stillger, Lohman, Markl and Kandil, "LEO – DB2's LEarning Optimizer", VLDB 2001). Rows are
//! known for relations, not for places in a plan: what one join order has counted is true for all others.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::estimate::Estimate;
use super::island::{Island, LeafSet};
use super::known_rows::{Asked, FeedbackUsed, KnownRows, Returned};
use super::relation::{Relation, Relations, SetRelations};
use super::statistics::Summaries;

/// The q-error from which a correction is worth mentioning.
const LEAST_ERROR: f64 = 2.0;

/// An estimate that an earlier query corrected.
#[derive(Debug, Clone, PartialEq)]
pub struct CorrectedEstimate {
    /// The relation.
    pub relation: Relation,
    /// What it is, for people.
    pub description: String,
    /// Rows by statistics.
    pub estimated: f64,
    /// Rows that an earlier query returned.
    pub returned: Returned,
}

impl Display for CorrectedEstimate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            description,
            estimated,
            returned,
            ..
        } = self;
        let least = if returned.is_all { "" } else { "at least " };
        let (rows, query) = (returned.rows, returned.query_id);
        let estimated = estimated.round();
        write!(
            f,
            "{description}: {least}{rows} rows, which query {query} returned; {estimated} by statistics"
        )
    }
}

/// Rows that earlier queries counted, for one query.
#[derive(Debug)]
pub(super) struct Feedback<'a> {
    relations: &'a Relations<'a>,
    known: Asked<'a>,
    /// Estimates that were corrected, if they are listed.
    corrected: RefCell<Option<Vec<CorrectedEstimate>>>,
    is_paused: Cell<bool>,
}

impl<'a> Feedback<'a> {
    /// What `known` says of the tables of `summaries`; `None` if it says nothing.
    pub(super) fn new(
        relations: &'a Relations<'a>,
        summaries: &Summaries,
        known: &'a KnownRows,
    ) -> Option<Self> {
        known.has_any_of(summaries.versions()).then(|| Self {
            relations,
            known: Asked::new(known),
            corrected: RefCell::default(),
            is_paused: Cell::new(false),
        })
    }

    /// What `estimate` gives without feedback.
    pub(super) fn paused<T>(&self, estimate: impl FnOnce() -> T) -> T {
        let before = self.is_paused.replace(true);
        let estimated = estimate();
        self.is_paused.set(before);
        estimated
    }

    /// Lists the estimates that are corrected within `estimate`.
    pub(super) fn listing<T>(&self, estimate: impl FnOnce() -> T) -> (T, Vec<CorrectedEstimate>) {
        self.corrected.replace(Some(Vec::new()));
        let estimated = estimate();
        (estimated, self.corrected.take().unwrap_or_default())
    }

    /// `estimate` of `plan`, with the number of rows that it returned before.
    pub(super) fn corrected(&self, plan: &LogicalPlan, estimate: Estimate) -> Estimate {
        if self.is_paused.get() || !changes_rows(plan) {
            return estimate;
        }
        let relation = self.relations.of(plan);
        let known = relation.and_then(|relation| Some((relation, self.known.get(relation)?)));
        let Some((relation, returned)) = known else {
            return estimate;
        };
        let rows = (returned.rows as f64).max(1.0);
        if !returned.is_all && rows <= estimate.rows {
            return estimate;
        }
        let error = (rows / estimate.rows).max(estimate.rows / rows);
        if let Some(corrected) = self.corrected.borrow_mut().as_mut()
            && error >= LEAST_ERROR
            && corrected.iter().all(|listed| listed.relation != relation)
        {
            corrected.push(CorrectedEstimate {
                relation,
                description: description(plan),
                estimated: estimate.rows,
                returned,
            });
        }
        let makes_groups = matches!(plan, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_));
        with_rows(estimate, rows, returned.is_all, makes_groups)
    }

    /// Which joins of an island with these `leaves` have been counted.
    pub(super) fn sets(&self, island: &Island, leaves: &[Arc<LogicalPlan>]) -> KnownSets<'_> {
        KnownSets {
            relations: self.relations.of_sets(island, leaves),
            known: &self.known,
        }
    }

    /// What it has told.
    pub(super) fn used(&self) -> FeedbackUsed {
        self.known.answers()
    }
}

/// The sets of an island's leaves that earlier queries joined.
#[derive(Debug)]
pub(super) struct KnownSets<'a> {
    relations: SetRelations,
    known: &'a Asked<'a>,
}

impl KnownSets<'_> {
    /// What the joined leaves of `set` returned.
    pub(super) fn get(&self, set: LeafSet) -> Option<Returned> {
        self.known.get(self.relations.of(set)?)
    }
}

/// Whether the number of rows of `plan` is not that of its input.
pub(super) fn changes_rows(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Filter(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
    )
}

/// `estimate` with another number of rows, which `is_all` says is exact.
fn with_rows(estimate: Estimate, rows: f64, is_all: bool, makes_groups: bool) -> Estimate {
    let worst = if is_all { rows } else { estimate.worst };
    let more = rows / estimate.rows.max(f64::MIN_POSITIVE);
    let mut corrected = match more < 1.0 {
        true => estimate.thinned(more, worst),
        false => estimate,
    };
    if makes_groups && more > 1.0 {
        for column in &mut corrected.columns {
            column.distinct *= more;
        }
    }
    for column in &mut corrected.columns {
        column.distinct = column.distinct.min(rows).max(1.0);
    }
    corrected.rows = rows;
    corrected.worst = worst.max(rows);
    corrected
}

/// What `plan` is, in one line: what it does, and the tables that it reads.
fn description(plan: &LogicalPlan) -> String {
    let mut tables = Vec::new();
    // A list of tables cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            tables.push(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let tables = tables.join(", ");
    let list = |expressions: &[Expr]| {
        let texts: Vec<_> = expressions.iter().map(Expr::to_string).collect();
        texts.join(", ")
    };
    match plan {
        LogicalPlan::Filter(filter) => format!("rows of {tables} where {}", filter.predicate),
        LogicalPlan::Join(join) => format!("{} join of {tables}", join.join_type),
        LogicalPlan::Aggregate(aggregate) => {
            format!("groups of {tables} by {}", list(&aggregate.group_expr))
        }
        _ => format!("distinct rows of {tables}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Joins of sets of an island with so many leaves that earlier queries have counted: their rows, and whether these
    /// are all.
    pub(in super::super) fn joined_before(
        leaves: usize,
        counted: &[(LeafSet, u64, bool)],
    ) -> KnownSets<'static> {
        let relations = SetRelations::of_different(leaves);
        let known = KnownRows::default();
        let counted = counted.iter().map(|(set, rows, is_all)| {
            let returned = Returned {
                rows: *rows,
                is_all: *is_all,
                query_id: 1,
            };
            (relations.of(*set).unwrap(), returned)
        });
        known.remember([], counted);
        let known = Asked::new(Box::leak(Box::new(known)));
        KnownSets {
            relations,
            known: Box::leak(Box::new(known)),
        }
    }
}
