//! On which worker rows are, by the hash of their keys, and what operators make of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::JoinType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_exec::TimedEvaluationExec;

use crate::write::hashed_alike;

/// On which worker a row is, by the hash of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) keys: Vec<Key>,
    /// How many shards there are.
    pub(super) of: u32,
    /// Which worker has which; a shard without rows has none.
    pub(super) owners: BTreeMap<u32, u32>,
}

/// A part of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// Tells how it is hashed.
    pub(super) kind: DataType,
    /// The columns that have its value.
    pub(super) columns: BTreeSet<usize>,
}

impl Located {
    /// The same rows with other columns: each is `None`, or what column it was.
    pub(super) fn with_columns(&self, from: impl Iterator<Item = Option<usize>>) -> Option<Self> {
        let mut keys = self.keys.clone();
        for key in &mut keys {
            key.columns.clear();
        }
        for (column, from) in from.enumerate() {
            let Some(from) = from else { continue };
            for (key, before) in keys.iter_mut().zip(&self.keys) {
                if before.columns.contains(&from) {
                    key.columns.insert(column);
                }
            }
        }
        let known = keys.iter().all(|key| !key.columns.is_empty());
        known.then_some(Self {
            keys,
            ..self.clone()
        })
    }

    /// Whether rows that agree in `expressions` are on one worker.
    pub(super) fn is_by(&self, expressions: &[Arc<dyn PhysicalExpr>], schema: &Schema) -> bool {
        let columns: BTreeSet<usize> = expressions
            .iter()
            .filter_map(|expression| column_of(expression, schema))
            .collect();
        self.keys
            .iter()
            .all(|key| !key.columns.is_disjoint(&columns))
    }

    /// Whether rows of this and of `right` that agree in the pairs of `join` are on one worker;
    /// then the owners of both.
    pub(super) fn together(&self, right: &Self, join: &HashJoinExec) -> Option<BTreeMap<u32, u32>> {
        if self.of != right.of || self.keys.len() != right.keys.len() {
            return None;
        }
        let (left_schema, right_schema) = (join.left().schema(), join.right().schema());
        let pairs: Vec<(usize, usize)> = join
            .on()
            .iter()
            .filter_map(|(l, r)| Some((column_of(l, &left_schema)?, column_of(r, &right_schema)?)))
            .collect();
        let met = self.keys.iter().zip(&right.keys).all(|(l, r)| {
            let is_pair = |(a, b): &(usize, usize)| l.columns.contains(a) && r.columns.contains(b);
            l.kind == r.kind && pairs.iter().any(is_pair)
        });
        if !met {
            return None;
        }
        let mut owners = self.owners.clone();
        for (shard, owner) in &right.owners {
            if owners
                .insert(*shard, *owner)
                .is_some_and(|other| other != *owner)
            {
                return None;
            }
        }
        Some(owners)
    }
}

/// The column that `expression` is, as far as its hash is concerned.
pub(super) fn column_of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
    if let Some(column) = expression.downcast_ref::<Column>() {
        return Some(column.index());
    }
    let cast = expression.downcast_ref::<CastExpr>()?;
    let from = cast.expr().data_type(schema).ok()?;
    keeps_hash(&from, cast.cast_type()).then(|| column_of(cast.expr(), schema))?
}

/// Whether a value that is cast has the hash that it had.
fn keeps_hash(from: &DataType, to: &DataType) -> bool {
    let same_kind = hashed_alike(from).is_some() && hashed_alike(from) == hashed_alike(to);
    let exact = match to {
        // What does not fit is an error.
        _ if from.is_integer() && to.is_integer() => true,
        DataType::Float64 => matches!(from, DataType::Float32),
        _ => (from.is_string() && to.is_string()) || (from.is_binary() && to.is_binary()),
    };
    from == to || (same_kind && exact)
}

/// Where the rows of an operator with one input are.
pub(super) fn of_unary(plan: &Arc<dyn ExecutionPlan>, input: &Located) -> Option<Located> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let schema = projection.input().schema();
        let expressions = projection.expr().iter();
        return input.with_columns(expressions.map(|e| column_of(&e.expr, &schema)));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return match filter.projection() {
            Some(columns) => input.with_columns(columns.iter().map(|column| Some(*column))),
            None => Some(input.clone()),
        };
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        if groups.has_grouping_set() {
            return None;
        }
        let schema = aggregate.input().schema();
        let expressions = groups.expr().iter();
        return input.with_columns(expressions.map(|(e, _)| column_of(e, &schema)));
    }
    // Columns that these add come last.
    let keeps_columns = plan.is::<SortExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<BoundedWindowAggExec>()
        || plan.is::<WindowAggExec>()
        || plan.is::<ConservativePropertiesExec>()
        || plan.is::<TimedEvaluationExec>();
    keeps_columns.then(|| input.clone())
}

/// Where the rows of a join are; `left` if the rows of its left side are where those of the right
/// side are that they meet, rather than everywhere.
pub(super) fn joined(
    join: &HashJoinExec,
    left: Option<&Located>,
    right: &Located,
    owners: BTreeMap<u32, u32>,
) -> Option<Located> {
    // Of a row without a partner the columns of the other side are NULL.
    let (has_left, has_right) = match join.join_type() {
        JoinType::Inner => (true, true),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            (true, false)
        }
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            (false, true)
        }
        JoinType::Full => return None,
    };
    let shows_left = !matches!(
        join.join_type(),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    );
    let width = match shows_left {
        true => join.left().schema().fields().len(),
        false => 0,
    };
    let mut keys = right.keys.clone();
    for (place, key) in keys.iter_mut().enumerate() {
        let of_right = std::mem::take(&mut key.columns);
        if let Some(left) = left.filter(|_| has_left) {
            key.columns.extend(&left.keys[place].columns);
        }
        if has_right {
            key.columns.extend(of_right.iter().map(|c| c + width));
        }
    }
    let located = Located {
        keys,
        of: right.of,
        owners,
    };
    let columns = join.join_schema().fields().len();
    match &join.projection {
        Some(columns) => located.with_columns(columns.iter().map(|column| Some(*column))),
        None => located.with_columns((0..columns).map(Some)),
    }
}
