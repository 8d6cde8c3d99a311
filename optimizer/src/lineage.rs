//! The rewrite of a logical plan that carries record ids and latencies to where they are logged.
//!
//! It works on the optimized plan, just before physical planning, so no optimizer rule sees it.
//!
//! ```text
//! scan        + the row's id                                          (a new column)
//! projection, filter, sort, limit, unnest, window, join: ids ride along in the rows
//! costly expression → evaluated below, in a TimedEvaluation, + latency (a new column)
//! union       ids of every branch, NULL in the other branches
//! aggregate   + lineage_capture(ids, latencies), whose result is the id of the group
//! root        ids and latencies are stripped and logged
//! ```
//!
//! Where no log is kept (`profile.lineage = 'piggyback'`) the same columns travel the same way, but
//! what they have is another: a base record's id is its number among all sources, and an aggregate
//! returns, by `carried_latency`, what its groups carry on.
//!
//! Subtrees without identified tables, and nodes that this rewrite does not know (recursive
//! queries), stay as they are: their rows have no records.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortExpr};
use datafusion::logical_expr::logical_plan::{
    Aggregate, Extension, Filter, Join, Projection, Sort, SubqueryAlias, TableScan,
    TableScanBuilder, Union, Unnest,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, LogicalPlan, ScalarUDF, lit};
use skewer_exec::{
    AggregateSource, CapturedInput, CarriedInput, CarriedLatency, IdentifiedTable, LineageCapture,
    ROW_ID, RecordSource, SampledRowId, ScanSource,
};
use skewer_profiling::{Recorder, Sources};

use crate::costly::is_costly;
use crate::timed_node::TimedEvaluation;

/// Every hidden column's name starts with this.
pub const HIDDEN: &str = "__skewer_";

/// A kind of record that the rows of a plan stem from.
#[derive(Debug, Clone)]
pub struct TrackedRecord {
    /// Where the records come from; `None` if nothing is logged of them.
    pub source: Option<RecordSource>,
    /// The column with their ids, or with what they carry; NULL where a row has none.
    pub id: String,
    /// The columns whose sum is the latency since the record was made, in picoseconds.
    pub latencies: Vec<String>,
}

/// A plan whose rows carry the ids of their records.
#[derive(Debug)]
pub struct TrackedPlan {
    /// The plan: the original's columns and hidden ones, in any order.
    pub plan: LogicalPlan,
    /// What the rows stem from; empty if nothing is known.
    pub records: Vec<TrackedRecord>,
}

impl TrackedPlan {
    fn untracked(plan: LogicalPlan) -> Self {
        Self {
            plan,
            records: vec![],
        }
    }

    /// The names of all hidden columns still needed, each once.
    pub fn hidden(&self) -> Vec<String> {
        let mut names = Vec::new();
        for record in &self.records {
            for name in std::iter::once(&record.id).chain(&record.latencies) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }

    /// References to the hidden columns, however they are qualified by now.
    pub fn hidden_columns(&self) -> Result<Vec<Expr>> {
        let schema = self.plan.schema();
        let column = |name: &String| hidden_column(schema, name);
        self.hidden().iter().map(column).collect()
    }
}

/// A reference to hidden column `name`, which is unique in the plan.
fn hidden_column(schema: &DFSchema, name: &str) -> Result<Expr> {
    match schema.iter().find(|(_, field)| field.name() == name) {
        Some((qualifier, field)) => Ok(Expr::Column(Column::new(qualifier.cloned(), field.name()))),
        None => internal_err!("the hidden column {name} was lost on the way"),
    }
}

/// The type of hidden column `name`.
fn hidden_type(schema: &DFSchema, name: &str) -> Result<DataType> {
    hidden_column(schema, name)?.get_type(schema)
}

/// Rewrites one plan.
#[derive(Debug)]
pub struct LineageRewrite {
    recorder: Arc<Recorder>,
    /// What base records are called, if latencies are carried instead of being logged.
    sources: Option<Arc<Sources>>,
    columns: usize,
    /// The scans met, with the names of their id columns.
    pub scans: Vec<(String, Arc<ScanSource>)>,
    /// The names of columns that stand for expressions evaluated below, and the expressions.
    pub moved: Vec<(String, String)>,
}

impl LineageRewrite {
    /// A rewrite whose captures log to `recorder`, or carry the latencies of the records of
    /// `sources`.
    pub fn new(recorder: Arc<Recorder>, sources: Option<Arc<Sources>>) -> Self {
        Self {
            recorder,
            sources,
            columns: 0,
            scans: vec![],
            moved: vec![],
        }
    }

