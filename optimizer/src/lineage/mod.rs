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
//! Below joins ids are INTEGER where they fit ([`Int32RowId`](skewer_exec::Int32RowId)).
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
mod hoisting;
mod joins;
mod packing;
mod recursion;
mod scans;
mod semi_joins;
mod shared_rows;
mod windows;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::logical_plan::{Filter, Projection, Sort, SubqueryAlias, Union};
use datafusion::logical_expr::utils::{conjunction, expr_to_columns, split_conjunction_owned};
use datafusion::logical_expr::{Expr, LogicalPlan, lit};
use skewer_exec::ScanOrigin;
use skewer_profiling::{Recorder, Sources};

pub use self::annotated_plan::{AnnotatedPlan, AnnotatedRecord};
use self::annotated_plan::{Arguments, hidden_column, hidden_type};
use self::packing::unnested;
use self::recursion::Recursion;
use crate::costly::is_costly;
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
