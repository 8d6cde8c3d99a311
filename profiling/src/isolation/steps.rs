//! SQL in named steps: as text with common table expressions, and as a plan that computes each
//! shared step once.
//!
//! DataFusion computes a common table expression wherever it is named. Steps build on each
//! other, so the base of a query with several aggregations would be read again and again. A
//! shared step is a table instead, filled when it is first read. What it means is the same.
//!
//! A step is planned when the steps before it have been computed. So the planner knows how many rows
//! they have: of a join of a thousand records with ten million edges, the edges stay where they are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, Statistics};
use datafusion::datasource::ViewTable;
use datafusion::execution::context::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    execute_stream_partitioned,
};
use futures::future::{BoxFuture, FutureExt, Shared, try_join_all};
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::deferred_scan::DeferredScan;
use crate::planner::Planner;

/// One named step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    name: String,
    doc: String,
    sql: String,
    use_: Use,
    needs: Option<&'static str>,
}

/// What becomes of a step that is named more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is computed wherever it is named: one row per edge, too many to be kept.
    Inline,
    /// It is computed once and kept: one row per record.
    Shared,
    /// The same, or it has no rows if there is not enough memory to compute it.
    Attempted,
}

impl Step {
    pub(super) fn new(use_: Use, name: String, doc: impl Into<String>, sql: String) -> Step {
        Step {
            name,
            doc: doc.into(),
            sql,
            use_,
            needs: None,
        }
    }

    /// The same step, which is not computed and has no rows if the shared step of that name has none.
    pub(super) fn with_rows_of(self, name: &'static str) -> Step {
        Step {
            needs: Some(name),
            ..self
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

    /// The query as a plan, and the step after which all are computed.
    pub(super) async fn plan(&self, planner: &Planner) -> Result<(LogicalPlan, Option<LastStep>)> {
        let state = Arc::new(planner.state().clone());
        let planner = planner.with_steps();
        let mut last: Option<Arc<SharedStep>> = None;
        let mut shared: HashMap<&str, Arc<SharedStep>> = HashMap::new();
        for step in &self.steps {
            let plan = planner.logical(&step.sql).await?;
            let table: Arc<dyn TableProvider> = match step.use_ {
                Use::Inline => Arc::new(ViewTable::new(plan, None)),
                Use::Shared | Use::Attempted => {
                    let recipe = Arc::new(Recipe {
                        may_be_empty: step.use_ == Use::Attempted,
                        needs: step.needs.and_then(|name| shared.get(name)).map(Arc::clone),
                        name: step.name.clone(),
                        schema: Arc::clone(plan.schema().inner()),
                        plan,
                        state: Arc::clone(&state),
                        before: last.take(),
                    });
                    let rows = Mutex::new(None);
                    let computed = Arc::new(SharedStep { recipe, rows });
                    last = Some(Arc::clone(&computed));
                    shared.insert(&step.name, Arc::clone(&computed));
                    Arc::new(SharedTable { step: computed })
                }
            };
            planner.add_step(&step.name, table)?;
        }
        Ok((planner.logical(&self.answer).await?, last.map(LastStep)))
    }
}

/// The step after which all steps of a query are computed.
#[derive(Debug, Clone)]
pub(super) struct LastStep(Arc<SharedStep>);

/// A step that is computed once, when it is first read, after the shared step before it.
struct SharedStep {
    recipe: Arc<Recipe>,
    rows: Mutex<Option<Rows>>,
}

/// How a step is computed. Who does it keeps no step but those before: it ends when the step is
/// dropped.
struct Recipe {
    name: String,
    /// Not optimised.
    plan: LogicalPlan,
    schema: SchemaRef,
    state: Arc<SessionState>,
    before: Option<Arc<SharedStep>>,
    /// Whether it has no rows if there is not enough memory to compute them.
    may_be_empty: bool,
    /// A step before it without whose rows it has none.
    needs: Option<Arc<SharedStep>>,
}

/// Rows of a step, or the promise of them.
type Rows = Shared<BoxFuture<'static, Result<Arc<Kept>, Arc<DataFusionError>>>>;

/// Rows in memory, accounted for.
struct Kept {
    batches: Vec<RecordBatch>,
    rows: usize,
    _reservation: MemoryReservation,
}

impl fmt::Debug for SharedStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedStep")
            .field("name", &self.recipe.name)
            .finish_non_exhaustive()
    }
}

