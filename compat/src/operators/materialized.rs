//! Rows that several places of a plan read, made once.
//!
//! A correlated subquery reads the rows around it a second time, for the values that it is asked for. They may be
//! others at the second reading, as with `random()` or numbers that values get as they come. And a query may compute
//! the same rows at several places. All these places have one of these operators. The first one that is polled has
//! the rows made, in a task of their own, and all return them. Rows for which there is no memory are on disk.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput, SpillMetrics,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    ExecutionPlanProperties, InputDistributionRequirements, Partitioning, PlanProperties,
    ReplaceChildrenOptions, SpillManager,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use parking_lot::Mutex;

use crate::operators::batch_bytes::batch_bytes;

/// Rows that are made once, when they are first asked for, and kept as long as this is; or, of an iteration
/// of a recursive query, until the next.
#[derive(Debug, Default)]
pub struct SharedRows {
    is_of_iteration: bool,
    are_values: bool,
    source: Mutex<Option<Arc<dyn ExecutionPlan>>>,
    made: Mutex<Option<Making>>,
}

/// It goes on also if whoever asked first no longer waits for it: others would have to begin anew.
type Making = Shared<BoxFuture<'static, Result<Arc<Made>, Arc<DataFusionError>>>>;

struct Made {
    /// The first rows.
    batches: Vec<RecordBatch>,
    /// Those for which there was no memory.
    spilled: Option<(SpillManager, Arc<dyn SpillFile>)>,
    _memory: MemoryReservation,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Made")
            .field("batches", &self.batches.len())
            .field("has_spilled", &self.spilled.is_some())
            .finish()
    }
}

impl Made {
    /// All rows, from the first on.
    fn rows(&self, schema: SchemaRef) -> Result<SendableRecordBatchStream> {
        let kept = stream::iter(self.batches.clone()).map(Ok);
        let Some((spills, file)) = &self.spilled else {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, kept)));
        };
        let rest = spills.read_spill_as_stream(Arc::clone(file), None)?;
        let rows = kept.chain(rest);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

impl SharedRows {
    /// Rows that are made in each iteration of the recursive query around.
    pub fn of_iteration() -> Self {
        Self {
            is_of_iteration: true,
            ..Self::default()
        }
    }

    /// Rows that are what a subquery is asked for, not those that ask.
    pub fn of_values(mut self, are_values: bool) -> Self {
        self.are_values = are_values;
        self
    }

    /// Such rows of another run of the query, which are not made yet.
    fn of_another_run(&self) -> Self {
        Self {
            is_of_iteration: self.is_of_iteration,
            are_values: self.are_values,
            source: Mutex::default(),
            made: Mutex::default(),
        }
    }

    /// Has `source` make them, again if it has before.
    fn restart(&self, source: Arc<dyn ExecutionPlan>) {
        *self.source.lock() = Some(source);
        *self.made.lock() = None;
    }

    /// # Errors
    /// Those of what makes the rows, and that they take more memory and disk space than there is.
    async fn rows(
        &self,
        schema: SchemaRef,
        context: Arc<TaskContext>,
        metrics: SpillMetrics,
    ) -> Result<SendableRecordBatchStream> {
        let making = self.making(Arc::clone(&schema), context, metrics)?;
        let made = making.await.map_err(DataFusionError::Shared)?;
        made.rows(schema)
    }

    fn making(
        &self,
        schema: SchemaRef,
        context: Arc<TaskContext>,
        metrics: SpillMetrics,
    ) -> Result<Making> {
        let mut made = self.made.lock();
        if let Some(making) = made.as_ref() {
            return Ok(making.clone());
        }
        let source = self.source.lock().clone();
        let Some(source) = source else {
            return internal_err!("the plan of shared rows is not linked");
        };
        let task = SpawnedTask::spawn(make(source, schema, context, metrics));
        let making = async {
            let made = task.join_unwind().await;
            let made = made.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            made.map(Arc::new)
        };
        let making = making.map_err(Arc::new).boxed().shared();
        *made = Some(making.clone());
        Ok(making)
    }
}

