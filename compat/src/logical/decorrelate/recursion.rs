//! Recursive queries in a subquery, of which a term refers to the query around it.
//!
//! One recursion is that of all values: its working table has the columns of the domain, so the rows of an
//! iteration are made of those that the one before has for the same value. A value that an iteration has no
//! row for is out of all that follow, where the row-by-row recursion for it ends. That holds where each row
//! of the recursive term is made of one of the working table; PostgreSQL takes no others.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, internal_err, not_impl_err};
use datafusion::logical_expr::logical_plan::{
    Distinct, DistinctOn, RecursiveQuery, TableScan, TableScanBuilder,
};
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

use super::push_down::PushDown;
use super::references::{lateral, references};

impl PushDown<'_> {
    pub(super) fn recursive_query(&self, query: RecursiveQuery) -> Result<LogicalPlan> {
        let RecursiveQuery {
            name,
            static_term,
            recursive_term,
            is_distinct,
            ..
        } = query;
        if !follows(&recursive_term, &name) || is_asked(&recursive_term, &name)? {
            return not_impl_err!(
                "a correlated subquery with a recursive query whose recursive term has rows without a row \
                 of {name}, or asks for {name} in a subquery; write it as a join"
            );
        }
        // An iteration has no more than what the one before has.
        let term = Arc::unwrap_or_clone(recursive_term);
        let recursive_term = term.transform_down(|node| match &node {
            // What its right side refers to may be beside it.
            LogicalPlan::Join(join) if lateral(&join.right).is_some() => {
                Ok(Transformed::new(node, false, TreeNodeRecursion::Jump))
            }
            _ => self.with_sizes(node).map(Transformed::yes),
        })?;
        let recursive_term = Arc::new(recursive_term.data);
        let mut columns = references(&recursive_term)?;
        columns.extend(self.domain.sizes_of(&columns));
        let first = self.wanting(&columns);
        let mut iteration = first.clone();
        let columns = first.names().cloned().collect();
        iteration.recursions.push((name.clone(), columns));
        let static_term = first.branch(static_term)?;
        let recursive_term = iteration.branch(recursive_term)?;
        let query = RecursiveQuery::try_new(name, static_term, recursive_term, is_distinct)?;
        Ok(LogicalPlan::RecursiveQuery(query))
    }

    /// Whether `plan` has rows of the iteration before.
    pub(super) fn is_of_iteration(&self, plan: &LogicalPlan) -> Result<bool> {
        plan.exists(|node| {
            let mut names = self.recursions.iter();
            Ok(names.any(|(name, _)| working_table(node, name).is_some()))
        })
    }

    /// The working table of a recursive query around `scan`, with the columns of the domain.
    pub(super) fn working_table(&self, scan: TableScan) -> Result<LogicalPlan> {
        let name = scan.table_name.clone();
        let projection = scan.projection.clone();
        let plan = LogicalPlan::TableScan(scan);
        let mut names = self.recursions.iter();
        let found = names.find_map(|(name, columns)| Some((working_table(&plan, name)?, columns)));
        let Some((table, columns)) = found else {
            return internal_err!("{name} is no working table");
        };
        let own = table.schema();
        let mut fields: Vec<_> = own.fields().iter().cloned().collect();
        for name in columns {
            // Of an iteration the planner knows nothing.
            let field = self.domain.field(name)?.as_ref().clone();
            fields.push(Arc::new(field.with_nullable(true)));
        }
        let projection = projection.map(|mut places| {
            places.extend(own.fields().len()..fields.len());
            places
        });
        let all = Schema::new_with_metadata(fields, own.metadata().clone());
        let table = provider_as_source(Arc::new(CteWorkTable::new(table.name(), Arc::new(all))));
        let scan = TableScanBuilder::new(name, table).with_projection(projection);
        Ok(LogicalPlan::TableScan(scan.build()?))
    }
}

