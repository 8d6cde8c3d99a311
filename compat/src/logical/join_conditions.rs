//! Subqueries in ON of joins.
//!
//! DataFusion 55.2 makes joins of subqueries in WHERE. In ON of an inner join they are conditions of WHERE, too;
//! in ON of other joins they decide which rows go together, not which there are. So a condition with subqueries
//! that reads the columns of
//!
//! * one side, of which a row without a partner is not returned, is a condition of that side
//! * one side, of which it is, is a column of that side
//! * both, but each scalar subquery of it those of one, is one over columns with their values
//! * both is within one side: that of an outer join whose rows may be left out becomes a LATERAL subquery, and
//!   that of a semi or anti join one of EXISTS
//!
//! ```text
//! SELECT … FROM t LEFT JOIN u ON t.k = u.k AND t.a IN (SELECT b FROM v WHERE v.c = u.c)
//!
//! SELECT … FROM t LEFT JOIN LATERAL (
//!   SELECT * FROM u WHERE t.k = u.k AND t.a IN (SELECT b FROM v WHERE v.c = u.c)
//! ) AS u ON true
//! ```
//!
//! A full join of this kind is the rows of such a left join, and those of the right side of which there EXISTS
//! no partner. As it reads its sides twice it is made [later](full_join), where rows that might be others the
//! second time can be made once.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, JoinType, NullEquality, Result, ScalarValue, Spans, not_impl_err,
};
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::logical_plan::{Filter, Join, JoinConstraint, Union};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, binary_expr, lit,
};

use crate::logical::decorrelate::{
    lateral, references_of_subquery, referring_to, without_subquery,
};
use crate::logical::push_expr_below::{Part, with_columns};
use crate::rules::{has_subquery, subquery_of};

/// `plan`, as SQL was planned, without subqueries in ON of joins, but for those of full joins that read both
/// sides, and those in conditions that may be others each time.
///
/// # Errors
/// Those of building a plan;
/// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) of conditions like
/// that beside subqueries that read both sides.
pub fn with_join_conditions(plan: LogicalPlan) -> Result<LogicalPlan> {
    let aliases = AliasGenerator::new();
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if !has_subqueries(&join)? => {
            Ok(Transformed::no(LogicalPlan::Join(join)))
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            above(join).map(Transformed::yes)
        }
        LogicalPlan::Join(join) => on_sides(join, &aliases).map(Transformed::yes),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(rewritten.data)
}

/// Whether `join` is a full join with subqueries in ON: [`full_join`] is to be in place of it.
///
/// # Errors
/// None of its own; those of walking a plan.
pub fn is_full_join_of_subqueries(join: &Join) -> Result<bool> {
    let is_stable = !join.filter.as_ref().is_some_and(Expr::is_volatile);
    Ok(join.join_type == JoinType::Full && is_stable && has_subqueries(join)?)
}

fn has_subqueries(join: &Join) -> Result<bool> {
    join.filter.as_ref().map_or(Ok(false), has_subquery)
}

/// The rows of a full `join`, whose sides are read twice.
///
/// # Errors
/// Those of building a plan.
pub fn full_join(join: Join, aliases: &AliasGenerator) -> Result<LogicalPlan> {
    let condition = condition(&join);
    let Join {
        left,
        right,
        schema,
        ..
    } = join;
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|_| aliases.next("__full"))
        .collect();

    let partners = subquery(partners(&right, condition.clone(), left.schema())?);
    let partners = LogicalPlan::Subquery(partners);
    let pairs = LogicalPlanBuilder::from(left.as_ref().clone()).join_on(
        partners,
        JoinType::Left,
        [lit(true)],
    )?;
    let own = schema.columns().into_iter().map(Expr::Column);
    let named = own.zip(&names).map(|(column, name)| column.alias(name));
    let pairs = pairs.project(named.collect::<Vec<_>>())?.build()?;

    let alone = by_partners(&right, condition, &left, true)?;
    let mut columns = Vec::new();
    for (field, name) in left.schema().fields().iter().zip(&names) {
        let null = lit(ScalarValue::try_new_null(field.data_type())?);
        columns.push(null.alias(name));
    }
    let rest = &names[columns.len()..];
    let of_right = right.schema().columns().into_iter().map(Expr::Column);
    columns.extend(of_right.zip(rest).map(|(column, name)| column.alias(name)));
    let alone = LogicalPlanBuilder::from(alone).project(columns)?.build()?;

    let inputs = vec![Arc::new(pairs), Arc::new(alone)];
    let union = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
    let columns = schema.iter().zip(names).map(|((qualifier, field), name)| {
        Expr::Column(Column::new_unqualified(name))
            .alias_qualified(qualifier.cloned(), field.name())
    });
    LogicalPlanBuilder::from(union)
        .project(columns.collect::<Vec<_>>())?
        .build()
}