async fn make(
    source: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    context: Arc<TaskContext>,
    metrics: SpillMetrics,
) -> Result<Made> {
    let memory = MemoryConsumer::new("SharedRowsExec").register(context.memory_pool());
    let environment = context.runtime_env();
    let spills = SpillManager::new(Arc::clone(&environment), metrics, Arc::clone(&schema));
    let mut rows = source.execute(0, context)?;
    let mut batches = Vec::new();
    let mut file = None;
    while let Some(batch) = rows.try_next().await? {
        // Operators may know more, or less, of which columns are never NULL.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let schema = Arc::clone(&schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        if file.is_none() {
            match memory.try_grow(batch_bytes(&batch)) {
                Ok(()) => {
                    batches.push(batch);
                    continue;
                }
                Err(error) if !environment.disk_manager.tmp_files_enabled() => return Err(error),
                Err(_) => file = Some(spills.create_in_progress_file("shared rows")?),
            }
        }
        if let Some(file) = &mut file {
            file.append_batch(&batch)?;
        }
    }
    let file = file.map(|mut file| file.finish()).transpose()?.flatten();
    Ok(Made {
        batches,
        spilled: file.map(|file| (spills, file)),
        _memory: memory,
    })
}

/// Returns [`SharedRows`], in one partition.
#[derive(Debug)]
pub struct SharedRowsExec {
    rows: Arc<SharedRows>,
    /// Which rows of the plan they are.
    number: usize,
    /// What makes them, at one of the places.
    input: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SharedRowsExec {
    /// Returns the rows of `input`, whose columns are those of `schema`.
    pub fn making(
        schema: SchemaRef,
        input: Arc<dyn ExecutionPlan>,
        rows: Arc<SharedRows>,
        number: usize,
    ) -> Self {
        Self {
            input: Some(input),
            ..Self::reading(schema, rows, number)
        }
    }

    /// Returns the rows that [`making`](Self::making) another of these are.
    pub fn reading(schema: SchemaRef, rows: Arc<SharedRows>, number: usize) -> Self {
        Self {
            properties: properties(schema),
            rows,
            number,
            input: None,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same operator of another run of the query, with `input` in place of its own. `rows` has the shared rows of
    /// that run, by their number.
    pub fn of_another_run(
        &self,
        input: Option<Arc<dyn ExecutionPlan>>,
        rows: &mut HashMap<usize, Arc<SharedRows>>,
    ) -> Self {
        let rows = rows
            .entry(self.number)
            .or_insert_with(|| Arc::new(self.rows.of_another_run()));
        Self {
            rows: Arc::clone(rows),
            number: self.number,
            input,
            properties: Arc::clone(&self.properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Whether the rows are made in each iteration of a recursive query.
    pub fn is_of_iteration(&self) -> bool {
        self.rows.is_of_iteration
    }

    /// Whether it has the input that makes the rows.
    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// Whether the rows are the values that a subquery is computed for.
    pub fn are_values(&self) -> bool {
        self.rows.are_values
    }

    /// Has the shared rows in `plan`, which is going to be executed, made by the operators that it has now.
    ///
    /// # Errors
    /// None of its own; those of walking a plan.
    pub fn link(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
        plan.apply(|node| {
            if let Some(shared) = node.downcast_ref::<Self>()
                && let Some(input) = node.children().first()
            {
                shared.rows.restart(one_partition(input));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }
}

fn one_partition(input: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match input.output_partitioning().partition_count() {
        1 => Arc::clone(input),
        _ => Arc::new(CoalescePartitionsExec::new(Arc::clone(input))),
    }
}

fn properties(schema: SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

impl DisplayAs for SharedRowsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        if !matches!(format, DisplayFormatType::TreeRender) {
            f.write_str("SharedRowsExec: ")?;
        }
        let elsewhere = if self.has_input() {
            ""
        } else {
            ", made elsewhere"
        };
        let what = if self.rows.are_values {
            "values"
        } else {
            "rows"
        };
        write!(f, "{what}={}{elsewhere}", self.number)
    }
}

impl ExecutionPlan for SharedRowsExec {
    fn name(&self) -> &'static str {
        "SharedRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.input.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let inputs = self.input.iter().map(|_| Distribution::SinglePartition);
        InputDistributionRequirements::new(inputs.collect())
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != usize::from(self.has_input()) {
            return internal_err!("SharedRowsExec has one input where its rows are made");
        }
        let rows = Arc::clone(&self.rows);
        Ok(match children.pop() {
            Some(input) => Arc::new(Self {
                metrics: self.metrics.clone(),
                ..Self::making(self.schema(), input, rows, self.number)
            }),
            None => self,
        })
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    // Before each iteration, when the working table has the rows of the one before. Nothing of that is
    // awaited any more.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(input) = &self.input
            && self.rows.is_of_iteration
        {
            self.rows.restart(one_partition(input));
        }
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("SharedRowsExec has one partition, not {partition}");
        }
        let rows = Arc::clone(&self.rows);
        let schema = self.schema();
        let made = Arc::clone(&schema);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let spills = SpillMetrics::new(&self.metrics, partition);
        let batches = stream::once(async move { rows.rows(made, context, spills).await })
            .try_flatten()
            .map_ok(move |batch| batch.record_output(&metrics));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, Float64Array};
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// Random numbers of several partitions, and a session that has so much memory.
    async fn random(rows: usize, memory: usize) -> (Arc<dyn ExecutionPlan>, SessionContext) {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0);
        let config = SessionConfig::new().with_target_partitions(3);
        let context = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
        let sql = format!(
            "SELECT random() AS r FROM (SELECT unnest(make_array({})))",
            vec!["1"; rows].join(", ")
        );
        let plan = context.sql(&sql).await.unwrap();
        (plan.create_physical_plan().await.unwrap(), context)
    }

    /// Where the rows of `input` are made, and where they are read, too.
    fn places(input: Arc<dyn ExecutionPlan>) -> [Arc<dyn ExecutionPlan>; 2] {
        let (schema, rows) = (input.schema(), Arc::new(SharedRows::default()));
        let reading = SharedRowsExec::reading(Arc::clone(&schema), Arc::clone(&rows), 1);
        let making: Arc<dyn ExecutionPlan> =
            Arc::new(SharedRowsExec::making(schema, input, rows, 1));
        SharedRowsExec::link(&making).unwrap();
        [making, Arc::new(reading)]
    }

    async fn returned(
        place: &Arc<dyn ExecutionPlan>,
        context: &SessionContext,
    ) -> Result<Vec<RecordBatch>> {
        place.execute(0, context.task_ctx())?.try_collect().await
    }

    #[tokio::test]
    async fn all_places_return_the_rows_that_were_made_once() {
        let (input, context) = random(100, 1 << 20).await;
        let [first, second] = places(input);
        let read = returned(&second, &context).await.unwrap();
        let made = returned(&first, &context).await.unwrap();
        assert_eq!(read, made);
        let rows = made.iter().map(RecordBatch::num_rows);
        assert_eq!(rows.sum::<usize>(), 100);
    }

    #[tokio::test]
    async fn who_asked_first_need_not_wait() {
        let (input, context) = random(100, 1 << 20).await;
        let [first, second] = places(input);
        let mut asked = first.execute(0, context.task_ctx()).unwrap();
        let polled = futures::poll!(asked.next());
        assert!(polled.is_pending());
        drop(asked);
        let read = returned(&second, &context).await.unwrap();
        assert_eq!(read, returned(&first, &context).await.unwrap());
    }

    #[tokio::test]
    async fn rows_for_which_there_is_no_memory_are_read_from_disk_at_all_places() {
        let rows = 100;
        for memory in [64, 1 << 20] {
            let (input, context) = random(rows, memory).await;
            let [first, second] = places(input);
            let values = |batches: Vec<RecordBatch>| {
                let columns = batches.into_iter().map(|batch| batch["r"].to_data());
                let columns: Vec<_> = columns.map(Float64Array::from).collect();
                columns.iter().flatten().collect::<Vec<_>>()
            };
            let made = values(returned(&first, &context).await.unwrap());
            assert_eq!(made.len(), rows);
            assert_eq!(values(returned(&second, &context).await.unwrap()), made);
            let spilled = first.metrics().unwrap().spilled_rows();
            assert_eq!(spilled, Some(if memory == 64 { rows } else { 0 }));
        }
    }

    #[tokio::test]
    async fn without_memory_and_disk_all_places_fail() {
        let (input, context) = random(100, 64).await;
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(64, 1.0);
        let runtime = runtime.with_disk_manager_builder(disk).build_arc().unwrap();
        let context = SessionContext::new_with_config_rt(context.copied_config(), runtime);
        for place in places(input) {
            let error = returned(&place, &context).await.unwrap_err().to_string();
            assert!(error.contains("SharedRowsExec"), "{error}");
        }
    }
}
