//! Semi-join reducers: an aggregate makes only the groups that a join above it asks for.
//!
//! A correlated subquery becomes an aggregate of a whole table, whose groups are then joined with a few rows
//! (queries 2, 17 and 20 of TPC-H). Below the aggregate, a semi join with the keys of these rows leaves the rest
//! of the table out. The keys are read a second time, from a part of the other side that takes little. This is
//! sideways information passing (Mumick, Pirahesh: "Implementation of Magic-sets in a Relational Database
//! System", SIGMOD 1994).
//!
//! The keys are a domain for the lineage rewrite: no record of them is part of a group.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result, TableReference, internal_err};
use datafusion::logical_expr::logical_plan::{
    Join, JoinConstraint, Projection, SubqueryAlias, TableScan,
};
use datafusion::logical_expr::{Expr, LogicalPlan};
use skewer_compat::logical::decorrelate::DOMAIN;
use skewer_compat::rules::has_subquery;

use super::cardinality::Estimator;

/// What a row costs that is aggregated by many keys, relative to one that is read or that looks for a partner.
const AGGREGATED: f64 = 5.0;
/// The share of an aggregate's cost that it may have with a reducer.
const CLEARLY_CHEAPER: f64 = 0.6;
/// Rows of an aggregate that are not worth a reducer.
const FEW_ROWS: f64 = 50_000.0;
/// Nested nodes that are looked through.
const MOST_NESTED: usize = 100;

/// Puts semi joins below aggregates.
pub(super) struct Reducers<'a> {
    /// `None` puts them wherever they do not change a result: for tests.
    pub(super) estimator: Option<&'a Estimator<'a>>,
    pub(super) added: Cell<usize>,
}

/// A plan with a column that has all keys which a join asks for.
struct KeySource<'a> {
    plan: &'a LogicalPlan,
    column: Column,
}

