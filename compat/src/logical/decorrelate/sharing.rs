//! Rows around a subquery that are made once for it and the query around it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinSide, Result, not_impl_err};
use datafusion::logical_expr::logical_plan::{Filter, Join, RecursiveQuery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::determinism::{input, refused, side_of};
use super::recursion::working_table;
use super::references::references;
use super::{Unnesting, correlated, has_all};
use crate::logical::common_subplan::Shared;
use crate::rules::has_subquery;

impl Unnesting<'_> {
    /// `node` with inputs that are made once, where its subqueries ask for rows that might be others when
    /// they are made again.
    pub(super) fn with_shared_inputs(&self, mut node: LogicalPlan) -> Result<LogicalPlan> {
        for (_, references) in correlated(&node)? {
            let asked = self.asked(&node)?;
            let Some(asking) = asked.iter().position(|input| has_all(input, &references)) else {
                continue;
            };
            if self
                .determinism
                .is_deterministic(&asked[asking], &references)?
            {
                continue;
            }
            node = match node {
                LogicalPlan::Filter(filter) => self.with_shared_rows(filter, &references)?,
                node => {
                    let mut places = 0..;
                    let shared =
                        node.map_children(|input| match places.next() == Some(asking) {
                            true => self.shared(input, &references).map(Transformed::yes),
                            false => Ok(Transformed::no(input)),
                        })?;
                    shared.data
                }
            };
        }
        Ok(node)
    }

    /// `filter` above shared rows that fulfil those of its conditions that are no subqueries.
    fn with_shared_rows(&self, filter: Filter, columns: &[Column]) -> Result<LogicalPlan> {
        let (mut plain, mut others) = (Vec::new(), Vec::new());
        for condition in split_conjunction_owned(filter.predicate) {
            match has_subquery(&condition)? {
                true => others.push(condition),
                false => plain.push(condition),
            }
        }
        let mut rows = filter.input;
        if let Some(plain) = conjunction(plain) {
            rows = Arc::new(LogicalPlan::Filter(Filter::try_new(plain, rows)?));
        }
        let rows = self.shared(Arc::unwrap_or_clone(rows), columns)?;
        match conjunction(others) {
            Some(others) => {
                let filter = Filter::try_new(others, Arc::new(rows))?;
                Ok(LogicalPlan::Filter(filter))
            }
            None => Ok(rows),
        }
    }

    /// `plan`, of which those rows are made once that have these `columns`: of a join one side, if it has
    /// them.
    pub(super) fn shared(&self, plan: LogicalPlan, columns: &[Column]) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Filter(filter) => {
                let LogicalPlan::Join(join) = filter.input.as_ref() else {
                    return self.made_once(LogicalPlan::Filter(filter));
                };
                let Some(side) = shareable_side(join, columns)? else {
                    return self.made_once(LogicalPlan::Filter(filter));
                };
                // It keeps those that are about the side alone, too.
                let schema = input(join, side).schema();
                let mut own = Vec::new();
                for condition in split_conjunction(&filter.predicate) {
                    let mut read = condition.column_refs().into_iter();
                    let is_own = read.all(|column| schema.has_column(column));
                    if is_own && !has_subquery(condition)? && !condition.is_volatile() {
                        own.push(condition.clone());
                    }
                }
                let join = self.with_shared_side(join.clone(), side, own, columns)?;
                let filter = Filter::try_new(filter.predicate, Arc::new(join))?;
                Ok(LogicalPlan::Filter(filter))
            }
            LogicalPlan::Join(join) => match shareable_side(&join, columns)? {
                Some(side) => self.with_shared_side(join, side, Vec::new(), columns),
                None => self.made_once(LogicalPlan::Join(join)),
            },
            plan => self.made_once(plan),
        }
    }

    /// `join`, of one side of which those rows are made once that fulfil `conditions`.
    fn with_shared_side(
        &self,
        mut join: Join,
        side: JoinSide,
        conditions: Vec<Expr>,
        columns: &[Column],
    ) -> Result<LogicalPlan> {
        let rows = match side {
            JoinSide::Right => &mut join.right,
            _ => &mut join.left,
        };
        let mut shared = Arc::clone(rows);
        if let Some(conditions) = conjunction(conditions) {
            shared = Arc::new(LogicalPlan::Filter(Filter::try_new(conditions, shared)?));
        }
        *rows = Arc::new(self.shared(Arc::unwrap_or_clone(shared), columns)?);
        Ok(LogicalPlan::Join(join))
    }

    /// `join` with sides that are the same when they are read again.
    pub(super) fn with_repeatable_sides(&self, mut join: Join) -> Result<Join> {
        for side in [&mut join.left, &mut join.right] {
            if !self.determinism.is_deterministic_plan(side)? {
                *side = Arc::new(self.made_once(side.as_ref().clone())?);
            }
        }
        Ok(join)
    }

    fn made_once(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        self.made_once_as(Shared::plan, plan)
    }

    /// The rows of `plan`, made at one place, as `shared` says.
    pub(super) fn made_once_as(
        &self,
        shared: fn(Arc<LogicalPlan>, usize, Option<String>) -> LogicalPlan,
        plan: LogicalPlan,
    ) -> Result<LogicalPlan> {
        if !references(&plan)?.is_empty() {
            return refused();
        }
        let recursion = recursion_of(&plan)?;
        // By itself, so that it is the same at all places.
        let rows = (self.optimize)(&self.unnested(plan)?)?;
        let number = self.next_number();
        Ok(shared(Arc::new(rows), number, recursion))
    }

    /// `query` with its working table, which one place alone may read, as rows that several may.
    pub(super) fn with_shared_iterations(&self, query: RecursiveQuery) -> Result<LogicalPlan> {
        let name = &query.name;
        let mut number = None;
        let term = Arc::unwrap_or_clone(query.recursive_term);
        let term = term.transform_down_with_subqueries(|node| {
            if working_table(&node, name).is_none() {
                return Ok(Transformed::no(node));
            }
            let number = *number.get_or_insert_with(|| self.next_number());
            let rows = Shared::plan(Arc::new(node), number, Some(name.clone()));
            Ok(Transformed::new(rows, true, TreeNodeRecursion::Jump))
        })?;
        Ok(LogicalPlan::RecursiveQuery(RecursiveQuery {
            recursive_term: Arc::new(term.data),
            ..query
        }))
    }

    fn next_number(&self) -> usize {
        self.shared.set(self.shared.get() + 1);
        self.shared.get()
    }
}

