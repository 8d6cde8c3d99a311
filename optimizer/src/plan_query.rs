//! From an optimized logical plan to a physical plan that records as much as it is asked to.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::Result;
use datafusion::common::format::ExplainFormat;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Explain, Expr, LogicalPlan, PlanType, Projection, StringifiedPlan};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use skewer_exec::{CarriedInput, Hidden, OutputRecordsExec, RestartExec, ResultRecords};
use skewer_profiling::{Level, LineageMode, Recorder, Sources};

use crate::disabled_optimizations::{disabled_optimizations, has_shortcuts};
use crate::distribution::Distribution;
use crate::instrument::{PlanFacts, instrument, instrument_stages};
use crate::interruptible_calls::with_interruptible_calls;
use crate::join_order::plan_relations::PlanRelations;
use crate::lineage::{AnnotatedPlan, AnnotatedRecord, LineageRewrite};
use crate::remedies::Remedies;
use crate::reusable_plan::{ReusablePlan, divided, ruled};
use crate::timed_node::TimedEvaluationPlanner;
use skewer_compat::logical::common_subplan::SharedRowsPlanner;

/// Plans `optimized` so that its execution reports to `recorder` what the recorder's level
/// asks for. The plan's schema and rows are those of the unprofiled plan.
///
/// # Errors
/// Those of DataFusion's physical planner.
pub async fn plan_query(
    optimized: &LogicalPlan,
    state: &SessionState,
    recorder: &Arc<Recorder>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let request = PlanRequest::default();
    plan_query_on(optimized, state, recorder, request).await
}

/// What a physical plan is to have beside its operators.
#[derive(Clone, Copy, Default)]
pub struct PlanRequest<'a> {
    /// The workers that it may run on.
    pub distribution: Option<&'a dyn Distribution>,
    /// What is done about skew, where it is correct.
    pub remedies: Option<&'a Arc<Remedies>>,
    /// The relations that its operators return.
    pub relations: Option<&'a Arc<PlanRelations>>,
    /// Where the operators of an earlier run of the same optimized plan are kept, or will be. Not for plans of workers.
    pub reusable: Option<&'a ReusablePlan>,
}

impl fmt::Debug for PlanRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanRequest")
            .field("is_distributed", &self.distribution.is_some())
            .field("remedies", &self.remedies)
            .field("reusable", &self.reusable)
            .finish_non_exhaustive()
    }
}

/// The same with what a [`PlanRequest`] asks for. Nothing is done about skew at level `off`, and relations are only told
/// at levels `counters` and `calls`.
///
/// # Errors
/// Those of DataFusion's physical planner, and of `distribution`.
pub async fn plan_query_on(
    optimized: &LogicalPlan,
    state: &SessionState,
    recorder: &Arc<Recorder>,
    request: PlanRequest<'_>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let PlanRequest {
        distribution,
        reusable,
        ..
    } = request;
    let (remedies, relations) = (request.remedies.cloned(), request.relations.cloned());
    if let (LogicalPlan::Explain(explain), Some(distribution)) = (optimized, distribution) {
        return plan_explain(optimized, explain, state, distribution).await;
    }
    match recorder.level() {
        Level::Off => {
            let plan = unprofiled_again(optimized, state, reusable).await?;
            let distributed = distribute(&plan, state, distribution).await?;
            Ok(distributed.unwrap_or(plan))
        }
        Level::Counters | Level::Calls => {
            let plan = unprofiled_again(optimized, state, reusable).await?;
            let facts = PlanFacts {
                remedies,
                relations,
                ..PlanFacts::of_plan(optimized)?
            };
            instrument_on(plan, recorder, facts, state, distribution).await
        }
        Level::Records => {
            let facts = PlanFacts {
                remedies,
                ..PlanFacts::of_plan(optimized)?
            };
            plan_with_records(optimized, state, recorder, distribution, facts).await
        }
    }
}

/// A plan that records nothing.
async fn unprofiled(
    optimized: &LogicalPlan,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let shared = Arc::new(SharedRowsPlanner::default());
    let planner = DefaultPhysicalPlanner::with_extension_planners(vec![shared]);
    let plan = with_interruptible_calls(optimized.clone())?;
    planner.create_physical_plan(&plan, state).await
}