impl Reducers<'_> {
    /// `plan` with the reducers that pay.
    pub(super) fn added_to(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|node| match node {
            LogicalPlan::Join(join) => self.reduced(join),
            // Iterations read other rows under the same name.
            LogicalPlan::RecursiveQuery(_) => {
                Ok(Transformed::new(node, false, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        })
    }

    fn reduced(&self, mut join: Join) -> Result<Transformed<LogicalPlan>> {
        let mut has_changed = false;
        if join.null_equality == NullEquality::NullEqualsNothing && !join.null_aware {
            for place in 0..join.on.len() {
                let (Expr::Column(left), Expr::Column(right)) = join.on[place].clone() else {
                    continue;
                };
                let drops_left = matches!(
                    join.join_type,
                    JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti
                );
                let drops_right = matches!(
                    join.join_type,
                    JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
                );
                if drops_right
                    && let Some(reduced) = self.side(
                        &join.right,
                        &right,
                        KeySource::new(&join.left, left.clone()),
                    )?
                {
                    join.right = Arc::new(reduced);
                    has_changed = true;
                } else if drops_left
                    && let Some(reduced) =
                        self.side(&join.left, &left, KeySource::new(&join.right, right))?
                {
                    join.left = Arc::new(reduced);
                    has_changed = true;
                }
            }
        }
        let join = LogicalPlan::Join(join);
        Ok(match has_changed {
            true => Transformed::yes(join),
            false => Transformed::no(join),
        })
    }

    /// `plan` without rows whose `column` is none of `keys`, as far as an aggregate in it need not make them.
    fn side(
        &self,
        plan: &Arc<LogicalPlan>,
        column: &Column,
        keys: KeySource<'_>,
    ) -> Result<Option<LogicalPlan>> {
        let mut sources = Vec::new();
        keys.collect(&mut sources, MOST_NESTED);
        sources.retain(|source| is_cheap(source.plan));
        if sources.is_empty() {
            return Ok(None);
        }
        self.below(plan, column, &sources, MOST_NESTED)
    }

    fn below(
        &self,
        plan: &LogicalPlan,
        column: &Column,
        sources: &[KeySource<'_>],
        depth: usize,
    ) -> Result<Option<LogicalPlan>> {
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(None);
        };
        if let LogicalPlan::Aggregate(aggregate) = plan {
            let place = plan.schema().maybe_index_of_column(column);
            let group = place.and_then(|place| aggregate.group_expr.get(place));
            let is_grouping_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
            if aggregate.group_expr.iter().any(is_grouping_set) {
                return Ok(None);
            }
            let Some(Expr::Column(group)) = group else {
                return Ok(None);
            };
            if let Some(below) = self.below(&aggregate.input, group, sources, depth)? {
                return with_input(plan, 0, below).map(Some);
            }
            let Some(source) = self.best(&aggregate.input, group, sources) else {
                return Ok(None);
            };
            let name = format!("{DOMAIN}_keys{}", self.added.get());
            self.added.set(self.added.get() + 1);
            let reduced = source.semi_join(&aggregate.input, group, &name, MOST_NESTED)?;
            return with_input(plan, 0, reduced).map(Some);
        }
        let Some((place, column)) = origin(plan, column) else {
            return Ok(None);
        };
        let below = self.below(plan.inputs()[place], &column, sources, depth)?;
        below
            .map(|below| with_input(plan, place, below))
            .transpose()
    }

    /// The source that makes aggregating `input` by `group` cheapest, if it pays.
    fn best<'a>(
        &self,
        input: &LogicalPlan,
        group: &Column,
        sources: &'a [KeySource<'a>],
    ) -> Option<&'a KeySource<'a>> {
        let Some(estimator) = self.estimator else {
            return sources.first();
        };
        let estimate = estimator.estimate(input)?;
        let distinct = estimate.column(input.schema(), group)?.distinct;
        if estimate.rows < FEW_ROWS {
            return None;
        }
        let costs = sources.iter().filter_map(|source| {
            let keys = estimator.estimate(source.plan)?;
            let keys = keys.column(source.plan.schema(), &source.column)?.distinct;
            let share = (keys / distinct.max(1.0)).min(1.0);
            let cost = self.read(source.plan)? + estimate.rows * (1.0 + share * AGGREGATED);
            Some((source, cost))
        });
        let (source, cost) = costs.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (cost < estimate.rows * AGGREGATED * CLEARLY_CHEAPER).then_some(source)
    }

    /// How many rows the scans of `plan` read.
    fn read(&self, plan: &LogicalPlan) -> Option<f64> {
        if let LogicalPlan::TableScan(_) = plan {
            return Some(self.estimator?.estimate(plan)?.rows);
        }
        let inputs = plan.inputs();
        let rows = inputs.into_iter().map(|input| self.read(input));
        rows.sum()
    }
}

impl<'a> KeySource<'a> {
    fn new(plan: &'a LogicalPlan, column: Column) -> Self {
        Self { plan, column }
    }

    /// Adds this plan and what is below it, as far as the values of the column are among those there.
    fn collect(self, sources: &mut Vec<Self>, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        if let LogicalPlan::Join(join) = self.plan {
            let pairs = join.on.iter().filter_map(|pair| match pair {
                (Expr::Column(left), Expr::Column(right)) => Some((left, right)),
                _ => None,
            });
            for (left, right) in pairs {
                let of_right = *left == self.column
                    && matches!(join.join_type, JoinType::Inner | JoinType::LeftSemi);
                let of_left = *right == self.column
                    && matches!(join.join_type, JoinType::Inner | JoinType::RightSemi);
                if of_right {
                    Self::new(&join.right, right.clone()).collect(sources, depth);
                }
                if of_left {
                    Self::new(&join.left, left.clone()).collect(sources, depth);
                }
            }
        }
        if let Some((place, column)) = origin(self.plan, &self.column) {
            let inputs = self.plan.inputs();
            // A filtered scan has fewer keys than the scan.
            if !is_filtered_scan(self.plan) {
                Self::new(inputs[place], column).collect(sources, depth);
            }
        }
        sources.push(self);
    }