/// The sides of a join whose columns an expression reads, itself or in its subqueries.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    left: bool,
    right: bool,
}

impl Read {
    fn by(expression: &Expr, join: &Join) -> Result<Self> {
        let (left, right) = (join.left.schema(), join.right.schema());
        let mut read = Self::default();
        let mut add = |column: &Column| {
            read.left |= left.has_column(column);
            read.right |= right.has_column(column);
        };
        expression.column_refs().into_iter().for_each(&mut add);
        expression.apply(|part| {
            if let Some(subquery) = subquery_of(part) {
                references_of_subquery(subquery)?.iter().for_each(&mut add);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(read)
    }

    fn is_both(self) -> bool {
        self.left && self.right
    }
}

/// An inner `join` with subqueries in its condition, which are conditions of WHERE.
fn above(mut join: Join) -> Result<LogicalPlan> {
    let conditions = join.filter.take().map(split_conjunction_owned);
    let (mut above, mut below) = (Vec::new(), Vec::new());
    for condition in conditions.into_iter().flatten() {
        match has_subquery(&condition)? {
            true => above.push(condition),
            false => below.push(condition),
        }
    }
    join.filter = conjunction(below);
    let join = LogicalPlan::Join(join);
    match conjunction(above) {
        None => Ok(join),
        Some(above) => Ok(LogicalPlan::Filter(Filter::try_new(above, Arc::new(join))?)),
    }
}

/// Whether rows of the left side of `join` that have no partner decide what it returns, and of its right one.
fn keeps(join: &Join) -> (bool, bool) {
    match join.join_type {
        JoinType::Inner => (false, false),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            (true, false)
        }
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            (false, true)
        }
        JoinType::Full => (true, true),
    }
}

/// `join` with the subqueries of its condition in its sides.
fn on_sides(mut join: Join, aliases: &AliasGenerator) -> Result<LogicalPlan> {
    let own = join.schema.columns().into_iter().map(Expr::Column);
    let own: Vec<Expr> = own.collect();
    let mut sides = Sides::of_join(&join);
    let (mut rest, mut is_of_both) = (Vec::new(), false);
    let conditions = join.filter.clone().map(split_conjunction_owned);
    for condition in conditions.into_iter().flatten() {
        if condition.is_volatile() || !has_subquery(&condition)? {
            rest.push(condition);
            continue;
        }
        let read = Read::by(&condition, &join)?;
        if !read.is_both() {
            rest.extend(sides.one(read).with_condition(condition, aliases));
            continue;
        }
        let condition = sides.with_values(condition, &join, aliases)?;
        is_of_both |= has_subquery(&condition)?;
        rest.push(condition);
    }
    if is_of_both && rest.iter().any(Expr::is_volatile) {
        return not_impl_err!(
            "a subquery in ON that reads both sides of an outer join, beside a condition that may be another each \
             time, as with random(); make what is random a column of one side"
        );
    }
    let is_lateral = lateral(&join.right).is_some();
    if is_lateral {
        join.right = Arc::new(without_subquery(&join.right)?);
    }
    join.left = sides.left.in_place_of(join.left)?;
    join.right = sides.right.in_place_of(join.right)?;
    // Without a key there has to be one.
    join.filter = Some(conjunction(rest).unwrap_or(lit(true)));
    let joined = if is_of_both && join.join_type != JoinType::Full {
        within_side(join)?
    } else {
        if is_lateral {
            let right = Arc::unwrap_or_clone(join.right);
            join.right = Arc::new(LogicalPlan::Subquery(subquery(right)));
        }
        rebuilt(join)?
    };
    LogicalPlanBuilder::from(joined).project(own)?.build()
}

/// What becomes of the sides of a join.
#[derive(Debug)]
struct Sides {
    left: Side,
    right: Side,
}

impl Sides {
    fn of_join(join: &Join) -> Self {
        let (left, right) = keeps(join);
        Self {
            left: Side::new(left),
            right: Side::new(right),
        }
    }

    /// The one that is read; the one whose rows may be left out, if none is.
    fn one(&mut self, read: Read) -> &mut Side {
        match read.right || (!read.left && self.left.is_kept) {
            true => &mut self.right,
            false => &mut self.left,
        }
    }

