//! Correlated scalar subqueries that are compared with more than equal columns, row by row.
//!
//! DataFusion 55.2 joins a correlated subquery with its groups, whose keys are what the query around it
//! is equal to. Of `SELECT max(b) FROM t WHERE t.a < o.a` there are no groups: it is refused. So the rows
//! of the query around it become the groups: each, with a number, is joined with all rows that fulfil its
//! condition, and those are aggregated per number.

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::logical_plan::{Projection, Sort, SubqueryAlias};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery, lit, when};

use super::around;
use crate::logical::decorrelate::references;
use crate::rules::{has_subquery, is_by_equality, is_correlated};

/// An aggregate without GROUP BY of rows of the query around it and of `input`, which refers to no other.
pub struct RowWise {
    /// Over the columns of the query around it, and what `aggregates` are called.
    value: Expr,
    /// HAVING; over the same.
    having: Vec<Expr>,
    /// And their names.
    aggregates: Vec<(Expr, String)>,
    /// WHERE; `aggregates` are of rows that fulfil all, over columns of both.
    conditions: Vec<Expr>,
    /// With columns that have a name of their own.
    input: LogicalPlan,
    /// The column of `input` that is true.
    is_met: String,
}

impl RowWise {
    /// `subquery` of a query over the columns of `scope`, if DataFusion does not make a join of it, but it is
    /// such an aggregate.
    ///
    /// # Errors
    /// Those of building a plan.
    pub fn for_subquery(
        subquery: &Subquery,
        scope: &DFSchema,
        aliases: &AliasGenerator,
    ) -> Result<Option<Self>> {
        let plan = subquery.subquery.as_ref();
        match has_only_keys(plan)? {
            true => Ok(None),
            false => Self::parse(plan, scope, aliases),
        }
    }

    fn parse(
        plan: &LogicalPlan,
        scope: &DFSchema,
        aliases: &AliasGenerator,
    ) -> Result<Option<Self>> {
        let mut above = Level {
            expressions: vec![Expr::from(plan.schema().qualified_field(0))],
            conditions: Vec::new(),
        };
        let LogicalPlan::Aggregate(aggregate) = above.descend(plan, |_| true)? else {
            return Ok(None);
        };
        if !aggregate.group_expr.is_empty() {
            return Ok(None);
        }
        let mut below = Level {
            expressions: aggregate
                .aggr_expr
                .iter()
                .cloned()
                .map(Expr::unalias)
                .collect(),
            conditions: Vec::new(),
        };
        let input = below.descend(&aggregate.input, is_correlated)?;
        if !references(input)?.is_empty() || !above.is_plain()? || !below.is_plain()? {
            return Ok(None);
        }

        let names = |columns: &[_]| -> Vec<String> {
            columns.iter().map(|_| aliases.next("__value")).collect()
        };
        let aggregate_names = names(&aggregate.aggr_expr);
        above.substitute(&aggregate.schema, &called(&aggregate_names))?;
        let columns: Vec<Expr> = input
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        let column_names = names(&columns);
        below.substitute(input.schema(), &called(&column_names))?;
        above.move_around(scope)?;
        below.move_around(scope)?;

        let is_met = aliases.next("__met");
        let columns = columns.into_iter().zip(column_names);
        let columns = columns.map(|(column, name)| column.alias(name));
        let columns: Vec<Expr> = columns.chain([lit(true).alias(&is_met)]).collect();
        let input = LogicalPlanBuilder::from(input.clone()).project(columns)?;
        Ok(Some(Self {
            value: above.expressions.remove(0),
            having: above.conditions,
            aggregates: below.expressions.into_iter().zip(aggregate_names).collect(),
            conditions: below.conditions,
            input: input.build()?,
            is_met,
        }))
    }

