//! A scan whose plan is made when it runs.
//!
//! The plan around it stays small: its optimizer does not walk what is behind the scan.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, execute_stream,
};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};

/// Makes the plan that a scan runs.
type MakePlan =
    dyn Fn(Arc<TaskContext>) -> BoxFuture<'static, Result<Arc<dyn ExecutionPlan>>> + Send + Sync;

/// Returns the rows of a plan that is made when the scan runs, in one partition.
pub(crate) struct DeferredScan {
    /// What `EXPLAIN` shows.
    description: String,
    make_plan: Arc<MakePlan>,
    properties: Arc<PlanProperties>,
}

impl DeferredScan {
    /// A scan of what `make_plan` makes, whose columns are at the same places as in `schema`.
    pub(crate) fn new(
        description: String,
        schema: SchemaRef,
        make_plan: impl Fn(Arc<TaskContext>) -> BoxFuture<'static, Result<Arc<dyn ExecutionPlan>>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            description,
            make_plan: Arc::new(make_plan),
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(1),
                EmissionType::Final,
                Boundedness::Bounded,
            )),
        }
    }
}

impl fmt::Debug for DeferredScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DeferredScan")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for DeferredScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.description)
    }
}

impl ExecutionPlan for DeferredScan {
    fn name(&self) -> &str {
        "DeferredScan"
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
        _partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (make_plan, schema) = (Arc::clone(&self.make_plan), self.schema());
        let batches = async move {
            let plan = make_plan(Arc::clone(&context)).await?;
            let batches = execute_stream(plan, context)?;
            Ok::<_, DataFusionError>(batches.map(move |batch| {
                let (_, columns, rows) = batch?.into_parts();
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::clone(&schema);
                Ok(RecordBatch::try_new_with_options(
                    schema, columns, &options,
                )?)
            }))
        };
        let stream = stream::once(batches).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}
