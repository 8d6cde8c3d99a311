//! Islands: maximal trees of inner joins, seen through filters, aliases, and projections of columns.
//!
//! Every other node below is a leaf. Columns of the tree are known by [`Slot`]: where a leaf has them.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result, internal_err};
use datafusion::logical_expr::logical_plan::{Join, Projection, SubqueryAlias};
use datafusion::logical_expr::utils::{can_hash, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use skewer_compat::rules::{has_subquery, subquery_of};

/// A set of leaves: bit `n` is leaf `n`.
pub(super) type LeafSet = u64;

/// An island with more leaves stays as it is.
pub(super) const MOST_LEAVES: usize = 40;

/// A column of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    pub(super) leaf: usize,
    pub(super) column: usize,
}

impl Slot {
    pub(super) fn leaf_set(self) -> LeafSet {
        1 << self.leaf
    }

    /// The column that stands for it in [`Condition`]s.
    fn placeholder(self) -> Column {
        Column::new_unqualified(format!("{} {}", self.leaf, self.column))
    }

    /// What a column of a condition stands for.
    pub(super) fn from_placeholder(column: &Column) -> Option<Self> {
        let (leaf, column) = column.name.split_once(' ')?;
        Some(Self {
            leaf: leaf.parse().ok()?,
            column: column.parse().ok()?,
        })
    }
}

/// A tree of joins over leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JoinTree {
    Leaf(usize),
    Join(Box<Self>, Box<Self>),
}

impl JoinTree {
    pub(super) fn join(left: Self, right: Self) -> Self {
        Self::Join(Box::new(left), Box::new(right))
    }

    pub(super) fn leaf_set(&self) -> LeafSet {
        match self {
            Self::Leaf(leaf) => 1 << leaf,
            Self::Join(left, right) => left.leaf_set() | right.leaf_set(),
        }
    }
}

/// Something that has to hold for rows of several leaves, beside equalities of columns.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    /// Its columns are placeholders of slots.
    pub(super) expr: Expr,
    pub(super) leaves: LeafSet,
    /// Whether a join can evaluate it, and not only a filter above.
    pub(super) can_join: bool,
    /// If it is an equality of expressions over different leaves: both, and their leaves.
    pub(super) sides: Option<[(Expr, LeafSet); 2]>,
}

/// A tree of inner joins.
#[derive(Debug)]
pub(super) struct Island {
    pub(super) leaves: Vec<Arc<LogicalPlan>>,
    pub(super) conditions: Vec<Condition>,
    /// Columns that are equal in all rows, in groups of two or more.
    pub(super) classes: Vec<Vec<Slot>>,
    /// What the columns of the island are.
    pub(super) output: Vec<Slot>,
    /// The joins as they are written.
    pub(super) text: JoinTree,
}

/// Whether an island begins at `plan`.
pub(super) fn is_root(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_inner(join),
        LogicalPlan::Filter(filter) => is_movable(&filter.predicate) && reaches_join(&filter.input),
        _ => false,
    }
}

fn is_inner(join: &Join) -> bool {
    let mut expressions = join
        .on
        .iter()
        .flat_map(|(left, right)| [left, right])
        .chain(&join.filter);
    join.join_type == JoinType::Inner
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.null_aware
        && expressions.all(is_movable)
        && !is_lateral(&join.left)
        && !is_lateral(&join.right)
}

fn is_lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => is_lateral(&alias.input),
        _ => false,
    }
}

/// Whether it does not matter how often, and for which rows, an expression is evaluated.
pub(super) fn is_movable(expression: &Expr) -> bool {
    let is_bound = expression.exists(|part| {
        Ok(match part {
            Expr::OuterReferenceColumn(..) => true,
            Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
            other => subquery_of(other).is_some(),
        })
    });
    let is_volatile = expression.is_volatile() || has_volatile_subquery(expression);
    !is_volatile && is_bound.is_ok_and(|is_bound| !is_bound)
}

fn has_volatile_subquery(expression: &Expr) -> bool {
    if !has_subquery(expression).unwrap_or(true) {
        return false;
    }
    let volatile = expression.exists(|part| match subquery_of(part) {
        Some(subquery) => subquery
            .subquery
            .exists(|node| Ok(node.expressions().iter().any(Expr::is_volatile))),
        None => Ok(false),
    });
    volatile.unwrap_or(true)
}

