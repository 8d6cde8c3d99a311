//! Inner joins below left joins: `(S LEFT JOIN R) JOIN D`, where D is compared with columns of S only, returns what
//! `(S JOIN D) LEFT JOIN R` returns.
//!
//! A small D then leaves rows of S out before the left join, and is put in order with the other tables of S.
//! Source: Galindo-Legaria and Rosenthal, "Outerjoin simplification and reordering for query optimization",
//! TODS 22(1), 1997, identity 2.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, JoinType, NullEquality, Result};
use datafusion::logical_expr::logical_plan::{Filter, Join, Projection};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::cardinality::Estimator;
use super::island::is_movable;

/// The share of rows that a join keeps at most to be worth moving.
const KEPT: f64 = 0.7;
/// Rows of S that are not worth it.
const FEW_ROWS: f64 = 10_000.0;

/// Moves inner joins below left joins.
pub(super) struct OuterJoins<'a> {
    /// `None` moves all joins that can be moved: for tests.
    pub(super) estimator: Option<&'a Estimator<'a>>,
}

/// The side of an inner join that ends in a left join.
struct Outer<'a> {
    join: &'a Join,
    /// Predicates above the left join, the topmost first.
    filters: Vec<&'a Expr>,
}

impl OuterJoins<'_> {
    /// `plan` with those inner joins below left joins that leave many rows out.
    pub(super) fn moved_below(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Join(join) = &node else {
                return Ok(Transformed::no(node));
            };
            Ok(match self.moved(join, &node)? {
                Some(plan) => Transformed::yes(plan),
                None => Transformed::no(node),
            })
        })
    }

    fn moved(&self, join: &Join, node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let is_plain = join.join_type == JoinType::Inner
            && join.filter.is_none()
            && !join.on.is_empty()
            && join.null_equality == NullEquality::NullEqualsNothing
            && !join.null_aware;
        if !is_plain {
            return Ok(None);
        }
        for is_left in [true, false] {
            let (side, other) = match is_left {
                true => (&join.left, &join.right),
                false => (&join.right, &join.left),
            };
            let Some(outer) = Outer::of(side) else {
                continue;
            };
            let kept = &outer.join.left;
            let keys = join.on.iter().map(|(left, right)| match is_left {
                true => (left, right),
                false => (right, left),
            });
            let keys: Vec<(&Expr, &Expr)> = keys.collect();
            let is_of_kept = |key: &Expr| {
                let columns = key.column_refs();
                !key.is_volatile()
                    && columns
                        .iter()
                        .all(|column| kept.schema().has_column(column))
            };
            if !keys.iter().all(|(key, _)| is_of_kept(key))
                || !can_be_told_apart(outer.join.schema.as_ref(), other.schema())
                || !self.pays(node, side, kept)
            {
                continue;
            }
            let keys = keys.into_iter().map(|(key, of)| (key.clone(), of.clone()));
            let inner = Join::try_new(
                Arc::clone(kept),
                Arc::clone(other),
                keys.collect(),
                None,
                JoinType::Inner,
                join.join_constraint,
                join.null_equality,
                false,
            )?;
            let node = LogicalPlan::Join(inner.clone());
            // It may go below another left join.
            let inner = self.moved(&inner, &node)?.unwrap_or(node);
            let below = Join::try_new(
                Arc::new(inner),
                Arc::clone(&outer.join.right),
                outer.join.on.clone(),
                outer.join.filter.clone(),
                JoinType::Left,
                outer.join.join_constraint,
                outer.join.null_equality,
                false,
            )?;
            let mut plan = LogicalPlan::Join(below);
            for predicate in outer.filters.iter().rev() {
                plan = LogicalPlan::Filter(Filter::try_new((*predicate).clone(), Arc::new(plan))?);
            }
            let columns = join.schema.iter().map(Expr::from).collect();
            let projection = Projection::try_new(columns, Arc::new(plan))?;
            let is_same = projection.schema.iter().eq(join.schema.iter());
            return Ok(is_same.then_some(LogicalPlan::Projection(projection)));
        }
        Ok(None)
    }

    /// Whether the inner join `node` leaves many rows of its input `side` out. `kept` is the left join's left input.
    fn pays(&self, node: &LogicalPlan, side: &LogicalPlan, kept: &LogicalPlan) -> bool {
        let Some(estimator) = self.estimator else {
            return true;
        };
        let rows = |plan| estimator.estimate(plan).map(|estimate| estimate.rows);
        match (rows(node), rows(side), rows(kept)) {
            (Some(joined), Some(side), Some(kept)) => kept >= FEW_ROWS && joined <= side * KEPT,
            _ => false,
        }
    }
}

impl<'a> Outer<'a> {
    /// The left join below `plan`, with no more than filters and choices of columns between.
    fn of(plan: &'a LogicalPlan) -> Option<Self> {
        let (mut plan, mut filters) = (plan, Vec::new());
        loop {
            plan = match plan {
                LogicalPlan::Join(join) => {
                    let is_left = join.join_type == JoinType::Left && !join.null_aware;
                    return is_left.then_some(Self { join, filters });
                }
                LogicalPlan::Filter(filter) if is_movable(&filter.predicate) => {
                    filters.push(&filter.predicate);
                    &filter.input
                }
                LogicalPlan::Projection(projection) if has_only_columns(projection) => {
                    &projection.input
                }
                _ => return None,
            };
        }
    }
}

pub(super) fn has_only_columns(projection: &Projection) -> bool {
    let mut columns = projection.expr.iter();
    columns.all(|expr| matches!(expr, Expr::Column(_)))
}

/// Whether no column of one schema could be taken for one of the other.
fn can_be_told_apart(one: &DFSchema, other: &DFSchema) -> bool {
    one.iter().all(|(table, field)| {
        other.iter().all(|(other_table, other)| {
            field.name() != other.name()
                || matches!((table, other_table), (Some(one), Some(other)) if one != other)
        })
    })
}
