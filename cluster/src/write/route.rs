//! Who gets which row.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use datafusion_distributed::DistributedTaskContext;
use futures::{StreamExt, TryStreamExt};
use skewer_storage::{ROW_ID, RowIds};
use tokio::sync::Mutex;

use super::destination::SegmentDestination;
use super::rows::{conform, external};
use super::shards::shards;
use super::target::Target;

/// The column by which rows are sent to their owners.
pub(super) const ROUTE: &str = "_route";

/// Rows that one writer gets in a row, where nobody asks for a certain one: so many that a small
/// statement makes one segment.
const RUN: usize = 1 << 13;

/// Makes of rows what [`WriteSegmentsExec`](super::WriteSegmentsExec) writes: the table's columns,
/// the row's id, and a number whose hash, as DataFusion's exchanges have it, is its owner's
/// partition.
#[derive(Debug)]
pub struct RouteExec {
    input: Arc<dyn ExecutionPlan>,
    target: Arc<Target>,
    /// Whether the input has row ids.
    has_ids: bool,
    /// Partitions of each task that writes.
    partitions: usize,
    properties: Arc<PlanProperties>,
}

/// A table's columns, the row id and the route.
pub(super) fn routed_schema(columns: &Schema) -> SchemaRef {
    let mut fields = columns.fields().to_vec();
    fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
    fields.push(Arc::new(Field::new(ROUTE, DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

impl RouteExec {
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        target: Arc<Target>,
        has_ids: bool,
        partitions: usize,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(routed_schema(&target.columns)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            target,
            has_ids,
            partitions,
            properties: Arc::new(properties),
        }
    }

    /// The expression by which an exchange sends rows on.
    pub(super) fn route(&self) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(ROUTE, self.target.columns.fields().len() + 1))
    }

    pub(super) fn parts(&self) -> (&Arc<Target>, bool, usize) {
        (&self.target, self.has_ids, self.partitions)
    }
}

/// For each of `partitions` of an exchange a number that it sends there.
pub(super) fn routes(partitions: usize) -> Result<Vec<i64>> {
    let mut found: Vec<Option<i64>> = vec![None; partitions];
    let mut missing = partitions;
    let schema = Arc::new(Schema::new(vec![Field::new(ROUTE, DataType::Int64, false)]));
    let route: Arc<dyn PhysicalExpr> = Arc::new(Column::new(ROUTE, 0));
    let mut partitioner =
        BatchPartitioner::new_hash_partitioner(vec![route], partitions, Time::new())?;
    let mut first = 0;
    while missing > 0 {
        let next = first + 4 * partitions as i64;
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..next));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers])?;
        partitioner.partition(batch, |partition, numbers| {
            let numbers = numbers.column(0).as_primitive::<Int64Type>();
            if found[partition].is_none() && !numbers.is_empty() {
                found[partition] = Some(numbers.value(0));
                missing -= 1;
            }
            Ok(())
        })?;
        first = next;
    }
    found
        .into_iter()
        .map(|route| route.ok_or_else(|| internal_datafusion_err!("a partition without a route")))
        .collect()
}

/// Gives the rows of one stream their routes.
struct Router {
    target: Arc<Target>,
    partitions: usize,
    routes: Vec<i64>,
    /// Whose turn it is.
    next: usize,
    /// Rows that it has got.
    run: usize,
}

impl Router {
    /// The number of the partition that partition number `n` of task `task` is.
    fn partition(&self, task: usize, n: usize) -> usize {
        task * self.partitions + n % self.partitions
    }

    /// The route of the next row if writers have quotas.
    fn by_quota(&mut self) -> i64 {
        let quotas = &self.target.quotas;
        while self.next + 1 < quotas.len() && self.run as u64 >= quotas[self.next] {
            (self.next, self.run) = (self.next + 1, 0);
        }
        self.run += 1;
        self.routes[self.partition(self.next, 0)]
    }

