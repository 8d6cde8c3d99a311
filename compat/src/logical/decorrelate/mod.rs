//! Correlated subqueries as joins, whatever is in them.
//!
//! A subquery that refers to the query around it is a *dependent join*: it is run for each row there.
//! DataFusion 55.2 makes joins of those whose conditions can be pulled out of it. Of all others one is
//! made here, as T. Neumann and A. Kemper do in *Unnesting Arbitrary Queries* (BTW 2015): the distinct values
//! of what it refers to, its *domain*, become a side of a join in it, so it has its rows for all of them at
//! once, and it is joined by these values with the query around it.
//!
//! ```text
//! SELECT (SELECT count(*) FROM u WHERE u.a < t.a) FROM t
//!
//! SELECT n FROM t LEFT JOIN (
//!   SELECT d.a, count(u) AS n FROM (SELECT DISTINCT a FROM t) AS d LEFT JOIN u ON u.a < d.a GROUP BY d.a
//! ) AS s ON s.a = t.a
//! ```
//!
//! The outermost subquery is first: what one within it says of a query further out, is by then a column of
//! the query around it.
//!
//! That costs a second look at the rows of the query around a subquery, so it is done where DataFusion
//! refuses. Rows that might be others by then, as with `random()`, are [made once](Shared) for both; those of
//! an iteration of a recursive query, which DataFusion reads at one place alone, once in each. Where a subquery
//! makes many rows of one value, as of a list, these carry [a number](domain_surrogate_keys) in its place. Record lineage is
//! that of the join: a domain has no records of its own.

mod aggregates;
mod column_loss;
mod determinism;
mod domain;
mod domain_surrogate_keys;
mod first_rows;
mod joins;
mod lateral;
mod push_down;
mod recursion;
mod references;
mod sharing;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, DataFusionError, ExprSchema, JoinType, Result, not_impl_err,
};
use datafusion::execution::SessionState;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Explain, Filter, SubqueryAlias};
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery, lit};

use crate::functions::guarded::planning;

use self::column_loss::{decorrelator_loses_columns, is_ambiguous};
pub use self::determinism::Determinism;
use self::domain::Domain;
pub use self::domain::NUMBER;
use self::lateral::is_lateral;
pub use self::lateral::{without_lone_lateral, without_subquery};
use self::push_down::PushDown;
use self::recursion::{reads_anew, reads_iterations_anew};
pub use self::references::{lateral, references, references_of_subquery, referring_to};
use self::references::{map_subquery, with_plan};
use self::sharing::{check_iterations, recursion_of};
use crate::logical::common_subplan::Shared;
use crate::logical::join_conditions::{full_join, is_full_join_of_subqueries};
use crate::logical::push_expr_below::push_expr_below;
use crate::logical::scalar_subquery::{aggregated, is_aggregate, only_value, with_schemas};
use crate::rules::{has_subquery, subquery_of};

/// What the names of domains in a plan begin with.
pub const DOMAIN: &str = "__skewer_domain";

/// What the names of rows begin with for each of which a LATERAL subquery is evaluated.
const ROWS: &str = "__skewer_rows";

/// Whether `alias` names a domain, whose rows are no records of the subquery that it is in.
pub fn is_domain(alias: &SubqueryAlias) -> bool {
    alias.alias.table().starts_with(DOMAIN)
}

/// What the names of columns with values of scalar subqueries begin with: here, and of
/// [`with_values`](crate::logical::scalar_subquery::with_values).
const VALUES: [&str; 2] = ["__found", "__value"];

