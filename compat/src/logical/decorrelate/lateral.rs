//! LATERAL subqueries as joins, or as rows made of those around them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::logical_plan::{Join, SubqueryAlias};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::domain::Domain;
use super::domain_surrogate_keys::multiplies;
use super::references::{lateral, references};
use super::{Unnesting, column_named};
use crate::rules::has_subquery;

impl Unnesting<'_> {
    /// A LATERAL subquery as a join.
    pub(super) fn lateral(&self, join: Join) -> Result<LogicalPlan> {
        let own = join.schema.columns();
        let right = without_subquery(&join.right)?;
        let references = references(&right)?;
        if references.is_empty() {
            let join = Join {
                right: Arc::new(right),
                ..join
            };
            return Ok(LogicalPlan::Join(join));
        }
        let mut left = Arc::unwrap_or_clone(join.left);
        if join.join_type == JoinType::Inner && is_row_by_row(&right)? {
            let conditions = join.on.into_iter().map(|(left, right)| left.eq(right));
            let conditions = join.filter.into_iter().chain(conditions);
            return self.row_by_row(left, right, conjunction(conditions), own);
        }
        if !self.determinism.is_deterministic(&left, &references)? {
            left = self.shared(left, &references)?;
        }
        let domain = match multiplies(&right, left.schema())? {
            true => {
                let domain = self.numbered(Domain::of_columns(
                    &left,
                    references,
                    &self.aliases,
                    self.determinism,
                )?)?;
                left = self.with_number(left, &domain)?;
                domain
            }
            false => Domain::of_columns(&left, references, &self.aliases, self.determinism)?,
        };
        let pushed = self.push_down(&domain, right)?;
        let mut conditions: Vec<Expr> = join.filter.into_iter().collect();
        for (column, name) in domain.keys() {
            let inner = column_named(name, &pushed)?;
            conditions.push(domain.is_same(Expr::Column(column.clone()), inner));
        }
        conditions.extend(join.on.into_iter().map(|(left, right)| left.eq(right)));
        LogicalPlanBuilder::from(left)
            .join_on(pushed, join.join_type, conditions)?
            .project(own.into_iter().map(Expr::Column))?
            .build()
    }

    /// The rows of `left`, each with those that `right` makes of it, if `condition` holds for them: the columns
    /// `own`.
    fn row_by_row(
        &self,
        left: LogicalPlan,
        right: LogicalPlan,
        condition: Option<Expr>,
        own: Vec<Column>,
    ) -> Result<LogicalPlan> {
        let made = right.schema().columns();
        let domain = Domain::of_rows(left, &self.aliases)?;
        let pushed = self.push_down(&domain, right)?;
        let mut columns = Vec::new();
        for (column, name) in domain.columns() {
            let value = column_named(name, &pushed)?;
            columns.push(value.alias_qualified(column.relation.clone(), &column.name));
        }
        columns.extend(made.into_iter().map(Expr::Column));
        let mut rows = LogicalPlanBuilder::from(pushed).project(columns)?;
        if let Some(condition) = condition {
            rows = rows.filter(condition)?;
        }
        rows.project(own.into_iter().map(Expr::Column))?.build()
    }
}

/// Whether a LATERAL subquery makes its rows of one row around it and of nothing else, as `unnest(t.list)`
/// does: it can be evaluated over these rows, without looking for what its values are asked for.
fn is_row_by_row(right: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    right.apply_expressions(|expression| {
        found |= has_subquery(expression)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if found {
        return Ok(false);
    }
    match right {
        LogicalPlan::EmptyRelation(empty) => Ok(empty.produce_one_row),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Unnest(_) => is_row_by_row(right.inputs()[0]),
        _ => Ok(false),
    }
}

/// Whether the right side of `join` refers to the left. DataFusion says LATERAL only where no subquery
/// is what does; what is further out is a column of the left side by now.
pub(super) fn is_lateral(join: &Join) -> Result<bool> {
    if lateral(&join.right).is_some() {
        return Ok(true);
    }
    let references = references(&join.right)?;
    let left = join.left.schema();
    let is_asked =
        !references.is_empty() && references.iter().all(|column| left.has_column(column));
    Ok(is_asked && matches!(join.join_type, JoinType::Inner | JoinType::Left))
}

/// What DataFusion takes for LATERAL with nothing beside it is a plan like others: `unnest(t.list)` is what a
/// subquery in `SELECT (SELECT max(x) FROM unnest(t.list) AS u(x)) FROM t` begins with.
///
/// # Errors
/// None of its own; those of building a plan.
pub fn without_lone_lateral(plan: LogicalPlan) -> Result<LogicalPlan> {
    let alone = |input: &Arc<LogicalPlan>| -> Result<Transformed<Arc<LogicalPlan>>> {
        match lateral(input) {
            Some(_) => Ok(Transformed::yes(Arc::new(without_subquery(input)?))),
            None => Ok(Transformed::no(Arc::clone(input))),
        }
    };
    let rewritten = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Join(join) => {
            let left = alone(&join.left)?;
            Ok(left.update_data(|left| LogicalPlan::Join(Join { left, ..join })))
        }
        // It may be on the right of a join.
        LogicalPlan::SubqueryAlias(_) => Ok(Transformed::no(node)),
        node => node.map_children(|input| {
            let input = alone(&Arc::new(input))?;
            Ok(input.update_data(Arc::unwrap_or_clone))
        }),
    })?;
    Ok(rewritten.data)
}

/// The right side of a join, which is a LATERAL subquery, as a plan.
///
/// # Errors
/// None of its own; those of building a plan.
pub fn without_subquery(right: &LogicalPlan) -> Result<LogicalPlan> {
    match right {
        LogicalPlan::Subquery(subquery) => Ok(subquery.subquery.as_ref().clone()),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            let input = Arc::new(without_subquery(input)?);
            let alias = SubqueryAlias::try_new(input, alias.clone())?;
            Ok(LogicalPlan::SubqueryAlias(alias))
        }
        other => Ok(other.clone()),
    }
}