/// The recursive query around `plan` of whose iterations it has rows.
///
/// # Errors
/// None of its own; those of walking a plan.
pub(super) fn recursion_of(plan: &LogicalPlan) -> Result<Option<String>> {
    let (mut inner, mut recursion) = (Vec::new(), None);
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            inner.push(query.name.clone());
        }
        if let Some(name) = Shared::from_plan(node).and_then(Shared::recursion)
            && !inner.contains(name)
        {
            recursion = Some(name.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(recursion)
}

/// Refuses rows of an iteration in the recursive term of a further recursive query, which would have them
/// made anew in each iteration of its own.
///
/// `around` is the recursive query in whose recursive term `plan` is.
///
/// # Errors
/// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) if there are any.
pub(super) fn check_iterations(plan: &LogicalPlan, around: Option<&str>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            check_iterations(&query.static_term, around)?;
            check_iterations(&query.recursive_term, Some(&query.name))?;
            return Ok(TreeNodeRecursion::Jump);
        }
        let Some(shared) = Shared::from_plan(node) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let recursion = shared.recursion().map(String::as_str);
        if let Some(name) = recursion
            && around != recursion
        {
            return not_impl_err!(
                "a subquery in the recursive term of {name} with a recursive query whose recursive term asks \
                 for {name}; write it as a join"
            );
        }
        check_iterations(shared.rows(), recursion)?;
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(())
}

/// The side of `join` that has these `columns` of all of its rows, if it can be made by itself.
fn shareable_side(join: &Join, columns: &[Column]) -> Result<Option<JoinSide>> {
    let side = side_of(join, columns);
    Ok(match side {
        Some(side) if references(input(join, side))?.is_empty() => Some(side),
        _ => None,
    })
}
