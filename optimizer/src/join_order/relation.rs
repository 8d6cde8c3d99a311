//! Names of relations: equal for plans that return the same number of rows.
//!
//! Inner joins have the same name in any order, since it is made of the set of their leaves and conditions. Names do
//! not contain aliases or columns that nobody reads. They contain the version of each table, so that rows that were
//! counted before a table changed are not taken for its rows now. Two plans with the same name by accident only
//! mislead an estimate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, Join, Projection};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use skewer_compat::logical::common_subplan::Shared;
use skewer_compat::rules::has_subquery;

use super::build::{filter_leaves, tell_leaves_apart};
use super::island::{self, Island, LeafSet, Slot};
use super::sizes::members;
use super::statistics::Summaries;

/// The name of a relation: a hash of tables, versions and conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relation(pub u64);

/// Names the relations of one query.
#[derive(Debug)]
pub(super) struct Relations<'a> {
    summaries: &'a Summaries,
    /// Of leaves, by a hash of their plan: a query asks for the same ones again and again.
    known: RefCell<HashMap<u64, Option<Relation>>>,
}

impl<'a> Relations<'a> {
    pub(super) fn new(summaries: &'a Summaries) -> Self {
        Self {
            summaries,
            known: RefCell::default(),
        }
    }

    /// The relation that `plan` returns; `None` if another run may return other rows.
    pub(super) fn of(&self, plan: &LogicalPlan) -> Option<Relation> {
        let key = hashed(plan);
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let relation = match island::is_root(plan) {
            true => self.of_island(plan),
            false => self.of_node(plan),
        };
        self.known.borrow_mut().insert(key, relation);
        relation
    }

    fn of_island(&self, root: &LogicalPlan) -> Option<Relation> {
        let island = Island::below(root).ok()??;
        let mut leaves = island.leaves.clone();
        let are_apart = tell_leaves_apart(&mut leaves).ok()?;
        if !are_apart {
            return None;
        }
        filter_leaves(&island, &mut leaves).ok()?;
        let all: LeafSet = (1 << leaves.len()) - 1;
        self.of_sets(&island, &leaves).of(all)
    }

    /// Names the joins of `island`, whose `leaves` are filtered.
    pub(super) fn of_sets(&self, island: &Island, leaves: &[Arc<LogicalPlan>]) -> SetRelations {
        let names: Vec<_> = leaves.iter().map(|leaf| self.of(leaf)).collect();
        let column = |slot: Slot| -> Option<String> {
            let Relation(leaf) = (*names.get(slot.leaf)?)?;
            let schema = leaves[slot.leaf].schema();
            Some(format!("{leaf:x}.{}", schema.field(slot.column).name()))
        };
        let placed = |placeholder: &Column| column(Slot::from_placeholder(placeholder)?);
        let conditions = island.conditions.iter();
        let conditions = conditions.filter(|condition| condition.leaves.count_ones() > 1);
        let conditions = conditions.map(|condition| {
            let text = text(&condition.expr, &placed);
            let part = text.map(|text| hashed(&("condition", text)));
            (condition.leaves, part)
        });
        let classes = island.classes.iter().map(|class| {
            let mut slots: Vec<(usize, Option<u64>)> = class
                .iter()
                .map(|slot| (slot.leaf, column(*slot).map(|column| hashed(&column))))
                .collect();
            // A filter of the leaf says that others of its columns are equal.
            slots.dedup_by_key(|(leaf, _)| *leaf);
            slots
        });
        SetRelations {
            conditions: conditions.collect(),
            classes: classes.collect(),
            leaves: names
                .into_iter()
                .map(|name| name.map(|name| (name, hashed(&("leaf", name)))))
                .collect(),
        }
    }