    /// `outer` with the value for each of its rows as a column of this name.
    ///
    /// # Errors
    /// Those of building a plan.
    pub fn append_to(
        self,
        outer: LogicalPlan,
        name: &str,
        aliases: &AliasGenerator,
    ) -> Result<LogicalPlan> {
        let columns: Vec<Expr> = outer
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        let numbered = LogicalPlanBuilder::from(outer).window([row_number()])?;
        let number = numbered.schema().columns().pop().map(Expr::Column);
        let row = aliases.next("__row");
        let number = number.map(|number| number.alias(&row));
        let numbered = numbered.project(columns.iter().cloned().chain(number))?;

        let is_met = Expr::Column(Column::new_unqualified(self.is_met));
        let aggregates = self.aggregates.into_iter().map(|(aggregate, name)| {
            let aggregate = match aggregate {
                Expr::AggregateFunction(mut call) => {
                    let filter = call.params.filter.take();
                    let is_met = is_met.clone();
                    let filter = filter.map_or(is_met.clone(), |filter| is_met.and(*filter));
                    call.params.filter = Some(Box::new(filter));
                    Expr::AggregateFunction(call)
                }
                other => other,
            };
            aggregate.alias(name)
        });
        let aggregates: Vec<Expr> = aggregates.collect();
        let row = Expr::Column(Column::new_unqualified(row));
        let groups: Vec<Expr> = [row].into_iter().chain(columns.iter().cloned()).collect();
        // A join needs one.
        let condition = conjunction(self.conditions).unwrap_or(lit(true));
        let value = match self.having.into_iter().reduce(Expr::and) {
            Some(having) => when(having, self.value).end()?,
            None => self.value,
        };
        numbered
            .join_on(self.input, JoinType::Left, [condition])?
            .aggregate(groups, aggregates)?
            .project(columns.into_iter().chain([value.alias(name)]))?
            .build()
    }
}

/// Whether `plan` refers to the query around it in conditions alone, that something is equal to a column.
fn has_only_keys(plan: &LogicalPlan) -> Result<bool> {
    let mut is_elsewhere = false;
    plan.apply(|node| {
        if !matches!(node, LogicalPlan::Filter(_)) {
            node.apply_expressions(|expression| {
                is_elsewhere |= expression.contains_outer();
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(!is_elsewhere && is_by_equality(plan)?)
}

/// Expressions and conditions over the columns of a plan.
struct Level {
    expressions: Vec<Expr>,
    conditions: Vec<Expr>,
}

impl Level {
    /// Goes down from `plan`, as far as rows are only projected and filtered and `goes_on` holds.
    fn descend<'a>(
        &mut self,
        mut plan: &'a LogicalPlan,
        goes_on: impl Fn(&LogicalPlan) -> bool,
    ) -> Result<&'a LogicalPlan> {
        while goes_on(plan) {
            plan = match plan {
                LogicalPlan::Projection(Projection {
                    expr,
                    input,
                    schema,
                    ..
                }) => {
                    let columns: Vec<_> = expr.iter().cloned().map(Expr::unalias).collect();
                    self.substitute(schema, &columns)?;
                    input
                }
                LogicalPlan::SubqueryAlias(SubqueryAlias { input, schema, .. }) => {
                    let columns = input.schema().columns().into_iter().map(Expr::Column);
                    self.substitute(schema, &columns.collect::<Vec<_>>())?;
                    input
                }
                LogicalPlan::Filter(filter) => {
                    self.conditions.push(filter.predicate.clone());
                    &filter.input
                }
                LogicalPlan::Sort(Sort {
                    input, fetch: None, ..
                }) => input,
                _ => break,
            }
        }
        Ok(plan)
    }

    /// Puts `others` in place of the columns of `schema`.
    fn substitute(&mut self, schema: &DFSchema, others: &[Expr]) -> Result<()> {
        for expression in self.expressions.iter_mut().chain(&mut self.conditions) {
            let substituted = std::mem::take(expression).transform_up(|part| match part {
                Expr::Column(column) => {
                    let other = others[schema.index_of_column(&column)?].clone();
                    Ok(Transformed::yes(other))
                }
                other => Ok(Transformed::no(other)),
            })?;
            *expression = substituted.data;
        }
        Ok(())
    }

    /// Makes of columns of the query around it, which are those of `scope`, columns.
    fn move_around(&mut self, scope: &DFSchema) -> Result<()> {
        for expression in self.expressions.iter_mut().chain(&mut self.conditions) {
            *expression = around(std::mem::take(expression), scope)?;
        }
        Ok(())
    }

    /// Whether nothing depends on where, or how often, it is evaluated.
    fn is_plain(&self) -> Result<bool> {
        let mut is_plain = true;
        for expression in self.expressions.iter().chain(&self.conditions) {
            is_plain &= !expression.is_volatile();
            is_plain &= !has_subquery(expression)?;
        }
        Ok(is_plain)
    }
}

/// Columns with these names.
fn called(names: &[String]) -> Vec<Expr> {
    let columns = names.iter().map(Column::new_unqualified);
    columns.map(Expr::Column).collect()
}
