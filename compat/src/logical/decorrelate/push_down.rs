//! A subquery for all values of what it refers to, in place of one for each.
//!
//! Every operator above a reference has columns of the [`Domain`] beside its own: its rows are those that it has
//! for each value. They are those by which its values are told apart, and what is referred to above.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchemaRef, JoinType, NullEquality, Result, internal_err, not_impl_err,
};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, DistinctOn, Filter, Join, JoinConstraint, Limit, Projection, Sort,
    SubqueryAlias, Union, Unnest, Values, Window,
};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, SortExpr,
    WindowFrame, lit,
};

use super::column_named;
use super::domain::Domain;
use super::references::{lateral, own_references, references, within, within_lateral};

/// Pushes a domain down into a subquery.
#[derive(Clone)]
pub struct PushDown<'a> {
    pub domain: &'a Domain,
    pub aliases: &'a AliasGenerator,
    /// What operators above want of the domain, beside its keys.
    pub wanted: Vec<String>,
    /// The recursive queries whose recursive term it is in, and the columns of the domain that the working tables
    /// of these have.
    pub recursions: Vec<(String, Vec<String>)>,
}

impl PushDown<'_> {
    /// `plan` for every value of the domain, whose columns it has beside its own.
    ///
    /// # Errors
    /// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) of operators
    /// that cannot be run for many values at once.
    pub fn push_into(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if !self.is_dependent(&plan)? {
            let side = self.domain.side(self.aliases)?;
            // The one row of a SELECT without FROM has no columns.
            if let LogicalPlan::EmptyRelation(empty) = &plan
                && empty.produce_one_row
                && empty.schema.fields().is_empty()
            {
                return Ok(side);
            }
            return LogicalPlanBuilder::from(plan).cross_join(side)?.build();
        }
        let plan = self.with_sizes(plan)?;
        let below = self.for_inputs_of(&plan)?;
        match plan {
            LogicalPlan::Projection(projection) => self.projection(projection, &below),
            LogicalPlan::Filter(filter) => {
                let input = below.input(filter.input)?;
                let predicate = self.within(filter.predicate, input.schema())?;
                Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = self.input(alias.input)?;
                let alias = SubqueryAlias::try_new(input, alias.alias)?;
                Ok(LogicalPlan::SubqueryAlias(alias))
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let input = below.input(sort.input)?;
                let expr = self.order(sort.expr, input.schema())?;
                Ok(LogicalPlan::Sort(Sort {
                    expr,
                    input,
                    fetch: sort.fetch,
                }))
            }
            LogicalPlan::Limit(limit) => self.limit(&limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let distinct = Distinct::All(self.of_keys().branch(input)?);
                self.with_wanted(LogicalPlan::Distinct(distinct))
            }
            LogicalPlan::Distinct(Distinct::On(distinct)) => self.distinct_on(distinct, &below),
            LogicalPlan::Aggregate(aggregate) => {
                let groups = self.of_keys().aggregate(aggregate, &below)?;
                self.with_wanted(groups)
            }
            LogicalPlan::Window(window) => self.window(window, &below),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Join(join) => self.join(join, &below),
            LogicalPlan::Unnest(unnest) => {
                let input = self.input(unnest.input)?;
                let unnest = Unnest::try_new(input, unnest.exec_columns, unnest.options)?;
                Ok(LogicalPlan::Unnest(unnest))
            }
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::RecursiveQuery(query) => self.recursive_query(query),
            LogicalPlan::TableScan(scan) => self.working_table(scan),
            other => not_impl_err!(
                "{} in a correlated subquery; write it as a join",
                other.display()
            ),
        }
    }

    /// Whether `plan` has other rows for other values of the domain.
    fn is_dependent(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(!references(plan)?.is_empty() || self.is_of_iteration(plan)?)
    }

    pub(super) fn input(&self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        self.push_into(Arc::unwrap_or_clone(input)).map(Arc::new)
    }

    /// `plan`, in whose own expressions columns of the domain say how long its lists are.
    pub(super) fn with_sizes(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        // A key in one of them keeps its name, but not as an expression by itself.
        if let LogicalPlan::Aggregate(aggregate) = &plan
            && let [Expr::GroupingSet(_)] = aggregate.group_expr.as_slice()
        {
            return Ok(plan);
        }
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let with_sizes = name.restore(self.domain.with_sizes(expression)?);
            Ok(Transformed::yes(with_sizes))
        })?;
        Ok(plan.data)
    }

    /// For the inputs of `plan`, which may refer to the query around by itself.
    fn for_inputs_of(&self, plan: &LogicalPlan) -> Result<Self> {
        Ok(self.wanting(&own_references(plan)?))
    }

    /// If these `columns` around are wanted, too.
    pub(super) fn wanting(&self, columns: &[Column]) -> Self {
        let mut wanting = self.clone();
        let names = columns
            .iter()
            .flat_map(|column| self.domain.name_of(column));
        wanting.wanted.extend(names.cloned());
        wanting
    }

    /// If nothing but its keys is wanted of the domain.
    fn of_keys(&self) -> Self {
        Self {
            wanted: Vec::new(),
            ..self.clone()
        }
    }

    /// What an operator has of the domain: its keys, and what is wanted beside them.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.domain.names().filter(|name| {
            let mut keys = self.domain.keys();
            keys.any(|(_, key)| key == *name) || self.wanted.contains(name)
        })
    }

    /// Those columns, as a plan with `schema` has them.
    pub(super) fn columns(&self, schema: &DFSchemaRef) -> Result<Vec<Expr>> {
        self.names().map(|name| column(name, schema)).collect()
    }

    /// The columns by which values of the domain are told apart, as a plan with `schema` has them.
    pub(super) fn keys(&self, schema: &DFSchemaRef) -> Result<Vec<Expr>> {
        let keys = self.domain.keys();
        keys.map(|(_, name)| column(name, schema)).collect()
    }

    /// The columns of a plan with `schema` that are none of the domain's.
    fn own(&self, schema: &DFSchemaRef) -> Vec<Expr> {
        let mut own = schema.columns();
        own.retain(|column| self.domain.names().all(|name| *name != column.name));
        own.into_iter().map(Expr::Column).collect()
    }

    /// `plan`, which has the keys of the domain, with what is wanted beside them.
    fn with_wanted(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut names: Vec<&String> = self.names().collect();
        names.retain(|name| plan.schema().fields().find(name).is_none());
        if names.is_empty() {
            return Ok(plan);
        }
        let mut own = plan.schema().columns();
        // That is no column any more when functions have been found that read it.
        own.retain(|column| column.name != Aggregate::INTERNAL_GROUPING_ID);
        let mut columns: Vec<Expr> = own.into_iter().map(Expr::Column).collect();
        let side = self.domain.side(self.aliases)?;
        let (mut beside, mut is_same) = (Vec::new(), Vec::new());
        for (_, key) in self.domain.keys() {
            // Without a table's name it would be taken for that of the plan.
            let inner = self.domain.other_name(self.aliases);
            beside.push(column_named(key, &side)?.alias(&inner));
            let inner = Expr::Column(Column::new_unqualified(inner));
            is_same.push(self.domain.is_same(column(key, plan.schema())?, inner));
        }
        for name in names {
            beside.push(column_named(name, &side)?.alias(name));
            columns.push(Expr::Column(Column::new_unqualified(name)));
        }
        let side = LogicalPlanBuilder::from(side).project(beside)?.build()?;
        let joined = LogicalPlanBuilder::from(plan).join_on(side, JoinType::Inner, is_same)?;
        joined.project(columns)?.build()
    }

    /// `expression` over the columns of `inputs`, among which are those of the domain.
    pub(super) fn within(&self, expression: Expr, inputs: &DFSchemaRef) -> Result<Expr> {
        within(expression, inputs, &|column| {
            self.renamed_in(column, inputs)
        })
    }

    /// The same for expressions that keep their names.
    pub(super) fn all_within(
        &self,
        expressions: Vec<Expr>,
        inputs: &DFSchemaRef,
    ) -> Result<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let expressions = expressions.into_iter().map(|expression| {
            let name = names.save(&expression);
            Ok(name.restore(self.within(expression, inputs)?))
        });
        expressions.collect()
    }

    fn order(&self, order: Vec<SortExpr>, inputs: &DFSchemaRef) -> Result<Vec<SortExpr>> {
        let order = order.into_iter().map(|key| {
            let expr = self.within(key.expr.clone(), inputs)?;
            Ok(key.with_expr(expr))
        });
        order.collect()
    }

    fn projection(&self, projection: Projection, below: &Self) -> Result<LogicalPlan> {
        let input = below.input(projection.input)?;
        let mut columns = self.all_within(projection.expr, input.schema())?;
        columns.extend(self.columns(input.schema())?);
        Ok(LogicalPlan::Projection(Projection::try_new(
            columns, input,
        )?))
    }

    /// The first rows of each value, in the order of the input.
    fn limit(&self, limit: &Limit) -> Result<LogicalPlan> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return not_impl_err!(
                "a correlated subquery with LIMIT or OFFSET that is no number; write it as a join"
            );
        };
        // What rows there are is known below.
        if is_ordered(&limit.input) {
            let below = |input: &Arc<LogicalPlan>| {
                let input = Arc::clone(input);
                Arc::new(LogicalPlan::Limit(Limit {
                    input,
                    ..limit.clone()
                }))
            };
            match limit.input.as_ref() {
                LogicalPlan::Projection(projection) => {
                    let input = below(&projection.input);
                    let columns = projection.expr.clone();
                    let projection = Projection::try_new(columns, input)?;
                    return self.push_into(LogicalPlan::Projection(projection));
                }
                LogicalPlan::SubqueryAlias(alias) => {
                    let input = self.input(below(&alias.input))?;
                    let alias = SubqueryAlias::try_new(input, alias.alias.clone())?;
                    return Ok(LogicalPlan::SubqueryAlias(alias));
                }
                LogicalPlan::Distinct(Distinct::On(distinct)) => {
                    let input = Arc::new(self.in_order(distinct)?);
                    let limit = Limit {
                        input,
                        ..limit.clone()
                    };
                    return self.limit(&limit);
                }
                _ => {}
            }
        }
        let (order, input) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (sort.expr.clone(), &sort.input),
            _ => (Vec::new(), &limit.input),
        };
        let input = self.for_inputs_of(&limit.input)?.input(Arc::clone(input))?;
        let mut columns = self.own(input.schema());
        let place = self.aliases.next("__place");
        // Of rows that tie the same ones, should they be read again for a subquery of theirs.
        let mut order = self.order(order, input.schema())?;
        order.extend(columns.iter().map(|column| column.clone().sort(true, true)));
        columns.extend(self.columns(input.schema())?);
        let number = row_number()
            .partition_by(self.keys(input.schema())?)
            .order_by(order)
            .window_frame(WindowFrame::new(Some(true)))
            .build()?
            .alias(&place);
        let place = Expr::Column(Column::new_unqualified(place));
        let mut is_kept = place.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            let last = skip.saturating_add(fetch);
            is_kept = is_kept.and(place.lt_eq(lit(last as u64)));
        }
        LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
            .window([number])?
            .filter(is_kept)?
            .project(columns)?
            .build()
    }

    /// DISTINCT ON with ORDER BY as a projection of sorted rows: they are in the order of their keys, which
    /// it begins with.
    fn in_order(&self, distinct: &DistinctOn) -> Result<LogicalPlan> {
        let own = distinct.schema.columns();
        let (on, mut selected) = (distinct.on_expr.clone(), distinct.select_expr.clone());
        let mut order = Vec::new();
        for (key, sorted) in on.iter().zip(distinct.sort_expr.iter().flatten()) {
            let name = self.aliases.next("__key");
            selected.push(key.clone().alias(&name));
            let column = Expr::Column(Column::new_unqualified(name));
            order.push(column.sort(sorted.asc, sorted.nulls_first));
        }
        let input = Arc::clone(&distinct.input);
        let distinct = DistinctOn::try_new(on, selected, distinct.sort_expr.clone(), input)?;
        let distinct = Distinct::On(distinct);
        LogicalPlanBuilder::from(LogicalPlan::Distinct(distinct))
            .sort(order)?
            .project(own.into_iter().map(Expr::Column))?
            .build()
    }

    fn distinct_on(&self, distinct: DistinctOn, below: &Self) -> Result<LogicalPlan> {
        let input = below.input(distinct.input)?;
        let inputs = Arc::clone(input.schema());
        let domain = self.keys(&inputs)?;
        let own = |expressions| -> Result<Vec<Expr>> {
            let mut all = domain.clone();
            all.extend(self.all_within(expressions, &inputs)?);
            Ok(all)
        };
        let sorted = match distinct.sort_expr {
            None => None,
            Some(order) => {
                let first = domain.iter().map(|column| column.clone().sort(true, true));
                let mut sorted: Vec<SortExpr> = first.collect();
                sorted.extend(self.order(order, &inputs)?);
                Some(sorted)
            }
        };
        let mut on = domain.clone();
        for key in distinct.on_expr {
            on.push(self.within(key, &inputs)?);
        }
        let selected = own(distinct.select_expr)?;
        let distinct = Distinct::On(DistinctOn::try_new(on, selected, sorted, input)?);
        self.with_wanted(LogicalPlan::Distinct(distinct))
    }

    fn window(&self, window: Window, below: &Self) -> Result<LogicalPlan> {
        let input = below.input(window.input)?;
        let domain = self.keys(input.schema())?;
        let names = NamePreserver::new_for_projection();
        let functions = window.window_expr.into_iter().map(|function| {
            let name = names.save(&function);
            let function = self.within(function, input.schema())?;
            let partitioned = function.transform_up(|part| match part {
                Expr::WindowFunction(mut call) => {
                    call.params.partition_by.extend(domain.clone());
                    Ok(Transformed::yes(Expr::WindowFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(name.restore(partitioned.data))
        });
        let functions = functions.collect::<Result<_>>()?;
        Ok(LogicalPlan::Window(Window::try_new(functions, input)?))
    }

    fn union(&self, union: Union) -> Result<LogicalPlan> {
        let inputs = union.inputs.into_iter().map(|input| self.branch(input));
        let inputs = inputs.collect::<Result<_>>()?;
        let union = Union::try_new_with_loose_types(inputs)?;
        Ok(LogicalPlan::Union(union))
    }

    /// An input of which all columns matter: its own, and then those of the domain.
    pub(super) fn branch(&self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let mut columns: Vec<Expr> = own.collect();
        let input = self.input(input)?;
        let domain = self.columns(input.schema())?.into_iter();
        let column_named = domain.zip(self.names());
        columns.extend(column_named.map(|(column, name)| column.alias(name)));
        let projection = Projection::try_new(columns, input)?;
        Ok(Arc::new(LogicalPlan::Projection(projection)))
    }

    /// A projection of the domain for each row.
    fn values(&self, values: Values) -> Result<LogicalPlan> {
        let names: Vec<_> = values.schema.fields().iter().collect();
        let rows = values.values.into_iter().map(|row| {
            let side = self.domain.side(self.aliases)?;
            let mut columns = Vec::new();
            for (value, field) in row.into_iter().zip(&names) {
                columns.push(self.within(value, side.schema())?.alias(field.name()));
            }
            let domain = self.columns(side.schema())?.into_iter();
            let column_named = domain.zip(self.names());
            columns.extend(column_named.map(|(column, name)| column.alias(name)));
            let projection = Projection::try_new(columns, Arc::new(side))?;
            Ok(Arc::new(LogicalPlan::Projection(projection)))
        });
        let mut rows: Vec<_> = rows.collect::<Result<_>>()?;
        match rows.len() {
            1 => Ok(Arc::unwrap_or_clone(rows.remove(0))),
            _ => Ok(LogicalPlan::Union(Union::try_new_with_loose_types(rows)?)),
        }
    }

    fn join(&self, join: Join, below: &Self) -> Result<LogicalPlan> {
        let is_lateral = lateral(&join.right).is_some();
        let in_left = self.is_dependent(&join.left)?;
        let of_right = references(&join.right)?;
        let in_right = !is_lateral && self.is_dependent(&join.right)?;
        // That of LATERAL is not told from a query further out where a subquery in it says it.
        let beside = join.left.schema();
        if in_right && of_right.iter().any(|column| beside.has_column(column)) {
            return not_impl_err!("a correlated subquery with LATERAL in it; write it as a join");
        }
        // Rows that a join adds or leaves out are added or left out for each value.
        let (left, right) = match join.join_type {
            JoinType::Inner => (in_left || !in_right, in_right),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, in_right)
            }
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (in_left, true)
            }
            JoinType::Full => (true, true),
        };
        let is_of_right = matches!(
            join.join_type,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
        );
        let pushed = |side: Arc<LogicalPlan>, is_pushed: bool, is_renamed: bool| {
            let side = Arc::unwrap_or_clone(side);
            match (is_pushed, is_renamed) {
                (false, _) => Ok((side, Vec::new())),
                (true, false) => {
                    let side = below.push_into(side)?;
                    let keys = self.keys(side.schema())?;
                    Ok((side, keys))
                }
                (true, true) => self.renamed(self.of_keys().push_into(side)?),
            }
        };
        let both = left && right;
        let own: Vec<Column> = join.schema.columns();
        let (left, left_domain) = pushed(join.left, left, both && is_of_right)?;
        let (mut right, right_domain) = pushed(join.right, right, both && !is_of_right)?;
        if is_lateral {
            let scope = Arc::clone(left.schema());
            right = within_lateral(right, &scope, &|column| self.renamed_in(column, &scope))?;
        }

        let inputs = Arc::new(merge_schema(&[&left, &right]));
        let mut on = Vec::new();
        for (l, r) in join.on {
            on.push((self.within(l, &inputs)?, self.within(r, &inputs)?));
        }
        let filter = join.filter.map(|filter| self.within(filter, &inputs));
        let mut filters: Vec<Expr> = filter.transpose()?.into_iter().collect();
        if both {
            let are_keys =
                self.domain.are_keys() || join.null_equality == NullEquality::NullEqualsNull;
            match are_keys {
                true => on.extend(left_domain.iter().cloned().zip(right_domain.clone())),
                false => filters.extend(self.are_same(&left_domain, &right_domain)),
            }
        }
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filters.into_iter().reduce(Expr::and),
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            join.null_aware,
        )?;
        let joined = LogicalPlan::Join(joined);
        if join.join_type != JoinType::Full {
            return Ok(joined);
        }
        let sides = left_domain.into_iter().zip(right_domain);
        let sides = sides.zip(self.domain.keys());
        let domain = sides.map(|((l, r), (_, name))| coalesce(vec![l, r]).alias(name));
        let columns = own.into_iter().map(Expr::Column).chain(domain);
        let joined = LogicalPlanBuilder::from(joined).project(columns)?.build()?;
        self.with_wanted(joined)
    }

    /// What `column` around the subquery is in a plan with `schema`.
    fn renamed_in(&self, column: &Column, schema: &DFSchemaRef) -> Option<Column> {
        let name = self.domain.name_of(column)?;
        let found = schema.qualified_fields_with_unqualified_name(name);
        found.first().map(|field| Column::from(*field))
    }

    /// `plan` with other names for the keys of the domain, and those.
    pub(super) fn renamed(&self, plan: LogicalPlan) -> Result<(LogicalPlan, Vec<Expr>)> {
        let mut columns = self.own(plan.schema());
        let mut renamed = Vec::new();
        for column in self.keys(plan.schema())? {
            let name = self.domain.other_name(self.aliases);
            columns.push(column.alias(&name));
            renamed.push(Expr::Column(Column::new_unqualified(name)));
        }
        let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        Ok((plan, renamed))
    }

    pub(super) fn are_same(&self, left: &[Expr], right: &[Expr]) -> Vec<Expr> {
        let pairs = left.iter().cloned().zip(right.iter().cloned());
        pairs.map(|(l, r)| self.domain.is_same(l, r)).collect()
    }
}

/// The column `name` of a domain in a plan with `schema`.
fn column(name: &str, schema: &DFSchemaRef) -> Result<Expr> {
    let found = schema.qualified_fields_with_unqualified_name(name);
    match found.first() {
        Some(field) => Ok(Expr::Column(Column::from(*field))),
        None => internal_err!("{name} is not pushed down"),
    }
}

/// Whether the rows of `plan`, or of what it makes its own of one by one, are sorted.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct.sort_expr.is_some(),
        _ => false,
    }
}