    fn name(&mut self, what: &str) -> String {
        self.columns += 1;
        format!("{HIDDEN}{what}_{}", self.columns)
    }

    /// Rewrites `plan` and all below it.
    pub fn rewrite(&mut self, plan: &LogicalPlan) -> Result<TrackedPlan> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(_) | LogicalPlan::Repartition(_) | LogicalPlan::Window(_) => {
                let input = self.rewrite(plan.inputs()[0])?;
                let rewritten = plan.with_new_exprs(plan.expressions(), vec![input.plan])?;
                Ok(TrackedPlan {
                    plan: rewritten,
                    records: input.records,
                })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = self.rewrite(&alias.input)?;
                let rewritten = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
                Ok(TrackedPlan {
                    plan: LogicalPlan::SubqueryAlias(rewritten),
                    records: input.records,
                })
            }
            LogicalPlan::Unnest(unnest) => {
                let input = self.rewrite(&unnest.input)?;
                let rewritten = Unnest::try_new(
                    Arc::new(input.plan),
                    unnest.exec_columns.clone(),
                    unnest.options.clone(),
                )?;
                Ok(TrackedPlan {
                    plan: LogicalPlan::Unnest(rewritten),
                    records: input.records,
                })
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Union(union) => self.union(union),
            other => Ok(TrackedPlan::untracked(other.clone())),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<TrackedPlan> {
        let untracked = || TrackedPlan::untracked(LogicalPlan::TableScan(scan.clone()));
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(untracked());
        };
        let Some(table) = provider.downcast_ref::<IdentifiedTable>() else {
            return Ok(untracked());
        };
        let with_ids = Arc::clone(&table.with_ids);
        let id_index = with_ids.schema().index_of(ROW_ID)?;
        let mut projection = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..scan.source.schema().fields().len()).collect(),
        };
        if !projection.contains(&id_index) {
            projection.push(id_index);
        }
        let rewritten =
            TableScanBuilder::new(scan.table_name.clone(), provider_as_source(with_ids))
                .with_projection(Some(projection))
                .with_filters(scan.filters.clone())
                .with_fetch(scan.fetch)
                .build()?;
        let rewritten = LogicalPlan::TableScan(rewritten);
        let mut id = Expr::Column(Column::new(Some(scan.table_name.clone()), ROW_ID));
        if !self.recorder.sampling().is_complete() {
            let sampled = SampledRowId::new(Arc::clone(&self.recorder));
            id = ScalarUDF::from(sampled).call(vec![id]);
        }
        if let Some(sources) = &self.sources {
            let Some((factor, offset)) = sources.number(&table.log_name) else {
                return internal_err!("{} is none of the sources", table.log_name);
            };
            if factor > 1 {
                id = id * lit(factor) + lit(offset);
            }
        }
        let name = self.name("id");
        let mut columns: Vec<Expr> = scan
            .projected_schema
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        columns.push(id.alias(&name));
        let source = Arc::new(ScanSource::new(&table.log_name));
        self.scans.push((name.clone(), Arc::clone(&source)));
        let source = match &self.sources {
            None => Some(RecordSource::Scan(source)),
            Some(_) => None,
        };
        Ok(TrackedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rewritten))?),
            records: vec![TrackedRecord {
                source,
                id: name,
                latencies: vec![],
            }],
        })
    }

    /// Evaluates those of `exprs` that are costly in a timed node on top of `input`, and
    /// returns the node and `exprs` with columns in place of what was moved.
    fn hoist(&mut self, input: TrackedPlan, exprs: Vec<Expr>) -> Result<(TrackedPlan, Vec<Expr>)> {
        let mut moved: Vec<(Expr, String)> = Vec::new();
        let mut kept = Vec::with_capacity(exprs.len());
        for expr in exprs {
            if input.records.is_empty() || !is_costly(&expr, input.plan.schema())? {
                kept.push(expr);
                continue;
            }
            let bare = expr.unalias();
            let same = moved.iter().find(|(other, _)| *other == bare);
            // Of a volatile expression each has a value of its own.
            let name = match same.filter(|_| !bare.is_volatile()) {
                Some((_, name)) => name.clone(),
                None => {
                    let name = self.name("value");
                    self.moved.push((name.clone(), bare.to_string()));
                    moved.push((bare, name.clone()));
                    name
                }
            };
            kept.push(Expr::Column(Column::new_unqualified(name)));
        }
        if moved.is_empty() {
            return Ok((input, kept));
        }
        let TrackedPlan { plan, mut records } = input;
        let latency = self.name("latency");
        // A latency that all records share so far can be added to; otherwise it rides beside.
        let last = records[0].latencies.last().cloned();
        let earlier = last.filter(|last| records.iter().all(|r| r.latencies.last() == Some(last)));
        let measured = records
            .iter()
            .filter_map(|record| Some((record.source.clone()?, record.id.clone())))
            .collect();
        let node =
            TimedEvaluation::try_new(plan, moved, latency.clone(), earlier.clone(), measured)?;
        for record in &mut records {
            if earlier.is_some() {
                record.latencies.pop();
            }
            record.latencies.push(latency.clone());
        }
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        Ok((TrackedPlan { plan, records }, kept))
    }

    fn projection(&mut self, projection: &Projection) -> Result<TrackedPlan> {
        let input = self.rewrite(&projection.input)?;
        let (input, exprs) = self.hoist(input, projection.expr.clone())?;
        // What was moved keeps the name and qualifier that it had.
        let mut exprs: Vec<Expr> = exprs
            .into_iter()
            .zip(&projection.expr)
            .zip(projection.schema.iter())
            .map(|((new, old), (qualifier, field))| {
                if new == *old {
                    new
                } else {
                    new.alias_qualified(qualifier.cloned(), field.name())
                }
            })
            .collect();
        exprs.extend(input.hidden_columns()?);
        Ok(TrackedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input.plan))?),
            records: input.records,
        })
    }

    /// Conjuncts before the first costly one filter first, as they would by short-circuit.
    fn filter(&mut self, filter: &Filter) -> Result<TrackedPlan> {
        let mut input = self.rewrite(&filter.input)?;
        let predicate = Some(filter.predicate.clone());
        let (cheap, costly) = match input.records.is_empty() {
            true => (predicate.into_iter().collect(), Vec::new()),
            false => split_at_costly(predicate, input.plan.schema())?,
        };
        if let Some(predicate) = conjunction(cheap) {
            input.plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input.plan))?);
        }
        if let Some(predicate) = conjunction(costly) {
            let (hoisted, mut column) = self.hoist(input, vec![predicate])?;
            input = hoisted;
            if let Some(column) = column.pop() {
                input.plan = LogicalPlan::Filter(Filter::try_new(column, Arc::new(input.plan))?);
            }
        }
        Ok(input)
    }

    fn sort(&mut self, sort: &Sort) -> Result<TrackedPlan> {
        let input = self.rewrite(&sort.input)?;
        let keys = sort.expr.iter().map(|key| key.expr.clone()).collect();
        let (input, keys) = self.hoist(input, keys)?;
        let expr = keys
            .into_iter()
            .zip(&sort.expr)
            .map(|(key, old)| SortExpr::new(key, old.asc, old.nulls_first))
            .collect();
        Ok(TrackedPlan {
            plan: LogicalPlan::Sort(Sort {
                expr,
                input: Arc::new(input.plan),
                fetch: sort.fetch,
            }),
            records: input.records,
        })
    }

    fn join(&mut self, join: &Join) -> Result<TrackedPlan> {
        let left = self.rewrite(&join.left)?;
        let right = self.rewrite(&join.right)?;
        let (left_keys, right_keys) = join.on.iter().cloned().unzip();
        let (left, left_keys) = self.hoist(left, left_keys)?;
        let (right, right_keys) = self.hoist(right, right_keys)?;
        // Without keys there is one group, also of no rows, which nothing may be joined with.
        let by_keys = join.filter.is_none() && !join.on.is_empty();
        match join.join_type {
            JoinType::LeftSemi if by_keys && !right.records.is_empty() => {
                return self.semi_join((left, left_keys), (right, right_keys), join);
            }
            JoinType::RightSemi if by_keys && !left.records.is_empty() => {
                return self.semi_join((right, right_keys), (left, left_keys), join);
            }
            _ => {}
        }
        let (mut left_records, mut right_records) = (left.records, right.records);
        // An anti or mark join returns rows of one side: the other side's are no inputs. A semi join
        // on more than equal keys would have to look at every pair to say which.
        match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => right_records.clear(),
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => left_records.clear(),
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {}
        }
        left_records.append(&mut right_records);
        // A costly condition of an inner join is a filter on top of it, where it can be timed.
        let mut above = None;
        let mut filter = join.filter.clone();
        if join.join_type == JoinType::Inner && !left_records.is_empty() {
            let both = left.plan.schema().join(right.plan.schema())?;
            let (first, rest) = split_at_costly(filter, &both)?;
            (filter, above) = (conjunction(first), conjunction(rest));
        }
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            left_keys.into_iter().zip(right_keys).collect(),
            filter,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?);
        let mut joined = TrackedPlan {
            plan: joined,
            records: left_records,
        };
        if let Some(condition) = above {
            let (hoisted, mut column) = self.hoist(joined, vec![condition])?;
            joined = hoisted;
            if let Some(column) = column.pop() {
                joined.plan = LogicalPlan::Filter(Filter::try_new(column, Arc::new(joined.plan))?);
            }
        }
        Ok(joined)
    }

    /// A semi join that knows what its rows were compared with: the rows of `tested` with the same
    /// keys are a group each, which the one row of `kept` or several are joined with.
    fn semi_join(
        &mut self,
        (kept, kept_keys): (TrackedPlan, Vec<Expr>),
        (tested, tested_keys): (TrackedPlan, Vec<Expr>),
        join: &Join,
    ) -> Result<TrackedPlan> {
        let mut columns: Vec<Expr> = kept
            .plan
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        let names: Vec<String> = tested_keys.iter().map(|_| self.name("key")).collect();
        let keys = tested_keys.into_iter().zip(&names);
        let keys = keys.map(|(key, name)| key.alias(name)).collect();
        let tested = self.captured(tested, keys, Vec::new())?;
        let keys = names
            .into_iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)));
        columns.extend(tested.hidden_columns()?);
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(kept.plan),
            Arc::new(tested.plan),
            kept_keys.into_iter().zip(keys).collect(),
            None,
            JoinType::Inner,
            join.join_constraint,
            join.null_equality,
            false,
        )?);
        let mut records = kept.records;
        records.extend(tested.records);
        Ok(TrackedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(joined))?),
            records,
        })
    }

    fn aggregate(&mut self, aggregate: &Aggregate) -> Result<TrackedPlan> {
        let input = self.rewrite(&aggregate.input)?;
        if input.records.is_empty() {
            let plan = LogicalPlan::Aggregate(aggregate.clone());
            return Ok(TrackedPlan::untracked(
                plan.with_new_exprs(plan.expressions(), vec![input.plan])?,
            ));
        }
        let (input, group_expr, aggr_expr) = self.hoist_arguments(input, aggregate)?;
        self.captured(input, group_expr, aggr_expr)
    }

    /// An aggregate whose groups are records, made of those of `input`.
    fn captured(
        &mut self,
        input: TrackedPlan,
        group_expr: Vec<Expr>,
        mut aggr_expr: Vec<Expr>,
    ) -> Result<TrackedPlan> {
        let (function, arguments, source) = self.capture(&input)?;
        let capture =
            AggregateFunction::new_udf(Arc::new(function), arguments, false, None, vec![], None);
        let id = self.name("id");
        aggr_expr.push(Expr::AggregateFunction(capture).alias(&id));
        Ok(TrackedPlan {
            plan: LogicalPlan::Aggregate(Aggregate::try_new(
                Arc::new(input.plan),
                group_expr,
                aggr_expr,
            )?),
            records: vec![TrackedRecord {
                source,
                id,
                latencies: vec![],
            }],
        })
    }

    /// The function that logs the records of `input`, or carries their latencies on; its arguments;
    /// and where the records come from that an aggregate with it makes.
    fn capture(
        &mut self,
        input: &TrackedPlan,
    ) -> Result<(AggregateUDF, Vec<Expr>, Option<RecordSource>)> {
        let schema = input.plan.schema();
        let mut arguments = Vec::new();
        let (mut captured, mut carried) = (Vec::new(), Vec::new());
        for record in &input.records {
            let id_argument = arguments.len();
            arguments.push(hidden_column(schema, &record.id)?);
            let mut latency_arguments = Vec::new();
            for latency in &record.latencies {
                latency_arguments.push(arguments.len());
                arguments.push(hidden_column(schema, latency)?);
            }
            match &record.source {
                Some(source) => captured.push(CapturedInput {
                    source: source.clone(),
                    id_argument,
                    latency_arguments,
                }),
                None => carried.push(CarriedInput {
                    records: id_argument,
                    latencies: latency_arguments,
                }),
            }
        }
        let name = self.name("capture");
        let recorder = Arc::clone(&self.recorder);
        if self.sources.is_some() {
            let function = CarriedLatency::new(name, recorder, carried);
            return Ok((AggregateUDF::from(function), arguments, None));
        }
        let groups = Arc::new(AggregateSource::default());
        let function = LineageCapture::new(name, recorder, captured, Arc::clone(&groups));
        let source = RecordSource::Aggregate(groups);
        Ok((AggregateUDF::from(function), arguments, Some(source)))
    }

    /// Hoists costly group keys and costly arguments of aggregate functions; the columns of the
    /// aggregate keep their names.
    fn hoist_arguments(
        &mut self,
        input: TrackedPlan,
        aggregate: &Aggregate,
    ) -> Result<(TrackedPlan, Vec<Expr>, Vec<Expr>)> {
        let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
        let mut candidates = Vec::new();
        if !aggregate.group_expr.iter().any(is_set) {
            candidates.extend(aggregate.group_expr.iter().cloned());
        }
        let keys = candidates.len();
        // Without groups rows are filtered before arguments are evaluated, which may fail for
        // those that are left out.
        let is_hoisted = |function: &AggregateFunction| {
            !aggregate.group_expr.is_empty() || function.params.filter.is_none()
        };
        for expr in &aggregate.aggr_expr {
            if let Expr::AggregateFunction(function) = unaliased(expr)
                && is_hoisted(function)
            {
                candidates.extend(function.params.args.iter().cloned());
            }
        }
        let (input, mut hoisted) = self.hoist(input, candidates)?;
        let mut arguments = hoisted.split_off(keys).into_iter();
        let fields: Vec<_> = aggregate.schema.iter().collect();
        let mut group_expr = aggregate.group_expr.clone();
        for (new, old) in hoisted.into_iter().zip(&mut group_expr) {
            if new != *old {
                let name = old.schema_name().to_string();
                *old = new.alias(name);
            }
        }
        let first_aggregate = fields.len() - aggregate.aggr_expr.len();
        let mut aggr_expr = Vec::with_capacity(aggregate.aggr_expr.len());
        for (position, expr) in aggregate.aggr_expr.iter().enumerate() {
            let replaced = expr.clone().transform_down(|node| match node {
                Expr::AggregateFunction(mut function) if is_hoisted(&function) => {
                    let count = function.params.args.len();
                    function.params.args = arguments.by_ref().take(count).collect();
                    Ok(Transformed::new(
                        Expr::AggregateFunction(function),
                        true,
                        datafusion::common::tree_node::TreeNodeRecursion::Stop,
                    ))
                }
                other => Ok(Transformed::no(other)),
            })?;
            let (_, field) = fields[first_aggregate + position];
            aggr_expr.push(if replaced.data == *expr {
                expr.clone()
            } else {
                replaced.data.unalias().alias(field.name())
            });
        }
        Ok((input, group_expr, aggr_expr))
    }

    /// Every branch gets the hidden columns of all branches, NULL where they are not its own.
    fn union(&mut self, union: &Union) -> Result<TrackedPlan> {
        let branches = union
            .inputs
            .iter()
            .map(|input| self.rewrite(input))
            .collect::<Result<Vec<_>>>()?;
        let mut hidden: Vec<(String, DataType)> = Vec::new();
        for branch in &branches {
            for name in branch.hidden() {
                let data_type = hidden_type(branch.plan.schema(), &name)?;
                hidden.push((name, data_type));
            }
        }
        let mut inputs = Vec::with_capacity(branches.len());
        let mut records = Vec::new();
        for (branch, original) in branches.into_iter().zip(&union.inputs) {
            let own = branch.hidden();
            let mut columns: Vec<Expr> = original
                .schema()
                .columns()
                .into_iter()
                .map(Expr::Column)
                .collect();
            for (name, data_type) in &hidden {
                columns.push(if own.contains(name) {
                    hidden_column(branch.plan.schema(), name)?.alias(name)
                } else {
                    lit(ScalarValue::try_from(data_type)?).alias(name)
                });
            }
            let projection = Projection::try_new(columns, Arc::new(branch.plan))?;
            inputs.push(Arc::new(LogicalPlan::Projection(projection)));
            records.extend(branch.records);
        }
        let mut fields: Vec<_> = union
            .schema
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
            .collect();
        for (name, data_type) in &hidden {
            let field = Field::new(name, data_type.clone(), true);
            fields.push((None, Arc::new(field)));
        }
        let schema = DFSchema::new_with_metadata(fields, union.schema.metadata().clone())?;
        Ok(TrackedPlan {
            plan: LogicalPlan::Union(Union {
                inputs,
                schema: Arc::new(schema),
            }),
            records,
        })
    }
}

/// The conjuncts of a condition before the first costly one, and those from it on.
fn split_at_costly(condition: Option<Expr>, schema: &DFSchema) -> Result<(Vec<Expr>, Vec<Expr>)> {
    let mut cheap = condition.map(split_conjunction_owned).unwrap_or_default();
    for (position, conjunct) in cheap.iter().enumerate() {
        if is_costly(conjunct, schema)? {
            let costly = cheap.split_off(position);
            return Ok((cheap, costly));
        }
    }
    Ok((cheap, Vec::new()))
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