impl SharedStep {
    /// The rows. The first call starts a task that computes them, whoever goes on waiting.
    fn rows(&self, context: &Arc<TaskContext>) -> Rows {
        let start = || {
            let task = SpawnedTask::spawn(Arc::clone(&self.recipe).keep(Arc::clone(context)));
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

    /// How many rows there are, if they have been computed.
    fn known_rows(&self) -> Option<usize> {
        let rows = self.rows.lock();
        let kept = rows.as_ref()?.peek()?.as_ref().ok()?;
        Some(kept.rows)
    }
}

impl Recipe {
    async fn keep(self: Arc<Self>, context: Arc<TaskContext>) -> Result<Kept> {
        match self.compute(Arc::clone(&context)).await {
            Err(error) if self.may_be_empty && is_lack_of_memory(&error) => {
                Ok(self.nothing(&context))
            }
            kept => kept,
        }
    }

    fn nothing(&self, context: &TaskContext) -> Kept {
        Kept {
            batches: Vec::new(),
            rows: 0,
            _reservation: self.reservation(context),
        }
    }

    async fn compute(&self, context: Arc<TaskContext>) -> Result<Kept> {
        if let Some(before) = &self.before {
            before
                .rows(&context)
                .await
                .map_err(DataFusionError::Shared)?;
        }
        if let Some(needed) = &self.needs
            && needed.known_rows() == Some(0)
        {
            return Ok(self.nothing(&context));
        }
        let plan = self.state.create_physical_plan(&self.plan).await?;
        let reservation = self.reservation(&context);
        let batches = collect(plan, context).await?;
        for batch in &batches {
            reservation.try_grow(batch.get_array_memory_size())?;
        }
        Ok(Kept {
            rows: batches.iter().map(RecordBatch::num_rows).sum(),
            batches,
            _reservation: reservation,
        })
    }

    fn reservation(&self, context: &TaskContext) -> MemoryReservation {
        let consumer = MemoryConsumer::new(format!("sys step {}", self.name));
        consumer.register(context.memory_pool())
    }
}

/// Whether a plan failed since it may not use more memory.
fn is_lack_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// All rows of `plan`, its partitions side by side. An error where the runtime shuts down meanwhile:
/// DataFusion's `collect_partitioned` panics then.
async fn collect(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<Vec<RecordBatch>> {
    let partitions =
        execute_stream_partitioned(plan, context)?
            .into_iter()
            .map(|rows| async move {
                let rows = SpawnedTask::spawn(rows.try_collect::<Vec<_>>());
                let rows = rows.join_unwind().await;
                rows.map_err(|error| DataFusionError::External(Box::new(error)))?
            });
    Ok(try_join_all(partitions)
        .await?
        .into_iter()
        .flatten()
        .collect())
}

#[derive(Debug)]
struct SharedTable {
    step: Arc<SharedStep>,
}

#[async_trait]
impl TableProvider for SharedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.step.recipe.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let projection: Vec<usize> = match projection {
            Some(projection) => projection.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let rows = self.step.known_rows();
        let partitions = state.config().target_partitions();
        let partitions = rows.map_or(partitions, |rows| {
            partitions.clamp(1, rows / ROWS_OF_PARTITION + 1)
        });
        Ok(Arc::new(SharedScan {
            properties: properties(Arc::new(schema.project(&projection)?), partitions),
            step: Arc::clone(&self.step),
            projection: projection.into(),
            rows,
        }))
    }
}

/// Below so many rows another partition is not worth its task.
const ROWS_OF_PARTITION: usize = 16 * 1024;

fn properties(schema: SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

/// Reads a shared step.
#[derive(Debug)]
struct SharedScan {
    step: Arc<SharedStep>,
    projection: Arc<[usize]>,
    /// `None` if they had not been computed when this was planned.
    rows: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for SharedScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedScan: step={}", self.step.recipe.name)
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
        let (schema, partitions) = (
            self.schema(),
            self.properties.partitioning.partition_count(),
        );
        let batches = async move {
            let kept = step.rows(&context).await.map_err(DataFusionError::Shared)?;
            let batches = kept.batches.iter().skip(partition).step_by(partitions);
            let batches: Vec<RecordBatch> = batches.cloned().collect();
            let batches = batches.into_iter().map(move |batch| {
                let columns = projection
                    .iter()
                    .map(|column| Arc::clone(batch.column(*column)));
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let columns = columns.collect();
                Ok(RecordBatch::try_new_with_options(
                    Arc::clone(&schema),
                    columns,
                    &options,
                )?)
            });
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

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let share = match args.partition() {
            Some(_) => self.properties.partitioning.partition_count(),
            None => 1,
        };
        let rows = match self.rows {
            Some(rows) => Precision::Inexact(rows / share),
            None => Precision::Absent,
        };
        let columns = self.projection.len();
        Ok(Arc::new(Statistics {
            num_rows: rows,
            total_byte_size: rows.map(|rows| rows * size_of::<i64>() * columns),
            column_statistics: vec![ColumnStatistics::new_unknown(); columns],
        }))
    }
}

/// Returns the rows of `plan`, which is made runnable when the steps that it reads have been computed.
pub(super) fn planned_after_steps(
    plan: LogicalPlan,
    steps: Vec<LastStep>,
    planner: &Planner,
) -> DeferredScan {
    let names = steps.iter().map(|step| step.0.recipe.name.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    let state = Arc::new(planner.state().clone());
    let schema = Arc::clone(plan.schema().inner());
    DeferredScan::new(
        format!("PlannedAfterSteps: {names}"),
        schema,
        move |context| {
            let (plan, state, steps) = (plan.clone(), Arc::clone(&state), steps.clone());
            async move {
                for step in &steps {
                    let computed = step.0.rows(&context).await;
                    computed.map_err(DataFusionError::Shared)?;
                }
                state.create_physical_plan(&plan).await
            }
            .boxed()
        },
    )
}
