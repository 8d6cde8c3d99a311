//! A subquery for all values of what it refers to, in place of one for each.
//!
//! Every operator above a reference has columns of the [`Domain`] beside its own: its rows are those that it has
//! for each value. They are those by which its values are told apart, and what is referred to above.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, JoinType, Result, internal_err, not_impl_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{
    Aggregate, Distinct, Filter, Projection, Sort, SubqueryAlias, Union, Unnest, Values, Window,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr};

use super::column_named;
use super::domain::Domain;
use super::references::{own_references, references, within};

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
    pub(super) fn is_dependent(&self, plan: &LogicalPlan) -> Result<bool> {
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
    pub(super) fn for_inputs_of(&self, plan: &LogicalPlan) -> Result<Self> {
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
    pub(super) fn of_keys(&self) -> Self {
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
    pub(super) fn own(&self, schema: &DFSchemaRef) -> Vec<Expr> {
        let mut own = schema.columns();
        own.retain(|column| self.domain.names().all(|name| *name != column.name));
        own.into_iter().map(Expr::Column).collect()
    }

    /// `plan`, which has the keys of the domain, with what is wanted beside them.
    pub(super) fn with_wanted(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
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

    pub(super) fn order(
        &self,
        order: Vec<SortExpr>,
        inputs: &DFSchemaRef,
    ) -> Result<Vec<SortExpr>> {
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

    /// What `column` around the subquery is in a plan with `schema`.
    pub(super) fn renamed_in(&self, column: &Column, schema: &DFSchemaRef) -> Option<Column> {
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
