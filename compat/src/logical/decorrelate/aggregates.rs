//! Aggregates in a subquery for all values of what it refers to.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result};
use datafusion::functions_aggregate::count::count;
use datafusion::functions_aggregate::grouping::grouping;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, lit};

use super::has_correlated;
use super::push_down::PushDown;
use super::recursion::has_all_rows;

/// Grouping sets whose keys are columns of their input.
struct Keys {
    input: LogicalPlan,
    sets: GroupingSet,
    /// The keys that were none, and their columns.
    known: Vec<(Expr, Expr)>,
}

impl Keys {
    /// `functions`, of which `grouping` names keys, with the columns of these.
    fn in_grouping(&self, functions: Vec<Expr>) -> Result<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let functions = functions.into_iter().map(|function| {
            let name = names.save(&function);
            let function = function.transform_up(|part| match part {
                Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
                    for argument in &mut call.params.args {
                        if let Some((_, column)) =
                            self.known.iter().find(|(key, _)| key == argument)
                        {
                            *argument = column.clone();
                        }
                    }
                    Ok(Transformed::yes(Expr::AggregateFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(name.restore(function.data))
        });
        functions.collect()
    }
}

impl PushDown<'_> {
    /// The groups of each value, with the keys of the domain alone.
    pub(super) fn aggregate(&self, aggregate: Aggregate, below: &Self) -> Result<LogicalPlan> {
        let (groups, functions) = (aggregate.group_expr, aggregate.aggr_expr);
        if groups.is_empty() {
            // To what they refer is beside them.
            let input = self.push_into(Arc::unwrap_or_clone(aggregate.input))?;
            let (rows, is_there) = self.rows_or_none(input)?;
            let keys = self.columns(rows.schema())?;
            let functions = self.of_rows_there(functions, &rows, &is_there)?;
            return LogicalPlanBuilder::from(rows)
                .aggregate(keys, functions)?
                .build();
        }
        let input = below.input(aggregate.input)?;
        if let [Expr::GroupingSet(sets)] = groups.as_slice() {
            return self.grouping_sets(sets, functions, input);
        }
        let functions = self.all_within(functions, input.schema())?;
        let mut keys = self.all_within(groups, input.schema())?;
        keys.extend(self.columns(input.schema())?);
        let aggregate = Aggregate::try_new(input, keys, functions)?;
        Ok(LogicalPlan::Aggregate(aggregate))
    }

    /// The columns of the domain are in each set.
    fn grouping_sets(
        &self,
        sets: &GroupingSet,
        functions: Vec<Expr>,
        input: Arc<LogicalPlan>,
    ) -> Result<LogicalPlan> {
        let input = Arc::unwrap_or_clone(input);
        if !has_all_rows(sets) {
            let keys = self.keys_as_columns(sets, input)?;
            let functions = keys.in_grouping(functions)?;
            let functions = self.all_within(functions, keys.input.schema())?;
            let groups = self.groups(keys.sets, &keys.input)?;
            let aggregate = Aggregate::try_new(Arc::new(keys.input), groups, functions)?;
            return Ok(LogicalPlan::Aggregate(aggregate));
        }
        // The group of all rows is there without rows, too, unlike the others.
        let (rows, is_there) = self.rows_or_none(input)?;
        let keys = self.keys_as_columns(sets, rows)?;
        let functions = keys.in_grouping(functions)?;
        let mut functions = self.of_rows_there(functions, &keys.input, &is_there)?;
        let mut added = vec![self.aliases.next("__is_found")];
        functions.push(count(is_there).alias(&added[0]));
        for key in keys.sets.distinct_expr() {
            let is_all = self.aliases.next("__is_all");
            functions.push(grouping(key.clone()).alias(&is_all));
            added.push(is_all);
        }
        let column = |name: &String| Expr::Column(Column::new_unqualified(name));
        let is_found = column(&added[0]).gt(lit(0_i64));
        let are_all = added[1..].iter().map(|is_all| column(is_all).eq(lit(1)));
        let is_kept = is_found.or(conjunction(are_all).unwrap_or(lit(true)));

        let groups = self.groups(keys.sets, &keys.input)?;
        let groups = LogicalPlanBuilder::from(keys.input).aggregate(groups, functions)?;
        let mut columns = groups.schema().columns();
        columns.retain(|column| {
            column.name != Aggregate::INTERNAL_GROUPING_ID && !added.contains(&column.name)
        });
        groups
            .filter(is_kept)?
            .project(columns.into_iter().map(Expr::Column))?
            .build()
    }

    /// The keys of an aggregate of `input` by `sets`, which has the columns of the domain in each of them.
    fn groups(&self, sets: GroupingSet, input: &LogicalPlan) -> Result<Vec<Expr>> {
        let domain = self.columns(input.schema())?;
        Ok([vec![Expr::GroupingSet(sets)], domain].concat())
    }

    /// `sets` over columns in place of keys that refer to the query around: a key is NULL in some sets, a
    /// value of the domain in none.
    fn keys_as_columns(&self, sets: &GroupingSet, input: LogicalPlan) -> Result<Keys> {
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let mut columns: Vec<Expr> = columns.collect();
        let mut known = Vec::new();
        for key in sets.distinct_expr() {
            if key.contains_outer() || has_correlated(key)? {
                // As the operators above call it.
                let name = key.schema_name().to_string();
                let value = self.within(key.clone(), input.schema())?;
                columns.push(value.alias(&name));
                known.push((key.clone(), Expr::Column(Column::new_unqualified(name))));
            }
        }
        let sets = sets.clone();
        if known.is_empty() {
            return Ok(Keys { input, sets, known });
        }
        let column = |key: Expr| match known.iter().find(|(known, _)| *known == key) {
            Some((_, column)) => column.clone(),
            None => key,
        };
        let all = |keys: Vec<Expr>| keys.into_iter().map(column).collect();
        let sets = match sets {
            GroupingSet::Rollup(keys) => GroupingSet::Rollup(all(keys)),
            GroupingSet::Cube(keys) => GroupingSet::Cube(all(keys)),
            GroupingSet::GroupingSets(sets) => {
                GroupingSet::GroupingSets(sets.into_iter().map(all).collect())
            }
        };
        let input = LogicalPlanBuilder::from(input).project(columns)?.build()?;
        Ok(Keys { input, sets, known })
    }

    /// The rows of `input`, and one for each value that it has no rows of; and the column that is NULL in
    /// those.
    fn rows_or_none(&self, input: LogicalPlan) -> Result<(LogicalPlan, Expr)> {
        let (mut input, inner) = self.renamed(input)?;
        let is_there = self.aliases.next("__is_there");
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> = columns.chain([lit(true).alias(&is_there)]).collect();
        input = LogicalPlanBuilder::from(input).project(columns)?.build()?;

        let side = self.domain.side(self.aliases)?;
        let keys = self.keys(side.schema())?;
        let is_same = self.are_same(&keys, &inner);
        let joined = LogicalPlanBuilder::from(side)
            .join_on(input, JoinType::Left, is_same)?
            .build()?;
        let is_there = Expr::Column(Column::new_unqualified(is_there));
        Ok((joined, is_there))
    }

    /// Aggregate functions of the rows that `is_there` is true of.
    fn of_rows_there(
        &self,
        functions: Vec<Expr>,
        rows: &LogicalPlan,
        is_there: &Expr,
    ) -> Result<Vec<Expr>> {
        let functions = self.all_within(functions, rows.schema())?.into_iter();
        let names = NamePreserver::new_for_projection();
        let functions = functions.map(|function| {
            let name = names.save(&function);
            let filtered = function.transform_up(|part| match part {
                // That is of the group, not of rows.
                Expr::AggregateFunction(call) if call.func.name() == "grouping" => {
                    Ok(Transformed::no(Expr::AggregateFunction(call)))
                }
                Expr::AggregateFunction(mut call) => {
                    let is_there = is_there.clone();
                    call.params.filter = Some(Box::new(match call.params.filter.take() {
                        Some(filter) => is_there.and(*filter),
                        None => is_there,
                    }));
                    Ok(Transformed::yes(Expr::AggregateFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(name.restore(filtered.data))
        });
        functions.collect()
    }
}