    fn route(&mut self, batch: &RecordBatch) -> Result<Int64Array> {
        let writers = self.target.writers.len();
        if !self.target.quotas.is_empty() {
            let to = (0..batch.num_rows()).map(|_| self.by_quota());
            return Ok(Int64Array::from_iter_values(to));
        }
        if self.target.keys.is_empty() {
            // Round the writers first, then round their partitions.
            let task = self.next % writers;
            let partition = self.partition(task, self.next / writers);
            self.run += batch.num_rows();
            if self.run >= RUN {
                (self.next, self.run) = (self.next + 1, 0);
            }
            let route = self.routes[partition];
            return Ok(Int64Array::from(vec![route; batch.num_rows()]));
        }
        let keys: Vec<ArrayRef> = self
            .target
            .keys
            .iter()
            .map(|key| Arc::clone(batch.column(*key)))
            .collect();
        self.next += 1;
        let shards = shards(&keys, writers as u32)?;
        let routes = shards
            .into_iter()
            .map(|shard| self.routes[self.partition(shard as usize, self.next)]);
        Ok(Int64Array::from_iter_values(routes))
    }
}

impl DisplayAs for RouteExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => write!(f, "RouteExec: writers={:?}", self.target.writers),
        }
    }
}

impl ExecutionPlan for RouteExec {
    fn name(&self) -> &'static str {
        "RouteExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
        if children.len() != 1 {
            return internal_err!("RouteExec has one input");
        }
        Ok(Arc::new(Self::new(
            children.swap_remove(0),
            Arc::clone(&self.target),
            self.has_ids,
            self.partitions,
        )))
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
        let place = SegmentDestination::of_session(context.session_config())?;
        let task = DistributedTaskContext::from_ctx(&context).task_index;
        let target = Arc::clone(&self.target);
        let has_ids = self.has_ids;
        let mut router = Router {
            routes: routes(target.tasks() * self.partitions)?,
            partitions: self.partitions,
            // Statements of one row do not all go to the same.
            next: match target.quotas.is_empty() {
                true => target.statement as usize % target.writers.len().max(1) + task + partition,
                false => 0,
            },
            run: 0,
            target: Arc::clone(&target),
        };
        let row_ids = Arc::new(Mutex::new(RowIds::new(place.row_ids(target.table()))));
        let schema = self.schema();
        let mut rows = 0;
        let conformed = self.input.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            if has_ids {
                return Ok(batch);
            }
            let conformed = conform(&batch, &target.columns, &target.name, rows)?;
            rows += batch.num_rows() as u64;
            Ok(conformed)
        });
        let routed = conformed
            .and_then(move |batch| with_ids(batch, has_ids, Arc::clone(&row_ids)))
            .map(move |columns| {
                let (batch, mut columns) = columns?;
                columns.push(Arc::new(router.route(&batch)?));
                Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
            });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            routed,
        )))
    }
}

/// The columns of a batch and the ids of its rows.
async fn with_ids(
    batch: RecordBatch,
    has_ids: bool,
    row_ids: Arc<Mutex<RowIds>>,
) -> Result<(RecordBatch, Vec<ArrayRef>)> {
    let mut columns = batch.columns().to_vec();
    if !has_ids && batch.num_rows() > 0 {
        // Batches come one after the other.
        let mut row_ids = row_ids.lock().await;
        let ids = row_ids.next(batch.num_rows() as u64).await;
        columns.push(Arc::new(ids.map_err(external)?));
    } else if !has_ids {
        columns.push(Arc::new(Int64Array::from(Vec::<i64>::new())));
    }
    Ok((batch, columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_of_an_exchange_can_be_reached() {
        for partitions in [1, 6, 64] {
            let routes = routes(partitions).unwrap();
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(ROUTE, 0));
            let mut partitioner =
                BatchPartitioner::new_hash_partitioner(vec![column], partitions, Time::new())
                    .unwrap();
            let schema = Arc::new(Schema::new(vec![Field::new(ROUTE, DataType::Int64, false)]));
            let numbers: ArrayRef = Arc::new(Int64Array::from(routes.clone()));
            let batch = RecordBatch::try_new(schema, vec![numbers]).unwrap();
            partitioner
                .partition(batch, |partition, rows| {
                    let rows = rows.column(0).as_primitive::<Int64Type>();
                    assert_eq!(rows.values(), &[routes[partition]]);
                    Ok(())
                })
                .unwrap();
        }
    }
}
