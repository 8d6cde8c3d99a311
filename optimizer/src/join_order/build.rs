//! Plans of an island's leaves in another order.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, JoinType, NullEquality, Result, TableReference, internal_err};
use datafusion::logical_expr::logical_plan::{
    Filter, Join, JoinConstraint, Projection, SubqueryAlias,
};
use datafusion::logical_expr::utils::{can_hash, conjunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use super::island::{Island, JoinTree, LeafSet, Slot};

/// Gives an alias to each leaf with a column that could be taken for another leaf's. Returns `false` if no alias helps.
pub(super) fn tell_leaves_apart(leaves: &mut [Arc<LogicalPlan>]) -> Result<bool> {
    let names = |leaf: &LogicalPlan| {
        let columns = leaf.schema().iter();
        let names = columns.map(|(qualifier, field)| {
            let table = qualifier.map(|qualifier| qualifier.table().to_owned());
            (table, field.name().clone())
        });
        names.collect::<Vec<_>>()
    };
    let mut tables: HashSet<String> = HashSet::new();
    for leaf in leaves.iter() {
        tables.extend(names(leaf).into_iter().filter_map(|(table, _)| table));
    }
    let mut seen: Vec<(Option<String>, String)> = Vec::new();
    for leaf in leaves {
        let own = names(leaf);
        let is_taken = own.iter().any(|(table, name)| {
            seen.iter().any(|(other_table, other)| {
                name == other && (table == other_table || table.is_none() || other_table.is_none())
            })
        });
        if !is_taken {
            seen.extend(own);
            continue;
        }
        let distinct: HashSet<&String> = own.iter().map(|(_, name)| name).collect();
        if distinct.len() < own.len() {
            return Ok(false);
        }
        // An unqualified column of a leaf before would still be taken for this one's.
        let is_still_taken = own.iter().any(|(_, name)| {
            seen.iter()
                .any(|(table, other)| table.is_none() && name == other)
        });
        if is_still_taken {
            return Ok(false);
        }
        let first = own.iter().find_map(|(table, _)| table.as_deref());
        let first = first.unwrap_or("joined");
        let mut numbered = (2..).map(|number| format!("{first}_{number}"));
        let Some(alias) = numbered.find(|alias| !tables.contains(alias)) else {
            return Ok(false);
        };
        tables.insert(alias.clone());
        let named = SubqueryAlias::try_new(Arc::clone(leaf), TableReference::bare(alias.clone()))?;
        *leaf = Arc::new(LogicalPlan::SubqueryAlias(named));
        seen.extend(own.into_iter().map(|(_, name)| (Some(alias.clone()), name)));
    }
    Ok(true)
}

/// Filters leaves by what is known of each alone.
pub(super) fn filter_leaves(island: &Island, leaves: &mut [Arc<LogicalPlan>]) -> Result<()> {
    for number in 0..leaves.len() {
        let set: LeafSet = 1 << number;
        let own = island.conditions.iter();
        let own = own.filter(|condition| condition.leaves == set);
        let own = own.map(|condition| with_columns(&condition.expr, leaves));
        let mut predicates = own.collect::<Result<Vec<_>>>()?;
        for class in &island.classes {
            let members = class.iter().filter(|slot| slot.leaf == number);
            let members: Vec<Expr> = members.map(|slot| column(*slot, leaves)).collect();
            let pairs = members.iter().zip(members.iter().skip(1));
            predicates.extend(pairs.map(|(one, other)| one.clone().eq(other.clone())));
        }
        let Some(mut predicate) = conjunction(predicates) else {
            continue;
        };
        let mut input = Arc::clone(&leaves[number]);
        if let LogicalPlan::Filter(filter) = leaves[number].as_ref() {
            predicate = filter.predicate.clone().and(predicate);
            input = Arc::clone(&filter.input);
        }
        leaves[number] = Arc::new(LogicalPlan::Filter(Filter::try_new(predicate, input)?));
    }
    Ok(())
}

/// The column of a leaf.
fn column(slot: Slot, leaves: &[Arc<LogicalPlan>]) -> Expr {
    Expr::from(leaves[slot.leaf].schema().qualified_field(slot.column))
}

/// `expr` with columns of leaves in place of placeholders.
fn with_columns(expr: &Expr, leaves: &[Arc<LogicalPlan>]) -> Result<Expr> {
    let expr = expr.clone().transform(|part| {
        let Expr::Column(placeholder) = &part else {
            return Ok(Transformed::no(part));
        };
        match Slot::from_placeholder(placeholder) {
            Some(slot) => Ok(Transformed::yes(column(slot, leaves))),
            None => internal_err!("{placeholder} is no column of a leaf"),
        }
    });
    expr.data()
}

/// The rows of `island` by the joins of `tree` over `leaves`, with the columns of `schema`. `None` if they would
/// have others.
pub(super) fn joined(
    island: &Island,
    leaves: &[Arc<LogicalPlan>],
    tree: &JoinTree,
    schema: &Arc<DFSchema>,
) -> Result<Option<LogicalPlan>> {
    let mut builder = Builder {
        island,
        leaves,
        applied: vec![false; island.conditions.len()],
    };
    let (mut plan, _) = builder.plan(tree)?;
    let mut rest = Vec::new();
    for (condition, applied) in island.conditions.iter().zip(&builder.applied) {
        // Filters of leaves are there already.
        if !applied && condition.leaves.count_ones() != 1 {
            rest.push(with_columns(&condition.expr, leaves)?);
        }
    }
    if let Some(predicate) = conjunction(rest) {
        plan = Arc::new(LogicalPlan::Filter(Filter::try_new(predicate, plan)?));
    }
    let columns = island.output.iter().zip(schema.iter());
    let columns = columns.map(|(slot, (qualifier, field))| {
        let column = column(*slot, leaves);
        match column == Expr::from((qualifier, field)) {
            true => column,
            false => column.alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let plan = Projection::try_new(columns.collect(), plan)?;
    let is_same =
        plan.schema.fields().len() == schema.fields().len() && plan.schema.iter().eq(schema.iter());
    if !is_same {
        return Ok(None);
    }
    let plan = Projection::try_new_with_schema(plan.expr, plan.input, Arc::clone(schema))?;
    Ok(Some(LogicalPlan::Projection(plan)))
}

struct Builder<'a> {
    island: &'a Island,
    leaves: &'a [Arc<LogicalPlan>],
    /// Which conditions hold in the plan that has been built.
    applied: Vec<bool>,
}

impl Builder<'_> {
    fn plan(&mut self, tree: &JoinTree) -> Result<(Arc<LogicalPlan>, LeafSet)> {
        let (left, right) = match tree {
            JoinTree::Leaf(leaf) => return Ok((Arc::clone(&self.leaves[*leaf]), 1 << leaf)),
            JoinTree::Join(left, right) => (left, right),
        };
        let (left, of_left) = self.plan(left)?;
        let (right, of_right) = self.plan(right)?;
        let mut on = Vec::new();
        // Within each side all of a class are equal already.
        for class in &self.island.classes {
            let member = |set: LeafSet| class.iter().find(|slot| slot.leaf_set() & set != 0);
            if let (Some(one), Some(other)) = (member(of_left), member(of_right)) {
                on.push((column(*one, self.leaves), column(*other, self.leaves)));
            }
        }
        let (mut filters, mut above) = (Vec::new(), Vec::new());
        let conditions = self.island.conditions.iter();
        for (condition, applied) in conditions.zip(&mut self.applied) {
            let both = of_left | of_right;
            if *applied || condition.leaves.count_ones() < 2 || condition.leaves & !both != 0 {
                continue;
            }
            *applied = true;
            let mut key = None;
            if let Some([(one, of_one), (other, of_other)]) = &condition.sides {
                let one = with_columns(one, self.leaves)?;
                let other = with_columns(other, self.leaves)?;
                if of_one & !of_left == 0 && of_other & !of_right == 0 {
                    key = Some((one, other));
                } else if of_one & !of_right == 0 && of_other & !of_left == 0 {
                    key = Some((other, one));
                }
            }
            let is_key = |(one, other): &(Expr, Expr)| {
                let one = one.get_type(left.schema());
                let other = other.get_type(right.schema());
                let types = one.ok().zip(other.ok());
                types.is_some_and(|(one, other)| one == other && can_hash(&one))
            };
            match key.filter(is_key) {
                Some(key) => on.push(key),
                None if condition.can_join => {
                    filters.push(with_columns(&condition.expr, self.leaves)?);
                }
                None => above.push(with_columns(&condition.expr, self.leaves)?),
            }
        }
        let join = Join::try_new(
            left,
            right,
            on,
            conjunction(filters),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        let mut plan = LogicalPlan::Join(join);
        if let Some(predicate) = conjunction(above) {
            plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?);
        }
        Ok((Arc::new(plan), of_left | of_right))
    }
}
