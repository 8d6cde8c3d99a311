//! An input of a hash join whose rows are there already.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use parking_lot::Mutex;

/// Hands over streams, each once.
pub(super) struct Leaf {
    properties: Arc<PlanProperties>,
    /// What it stands for: consumers of a join's dynamic filter are looked for there.
    stands_for: Option<Arc<dyn ExecutionPlan>>,
    streams: Mutex<Vec<Option<SendableRecordBatchStream>>>,
}

impl Leaf {
    /// In place of `input`, whose properties it has.
    pub(super) fn instead_of(input: &Arc<dyn ExecutionPlan>) -> Arc<Self> {
        Arc::new(Self {
            properties: Arc::clone(input.properties()),
            stands_for: Some(Arc::clone(input)),
            streams: Mutex::default(),
        })
    }

    /// Of rows with this schema, ordered by one of their columns.
    pub(super) fn new(
        schema: SchemaRef,
        partitions: usize,
        ordered_by: Option<usize>,
    ) -> Arc<Self> {
        let key = ordered_by.map(|column| {
            let name = schema.field(column).name();
            let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, column));
            [PhysicalSortExpr::new_default(key)]
        });
        let equivalences = EquivalenceProperties::new_with_orderings(schema, key);
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Arc::new(Self {
            properties: Arc::new(properties),
            stands_for: None,
            streams: Mutex::default(),
        })
    }

    /// What a partition hands over.
    pub(super) fn put(&self, partition: usize, stream: SendableRecordBatchStream) {
        let mut streams = self.streams.lock();
        if streams.len() <= partition {
            streams.resize_with(partition + 1, || None);
        }
        streams[partition] = Some(stream);
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl DisplayAs for Leaf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for Leaf {
    fn name(&self) -> &str {
        "JoinInput"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.stands_for.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut streams = self.streams.lock();
        let stream = streams.get_mut(partition).and_then(Option::take);
        stream.ok_or_else(|| internal_datafusion_err!("the rows of a join are not there yet"))
    }
}
