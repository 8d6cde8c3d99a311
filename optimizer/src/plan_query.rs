//! From an optimized logical plan to a physical plan that records as much as it is asked to.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use skewer_exec::{OutputRecordsExec, ResultRecords};
use skewer_profiling::{Level, Recorder};

use crate::instrument::{Known, instrument};
use crate::lineage::{LineageRewrite, TrackedPlan};
use crate::timed_node::TimedEvaluationPlanner;

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
    match recorder.level() {
        Level::Off => {
            let planner = DefaultPhysicalPlanner::default();
            planner.create_physical_plan(optimized, state).await
        }
        Level::Counters | Level::Calls => {
            let planner = DefaultPhysicalPlanner::default();
            let plan = planner.create_physical_plan(optimized, state).await?;
            instrument(plan, recorder, Known::of(optimized)?)
        }
        Level::Records => plan_with_records(optimized, state, recorder).await,
    }
}

async fn plan_with_records(
    optimized: &LogicalPlan,
    state: &SessionState,
    recorder: &Arc<Recorder>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut rewrite = LineageRewrite::new(Arc::clone(recorder));
    let tracked = rewrite.rewrite(optimized)?;
    let tracked = result_columns_first(optimized, tracked)?;
    let planner =
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(TimedEvaluationPlanner {
            recorder: Arc::clone(recorder),
        })]);
    let mut plan = planner.create_physical_plan(&tracked.plan, state).await?;
    if !tracked.records.is_empty() {
        plan = one_partition(plan);
        let records = tracked
            .records
            .iter()
            .map(|record| {
                let column = |name: &String| plan.schema().index_of(name);
                Ok(ResultRecords {
                    source: record.source.clone(),
                    id_column: column(&record.id)?,
                    latency_columns: record
                        .latencies
                        .iter()
                        .map(column)
                        .collect::<Result<_, _>>()?,
                })
            })
            .collect::<Result<_>>()?;
        plan = Arc::new(OutputRecordsExec::new(
            plan,
            Arc::new(optimized.schema().as_arrow().clone()),
            records,
            Arc::clone(recorder),
        ));
    }
    let known = Known {
        scans: rewrite.scans,
        moved: rewrite.moved,
        ..Known::of(optimized)?
    };
    instrument(plan, recorder, known)
}

/// Puts the columns of the result before the hidden ones.
fn result_columns_first(optimized: &LogicalPlan, tracked: TrackedPlan) -> Result<TrackedPlan> {
    let result = optimized.schema();
    let in_place = tracked
        .plan
        .schema()
        .iter()
        .take(result.fields().len())
        .eq(result.iter());
    if in_place || tracked.records.is_empty() {
        return Ok(tracked);
    }
    let mut columns: Vec<Expr> = result.columns().into_iter().map(Expr::Column).collect();
    columns.extend(tracked.hidden_columns()?);
    Ok(TrackedPlan {
        plan: LogicalPlan::Projection(Projection::try_new(columns, Arc::new(tracked.plan))?),
        records: tracked.records,
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