    /// The relation of a node that is no inner join.
    fn of_node(&self, plan: &LogicalPlan) -> Option<Relation> {
        let part = match plan {
            LogicalPlan::TableScan(scan) => {
                let version = self.summaries.get(scan)?.version?;
                if scan.fetch.is_some() {
                    return None;
                }
                let filters = texts(scan.filters.iter(), &own_name)?;
                hashed(&("scan", version, filters))
            }
            LogicalPlan::Filter(filter) => {
                let conditions = texts(split_conjunction(&filter.predicate), &own_name)?;
                hashed(&("filter", self.of(&filter.input)?, conditions))
            }
            LogicalPlan::SubqueryAlias(alias) => return self.of(&alias.input),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => return self.of(&sort.input),
            LogicalPlan::Repartition(repartition) => return self.of(&repartition.input),
            LogicalPlan::Projection(projection) => return self.projected(projection),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate)?,
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let fields = input.schema().fields().iter();
                let mut names: Vec<_> = fields.map(|field| field.name().as_str()).collect();
                names.sort_unstable();
                hashed(&("distinct", self.of(input)?, names))
            }
            LogicalPlan::Join(join) => self.joined(join)?,
            LogicalPlan::Union(union) => {
                let inputs = union.inputs.iter().map(|input| self.of(input));
                let mut inputs = inputs.collect::<Option<Vec<_>>>()?;
                inputs.sort_unstable();
                hashed(&("union", inputs))
            }
            LogicalPlan::Window(window) => {
                let functions = texts(window.window_expr.iter(), &own_name)?;
                hashed(&("window", self.of(&window.input)?, functions))
            }
            LogicalPlan::Extension(_) => return self.of(Shared::from_plan(plan)?.rows()),
            _ => return None,
        };
        Some(Relation(part))
    }

    /// Columns that are only handed on do not change what rows there are.
    fn projected(&self, projection: &Projection) -> Option<Relation> {
        let input = self.of(&projection.input)?;
        let made = projection.expr.iter().filter(|expr| match expr {
            Expr::Column(_) => false,
            Expr::Alias(alias) => {
                !matches!(alias.expr.as_ref(), Expr::Column(column) if column.name == alias.name)
            }
            _ => true,
        });
        let made = texts(made, &own_name)?;
        Some(match made.is_empty() {
            true => input,
            false => Relation(hashed(&("projection", input, made))),
        })
    }

    /// What is computed for a group does not change what groups there are.
    fn aggregated(&self, aggregate: &Aggregate) -> Option<u64> {
        let groups = texts(aggregate.group_expr.iter(), &own_name)?;
        Some(hashed(&("aggregate", self.of(&aggregate.input)?, groups)))
    }

    fn joined(&self, join: &Join) -> Option<u64> {
        let (left, right) = (self.of(&join.left)?, self.of(&join.right)?);
        let has = |schema: &DFSchema, column: &Column| schema.has_column(column);
        let placed = |column: &Column| {
            let side = match has(join.left.schema(), column) {
                true => "left",
                false => "right",
            };
            Some(format!("{side}.{}", column.name))
        };
        let keys = join.on.iter();
        let keys = keys.map(|(left, right)| Some((text(left, &placed)?, text(right, &placed)?)));
        let mut keys = keys.collect::<Option<Vec<_>>>()?;
        keys.sort_unstable();
        let filter = join.filter.iter().flat_map(split_conjunction);
        let filter = texts(filter, &placed)?;
        let kind = (join.join_type, join.null_equality, join.null_aware);
        Some(hashed(&("join", kind, left, right, keys, filter)))
    }
}

/// Names the joins of sets of an island's leaves.
#[derive(Debug)]
pub(super) struct SetRelations {
    /// Leaves, and what they add to the name of a set.
    leaves: Vec<Option<(Relation, u64)>>,
    /// The leaves of a condition, and what it adds.
    conditions: Vec<(LeafSet, Option<u64>)>,
    /// Columns that are equal: their leaves, and hashes.
    classes: Vec<Vec<(usize, Option<u64>)>>,
}

impl SetRelations {
    /// The relations of so many leaves, which are all different.
    #[cfg(test)]
    pub(super) fn of_different(leaves: usize) -> Self {
        let leaves = (0..leaves as u64).map(|leaf| Some((Relation(leaf), hashed(&leaf))));
        Self {
            leaves: leaves.collect(),
            conditions: Vec::new(),
            classes: Vec::new(),
        }
    }

    /// The relation of the joined leaves of `set`.
    pub(super) fn of(&self, set: LeafSet) -> Option<Relation> {
        if set.count_ones() == 1 {
            let leaf = *self.leaves.get(set.trailing_zeros() as usize)?;
            return leaf.map(|(relation, _)| relation);
        }
        // A sum does not depend on the order.
        let mut sum: u64 = 0;
        for leaf in members(set) {
            let (_, part) = (*self.leaves.get(leaf)?)?;
            sum = sum.wrapping_add(part);
        }
        for (leaves, part) in &self.conditions {
            if leaves & !set == 0 {
                sum = sum.wrapping_add((*part)?);
            }
        }
        for class in &self.classes {
            let (mut equal, mut count): (u64, u32) = (0, 0);
            for (leaf, column) in class {
                if set & (1 << leaf) != 0 {
                    equal = equal.wrapping_add((*column)?);
                    count += 1;
                }
            }
            if count > 1 {
                sum = sum.wrapping_add(hashed(&("equal", equal)));
            }
        }
        Some(Relation(hashed(&("joined", sum))))
    }
}

fn hashed<T: Hash + ?Sized>(value: &T) -> u64 {
    // Its keys are the same in all processes of a version of Rust.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A column as its own input names it.
fn own_name(column: &Column) -> Option<String> {
    Some(column.name.clone())
}

/// The texts of expressions, in an order of their own.
fn texts<'a>(
    expressions: impl IntoIterator<Item = &'a Expr>,
    name: &dyn Fn(&Column) -> Option<String>,
) -> Option<Vec<String>> {
    let texts = expressions.into_iter().map(|expr| text(expr, name));
    let mut texts = texts.collect::<Option<Vec<_>>>()?;
    texts.sort_unstable();
    texts.dedup();
    Some(texts)
}

/// The text of an expression whose columns have the names that `name` gives; `None` if its value may change.
fn text(expr: &Expr, name: &dyn Fn(&Column) -> Option<String>) -> Option<String> {
    if expr.is_volatile() || expr.contains_outer() || has_subquery(expr).unwrap_or(true) {
        return None;
    }
    if let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = expr
    {
        let mut sides = [text(left, name)?, text(right, name)?];
        sides.sort_unstable();
        return Some(sides.join(" = "));
    }
    let mut all_named = true;
    let named = expr.clone().transform(|part| {
        let Expr::Column(column) = &part else {
            return Ok(Transformed::no(part));
        };
        Ok(match name(column) {
            Some(name) => Transformed::yes(Expr::Column(Column::new_unqualified(name))),
            None => {
                all_named = false;
                Transformed::no(part)
            }
        })
    });
    let named = named.data().ok()?;
    all_named.then(|| named.to_string())
}