/// The same, with the operators of an earlier run if `reusable` has them.
async fn unprofiled_again(
    optimized: &LogicalPlan,
    state: &SessionState,
    reusable: Option<&ReusablePlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(reusable) = reusable.filter(|reusable| !reusable.is_refused()) else {
        return unprofiled(optimized, state).await;
    };
    let (once, of_each_run) = divided(state.physical_optimizers());
    let plan = match reusable.another_run()? {
        Some(plan) => plan,
        None => {
            let rules = SessionStateBuilder::new_from_existing(state.clone());
            let rules = rules.with_physical_optimizer_rules(once.to_vec());
            reusable.first_run(unprofiled(optimized, &rules.build()).await?)?
        }
    };
    ruled(plan, of_each_run, state.config_options())
}

async fn distribute(
    plan: &Arc<dyn ExecutionPlan>,
    state: &SessionState,
    distribution: Option<&dyn Distribution>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    match distribution {
        Some(distribution) => distribution.distribute(plan, state).await,
        None => Ok(None),
    }
}

/// Distributes `plan`, if that can be, and instruments it.
async fn instrument_on(
    plan: Arc<dyn ExecutionPlan>,
    recorder: &Arc<Recorder>,
    facts: PlanFacts,
    state: &SessionState,
    distribution: Option<&dyn Distribution>,
) -> Result<Arc<dyn ExecutionPlan>> {
    match distribute(&plan, state, distribution).await? {
        Some(cut) => instrument_on_stages(cut, recorder, facts, state, distribution),
        None => instrument(plan, recorder, facts),
    }
}

/// Instruments a plan that `distribution` has cut, if it has.
fn instrument_on_stages(
    plan: Arc<dyn ExecutionPlan>,
    recorder: &Arc<Recorder>,
    facts: PlanFacts,
    state: &SessionState,
    distribution: Option<&dyn Distribution>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(distribution) = distribution else {
        return instrument(plan, recorder, facts);
    };
    let plan = instrument_stages(plan, recorder, facts, Some(distribution.boundaries()))?;
    distribution.numbered(&plan, state);
    Ok(plan)
}

/// What workers would run, in place of the plan for one.
async fn plan_explain(
    optimized: &LogicalPlan,
    explain: &Explain,
    state: &SessionState,
    distribution: &dyn Distribution,
) -> Result<Arc<dyn ExecutionPlan>> {
    let explained = unprofiled(optimized, state).await?;
    let text = matches!(
        explain.explain_format,
        ExplainFormat::Indent | ExplainFormat::Tree
    );
    let Some(shown) = explained.downcast_ref::<ExplainExec>().filter(|_| text) else {
        return Ok(explained);
    };
    let plan = unprofiled(&explain.plan, state).await?;
    let Some(cut) = distribution.distribute(&plan, state).await? else {
        return Ok(explained);
    };
    let text = distribution.explain(&cut)?;
    let mut plans = shown.stringified_plans().to_vec();
    for plan in &mut plans {
        if plan.plan_type == PlanType::FinalPhysicalPlan {
            *plan = StringifiedPlan::new(PlanType::FinalPhysicalPlan, text.as_str());
        }
    }
    Ok(Arc::new(ExplainExec::new(
        explained.schema(),
        plans,
        shown.verbose(),
    )))
}