/// The working table of the recursive query `name`, if `node` is a scan of it.
pub(super) fn working_table(node: &LogicalPlan, name: &str) -> Option<Arc<CteWorkTable>> {
    let LogicalPlan::TableScan(scan) = node else {
        return None;
    };
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<CteWorkTable>()?;
    let schema = table.schema();
    (table.name() == name).then(|| Arc::new(CteWorkTable::new(name, schema)))
}

/// Whether a recursive query in `plan` [reads its working table anew](reads_anew).
///
/// # Errors
/// None of its own; those of walking a plan.
pub fn reads_iterations_anew(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            found |= reads_anew(query)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether the recursive term of `query` has its working table at several places, or in a scalar subquery.
///
/// # Errors
/// None of its own; those of walking a plan.
pub fn reads_anew(query: &RecursiveQuery) -> Result<bool> {
    let scans = |plan: &LogicalPlan| -> Result<usize> {
        let mut scans = 0;
        plan.apply_with_subqueries(|node| {
            scans += usize::from(working_table(node, &query.name).is_some());
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(scans)
    };
    let mut found = scans(&query.recursive_term)? > 1;
    query.recursive_term.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| match part {
                Expr::ScalarSubquery(subquery) => Ok(scans(&subquery.subquery)? > 0),
                _ => Ok(false),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Whether each row of `plan`, in the recursive term of `name`, is made of a row of its working table.
fn follows(plan: &LogicalPlan, name: &str) -> bool {
    let follows_too = |plan: &LogicalPlan| follows(plan, name);
    match plan {
        LogicalPlan::TableScan(_) => working_table(plan, name).is_some(),
        LogicalPlan::Projection(projection) => follows_too(&projection.input),
        LogicalPlan::Filter(filter) => follows_too(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => follows_too(&alias.input),
        LogicalPlan::Sort(sort) => follows_too(&sort.input),
        LogicalPlan::Limit(limit) => follows_too(&limit.input),
        LogicalPlan::Distinct(Distinct::All(input) | Distinct::On(DistinctOn { input, .. })) => {
            follows_too(input)
        }
        LogicalPlan::Window(window) => follows_too(&window.input),
        LogicalPlan::Unnest(unnest) => follows_too(&unnest.input),
        LogicalPlan::Aggregate(aggregate) => {
            let has_all = match aggregate.group_expr.as_slice() {
                [] => true,
                [Expr::GroupingSet(sets)] => has_all_rows(sets),
                _ => false,
            };
            !has_all && follows_too(&aggregate.input)
        }
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| follows_too(input)),
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => {
                follows_too(&join.left) || follows_too(&join.right)
            }
            JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => follows_too(&join.left),
            JoinType::Right | JoinType::RightAnti | JoinType::RightMark => follows_too(&join.right),
            JoinType::Full => follows_too(&join.left) && follows_too(&join.right),
        },
        LogicalPlan::RecursiveQuery(query) => follows_too(&query.static_term),
        _ => false,
    }
}

/// Whether one of `sets` is that of all rows, which is there without rows, too.
pub(super) fn has_all_rows(sets: &GroupingSet) -> bool {
    match sets {
        GroupingSet::GroupingSets(sets) => sets.iter().any(Vec::is_empty),
        GroupingSet::Rollup(_) | GroupingSet::Cube(_) => true,
    }
}

/// Whether a subquery in `plan` asks for rows of the working table of `name`: it would find those of all
/// values.
fn is_asked(plan: &LogicalPlan, name: &str) -> Result<bool> {
    let mut scans = 0_usize;
    plan.apply_with_subqueries(|node| {
        scans += usize::from(working_table(node, name).is_some());
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut outside = 0_usize;
    plan.apply(|node| {
        if let LogicalPlan::Subquery(_) = node {
            return Ok(TreeNodeRecursion::Jump);
        }
        outside += usize::from(working_table(node, name).is_some());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans != outside)
}