/// Whether there is an inner join below `plan`, with nothing between that an island is not seen through.
fn reaches_join(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Join(join) => return is_inner(join),
            LogicalPlan::Filter(filter) if is_movable(&filter.predicate) => &filter.input,
            LogicalPlan::Projection(projection) if has_only_columns(projection) => {
                &projection.input
            }
            LogicalPlan::SubqueryAlias(alias) if !is_own(alias) => &alias.input,
            _ => return false,
        };
    }
}

/// Whether the island that begins at `root` has no more than [`MOST_LEAVES`], and is not nested deeply.
fn is_small(root: &LogicalPlan) -> bool {
    let (mut rest, mut nodes, mut leaves) = (vec![root], 0, 0);
    while let Some(plan) = rest.pop() {
        nodes += 1;
        match plan {
            LogicalPlan::Join(join) if is_inner(join) => {
                rest.extend([join.left.as_ref(), join.right.as_ref()]);
            }
            LogicalPlan::Filter(filter) if is_root(plan) => rest.push(&filter.input),
            LogicalPlan::Projection(projection) if reaches_join(plan) => {
                rest.push(&projection.input)
            }
            LogicalPlan::SubqueryAlias(alias) if reaches_join(plan) => rest.push(&alias.input),
            _ => leaves += 1,
        }
        if leaves > MOST_LEAVES || nodes > 4 * MOST_LEAVES {
            return false;
        }
    }
    true
}

/// Whether it means something to other rewrites.
fn is_own(alias: &SubqueryAlias) -> bool {
    alias.alias.table().starts_with(crate::lineage::HIDDEN)
}

fn has_only_columns(projection: &Projection) -> bool {
    projection
        .expr
        .iter()
        .all(|expr| projected_column(expr).is_some())
}

/// The column that `expr` hands on, under its name or another.
fn projected_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) if alias.metadata.is_none() => match alias.expr.as_ref() {
            Expr::Column(column) => Some(column),
            _ => None,
        },
        _ => None,
    }
}

impl Island {
    /// The island that begins at `root`; `None` if it has too many leaves.
    pub(super) fn below(root: &LogicalPlan) -> Result<Option<Self>> {
        if !is_small(root) {
            return Ok(None);
        }
        let mut collector = Collector::default();
        let (output, text) = collector.collect(root)?;
        let Collector {
            leaves,
            conditions,
            equalities,
        } = collector;
        Ok(Some(Self {
            leaves,
            conditions,
            classes: classes(equalities),
            output,
            text,
        }))
    }
}

#[derive(Default)]
struct Collector {
    leaves: Vec<Arc<LogicalPlan>>,
    conditions: Vec<Condition>,
    equalities: Vec<(Slot, Slot)>,
}

impl Collector {
    /// The columns of `plan` and its joins.
    fn collect(&mut self, plan: &LogicalPlan) -> Result<(Vec<Slot>, JoinTree)> {
        match plan {
            LogicalPlan::Join(join) if is_inner(join) => self.join(join),
            LogicalPlan::Filter(filter) if is_root(plan) => {
                let (slots, tree) = self.collect(&filter.input)?;
                for predicate in split_conjunction(&filter.predicate) {
                    let predicate = placed(predicate, filter.input.schema(), &slots)?;
                    self.condition(predicate)?;
                }
                Ok((slots, tree))
            }
            LogicalPlan::Projection(projection) if reaches_join(plan) => {
                let (slots, tree) = self.collect(&projection.input)?;
                let schema = projection.input.schema();
                let columns = projection.expr.iter().filter_map(projected_column);
                let columns = columns.map(|column| slot(column, schema, &slots));
                Ok((columns.collect::<Result<_>>()?, tree))
            }
            LogicalPlan::SubqueryAlias(alias) if reaches_join(plan) => self.collect(&alias.input),
            leaf => {
                let number = self.leaves.len();
                self.leaves.push(Arc::new(leaf.clone()));
                let columns = 0..leaf.schema().fields().len();
                let slots = columns.map(|column| Slot {
                    leaf: number,
                    column,
                });
                Ok((slots.collect(), JoinTree::Leaf(number)))
            }
        }
    }

    fn join(&mut self, join: &Join) -> Result<(Vec<Slot>, JoinTree)> {
        let (mut slots, left) = self.collect(&join.left)?;
        let (of_right, right) = self.collect(&join.right)?;
        for (one, other) in &join.on {
            let one = placed(one, join.left.schema(), &slots)?;
            let other = placed(other, join.right.schema(), &of_right)?;
            self.condition(one.eq(other))?;
        }
        slots.extend(of_right);
        if let Some(filter) = &join.filter {
            for predicate in split_conjunction(filter) {
                let predicate = placed(predicate, &join.schema, &slots)?;
                self.condition(predicate)?;
            }
        }
        Ok((slots, JoinTree::join(left, right)))
    }

