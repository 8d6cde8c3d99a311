//! SQL in named steps: as text with common table expressions, and as a plan that computes each
//! shared step once.
//!
//! DataFusion computes a common table expression wherever it is named. Steps build on each
//! other, so the base of a query with several aggregations would be read again and again. A
//! shared step is a table instead, filled when it is first read. What it means is the same.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::ViewTable;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, collect_partitioned,
};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::planner::Planner;

/// One named step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    name: String,
    doc: String,
    sql: String,
    use_: Use,
}

/// What becomes of a step that is named more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is computed wherever it is named: one row per edge, too many to be kept.
    Inline,
    /// It is computed once and kept: one row per record.
    Shared,
}

impl Step {
    pub(super) fn new(use_: Use, name: String, doc: impl Into<String>, sql: String) -> Step {
        Step {
            name,
            doc: doc.into(),
            sql,
            use_,
        }
    }
}

/// A query in steps, each of which may name those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stepwise {
    pub(super) steps: Vec<Step>,
    pub(super) answer: String,
}

impl Stepwise {
    /// A query of one statement.
    pub(super) fn simple(answer: String) -> Stepwise {
        Stepwise {
            steps: Vec::new(),
            answer,
        }
    }

    /// The query as one statement.
    pub(crate) fn text(&self) -> String {
        if self.steps.is_empty() {
            return self.answer.clone();
        }
        let steps = self.steps.iter();
        let steps =
            steps.map(|step| format!("-- {}\n{} AS (\n{}\n)", step.doc, step.name, step.sql));
        format!(
            "WITH\n{}\n{}",
            steps.collect::<Vec<_>>().join(",\n"),
            self.answer
        )
    }

    /// The query as a plan.
    pub(crate) async fn plan(&self, planner: &Planner) -> Result<LogicalPlan> {
        let planner = planner.with_steps();
        for step in &self.steps {
            let plan = planner.logical(&step.sql).await?;
            let table: Arc<dyn TableProvider> = match step.use_ {
                Use::Inline => Arc::new(ViewTable::new(plan, None)),
                Use::Shared => Arc::new(SharedTable {
                    step: Arc::new(SharedStep {
                        name: step.name.clone(),
                        plan: planner.physical(&plan).await?,
                        rows: Mutex::new(None),
                    }),
                }),
            };
            planner.add_step(&step.name, table)?;
        }
        planner.logical(&self.answer).await
    }
}

/// A step that is computed once, when it is first read.
struct SharedStep {
    name: String,
    plan: Arc<dyn ExecutionPlan>,
    rows: Mutex<Option<Rows>>,
}

/// Rows of a step, or the promise of them, by partition.
type Rows = Shared<BoxFuture<'static, Result<Arc<Kept>, Arc<DataFusionError>>>>;

/// Rows in memory, accounted for.
struct Kept {
    partitions: Vec<Vec<RecordBatch>>,
    _reservation: MemoryReservation,
}

impl fmt::Debug for SharedStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedStep")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SharedStep {
    /// The rows. The first call starts a task that computes them, whoever goes on waiting.
    fn rows(&self, context: &Arc<TaskContext>) -> Rows {
        let start = || {
            let task = SpawnedTask::spawn(keep(
                self.name.clone(),
                Arc::clone(&self.plan),
                Arc::clone(context),
            ));
            async move {
                let rows = task.join_unwind().await;
                let rows = rows.map_err(|error| DataFusionError::External(Box::new(error)));
                rows.flatten().map(Arc::new).map_err(Arc::new)
            }
            .boxed()
            .shared()
        };
        self.rows.lock().get_or_insert_with(start).clone()
    }
}

async fn keep(
    name: String,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<Kept> {
    let reservation =
        MemoryConsumer::new(format!("sys step {name}")).register(context.memory_pool());
    let partitions = collect_partitioned(plan, context).await?;
    for batch in partitions.iter().flatten() {
        reservation.try_grow(batch.get_array_memory_size())?;
    }
    Ok(Kept {
        partitions,
        _reservation: reservation,
    })
}

#[derive(Debug)]
struct SharedTable {
    step: Arc<SharedStep>,
}

#[async_trait]
impl TableProvider for SharedTable {
    fn schema(&self) -> SchemaRef {
        self.step.plan.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let projection: Vec<usize> = match projection {
            Some(projection) => projection.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema.project(&projection)?)),
            Partitioning::UnknownPartitioning(
                self.step.plan.properties().partitioning.partition_count(),
            ),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Arc::new(SharedScan {
            step: Arc::clone(&self.step),
            projection: projection.into(),
            properties: Arc::new(properties),
        }))
    }
}

/// Reads a shared step.
#[derive(Debug)]
struct SharedScan {
    step: Arc<SharedStep>,
    projection: Arc<[usize]>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for SharedScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedScan: step={}", self.step.name)
    }
}

impl ExecutionPlan for SharedScan {
    fn name(&self) -> &str {
        "SharedScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (step, projection) = (Arc::clone(&self.step), Arc::clone(&self.projection));
        let batches = async move {
            let kept = step.rows(&context).await.map_err(DataFusionError::Shared)?;
            let batches = kept.partitions.get(partition).cloned().unwrap_or_default();
            let batches = batches
                .into_iter()
                .map(move |batch| Ok(batch.project(&projection)?));
            // The rows stay accounted for while they are read.
            Ok::<_, DataFusionError>(stream::iter(batches).inspect(move |_| {
                let _ = &kept;
            }))
        };
        let stream = stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}