/// What `optimize` makes of `plan`; or, if subqueries remain in that or it fails, of `plan` with joins in
/// their place. If it `is_distributed`, rows are not [shared](Shared) where they may as well be made again:
/// workers share none.
///
/// # Errors
/// Those of `optimize`.
pub fn optimize_dependent_joins(
    plan: &LogicalPlan,
    state: &mut SessionState,
    is_distributed: bool,
    determinism: Determinism<'_>,
    optimize: impl Fn(&LogicalPlan, &mut SessionState) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    let optimize =
        |plan: &LogicalPlan, state: &mut SessionState| planning(|| optimize(plan, state));
    // That of EXPLAIN is an explanation, also of what fails.
    let explained = match plan {
        LogicalPlan::Explain(explain) => explain.plan.as_ref(),
        plan => plan,
    };
    let is_read_anew = reads_iterations_anew(explained)?;
    if !is_read_anew && !has_dependent_joins(explained)? {
        return optimize(plan, state);
    }
    let first = match is_read_anew || decorrelator_loses_columns(explained)? {
        true => None,
        false => Some(optimize(explained, state)),
    };
    if let Some(Ok(optimized)) = &first
        && is_joined(optimized)?
    {
        return match plan {
            LogicalPlan::Explain(_) => optimize(plan, state),
            _ => Ok(optimized.clone()),
        };
    }
    let state = RefCell::new(state);
    let optimize = |plan: &LogicalPlan| optimize(plan, &mut state.borrow_mut());
    let unnesting = Unnesting {
        aliases: AliasGenerator::new(),
        shared: Cell::new(0),
        optimize: &optimize,
        is_distributed,
        determinism,
    };
    let joined = unnesting.without_dependent_joins(explained.clone());
    let joined = joined.and_then(|joined| {
        let joined = match plan {
            LogicalPlan::Explain(explain) => LogicalPlan::Explain(Explain {
                plan: Arc::new(joined),
                ..explain.clone()
            }),
            _ => joined,
        };
        Shared::made_at_one_place(optimize(&joined)?, &HashMap::new())
    });
    match (joined, first) {
        // It is no matter of its subqueries.
        (Err(error), Some(Err(first))) if !is_refused(&error) => Err(first),
        (joined, _) => joined,
    }
}

fn is_refused(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::NotImplemented(_))
}