    /// Takes a condition whose columns are placeholders.
    fn condition(&mut self, expr: Expr) -> Result<()> {
        let leaves = leaves_of(&expr)?;
        let can_join = !has_subquery(&expr)?;
        let mut sides = None;
        if can_join
            && let Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq,
                right,
            }) = &expr
        {
            if let (Expr::Column(left), Expr::Column(right)) = (left.as_ref(), right.as_ref())
                && let (Some(left), Some(right)) =
                    (Slot::from_placeholder(left), Slot::from_placeholder(right))
                && left.leaf != right.leaf
                && self.data_type(left) == self.data_type(right)
                && can_hash(self.data_type(left))
            {
                self.equalities.push((left, right));
                return Ok(());
            }
            let (of_left, of_right) = (leaves_of(left)?, leaves_of(right)?);
            if of_left != 0 && of_right != 0 && of_left & of_right == 0 {
                sides = Some([
                    (left.as_ref().clone(), of_left),
                    (right.as_ref().clone(), of_right),
                ]);
            }
        }
        self.conditions.push(Condition {
            expr,
            leaves,
            can_join,
            sides,
        });
        Ok(())
    }

    fn data_type(&self, slot: Slot) -> &DataType {
        self.leaves[slot.leaf]
            .schema()
            .field(slot.column)
            .data_type()
    }
}

fn slot(column: &Column, schema: &DFSchema, slots: &[Slot]) -> Result<Slot> {
    let place = schema.index_of_column(column)?;
    match slots.get(place) {
        Some(slot) => Ok(*slot),
        None => internal_err!("{column} is none of {} columns", slots.len()),
    }
}

/// `expr` with placeholders in place of the columns of `schema`, which are `slots`.
fn placed(expr: &Expr, schema: &DFSchema, slots: &[Slot]) -> Result<Expr> {
    let placed = expr.clone().transform(|part| {
        Ok(match part {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(slot(&column, schema, slots)?.placeholder()))
            }
            other => Transformed::no(other),
        })
    });
    placed.data()
}

fn leaves_of(expr: &Expr) -> Result<LeafSet> {
    let mut leaves = 0;
    for column in expr.column_refs() {
        match Slot::from_placeholder(column) {
            Some(slot) => leaves |= slot.leaf_set(),
            None => return internal_err!("{column} is no column of a leaf"),
        }
    }
    Ok(leaves)
}

/// The groups that equalities make of slots, in the order in which they are first named.
fn classes(equalities: Vec<(Slot, Slot)>) -> Vec<Vec<Slot>> {
    let mut classes: Vec<Vec<Slot>> = Vec::new();
    for (one, other) in equalities {
        let of_one = classes.iter().position(|class| class.contains(&one));
        let of_other = classes.iter().position(|class| class.contains(&other));
        match (of_one, of_other) {
            (Some(first), Some(second)) if first != second => {
                let (kept, gone) = (first.min(second), first.max(second));
                let gone = classes.remove(gone);
                classes[kept].extend(gone);
            }
            (Some(_), Some(_)) => {}
            (Some(class), None) => classes[class].push(other),
            (None, Some(class)) => classes[class].push(one),
            (None, None) => classes.push(vec![one, other]),
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equalities_join_to_classes() {
        let slot = |leaf| Slot { leaf, column: 0 };
        let found = classes(vec![
            (slot(0), slot(1)),
            (slot(2), slot(3)),
            (slot(4), slot(5)),
            (slot(3), slot(1)),
            (slot(0), slot(2)),
        ]);
        let expected = [vec![0, 1, 2, 3], vec![4, 5]];
        let leaves = |class: &Vec<Slot>| {
            let mut leaves: Vec<_> = class.iter().map(|slot| slot.leaf).collect();
            leaves.sort_unstable();
            leaves
        };
        assert_eq!(found.iter().map(leaves).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_placeholder_names_its_slot() {
        let slot = Slot {
            leaf: 3,
            column: 14,
        };
        assert_eq!(Slot::from_placeholder(&slot.placeholder()), Some(slot));
        assert_eq!(Slot::from_placeholder(&Column::new_unqualified("a")), None);
    }
}
