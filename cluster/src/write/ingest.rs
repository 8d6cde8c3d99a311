//! Rows that enter the cluster at one node, in their order.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};

use super::destination::SegmentDestination;

/// Returns the rows of a stream that waits in the [`SegmentDestination`] of its node, once.
#[derive(Debug)]
pub struct EntryExec {
    number: u64,
    properties: Arc<PlanProperties>,
}

impl EntryExec {
    /// Stream number `number`, with these columns.
    pub(super) fn new(number: u64, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            number,
            properties: Arc::new(properties),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl DisplayAs for EntryExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => write!(f, "EntryExec"),
        }
    }
}

impl ExecutionPlan for EntryExec {
    fn name(&self) -> &'static str {
        "EntryExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("EntryExec has one partition, not {partition}");
        }
        SegmentDestination::of_session(context.session_config())?.entering(self.number)
    }
}
