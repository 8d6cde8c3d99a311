//! The rewrite of a logical plan that carries record ids and latencies to where they are logged.
//!
//! It works on the optimized plan, just before physical planning, so no optimizer rule sees it.
//!
//! ```text
//! scan        + the row's id                                          (a new column)
//! projection, filter, sort, limit, unnest, join: ids ride along in the rows
//! costly expression → evaluated below, in a TimedEvaluation, + latency (a new column)
//! union       ids of every branch, NULL in the other branches
//! aggregate   + lineage_capture(ids, latencies), whose result is the id of the group
//! window      + frame_capture(ids, latencies), whose result is the id of the frame
//! semi join   an inner join with the groups of what is tested, as an aggregate makes them
//! recursion   + what a row is made of (a new column of the working table); above it, row_capture
//! root        ids and latencies are stripped and logged
//! ```
//!
//! Below joins ids are INTEGER where they fit ([`Int32RowId`]).
//!
//! Between an unnest and the aggregate above it, where a record has many rows, id and latency are one
//! column, and timed evaluations add to it what they measure.
//!
//! Where no log is kept (`profile.lineage = 'piggyback'`) the same columns travel the same way, but
//! what they have is another: a base record's id is its number among all sources, and an aggregate
//! returns, by `carried_latency`, what its groups carry on; a window, what its frames do. The working
//! table of a recursive query has what its rows carry.
//!
//! Subtrees without identified tables, and nodes that this rewrite does not know, stay as they are:
//! their rows have no records.

mod aggregates;
mod annotated_plan;
mod cost_attribution;
mod joins;
mod packing;
mod recursion;
mod semi_joins;
mod shared_rows;
mod windows;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::logical_plan::{
    Extension, Filter, Projection, Sort, SubqueryAlias, TableScan, TableScanBuilder, Union,
};
use datafusion::logical_expr::utils::{conjunction, expr_to_columns, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF, lit};
use skewer_exec::{
    IdColumn, IdentifiedTable, Int32RowId, LatencyColumn, ROW_ID, RecordOrigin, SampledRowId,
    ScanOrigin,
};
use skewer_profiling::{Recorder, Sources};

pub use self::annotated_plan::{AnnotatedPlan, AnnotatedRecord};
use self::annotated_plan::{Arguments, hidden_column, hidden_type};
use self::cost_attribution::{CostAttribution, attribute_cost};
use self::packing::unnested;
use self::recursion::Recursion;
use crate::costly::is_costly;
use crate::timed_node::TimedEvaluation;
use skewer_compat::logical::common_subplan::Shared;
use skewer_compat::logical::decorrelate::is_domain;

/// Every hidden column's name starts with this.
pub const HIDDEN: &str = "__skewer_";

/// Rewrites one plan.
#[derive(Debug)]
pub struct LineageRewrite {
    recorder: Arc<Recorder>,
    /// What base records are called, if latencies are carried instead of being logged.
    sources: Option<Arc<Sources>>,
    columns: usize,
    /// How many joins are above, before anything that reads ids.
    joins_above: usize,
    /// The recursive queries whose recursive term this is in.
    recursions: Vec<Recursion>,
    /// Whether one of them is in the recursive term of another.
    pub nests_recursions: bool,
    /// Rows that several places read, by their numbers.
    shared: HashMap<usize, AnnotatedPlan>,
    /// The scans met, with the names of the columns that have their ids: where those are packed at once,
    /// no operator has the first.
    pub scans: Vec<(Vec<String>, Arc<ScanOrigin>)>,
    /// The names of columns that stand for expressions evaluated below, and the expressions.
    pub hoisted_exprs: Vec<(String, String)>,
}

impl LineageRewrite {
    /// A rewrite whose captures log to `recorder`, or carry the latencies of the records of
    /// `sources`.
    pub fn new(recorder: Arc<Recorder>, sources: Option<Arc<Sources>>) -> Self {
        Self {
            recorder,
            sources,
            columns: 0,
            joins_above: 0,
            recursions: vec![],
            nests_recursions: false,
            shared: HashMap::new(),
            scans: vec![],
            hoisted_exprs: vec![],
        }
    }

    fn name(&mut self, what: &str) -> String {
        self.columns += 1;
        format!("{HIDDEN}{what}_{}", self.columns)
    }

    /// Rewrites `plan` and all below it.
    pub fn rewrite(&mut self, plan: &LogicalPlan) -> Result<AnnotatedPlan> {
        let joins_above = self.joins_above;
        self.joins_above = match plan {
            LogicalPlan::Join(_) => joins_above + 1,
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::TableScan(_) => joins_above,
            _ => 0,
        };
        let annotated = self.rewrite_node(plan);
        self.joins_above = joins_above;
        let mut annotated = annotated?;
        // Windows in several orders are stacked, at most with projections that leave columns out, and
        // filters that have come below some of them: what a SELECT returns has names of its own.
        let is_stacked = match plan {
            LogicalPlan::Window(_) | LogicalPlan::Filter(_) => true,
            LogicalPlan::Projection(projection) => projection
                .expr
                .iter()
                .all(|expr| matches!(expr, Expr::Column(_))),
            _ => false,
        };
        for record in &mut annotated.records {
            record.of_same_select &= is_stacked;
        }
        Ok(annotated)
    }

