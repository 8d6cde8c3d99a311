//! Decides whether a plan returns the same rows each time it runs, and finds a part of a plan that does.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinSide, JoinType, Result, not_impl_err};
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, DistinctOn, Filter, Join, Projection, SubqueryAlias,
};
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, SortExpr, WindowFrameUnits,
    WindowFunctionDefinition,
};

use super::references::references;
use super::{VALUES, is_refused};
use crate::logical::common_subplan::Shared;
use crate::rules::has_subquery;

/// What to know of the tables of a plan.
#[derive(Clone, Copy)]
pub struct Determinism<'a> {
    /// Whether a plan reads tables that may change while a query runs.
    pub reads_changing_tables: &'a (dyn Fn(&LogicalPlan) -> bool + Sync),
}

impl Determinism<'_> {
    /// Whether the rows of `asked` have the same values of `columns` whenever they are made.
    ///
    /// # Errors
    /// None of its own; those of walking a plan.
    pub fn is_deterministic(self, asked: &LogicalPlan, columns: &[Column]) -> Result<bool> {
        match self.deterministic_plan(asked, columns) {
            Ok(_) => Ok(true),
            Err(error) if is_refused(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A plan with these `columns` of all rows of `plan`, and maybe of more, that returns the same rows
    /// whenever it runs.
    ///
    /// # Errors
    /// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) if there is none.
    pub fn deterministic_plan(self, plan: &LogicalPlan, columns: &[Column]) -> Result<LogicalPlan> {
        // One side of a join has no more values, and takes less.
        if let LogicalPlan::Join(join) = plan
            && let Some(side) = side_of(join, columns)
            && let Ok(side) = self.deterministic_plan(input(join, side), columns)
        {
            return Ok(side);
        }
        if self.is_deterministic_plan(plan)? {
            return Ok(plan.clone());
        }
        let wanted = |expressions: &[Expr]| -> Vec<Column> {
            let mut wanted = HashSet::new();
            for expression in expressions {
                wanted.extend(expression.column_refs().into_iter().cloned());
            }
            let mut wanted: Vec<Column> = wanted.into_iter().collect();
            wanted.sort();
            wanted
        };
        match plan {
            LogicalPlan::Filter(filter) => {
                let mut kept = Vec::new();
                for condition in split_conjunction(&filter.predicate) {
                    let is_plain = !has_subquery(condition)? && !condition.is_volatile();
                    if is_plain && !condition.contains_outer() {
                        kept.push(condition.clone());
                    }
                }
                let mut all = columns.to_vec();
                for column in wanted(&kept) {
                    if !all.contains(&column) {
                        all.push(column);
                    }
                }
                match (
                    conjunction(kept),
                    self.deterministic_plan(&filter.input, &all),
                ) {
                    (Some(kept), Ok(input)) => {
                        let filter = Filter::try_new(kept, Arc::new(input))?;
                        Ok(LogicalPlan::Filter(filter))
                    }
                    _ => self.deterministic_plan(&filter.input, columns),
                }
            }
            LogicalPlan::Sort(sort) => self.deterministic_plan(&sort.input, columns),
            // Without its end a recursive query may have none.
            LogicalPlan::Limit(limit) if !has_recursion(&limit.input)? => {
                self.deterministic_plan(&limit.input, columns)
            }
            LogicalPlan::Distinct(Distinct::All(input)) => self.deterministic_plan(input, columns),
            LogicalPlan::Window(window)
                if columns
                    .iter()
                    .all(|column| window.input.schema().has_column(column)) =>
            {
                self.deterministic_plan(&window.input, columns)
            }
            LogicalPlan::Projection(Projection {
                expr,
                input,
                schema,
                ..
            })
            | LogicalPlan::Distinct(Distinct::On(DistinctOn {
                select_expr: expr,
                input,
                schema,
                ..
            })) => {
                let places = columns.iter().map(|column| schema.index_of_column(column));
                let places: Vec<usize> = places.collect::<Result<_>>()?;
                let kept: Vec<Expr> = places
                    .into_iter()
                    .map(|place| expr[place].clone())
                    .collect();
                if kept.iter().any(Expr::is_volatile) {
                    return refused();
                }
                let input = self.deterministic_plan(input, &wanted(&kept))?;
                let kept = Projection::try_new(kept, Arc::new(input))?;
                self.checked(LogicalPlan::Projection(kept))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let inner = alias.input.schema().columns();
                let places = columns
                    .iter()
                    .map(|column| alias.schema.index_of_column(column));
                let places: Vec<usize> = places.collect::<Result<_>>()?;
                let inner: Vec<Column> = places
                    .into_iter()
                    .map(|place| inner[place].clone())
                    .collect();
                let input = self.deterministic_plan(&alias.input, &inner)?;
                let input =
                    LogicalPlanBuilder::from(input).project(inner.into_iter().map(Expr::Column))?;
                let input = Arc::new(input.build()?);
                let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
                Ok(LogicalPlan::SubqueryAlias(alias))
            }
            // Its keys, without what is computed of its groups.
            LogicalPlan::Aggregate(aggregate) => {
                let mut keys = Vec::new();
                for column in columns {
                    let place = aggregate.schema.index_of_column(column)?;
                    match aggregate.group_expr.get(place) {
                        Some(Expr::GroupingSet(_)) | None => return refused(),
                        Some(key) => keys.push(key.clone()),
                    }
                }
                let input = self.deterministic_plan(&aggregate.input, &wanted(&keys))?;
                let keys = Aggregate::try_new(Arc::new(input), keys, Vec::new())?;
                self.checked(LogicalPlan::Aggregate(keys))
            }
            LogicalPlan::Join(join) => match side_of(join, columns) {
                Some(side) => self.deterministic_plan(input(join, side), columns),
                None => refused(),
            },
            _ => refused(),
        }
    }

    fn checked(self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match self.is_deterministic_plan(&plan)? {
            true => Ok(plan),
            false => refused(),
        }
    }

    /// Whether `plan` refers to nothing around it and depends on nothing but its tables: not on the order in
    /// which rows come, in which sums of fractions differ, too.
    ///
    /// # Errors
    /// None of its own; those of walking a plan.
    pub fn is_deterministic_plan(self, plan: &LogicalPlan) -> Result<bool> {
        let mut is_deterministic_plan =
            references(plan)?.is_empty() && !(self.reads_changing_tables)(plan);
        plan.apply_with_subqueries(|node| {
            is_deterministic_plan &= match node {
                LogicalPlan::Limit(limit) => match limit.input.as_ref() {
                    LogicalPlan::Sort(sort) => is_total(&sort.expr, &[], sort.input.schema()),
                    _ => false,
                },
                LogicalPlan::Distinct(Distinct::On(distinct)) => {
                    let order = distinct.sort_expr.as_deref().unwrap_or_default();
                    is_total(order, &[], distinct.input.schema())
                }
                LogicalPlan::Extension(_) => Shared::from_plan(node).is_some(),
                _ => true,
            };
            let functions = match node {
                LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.as_slice(),
                LogicalPlan::Window(window) => window.window_expr.as_slice(),
                _ => &[],
            };
            for function in functions {
                is_deterministic_plan &= is_exact(function, &node.inputs())?;
            }
            node.apply_expressions(|expression| {
                is_deterministic_plan &= !expression.is_volatile();
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(match is_deterministic_plan {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        })?;
        Ok(is_deterministic_plan)
    }
}

/// Which side of `join` has these `columns` of all of its rows.
pub fn side_of(join: &Join, columns: &[Column]) -> Option<JoinSide> {
    let sides: &[JoinSide] = match join.join_type {
        JoinType::Inner => &[JoinSide::Left, JoinSide::Right],
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            &[JoinSide::Left]
        }
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            &[JoinSide::Right]
        }
        JoinType::Full => &[],
    };
    let has_all = |side: &&JoinSide| {
        let schema = input(join, **side).schema();
        columns.iter().all(|column| schema.has_column(column))
    };
    sides.iter().find(has_all).copied()
}

/// That side of `join`.
pub fn input(join: &Join, side: JoinSide) -> &LogicalPlan {
    match side {
        JoinSide::Right => &join.right,
        _ => &join.left,
    }
}

fn has_recursion(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::RecursiveQuery(_))))
}

/// Whether rows that are equal in `order` and `keys` are equal in all their columns.
fn is_total(order: &[SortExpr], keys: &[Expr], schema: &DFSchema) -> bool {
    let order = order.iter().map(|key| &key.expr);
    let compared: Vec<&Expr> = order.chain(keys).collect();
    let columns = schema.columns().into_iter().map(Expr::Column);
    columns
        .into_iter()
        .all(|column| compared.contains(&&column))
}

/// Whether an aggregate or window function over `inputs` returns the same in whatever order rows come.
fn is_exact(function: &Expr, inputs: &[&LogicalPlan]) -> Result<bool> {
    let (name, arguments) = match function.clone().unalias() {
        Expr::AggregateFunction(call) => {
            let order = call.params.order_by.iter().map(|key| &key.expr);
            let order: Vec<&Expr> = order.collect();
            // Others do not keep to it: parts of a sum are added as they come.
            let keeps_order = ["array_agg", "first_value", "last_value", "string_agg"];
            let mut arguments = call.params.args.iter();
            if keeps_order.contains(&call.func.name())
                && arguments.all(|argument| order.contains(&argument))
            {
                return Ok(true);
            }
            (call.func.name().to_owned(), call.params.args)
        }
        Expr::WindowFunction(call) => {
            let params = &call.params;
            let schema = merge_schema(inputs);
            if is_total(&params.order_by, &params.partition_by, &schema) {
                return Ok(true);
            }
            let frame = &params.window_frame;
            // Rows that are equal in ORDER BY are all in it, or none.
            let is_by_value = frame.units != WindowFrameUnits::Rows
                || frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
            match call.fun {
                WindowFunctionDefinition::AggregateUDF(function) if is_by_value => {
                    (function.name().to_owned(), call.params.args)
                }
                WindowFunctionDefinition::WindowUDF(function) => {
                    let ranks = ["rank", "dense_rank", "percent_rank", "cume_dist"];
                    return Ok(ranks.contains(&function.name()));
                }
                WindowFunctionDefinition::AggregateUDF(_) => return Ok(false),
            }
        }
        _ => return Ok(false),
    };
    match name.as_str() {
        "count" | "min" | "max" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor"
        | "grouping" => Ok(true),
        // The last digits of a sum of fractions depend on the order.
        "sum" | "avg" => {
            let schema = merge_schema(inputs);
            let mut is_exact = true;
            for argument in &arguments {
                let data_type = argument.get_type(&schema)?;
                // Those of integers are made of fractions, too.
                is_exact &= match name.as_str() {
                    "sum" => !data_type.is_floating(),
                    _ => data_type.is_decimal(),
                };
            }
            Ok(is_exact)
        }
        // Of the list only the one value that it may have is taken.
        "array_agg" => {
            let column = function.name_for_alias()?;
            Ok(VALUES.iter().any(|name| column.starts_with(name)))
        }
        _ => Ok(false),
    }
}

pub fn refused<T>() -> Result<T> {
    not_impl_err!(
        "a subquery that is asked for rows that refer to the query around them, and may be others when they \
         are made again; write it as a join"
    )
}
