//! Physical plans that shuffle all columns of `lineitem` by its first, and do little else.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionContext;
use datafusion_distributed::{DistributedExec, SessionStateBuilderExt};
use futures::TryStreamExt;
use skewer_compat::operators::batch_bytes::batch_bytes;

/// Rows are counted where they arrive: little travels to the coordinator.
pub async fn counted_shuffle(context: &SessionContext) -> Result<Arc<dyn ExecutionPlan>> {
    let shuffled = shuffled(scan(context).await?, context)?;
    let schema = shuffled.schema();
    let count = AggregateExprBuilder::new(count_udaf(), vec![lit(1_i64)])
        .schema(Arc::clone(&schema))
        .alias("rows")
        .build()?;
    let count = vec![Arc::new(count)];
    let partial = AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::default(),
        count.clone(),
        vec![None],
        shuffled,
        Arc::clone(&schema),
    )?;
    let together = CoalescePartitionsExec::new(Arc::new(partial));
    let total = AggregateExec::try_new(
        AggregateMode::Final,
        PhysicalGroupBy::default(),
        count,
        vec![None],
        Arc::new(together),
        schema,
    )?;
    distributed(Arc::new(total), context).await
}

/// `copies` times the table, shuffled and then sent to the coordinator.
pub async fn large_shuffle(
    context: &SessionContext,
    copies: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut scans = Vec::new();
    for _ in 0..copies {
        scans.push(scan(context).await?);
    }
    let all = UnionExec::try_new(scans)?;
    let shuffled = shuffled(all, context)?;
    let together = CoalescePartitionsExec::new(shuffled);
    distributed(Arc::new(together), context).await
}

/// Bytes of the table's rows in memory.
pub async fn bytes_of_lineitem(context: &SessionContext) -> Result<u64> {
    let mut stream = context.table("lineitem").await?.execute_stream().await?;
    let mut bytes = 0;
    while let Some(batch) = stream.try_next().await? {
        bytes += batch_bytes(&batch) as u64;
    }
    Ok(bytes)
}

async fn scan(context: &SessionContext) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = context.table("lineitem").await?.into_optimized_plan()?;
    let planner = DefaultPhysicalPlanner::default();
    planner.create_physical_plan(&plan, &context.state()).await
}

fn shuffled(
    input: Arc<dyn ExecutionPlan>,
    context: &SessionContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let key = Column::new(schema.field(0).name(), 0);
    let partitions = context.state().config().target_partitions();
    let partitioning = Partitioning::Hash(vec![Arc::new(key)], partitions);
    Ok(Arc::new(RepartitionExec::try_new(input, partitioning)?))
}

/// The plan, cut for the workers of the session.
async fn distributed(
    plan: Arc<dyn ExecutionPlan>,
    context: &SessionContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = SessionStateBuilder::new()
        .with_query_planner(Arc::new(Planned(plan)))
        .with_distributed_planner()
        .build();
    let plan = planner
        .query_planner()
        .create_physical_plan(&LogicalPlan::default(), &context.state())
        .await?;
    match plan.is::<DistributedExec>() {
        true => Ok(plan),
        false => Err(DataFusionError::Plan("the plan is not distributed".into())),
    }
}

/// A planner for a plan that is there already.
struct Planned(Arc<dyn ExecutionPlan>);

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planned")
    }
}

#[async_trait]
impl QueryPlanner for Planned {
    async fn create_physical_plan(
        &self,
        _: &LogicalPlan,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::clone(&self.0))
    }
}