    fn rewrite_node(&mut self, plan: &LogicalPlan) -> Result<AnnotatedPlan> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Projection(projection) => {
                let input = self.rewrite(&projection.input)?;
                self.projection(projection, input)
            }
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Limit(_) | LogicalPlan::Repartition(_) => {
                let input = self.rewrite(plan.inputs()[0])?;
                let rewritten = plan.with_new_exprs(plan.expressions(), vec![input.plan])?;
                Ok(AnnotatedPlan {
                    plan: rewritten,
                    records: input.records,
                })
            }
            // The values that a subquery is asked for are none of its records.
            LogicalPlan::SubqueryAlias(alias) if is_domain(alias) => {
                Ok(AnnotatedPlan::untracked(plan.clone()))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let input = self.rewrite(&alias.input)?;
                aliased(alias, input)
            }
            LogicalPlan::Unnest(unnest) => {
                let input = self.rewrite(&unnest.input)?;
                unnested(unnest, input)
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::RecursiveQuery(query) => self.recursive_query(query),
            other => match Shared::from_plan(other) {
                Some(shared) => self.shared_rows(shared),
                None => Ok(AnnotatedPlan::untracked(other.clone())),
            },
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<AnnotatedPlan> {
        let untracked = || AnnotatedPlan::untracked(LogicalPlan::TableScan(scan.clone()));
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(untracked());
        };
        if let Some(table) = provider.downcast_ref::<CteWorkTable>() {
            return Ok(self.working_table(scan, table)?.unwrap_or_else(untracked));
        }
        let Some(table) = provider.downcast_ref::<IdentifiedTable>() else {
            return Ok(untracked());
        };
        let mut id = Expr::Column(Column::new_unqualified(ROW_ID));
        let is_sampled = !self.recorder.sampling().is_complete();
        if is_sampled {
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
        let narrow =
            self.joins_above > 0 && table.has_int32_ids() && self.sources.is_none() && !is_sampled;
        if narrow {
            id = ScalarUDF::from(Int32RowId::default()).call(vec![id]);
        }
        let with_ids = table.with_id_column(IdColumn {
            name: name.clone(),
            value: id,
            nullable: is_sampled,
            narrow,
        });
        let mut projection = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..scan.source.schema().fields().len()).collect(),
        };
        projection.push(with_ids.schema().fields().len() - 1);
        let plan = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(with_ids))
            .with_projection(Some(projection))
            .with_filters(scan.filters.clone())
            .with_fetch(scan.fetch)
            .build()?;
        let source = Arc::new(ScanOrigin::new(&table.log_name));
        self.scans.push((vec![name.clone()], Arc::clone(&source)));
        let source = match &self.sources {
            None => Some(RecordOrigin::Scan(source)),
            Some(_) => None,
        };
        Ok(AnnotatedPlan {
            plan: LogicalPlan::TableScan(plan),
            records: vec![AnnotatedRecord::new(source, name)],
        })
    }

    /// Evaluates those of `exprs` that are costly in a timed node on top of `input`, and
    /// returns the node and `exprs` with columns in place of what was moved.
    fn hoist(
        &mut self,
        input: AnnotatedPlan,
        exprs: Vec<Expr>,
    ) -> Result<(AnnotatedPlan, Vec<Expr>)> {
        let mut hoisted_exprs: Vec<(Expr, String)> = Vec::new();
        let mut kept = Vec::with_capacity(exprs.len());
        for expr in exprs {
            if input.records.is_empty() || !is_costly(&expr, input.plan.schema())? {
                kept.push(expr);
                continue;
            }
            let bare = expr.unalias();
            let same = hoisted_exprs.iter().find(|(other, _)| *other == bare);
            // Of a volatile expression each has a value of its own.
            let name = match same.filter(|_| !bare.is_volatile()) {
                Some((_, name)) => name.clone(),
                None => {
                    let name = self.name("value");
                    self.hoisted_exprs.push((name.clone(), bare.to_string()));
                    hoisted_exprs.push((bare, name.clone()));
                    name
                }
            };
            kept.push(Expr::Column(Column::new_unqualified(name)));
        }
        if hoisted_exprs.is_empty() {
            return Ok((input, kept));
        }
        // Each is the time of the records that it reads; those of the same ones are timed together.
        let of_each = !self.recorder.sampling().is_complete();
        let mut by_records: Vec<(CostAttribution, Vec<(Expr, String)>)> = Vec::new();
        for hoisted in hoisted_exprs {
            let cost = attribute_cost(&input, &hoisted.0, of_each)?;
            match by_records
                .iter_mut()
                .find(|(other, _)| other.is_of_same(&cost))
            {
                Some((_, same)) => same.push(hoisted),
                None => by_records.push((cost, vec![hoisted])),
            }
        }
        let mut timed = input;
        for (cost, hoisted) in by_records {
            timed = self.timed(timed, hoisted, &cost)?;
        }
        Ok((timed, kept))
    }

    /// Evaluates `hoisted_exprs`, expressions and the names of their columns, in a timed node on top of `input`.
    fn timed(
        &mut self,
        input: AnnotatedPlan,
        hoisted_exprs: Vec<(Expr, String)>,
        cost: &CostAttribution,
    ) -> Result<AnnotatedPlan> {
        let packed = input.packed()?;
        let AnnotatedPlan { plan, mut records } = input;
        // What a window function looked at for a column that is not read here had no part in it.
        let read = columns_read(hoisted_exprs.iter().map(|(expr, _)| expr))?;
        let takes_part = |of: &[usize], place: usize, record: &AnnotatedRecord| {
            of.contains(&place) && record.is_read(&read)
        };
        let measured = records.iter().enumerate();
        let measured = measured
            .filter(|(place, record)| takes_part(&cost.measured, *place, record))
            .filter_map(|(_, record)| Some((record.source.clone()?, record.id.clone())))
            .collect();
        let taking_longer = records.iter_mut().enumerate();
        let mut taking_longer: Vec<&mut AnnotatedRecord> = taking_longer
            .filter(|(place, record)| takes_part(&cost.total, *place, record))
            .map(|(_, record)| record)
            .collect();
        // A latency that they all share so far can be added to; otherwise it rides beside.
        let mut last = taking_longer.iter().map(|record| record.latencies.last());
        let earlier = last.next().flatten();
        let earlier = earlier
            .filter(|first| last.all(|other| other == Some(first)))
            .cloned();
        let latency = match packed {
            Some(packed) => LatencyColumn::Packed(packed),
            None => {
                let name = self.name("latency");
                for record in &mut taking_longer {
                    if earlier.is_some() {
                        record.latencies.pop();
                    }
                    record.latencies.push(name.clone());
                }
                LatencyColumn::New { name, earlier }
            }
        };
        let node = TimedEvaluation::try_new(plan, hoisted_exprs, latency, measured)?;
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        Ok(AnnotatedPlan { plan, records })
    }

    fn projection(
        &mut self,
        projection: &Projection,
        input: AnnotatedPlan,
    ) -> Result<AnnotatedPlan> {
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
        let fields = projection.schema.fields().iter();
        let made = fields.zip(&projection.expr).map(|(field, expr)| {
            let read = columns_read(std::iter::once(expr))?;
            Ok((field.name().clone(), read))
        });
        let made: Vec<_> = made.collect::<Result<_>>()?;
        let records = input.records.into_iter();
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input.plan))?),
            records: records.map(|record| record.projected(&made)).collect(),
        })
    }

    /// Conjuncts before the first costly one filter first, as they would by short-circuit.
    fn filter(&mut self, filter: &Filter) -> Result<AnnotatedPlan> {
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

    fn sort(&mut self, sort: &Sort) -> Result<AnnotatedPlan> {
        let input = self.rewrite(&sort.input)?;
        let keys = sort.expr.iter().map(|key| key.expr.clone()).collect();
        let (input, keys) = self.hoist(input, keys)?;
        let expr = keys
            .into_iter()
            .zip(&sort.expr)
            .map(|(key, old)| SortExpr::new(key, old.asc, old.nulls_first))
            .collect();
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Sort(Sort {
                expr,
                input: Arc::new(input.plan),
                fetch: sort.fetch,
            }),
            records: input.records,
        })
    }

    /// Every branch gets the hidden columns of all branches, NULL where they are not its own.
    fn union(&mut self, union: &Union) -> Result<AnnotatedPlan> {
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
            records.extend(of_rows(branch.records));
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
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Union(Union {
                inputs,
                schema: Arc::new(schema),
            }),
            records,
        })
    }
}

fn aliased(alias: &SubqueryAlias, input: AnnotatedPlan) -> Result<AnnotatedPlan> {
    let rewritten = SubqueryAlias::try_new(Arc::new(input.plan), alias.alias.clone())?;
    Ok(AnnotatedPlan {
        plan: LogicalPlan::SubqueryAlias(rewritten),
        records: input.records,
    })
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

/// The records where their columns are not known any more: all are the row's.
fn of_rows(mut records: Vec<AnnotatedRecord>) -> Vec<AnnotatedRecord> {
    for record in &mut records {
        record.of_columns = None;
    }
    records
}

/// The names of the columns that these expressions read.
fn columns_read<'a>(exprs: impl Iterator<Item = &'a Expr>) -> Result<HashSet<String>> {
    let mut columns = HashSet::new();
    for expr in exprs {
        expr_to_columns(expr, &mut columns)?;
    }
    Ok(columns.into_iter().map(|column| column.name).collect())
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
