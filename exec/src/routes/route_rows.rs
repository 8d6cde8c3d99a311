//! Rows with the numbers of their partitions.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::{Destination, Router, Routes, exchange_hashes};

/// The column with the numbers of partitions.
const ROUTE: &str = "_route";

/// What becomes of rows whose key goes to all partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpreadKeys {
    /// Each row goes to another partition.
    Deal,
    /// Each row goes to every partition.
    Copy,
}

/// Adds the number of its partition to each row.
///
/// The output has the input's columns and, as the last one, `_route`: a BIGINT whose hash is the row's partition
/// in an exchange of as many outputs as the [`Routes`] have.
#[derive(Debug)]
pub struct RouteRowsExec {
    input: Arc<dyn ExecutionPlan>,
    /// Indices of the key's columns.
    keys: Vec<usize>,
    spread: SpreadKeys,
    router: Arc<Router>,
    properties: Arc<PlanProperties>,
}

impl RouteRowsExec {
    /// Routes rows of `input`. `keys`: the columns of the key.
    ///
    /// # Errors
    /// If there is no such column, or none at all.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        keys: Vec<usize>,
        routes: Routes,
        spread: SpreadKeys,
    ) -> Result<Self> {
        let schema = input.schema();
        if keys.is_empty() || keys.iter().any(|key| *key >= schema.fields().len()) {
            return internal_err!(
                "columns {keys:?} are no key of {} columns",
                schema.fields().len()
            );
        }
        let mut fields = schema.fields().to_vec();
        fields.push(Arc::new(Field::new(ROUTE, DataType::Int64, false)));
        let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Ok(Self {
            input,
            keys,
            spread,
            router: Arc::new(Router::new(routes)?),
            properties: Arc::new(properties),
        })
    }

    /// Indices of the key's columns.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }

    /// What becomes of rows whose key goes to all partitions.
    pub fn spread(&self) -> SpreadKeys {
        self.spread
    }

    /// Where rows go.
    pub fn routes(&self) -> &Routes {
        &self.router.routes
    }

    /// The column with the numbers of partitions.
    pub fn route(&self) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(ROUTE, self.input.schema().fields().len()))
    }
}

/// `batch` with a column of routes.
fn with_route(batch: &RecordBatch, routes: Vec<i64>, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(Int64Array::from(routes)));
    Ok(RecordBatch::try_new(SchemaRef::clone(schema), columns)?)
}

/// The rows of `batch` with their routes and copies, in pieces of about as many rows as `batch` has.
fn copied(
    batch: &RecordBatch,
    keys: &[ArrayRef],
    router: &Router,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let hashes = exchange_hashes(keys)?;
    let mut rows: Vec<u32> = Vec::with_capacity(hashes.len());
    let mut routes: Vec<i64> = Vec::with_capacity(hashes.len());
    for (row, hash) in (0..).zip(&hashes) {
        match router.destination(*hash) {
            Some(Destination::All) => {
                rows.extend(router.numbers.iter().map(|_| row));
                routes.extend(&router.numbers);
                continue;
            }
            Some(Destination::Partition(partition)) => {
                routes.push(router.numbers[partition as usize]);
            }
            None => routes.push(router.by_hash(*hash)),
        }
        rows.push(row);
    }
    if rows.len() == batch.num_rows() {
        return Ok(vec![with_route(batch, routes, schema)?]);
    }
    let size = batch.num_rows();
    let pieces = rows.chunks(size).zip(routes.chunks(size));
    pieces
        .map(|(rows, routes)| {
            let piece = take_record_batch(batch, &UInt32Array::from(rows.to_vec()))?;
            with_route(&piece, routes.to_vec(), schema)
        })
        .collect()
}

impl DisplayAs for RouteRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let routes = self.routes();
        let to_all = routes.keys().values().filter(|to| **to == Destination::All);
        let to_all = to_all.count();
        write!(
            f,
            "RouteRowsExec: keys={:?}, mapped={}",
            self.keys,
            routes.keys().len() - to_all
        )?;
        match self.spread {
            SpreadKeys::Deal => write!(f, ", dealt={to_all}")?,
            SpreadKeys::Copy => write!(f, ", copied={to_all}")?,
        }
        match routes.deals_nulls() {
            true => f.write_str(", NULL dealt"),
            false => Ok(()),
        }
    }
}

impl ExecutionPlan for RouteRowsExec {
    fn name(&self) -> &'static str {
        "RouteRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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
        match children.pop() {
            Some(input) if children.is_empty() => {
                let routes = self.routes().clone();
                let (keys, spread) = (self.keys.clone(), self.spread);
                Ok(Arc::new(Self::new(input, keys, routes, spread)?))
            }
            _ => internal_err!("RouteRowsExec has one input"),
        }
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
        let rows = self.input.execute(partition, context)?;
        let (keys, router, spread) = (self.keys.clone(), Arc::clone(&self.router), self.spread);
        let schema = self.schema();
        let with_copies = {
            let schema = SchemaRef::clone(&schema);
            rows.map(move |batch| {
                let batch = batch?;
                let keys = keys.iter().map(|key| Arc::clone(batch.column(*key)));
                let keys: Vec<ArrayRef> = keys.collect();
                let pieces = match spread {
                    SpreadKeys::Deal => vec![with_route(&batch, router.route(&keys)?, &schema)?],
                    SpreadKeys::Copy => copied(&batch, &keys, &router, &schema)?,
                };
                Ok::<_, datafusion::error::DataFusionError>(stream::iter(
                    pieces.into_iter().map(Ok),
                ))
            })
        };
        let rows = with_copies.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn rows_of_a_key_are_copied_for_each_partition_and_others_are_not() {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1, 3]));
        let values: ArrayRef = Arc::new(Int64Array::from(vec![10, 20, 30, 40]));
        let batch = RecordBatch::try_from_iter([("key", keys), ("value", values)]).unwrap();
        let heavy: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let heavy = exchange_hashes(&[heavy]).unwrap()[0];
        let routes = Routes::by_hash(3).with_key(heavy, Destination::All);
        let schema = batch.schema();
        let input = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None).unwrap();
        let copies =
            Arc::new(RouteRowsExec::new(input, vec![0], routes, SpreadKeys::Copy).unwrap());
        let context = SessionContext::new().task_ctx();
        let mut rows = Vec::new();
        for batch in collect(copies, context).await.unwrap() {
            let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values();
            let numbers: ArrayRef = Arc::clone(batch.column(2));
            let partitions = exchange_hashes(&[numbers]).unwrap();
            for (row, partition) in partitions.into_iter().enumerate() {
                rows.push((column(1)[row], partition % 3));
            }
        }
        rows.sort_unstable();
        let of_value = |value: i64| rows.iter().filter(move |row| row.0 == value);
        for copied in [10, 30] {
            let partitions: Vec<_> = of_value(copied).map(|row| row.1).collect();
            assert_eq!(partitions, [0, 1, 2]);
        }
        assert_eq!((of_value(20).count(), of_value(40).count()), (1, 1));
    }
}
