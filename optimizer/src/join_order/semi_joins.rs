//! Semi joins below inner joins: `(S JOIN D) SEMI JOIN R`, where R is compared with columns of S only, returns what
//! `(S SEMI JOIN R) JOIN D` returns. The same holds for anti joins, and for left joins whose left side S is.
//!
//! A subquery in WHERE becomes a semi join above all joins of FROM (query 18 of TPC-H). If S has fewer rows than they
//! return, the semi join looks for fewer partners below them, and they get fewer rows.
//! Source: Moerkotte, Fender and Eich, "On the correct and complete enumeration of the core search space",
//! SIGMOD 2013, table 2.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::logical_plan::Join;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::cardinality::Estimator;
use super::island::is_movable;
use super::outer_joins::has_only_columns;

/// Rows of the joins that are not worth it.
const FEW_ROWS: f64 = 10_000.0;
/// How many more rows S may have than the join above it: estimates are no more exact.
const AS_MANY: f64 = 1.05;
/// Nested nodes that are looked through.
const MOST_NESTED: usize = 100;

/// Moves semi joins and anti joins below other joins.
pub(super) struct SemiJoins<'a> {
    /// `None` moves all joins as far as they can be moved: for tests.
    pub(super) estimator: Option<&'a Estimator<'a>>,
}

impl SemiJoins<'_> {
    /// `plan` with semi joins and anti joins where they look for the fewest partners.
    pub(super) fn moved_below(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Join(join) = &node else {
                return Ok(Transformed::no(node));
            };
            Ok(match self.moved(join)? {
                Some(plan) => Transformed::yes(plan),
                None => Transformed::no(node),
            })
        })
    }

    fn moved(&self, join: &Join) -> Result<Option<LogicalPlan>> {
        let is_semi = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti);
        if !is_semi || join.null_aware {
            return Ok(None);
        }
        let Some(columns) = columns_of_left(join) else {
            return Ok(None);
        };
        if self.estimator.is_some() && self.rows(&join.left).is_none_or(|rows| rows < FEW_ROWS) {
            return Ok(None);
        }
        self.below(&join.left, join, &columns, MOST_NESTED)
    }

    /// `plan` with `semi` below its uppermost join; `None` if it is not to go there.
    fn below(
        &self,
        plan: &LogicalPlan,
        semi: &Join,
        columns: &[&Column],
        depth: usize,
    ) -> Result<Option<LogicalPlan>> {
        let Some(depth) = depth.checked_sub(1) else {
            return Ok(None);
        };
        match plan {
            LogicalPlan::Join(join) => {
                let sides: &[bool] = match join.join_type {
                    JoinType::Inner => &[true, false],
                    JoinType::Left => &[true],
                    JoinType::Right => &[false],
                    _ => &[],
                };
                for is_left in sides {
                    let side = if *is_left { &join.left } else { &join.right };
                    let has_all = columns
                        .iter()
                        .all(|column| side.schema().has_column(column));
                    if join.null_aware || !has_all || !self.has_no_more_rows(side, plan) {
                        continue;
                    }
                    let moved = match self.below(side, semi, columns, depth)? {
                        Some(moved) => moved,
                        None => above(side, semi)?,
                    };
                    let mut join = join.clone();
                    match *is_left {
                        true => join.left = Arc::new(moved),
                        false => join.right = Arc::new(moved),
                    }
                    return Ok(Some(LogicalPlan::Join(join)));
                }
                Ok(None)
            }
            LogicalPlan::Projection(projection) if has_only_columns(projection) => {
                let moved = self.below(&projection.input, semi, columns, depth)?;
                Ok(moved.map(|moved| {
                    let mut projection = projection.clone();
                    projection.input = Arc::new(moved);
                    LogicalPlan::Projection(projection)
                }))
            }
            LogicalPlan::Filter(filter) if is_movable(&filter.predicate) => {
                let moved = self.below(&filter.input, semi, columns, depth)?;
                Ok(moved.map(|moved| {
                    let mut filter = filter.clone();
                    filter.input = Arc::new(moved);
                    LogicalPlan::Filter(filter)
                }))
            }
            _ => Ok(None),
        }
    }

    fn rows(&self, plan: &LogicalPlan) -> Option<f64> {
        let estimate = self.estimator?.estimate(plan)?;
        Some(estimate.rows)
    }

    /// Whether `side` has no more rows than `join`, which it is a side of.
    fn has_no_more_rows(&self, side: &LogicalPlan, join: &LogicalPlan) -> bool {
        if self.estimator.is_none() {
            return true;
        }
        match (self.rows(side), self.rows(join)) {
            (Some(side), Some(join)) => side <= join * AS_MANY,
            _ => false,
        }
    }
}

/// The columns of its left input that a semi join compares; `None` if it cannot be moved.
fn columns_of_left(semi: &Join) -> Option<Vec<&Column>> {
    let keys = semi.on.iter().flat_map(|(left, right)| [left, right]);
    let mut expressions = keys.chain(&semi.filter);
    if !expressions.all(is_movable) {
        return None;
    }
    let keys = semi.on.iter().flat_map(|(left, _)| left.column_refs());
    let of_filter = semi.filter.iter().flat_map(Expr::column_refs);
    let of_filter = of_filter.filter(|column| semi.left.schema().has_column(column));
    let columns: Vec<_> = keys.chain(of_filter).collect();
    (!columns.is_empty()).then_some(columns)
}

/// The same semi join, of the rows of `side`.
fn above(side: &Arc<LogicalPlan>, semi: &Join) -> Result<LogicalPlan> {
    let semi = Join::try_new(
        Arc::clone(side),
        Arc::clone(&semi.right),
        semi.on.clone(),
        semi.filter.clone(),
        semi.join_type,
        semi.join_constraint,
        semi.null_equality,
        semi.null_aware,
    )?;
    Ok(LogicalPlan::Join(semi))
}
