//! Rows after a DELETE or UPDATE.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{filter_record_batch, interleave};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

/// What is to become of rows, by their ids in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub enum Changes {
    /// They go.
    Delete(Vec<i64>),
    /// They get new values in some columns, given by their place in the table.
    Update {
        /// The rows.
        ids: Vec<i64>,
        /// As many values each as there are rows.
        columns: Vec<(usize, ArrayRef)>,
    },
}

impl Changes {
    /// The rows that change.
    pub fn ids(&self) -> &[i64] {
        match self {
            Self::Delete(ids) | Self::Update { ids, .. } => ids,
        }
    }

    /// A batch with row ids last, after the changes.
    ///
    /// # Errors
    /// If the batch has not the table's columns.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let row_ids = batch
            .column(batch.num_columns() - 1)
            .as_primitive::<Int64Type>();
        match self {
            Self::Delete(ids) => {
                let stays = are_not_in(row_ids, ids);
                Ok(filter_record_batch(batch, &stays)?)
            }
            Self::Update { ids, columns } => {
                let sources: Vec<(usize, usize)> = row_ids
                    .values()
                    .iter()
                    .enumerate()
                    .map(|(row, id)| match ids.binary_search(id) {
                        Ok(new) => (1, new),
                        Err(_) => (0, row),
                    })
                    .collect();
                let mut arrays = batch.columns().to_vec();
                for (column, new) in columns {
                    arrays[*column] = interleave(&[&*arrays[*column], &**new], &sources)?;
                }
                Ok(RecordBatch::try_new(batch.schema(), arrays)?)
            }
        }
    }
}

fn are_not_in(row_ids: &Int64Array, ids: &[i64]) -> BooleanArray {
    row_ids
        .values()
        .iter()
        .map(|id| Some(ids.binary_search(id).is_err()))
        .collect()
}

/// Rows with their ids, without, or with other values in, those that change.
#[derive(Debug)]
pub struct ApplyChangesExec {
    input: Arc<dyn ExecutionPlan>,
    changes: Arc<Changes>,
    properties: Arc<PlanProperties>,
}

impl ApplyChangesExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, changes: Arc<Changes>) -> Self {
        Self {
            properties: Arc::new(PlanProperties::new(
                datafusion::physical_expr::EquivalenceProperties::new(input.schema()),
                input.properties().output_partitioning().clone(),
                input.properties().emission_type,
                input.properties().boundedness,
            )),
            input,
            changes,
        }
    }

    pub(super) fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }
}

impl DisplayAs for ApplyChangesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match (format, &*self.changes) {
            (DisplayFormatType::TreeRender, _) => Ok(()),
            (_, Changes::Delete(ids)) => write!(f, "ApplyChangesExec: deleted={}", ids.len()),
            (_, Changes::Update { ids, .. }) => {
                write!(f, "ApplyChangesExec: updated={}", ids.len())
            }
        }
    }
}

impl ExecutionPlan for ApplyChangesExec {
    fn name(&self) -> &'static str {
        "ApplyChangesExec"
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
            return internal_err!("ApplyChangesExec has one input");
        }
        let input = children.swap_remove(0);
        Ok(Arc::new(Self::new(input, Arc::clone(&self.changes))))
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
        let changes = Arc::clone(&self.changes);
        let changed = self
            .input
            .execute(partition, context)?
            .map(move |batch| changes.apply(&batch?));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            changed,
        )))
    }
}