/// Whether `optimized` has joins in place of all dependent ones, and they can be run.
fn is_joined(optimized: &LogicalPlan) -> Result<bool> {
    if has_dependent_joins(optimized)? {
        return Ok(false);
    }
    let cannot_run = optimized.exists(|node| {
        // An anti join that knows of NULLs needs a key.
        if let LogicalPlan::Join(join) = node
            && join.null_aware
            && join.on.is_empty()
        {
            return Ok(true);
        }
        // Conditions of a subquery may have been left behind where the table had another name.
        let inputs = node.inputs();
        let schema = merge_schema(&inputs);
        let (mut is_unknown, mut remains) = (false, false);
        node.apply_expressions(|expression| {
            let columns = expression.column_refs();
            is_unknown |= !columns.iter().all(|column| schema.has_column(column));
            remains |= expression.exists(|part| {
                let is_value = matches!(part, Expr::ScalarSubquery(_));
                Ok(!is_value && subquery_of(part).is_some())
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(remains || is_unknown && !inputs.is_empty())
    })?;
    Ok(!cannot_run)
}

/// Whether a subquery in `plan` refers to the query around it.
fn has_dependent_joins(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node {
            found |= lateral(&join.right).is_some() || is_full_join_of_subqueries(join)?;
        }
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| match subquery_of(part) {
                Some(subquery) => is_correlated(subquery),
                None => Ok(matches!(part, Expr::OuterReferenceColumn(..))),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn is_correlated(subquery: &Subquery) -> Result<bool> {
    Ok(!references_of_subquery(subquery)?.is_empty())
}

/// Whether a scalar subquery has to be a join: others are run once for the whole query.
fn is_joined_here(subquery: &Subquery) -> Result<bool> {
    Ok(is_correlated(subquery)? || recursion_of(&subquery.subquery)?.is_some())
}

struct Unnesting<'a> {
    aliases: AliasGenerator,
    /// How many rows are shared.
    shared: Cell<usize>,
    /// Optimizes what makes shared rows.
    optimize: &'a dyn Fn(&LogicalPlan) -> Result<LogicalPlan>,
    is_distributed: bool,
    determinism: Determinism<'a>,
}

/// Whom the subqueries of a node ask.
struct Asked {
    /// Rows that have the values which they ask for.
    rows: Vec<LogicalPlan>,
    /// Those of their domains whose values have numbers, which the inputs of the node have.
    numbered: Vec<Domain>,
}

impl Unnesting<'_> {
    /// `plan` with joins in place of its dependent joins. Of `EXISTS`, `IN`, `ANY` and `ALL` subqueries remain
    /// that have nothing above their conditions on the query around them.
    fn without_dependent_joins(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let joined = self.unnested(plan)?;
        check_iterations(&joined, None)?;
        Ok(joined)
    }

    fn unnested(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let unnested = plan.transform_down_with_subqueries(|node| self.node(node))?;
        with_schemas(unnested.data, &[])
    }

    fn node(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let node = match node {
            LogicalPlan::Join(join) if is_lateral(&join)? => {
                return self.lateral(join).map(Transformed::yes);
            }
            LogicalPlan::Join(join) if is_full_join_of_subqueries(&join)? => {
                let join = self.with_repeatable_sides(join)?;
                return full_join(join, &self.aliases).map(Transformed::yes);
            }
            LogicalPlan::RecursiveQuery(query)
                if has_dependent_joins(&query.recursive_term)? || reads_anew(&query)? =>
            {
                return self.with_shared_iterations(query).map(Transformed::yes);
            }
            // The columns of what writes are not those of its input alone.
            LogicalPlan::Dml(_) => return Ok(Transformed::no(node)),
            node => node,
        };
        let mut found = false;
        node.apply_expressions(|expression| {
            found |= has_correlated(expression)?;
            found |= expression.exists(|part| match part {
                Expr::ScalarSubquery(subquery) => is_joined_here(subquery),
                _ => Ok(false),
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(Transformed::no(node));
        }
        if matches!(node, LogicalPlan::Limit(_)) {
            return not_impl_err!(
                "a subquery in LIMIT or OFFSET that refers to the query around it, or is of an iteration; write it \
                 as a join"
            );
        }
        let own = node.schema().columns();
        let node = self.with_shared_inputs(node)?;
        let (node, asked) = self.with_numbers(node)?;
        let node = self.with_conditions(node, &asked)?;
        let node = self.with_values(node, &asked)?;
        if node.schema().fields().len() == own.len() {
            return Ok(Transformed::yes(node));
        }
        let own = own.into_iter().map(Expr::Column);
        let own = LogicalPlanBuilder::from(node).project(own)?.build()?;
        Ok(Transformed::yes(own))
    }

    /// The rows that the subqueries of `node` are asked for: those of its inputs that also fulfil the conditions
    /// beside them.
    fn asked(&self, node: &LogicalPlan) -> Result<Vec<LogicalPlan>> {
        if let LogicalPlan::Filter(filter) = node {
            let mut plain = Vec::new();
            for condition in split_conjunction(&filter.predicate) {
                if !has_subquery(condition)? && !condition.is_volatile() {
                    plain.push(condition.clone());
                }
            }
            if let Some(plain) = conjunction(plain) {
                let rows = Filter::try_new(plain, Arc::clone(&filter.input))?;
                return Ok(vec![LogicalPlan::Filter(rows)]);
            }
        }
        Ok(node.inputs().into_iter().cloned().collect())
    }

    /// The domain of a subquery with these references.
    fn domain(&self, asked: &Asked, references: Vec<Column>) -> Result<Domain> {
        if let Some(numbered) = asked.numbered_of(&references) {
            return Ok(numbered.clone());
        }
        let mut inputs = asked.rows.iter();
        match inputs.find(|input| has_all(input, &references)) {
            Some(input) => Domain::of_columns(input, references, &self.aliases, self.determinism),
            None => not_impl_err!(
                "a subquery that refers to both sides of an outer join; write it as a join"
            ),
        }
    }

    fn push_down(&self, domain: &Domain, plan: LogicalPlan) -> Result<LogicalPlan> {
        let aliases = &self.aliases;
        let recursions = Vec::new();
        let push_down = PushDown {
            domain,
            aliases,
            wanted: Vec::new(),
            recursions,
        };
        push_down.push_into(plan)
    }

    /// `node` with conditions of `EXISTS`, `IN`, `ANY` and `ALL` above all else in their subqueries.
    fn with_conditions(&self, node: LogicalPlan, asked: &Asked) -> Result<LogicalPlan> {
        let scope = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let rewritten = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let rewritten = expression.transform_up(|part| {
                if matches!(part, Expr::ScalarSubquery(_)) || remains(&part)? {
                    return Ok(Transformed::no(part));
                }
                map_subquery(part, |subquery| {
                    let references = references_of_subquery(&subquery)?;
                    if references.is_empty() {
                        return Ok(subquery);
                    }
                    let domain = self.domain(asked, references)?;
                    with_plan(subquery, |plan| self.with_condition(plan, &domain, &scope))
                })
            })?;
            Ok(rewritten.update_data(|expression| name.restore(expression)))
        })?;
        Ok(rewritten.data)
    }

    fn with_condition(
        &self,
        plan: LogicalPlan,
        domain: &Domain,
        scope: &DFSchema,
    ) -> Result<LogicalPlan> {
        let own: Vec<Column> = plan.schema().columns();
        let pushed = self.push_down(domain, plan)?;
        let mut conditions = Vec::new();
        for (column, name) in domain.keys() {
            let field = Arc::clone(scope.field_from_column(column)?);
            let outer = Expr::OuterReferenceColumn(field, column.clone());
            conditions.push(domain.is_same(column_named(name, &pushed)?, outer));
        }
        let mut pushed = LogicalPlanBuilder::from(pushed);
        if let Some(condition) = conjunction(conditions) {
            pushed = pushed.filter(condition)?;
        }
        pushed.project(own.into_iter().map(Expr::Column))?.build()
    }

    /// `node` with the values of its scalar subqueries as columns of its inputs.
    fn with_values(&self, node: LogicalPlan, asked: &Asked) -> Result<LogicalPlan> {
        let names = NamePreserver::new(&node);
        let single = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let single = expression.transform_up(|part| match part {
                Expr::ScalarSubquery(subquery) => self.single(subquery),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(single.update_data(|expression| name.restore(expression)))
        })?;
        let node = single.data;
        let mut parts: Vec<(Expr, String)> = Vec::new();
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                let is_new = !parts.iter().any(|(known, _)| known == part);
                if let Expr::ScalarSubquery(subquery) = part
                    && is_new
                    && is_joined_here(subquery)?
                {
                    parts.push((part.clone(), self.aliases.next(VALUES[0])));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if parts.is_empty() {
            return Ok(node);
        }
        let is_of = |part: &Expr, input: &LogicalPlan| match part {
            Expr::ScalarSubquery(subquery) => references_of_subquery(subquery)
                .is_ok_and(|columns| columns.iter().all(|c| input.schema().has_column(c))),
            _ => false,
        };
        for (part, _) in &parts {
            if !node.inputs().into_iter().any(|input| is_of(part, input)) {
                return not_impl_err!(
                    "a subquery that refers to both sides of an outer join; write it as a join"
                );
            }
        }
        push_expr_below(node, &parts, is_of, |mut input, parts| {
            for (part, name) in parts {
                if let Expr::ScalarSubquery(subquery) = part {
                    input = self.looked_up(input, subquery, name, asked)?;
                }
            }
            Ok(input)
        })
    }

    /// A subquery that may have several rows as one of at most one, and its value.
    fn single(&self, subquery: Subquery) -> Result<Transformed<Expr>> {
        if !is_joined_here(&subquery)? || is_aggregate(&subquery.subquery) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        let values = with_plan(subquery, |plan| {
            let value = Expr::from(plan.schema().qualified_field(0));
            let name = self.aliases.next(VALUES[0]);
            aggregated(array_agg_udaf(), value, Vec::new(), Arc::new(plan), &name)
        })?;
        Ok(Transformed::yes(only_value(Expr::ScalarSubquery(values))))
    }

    /// `input` with the value of `subquery`, which has at most one row for each of its rows, as a column.
    fn looked_up(
        &self,
        input: LogicalPlan,
        subquery: &Subquery,
        name: &str,
        asked: &Asked,
    ) -> Result<LogicalPlan> {
        let references = references_of_subquery(subquery)?;
        let value = Expr::from(subquery.subquery.schema().qualified_field(0));
        let mut columns = vec![value.alias(name)];
        let mut conditions = Vec::new();
        let mut values = subquery.subquery.as_ref().clone();
        if references.is_empty() {
            conditions.push(lit(true));
        } else {
            let domain = self.domain(asked, references)?;
            values = self.push_down(&domain, values)?;
            for (column, outer) in domain.keys() {
                let inner = domain.other_name(&self.aliases);
                columns.push(column_named(outer, &values)?.alias(&inner));
                let inner = Expr::Column(Column::new_unqualified(inner));
                conditions.push(domain.is_same(Expr::Column(column.clone()), inner));
            }
        }
        let values = LogicalPlanBuilder::from(values).project(columns)?.build()?;
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let value = Expr::Column(Column::new_unqualified(name));
        let columns: Vec<Expr> = own.chain([value]).collect();
        LogicalPlanBuilder::from(input)
            .join_on(values, JoinType::Left, conditions)?
            .project(columns)?
            .build()
    }
}

fn has_all(plan: &LogicalPlan, columns: &[Column]) -> bool {
    let schema = plan.schema();
    columns.iter().all(|column| schema.has_column(column))
}

/// Whether `expression` is a subquery that is left to DataFusion's rules.
fn remains(expression: &Expr) -> Result<bool> {
    match subquery_of(expression) {
        Some(_) if matches!(expression, Expr::ScalarSubquery(_)) => Ok(false),
        Some(subquery) => is_condition(&subquery.subquery),
        None => Ok(false),
    }
}

/// Whether `plan` refers to the query around it in conditions alone, above which is nothing.
fn is_condition(plan: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(false);
    };
    let LogicalPlan::Filter(filter) = projection.input.as_ref() else {
        return Ok(false);
    };
    let conditions = split_conjunction(&filter.predicate).into_iter();
    let pulled = conditions.filter(|condition| condition.contains_outer());
    let pulled: Vec<Column> = pulled.flat_map(Expr::column_refs).cloned().collect();
    let mut is_plain =
        !has_subquery(&filter.predicate)? && !is_ambiguous(&pulled, filter.input.schema());
    for expression in &projection.expr {
        is_plain &= !expression.contains_outer() && !has_subquery(expression)?;
    }
    Ok(is_plain && references(&filter.input)?.is_empty())
}

/// The subqueries in expressions of `node` that become joins here, and to what they refer.
fn correlated(node: &LogicalPlan) -> Result<Vec<(Subquery, Vec<Column>)>> {
    let mut found = Vec::new();
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            if let Some(subquery) = subquery_of(part)
                && !remains(part)?
            {
                let references = references_of_subquery(subquery)?;
                found.push((subquery.clone(), references));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    found.retain(|(_, references)| !references.is_empty());
    Ok(found)
}

fn has_correlated(expression: &Expr) -> Result<bool> {
    expression.exists(|part| match subquery_of(part) {
        Some(subquery) => is_correlated(subquery),
        None => Ok(false),
    })
}

/// The column of a domain in `plan`.
fn column_named(name: &str, plan: &LogicalPlan) -> Result<Expr> {
    let (qualifier, field) = plan.schema().qualified_field_with_unqualified_name(name)?;
    Ok(Expr::from((qualifier, field)))
}