async fn plan_with_records(
    optimized: &LogicalPlan,
    state: &SessionState,
    recorder: &Arc<Recorder>,
    distribution: Option<&dyn Distribution>,
    facts: PlanFacts,
) -> Result<Arc<dyn ExecutionPlan>> {
    let tables = facts.tables.iter().map(|(name, _)| name.as_str());
    let sources = match recorder.lineage_mode() {
        LineageMode::Log => None,
        LineageMode::Piggyback => Some(Arc::new(Sources::new(tables))),
    };
    let mut rewrite = LineageRewrite::new(Arc::clone(recorder), sources.clone());
    let annotated = rewrite.rewrite(optimized)?;
    let mut annotated = result_columns_first(optimized, annotated)?;
    annotated.plan = rewrite.with_shared_rows(annotated.plan)?;
    let planner = DefaultPhysicalPlanner::with_extension_planners(vec![
        Arc::new(TimedEvaluationPlanner {
            recorder: Arc::clone(recorder),
        }),
        Arc::new(SharedRowsPlanner::default()),
    ]);
    annotated.plan = with_interruptible_calls(annotated.plan)?;
    let plan = planner.create_physical_plan(&annotated.plan, state).await?;
    let plan = match rewrite.nests_recursions {
        true => RestartExec::on_inner_queries(plan)?,
        false => plan,
    };
    let facts = PlanFacts {
        scans: rewrite.scans,
        hoisted_exprs: rewrite.hoisted_exprs,
        ..facts
    };
    if annotated.records.is_empty() {
        return instrument_on(plan, recorder, facts, state, distribution).await;
    }
    let mut schema = result_schema(optimized.schema().as_arrow(), &plan.schema());
    if has_shortcuts(optimized)? {
        let unprofiled = unprofiled(optimized, state).await?;
        // Without the profiler statistics may have the answer, and say that it is not NULL.
        schema = result_schema(&schema, &unprofiled.schema());
        recorder.set_disabled_optimizations(&disabled_optimizations(&unprofiled, &plan));
    }
    let schema = Arc::new(schema);
    let logged = |plan: Arc<dyn ExecutionPlan>| -> Result<Arc<dyn ExecutionPlan>> {
        let hidden = hidden(&annotated.records, sources.clone(), &plan.schema())?;
        let (schema, recorder) = (Arc::clone(&schema), Arc::clone(recorder));
        Ok(Arc::new(OutputRecordsExec::new(
            plan, schema, hidden, recorder,
        )))
    };
    if let Some(distribution) = distribution.filter(|distribution| distribution.writes(state)) {
        // The rows do not come here: what they were made from is logged before they are written.
        let cut = distribution
            .distribute(&logged(Arc::clone(&plan))?, state)
            .await?;
        return match cut {
            Some(cut) => instrument_on_stages(cut, recorder, facts, state, Some(distribution)),
            None => instrument(logged(one_partition(plan))?, recorder, facts),
        };
    }
    let plan = one_partition(plan);
    match distribute(&plan, state, distribution).await? {
        Some(cut) => instrument_on_stages(logged(cut)?, recorder, facts, state, distribution),
        None => instrument(logged(plan)?, recorder, facts),
    }
}

/// What becomes of the columns that `records` has in a plan of schema `schema`: they are logged, or
/// kept in sum if base records are called as `sources` says.
fn hidden(
    records: &[AnnotatedRecord],
    sources: Option<Arc<Sources>>,
    schema: &Schema,
) -> Result<Hidden> {
    let column = |name: &String| schema.index_of(name);
    let (mut logged, mut carried) = (Vec::new(), Vec::new());
    for record in records {
        let id_column = column(&record.id)?;
        let latency_columns = record.latencies.iter().map(column);
        let latency_columns = latency_columns.collect::<Result<_, _>>()?;
        match &record.source {
            Some(source) => logged.push(ResultRecords {
                source: source.clone(),
                id_column,
                latency_columns,
            }),
            None => carried.push(CarriedInput {
                records: id_column,
                latencies: latency_columns,
            }),
        }
    }
    Ok(match sources {
        Some(sources) => Hidden::Carried(carried.into(), sources),
        None => Hidden::Logged(logged),
    })
}

/// The columns of `result`, of which those are never NULL that either says not to be; `other` may
/// have hidden columns after them.
fn result_schema(result: &Schema, other: &Schema) -> Schema {
    let fields = result.fields().iter().zip(other.fields());
    let fields: Vec<Field> = fields
        .map(|(field, other)| {
            let nullable = field.is_nullable() && other.is_nullable();
            field.as_ref().clone().with_nullable(nullable)
        })
        .collect();
    Schema::new_with_metadata(fields, result.metadata().clone())
}

/// Puts the columns of the result before the hidden ones.
fn result_columns_first(
    optimized: &LogicalPlan,
    annotated: AnnotatedPlan,
) -> Result<AnnotatedPlan> {
    let result = optimized.schema();
    let in_place = annotated
        .plan
        .schema()
        .iter()
        .take(result.fields().len())
        .eq(result.iter());
    if in_place || annotated.records.is_empty() {
        return Ok(annotated);
    }
    let mut columns: Vec<Expr> = result.columns().into_iter().map(Expr::Column).collect();
    columns.extend(annotated.hidden_columns()?);
    Ok(AnnotatedPlan {
        plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(annotated.plan))?),
        records: annotated.records,
    })
}

fn one_partition(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.output_partitioning().partition_count() == 1 {
        return plan;
    }
    match plan.output_ordering().cloned() {
        Some(ordering) => Arc::new(SortPreservingMergeExec::new(ordering, plan)),
        None => Arc::new(CoalescePartitionsExec::new(plan)),
    }
}
