//! Rows after a DELETE or UPDATE.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, UInt32Array,
};
use datafusion::arrow::compute::{
    concat_batches, filter_record_batch, interleave, take, take_record_batch,
};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt};

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

    /// The places of the columns that get new values; `None` if the rows go.
    pub fn updated(&self) -> Option<Vec<usize>> {
        match self {
            Self::Delete(_) => None,
            Self::Update { columns, .. } => Some(columns.iter().map(|(place, _)| *place).collect()),
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

    /// Those of the rows at some places, as a batch: ids, then new values.
    pub(super) fn part(&self, places: &UInt32Array) -> Result<Vec<ArrayRef>> {
        let ids = self.ids();
        let ids = places.values().iter().map(|place| ids[*place as usize]);
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(ids))];
        if let Self::Update { columns, .. } = self {
            for (_, values) in columns {
                arrays.push(take(values, places, None)?);
            }
        }
        Ok(arrays)
    }

    /// The changes that batches of ids and new values are, in whatever order they come.
    fn of_parts(
        parts: &[RecordBatch],
        schema: &SchemaRef,
        updated: Option<&[usize]>,
    ) -> Result<Self> {
        let all = concat_batches(schema, parts)?;
        let ids = all.column(0).as_primitive::<Int64Type>().values();
        let (ids, all) = match ids.is_sorted() {
            true => (ids.to_vec(), all),
            false => {
                let mut order: Vec<u32> = (0..ids.len() as u32).collect();
                order.sort_unstable_by_key(|place| ids[*place as usize]);
                let sorted = take_record_batch(&all, &UInt32Array::from(order))?;
                let ids = sorted.column(0).as_primitive::<Int64Type>();
                (ids.values().to_vec(), sorted)
            }
        };
        Ok(match updated {
            None => Self::Delete(ids),
            Some(places) => {
                let new = places.iter().enumerate();
                let column = |(n, place): (usize, &usize)| (*place, Arc::clone(all.column(n + 1)));
                Self::Update {
                    ids,
                    columns: new.map(column).collect(),
                }
            }
        })
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
///
/// ```text
/// ApplyChangesExec
///   DataSourceExec          rows, their ids last
///   NetworkShuffleExec      the changes of this task's rows: ids and new values, and their route
/// ```
///
/// The changes are read to their end first.
#[derive(Debug)]
pub struct ApplyChangesExec {
    input: Arc<dyn ExecutionPlan>,
    changes: Arc<dyn ExecutionPlan>,
    /// The columns that get new values, by their place in the table.
    updated: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
}

impl ApplyChangesExec {
    pub(super) fn new(
        input: Arc<dyn ExecutionPlan>,
        changes: Arc<dyn ExecutionPlan>,
        updated: Option<Vec<usize>>,
    ) -> Self {
        Self {
            properties: Arc::new(PlanProperties::new(
                datafusion::physical_expr::EquivalenceProperties::new(input.schema()),
                input.properties().output_partitioning().clone(),
                input.properties().emission_type,
                input.properties().boundedness,
            )),
            input,
            changes,
            updated,
        }
    }

    pub(super) fn updated(&self) -> Option<&[usize]> {
        self.updated.as_deref()
    }
}

impl DisplayAs for ApplyChangesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match (format, &self.updated) {
            (DisplayFormatType::TreeRender, _) => Ok(()),
            (_, None) => write!(f, "ApplyChangesExec: deleted"),
            (_, Some(columns)) => write!(f, "ApplyChangesExec: updated={columns:?}"),
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
        vec![true, false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input, &self.changes]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input, changes]) = <[_; 2]>::try_from(children) else {
            return internal_err!("ApplyChangesExec has two inputs");
        };
        Ok(Arc::new(Self::new(input, changes, self.updated.clone())))
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
        let partitions = self.changes.output_partitioning().partition_count();
        if partition != 0 || partitions != 1 {
            return internal_err!("rows change in one partition, not in {partitions}");
        }
        let mut parts = self.changes.execute(0, Arc::clone(&context))?;
        let rows = self.input.execute(0, Arc::clone(&context))?;
        let updated = self.updated.clone();
        let schema = self.schema();
        let memory = MemoryConsumer::new("rows to change").register(context.memory_pool());
        let changed = futures::stream::once(async move {
            let mut collected = Vec::new();
            while let Some(part) = parts.next().await {
                let part = part?;
                memory.try_grow(part.get_array_memory_size())?;
                collected.push(part);
            }
            let changes = Changes::of_parts(&collected, &parts.schema(), updated.as_deref())?;
            let changed = rows.map(move |batch| {
                let _held = &memory;
                changes.apply(&batch?)
            });
            Ok::<_, DataFusionError>(changed)
        })
        .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, changed)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn changes_are_the_same_after_they_were_sent_in_parts() {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
        let changes = Changes::Update {
            ids: vec![2, 3, 5, 9],
            columns: vec![(1, names)],
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
        ]));
        let part = |places: Vec<u32>| {
            let arrays = changes.part(&UInt32Array::from(places)).unwrap();
            RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap()
        };
        let parts = [part(vec![2, 3]), part(vec![0, 1])];
        let updated = changes.updated();
        let sent = Changes::of_parts(&parts, &schema, updated.as_deref()).unwrap();
        assert_eq!(sent, changes);
        let none = Changes::of_parts(&[], &schema, None).unwrap();
        assert_eq!(none, Changes::Delete(vec![]));
    }
}