    /// `condition`, which reads both, with columns in place of scalar subqueries that read one, if all others
    /// do.
    fn with_values(
        &mut self,
        condition: Expr,
        join: &Join,
        aliases: &AliasGenerator,
    ) -> Result<Expr> {
        let is_within = condition.exists(|part| match part {
            Expr::ScalarSubquery(_) => Ok(Read::by(part, join)?.is_both()),
            part => Ok(subquery_of(part).is_some()),
        })?;
        if is_within {
            return Ok(condition);
        }
        let with_values = condition.transform_down(|part| {
            let Expr::ScalarSubquery(_) = part else {
                return Ok(Transformed::no(part));
            };
            let side = self.one(Read::by(&part, join)?);
            Ok(Transformed::yes(side.with_column(part, aliases)))
        })?;
        Ok(with_values.data)
    }
}

/// What becomes of one side of a join.
#[derive(Debug)]
struct Side {
    /// Whether its rows decide what the join returns, with a partner or without.
    is_kept: bool,
    /// What its rows have to fulfil.
    conditions: Vec<Expr>,
    /// What its rows have besides.
    columns: Vec<Part>,
}

impl Side {
    fn new(is_kept: bool) -> Self {
        Self {
            is_kept,
            conditions: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// What the join still has to ask for if its rows go together by this `condition`, which reads this side
    /// alone.
    fn with_condition(&mut self, condition: Expr, aliases: &AliasGenerator) -> Option<Expr> {
        if self.is_kept {
            // What is unknown does not join, either.
            return Some(self.with_column(condition.is_true(), aliases));
        }
        self.conditions.push(condition);
        None
    }

    /// `value`, which reads this side alone, as a column of it.
    fn with_column(&mut self, value: Expr, aliases: &AliasGenerator) -> Expr {
        let name = aliases.next("__on");
        self.columns.push((value, name.clone()));
        Expr::Column(Column::new_unqualified(name))
    }

    fn in_place_of(self, rows: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let mut rows = rows;
        if let Some(conditions) = conjunction(self.conditions) {
            rows = Arc::new(LogicalPlan::Filter(Filter::try_new(conditions, rows)?));
        }
        let columns: Vec<&Part> = self.columns.iter().collect();
        with_columns(Arc::unwrap_or_clone(rows), &columns).map(Arc::new)
    }
}

/// `join` with the schema of what its sides are now.
fn rebuilt(join: Join) -> Result<LogicalPlan> {
    let join = Join::try_new(
        join.left,
        join.right,
        join.on,
        join.filter,
        join.join_type,
        JoinConstraint::On,
        join.null_equality,
        join.null_aware,
    )?;
    Ok(LogicalPlan::Join(join))
}

/// What `join` returns, with its condition within one of its sides.
fn within_side(join: Join) -> Result<LogicalPlan> {
    let condition = condition(&join);
    let (kept, other) = match keeps(&join) {
        (true, _) => (join.left, join.right),
        (false, _) => (join.right, join.left),
    };
    match join.join_type {
        JoinType::LeftSemi | JoinType::RightSemi => by_partners(&kept, condition, &other, false),
        JoinType::LeftAnti | JoinType::RightAnti => by_partners(&kept, condition, &other, true),
        _ => {
            let partners = subquery(partners(&other, condition, kept.schema())?);
            LogicalPlanBuilder::from(Arc::unwrap_or_clone(kept))
                .join_on(LogicalPlan::Subquery(partners), JoinType::Left, [lit(true)])?
                .build()
        }
    }
}

/// All of the condition of `join`.
fn condition(join: &Join) -> Expr {
    let equals = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let keys = join.on.iter().cloned();
    let keys = keys.map(|(left, right)| binary_expr(left, equals, right));
    conjunction(keys.chain(join.filter.clone())).unwrap_or(lit(true))
}

/// The `rows` that fulfil `condition` for a row of the query around them, whose columns are `around`.
fn partners(rows: &Arc<LogicalPlan>, condition: Expr, around: &DFSchema) -> Result<LogicalPlan> {
    let condition = referring_to(condition, around)?;
    let filter = Filter::try_new(condition, Arc::clone(rows))?;
    Ok(LogicalPlan::Filter(filter))
}

/// The `rows` that have a partner among the `others`, or none if that is `negated`.
fn by_partners(
    rows: &Arc<LogicalPlan>,
    condition: Expr,
    others: &Arc<LogicalPlan>,
    negated: bool,
) -> Result<LogicalPlan> {
    let partners = partners(others, condition, rows.schema())?;
    let is_kept = Expr::Exists(Exists::new(subquery(partners), negated));
    let filter = Filter::try_new(is_kept, Arc::clone(rows))?;
    Ok(LogicalPlan::Filter(filter))
}

fn subquery(plan: LogicalPlan) -> Subquery {
    Subquery {
        outer_ref_columns: plan.all_out_ref_exprs(),
        subquery: Arc::new(plan),
        spans: Spans::new(),
    }
}