    /// `plan` without rows whose `column` is none of these keys, left out as early as possible.
    fn semi_join(
        &self,
        plan: &LogicalPlan,
        column: &Column,
        name: &str,
        depth: usize,
    ) -> Result<LogicalPlan> {
        if let Some(depth) = depth.checked_sub(1)
            && !is_filtered_scan(plan)
            && let Some((place, column)) = origin(plan, column)
        {
            let below = self.semi_join(plan.inputs()[place], &column, name, depth)?;
            return with_input(plan, place, below);
        }
        let keys = Expr::Column(self.column.clone()).alias("key");
        let keys = Projection::try_new(vec![keys], Arc::new(self.plan.clone()))?;
        let keys = Arc::new(LogicalPlan::Projection(keys));
        let keys = SubqueryAlias::try_new(keys, TableReference::bare(name))?;
        let key = Column::new(Some(TableReference::bare(name)), "key");
        let join = Join::try_new(
            Arc::new(plan.clone()),
            Arc::new(LogicalPlan::SubqueryAlias(keys)),
            vec![(Expr::Column(column.clone()), Expr::Column(key))],
            None,
            JoinType::LeftSemi,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }
}

fn is_filtered_scan(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Filter(filter) if matches!(filter.input.as_ref(), LogicalPlan::TableScan(_)))
}

/// The input of `plan` that `column` comes from as it is, and what it is called there. Leaving out rows of the input by
/// this column leaves out the same rows of `plan`, and no others.
fn origin(plan: &LogicalPlan, column: &Column) -> Option<(usize, Column)> {
    let place = plan.schema().maybe_index_of_column(column)?;
    let of = |input: &LogicalPlan, place: usize| {
        (place < input.schema().fields().len())
            .then(|| Column::from(input.schema().qualified_field(place)))
    };
    match plan {
        LogicalPlan::Filter(filter) => Some((0, of(&filter.input, place)?)),
        LogicalPlan::SubqueryAlias(alias) => Some((0, of(&alias.input, place)?)),
        LogicalPlan::Projection(projection) => {
            match projection.expr.get(place)?.clone().unalias() {
                Expr::Column(column) => Some((0, column)),
                _ => None,
            }
        }
        LogicalPlan::Join(join) => {
            let of_left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner if place >= of_left => Some((1, of(&join.right, place - of_left)?)),
                JoinType::Right if place >= of_left => Some((1, of(&join.right, place - of_left)?)),
                JoinType::RightSemi | JoinType::RightAnti => Some((1, of(&join.right, place)?)),
                JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
                    if place < of_left =>
                {
                    Some((0, of(&join.left, place)?))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a plan may be run a second time: it returns the same rows, and no more is in it than scans of tables that
/// are filtered and joined.
fn is_cheap(plan: &LogicalPlan) -> bool {
    let is_node_cheap = match plan {
        LogicalPlan::TableScan(TableScan { fetch, .. }) => fetch.is_none(),
        LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) => true,
        LogicalPlan::Join(join) => {
            matches!(join.join_type, JoinType::Inner | JoinType::LeftSemi) && !join.on.is_empty()
        }
        _ => false,
    };
    is_node_cheap
        && plan.expressions().iter().all(|expr| {
            !expr.is_volatile() && !expr.contains_outer() && matches!(has_subquery(expr), Ok(false))
        })
        && plan.inputs().into_iter().all(is_cheap)
}

/// `plan` with another input at `place`, which has the same columns.
fn with_input(plan: &LogicalPlan, place: usize, input: LogicalPlan) -> Result<LogicalPlan> {
    let mut inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    match inputs.get_mut(place) {
        Some(old) => *old = input,
        None => return internal_err!("no input {place}"),
    }
    plan.with_new_exprs(plan.expressions(), inputs)
}
