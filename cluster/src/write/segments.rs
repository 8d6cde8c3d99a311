//! Rows into segments, where the task runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, BinaryArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use datafusion_distributed::DistributedTaskContext;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use skewer_storage::{SEGMENTS_PER_WRITER, SegmentDescription, SegmentWriter, Shard};

use super::destination::SegmentDestination;
use super::rows::{conform, external};
use super::shards::shards;
use super::target::Target;

/// What the rows have that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowsHave {
    /// Columns that fit those of the table.
    Columns,
    /// The table's columns and the row id.
    Ids,
    /// The table's columns, the row id and a route.
    Routes,
}

/// Writes its input to segments of the node where it runs, and returns what the catalog has to
/// know of them: a row per segment. They belong to their statement from then on.
#[derive(Debug)]
pub struct WriteSegmentsExec {
    input: Arc<dyn ExecutionPlan>,
    target: Arc<Target>,
    have: RowsHave,
    properties: Arc<PlanProperties>,
}

/// One column: [`SegmentDescription`] as bytes (postcard).
static DESCRIPTIONS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = Field::new("segment", DataType::Binary, false);
    Arc::new(Schema::new(vec![field]))
});

/// The segments that a batch of [`WriteSegmentsExec`] describes.
///
/// # Errors
/// If it is something else.
pub fn descriptions(batch: &RecordBatch) -> Result<Vec<SegmentDescription>> {
    if batch.schema() != *DESCRIPTIONS {
        return internal_err!("{} describes no segments", batch.schema());
    }
    let bytes = batch.column(0).as_binary::<i32>();
    let described = bytes.iter().flatten().map(postcard::from_bytes);
    described.map(|one| one.map_err(encoding)).collect()
}

fn encoding(error: postcard::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl WriteSegmentsExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, target: Arc<Target>, have: RowsHave) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&DESCRIPTIONS)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            target,
            have,
            properties: Arc::new(properties),
        }
    }

    pub(super) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub(super) fn have(&self) -> RowsHave {
        self.have
    }
}

impl DisplayAs for WriteSegmentsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => write!(f, "WriteSegmentsExec: table={}", self.target.name),
        }
    }
}

impl ExecutionPlan for WriteSegmentsExec {
    fn name(&self) -> &'static str {
        "WriteSegmentsExec"
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
        if children.len() != 1 {
            return internal_err!("WriteSegmentsExec has one input");
        }
        Ok(Arc::new(Self::new(
            children.swap_remove(0),
            Arc::clone(&self.target),
            self.have,
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
        if partition as u64 >= Target::WRITERS_PER_TASK {
            return exec_err!("{partition} partitions write to one table on one worker");
        }
        let place = SegmentDestination::of_session(context.session_config())?;
        let task = DistributedTaskContext::from_ctx(&context).task_index as u64;
        let writer = task * Target::WRITERS_PER_TASK + partition as u64;
        let first = self.target.statement + writer * SEGMENTS_PER_WRITER;
        let writers = Writers {
            place,
            target: Arc::clone(&self.target),
            numbers: first..first + SEGMENTS_PER_WRITER,
            open: BTreeMap::new(),
        };
        let input = self.input.execute(partition, context)?;
        let written = futures::stream::once(write(input, self.have, writers));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            written,
        )))
    }
}

/// The open segments of one stream.
struct Writers {
    place: Arc<SegmentDestination>,
    target: Arc<Target>,
    /// Numbers for segments.
    numbers: Range<u64>,
    open: BTreeMap<Option<Shard>, SegmentWriter>,
}

async fn write(
    mut input: SendableRecordBatchStream,
    have: RowsHave,
    mut writers: Writers,
) -> Result<RecordBatch> {
    let target = Arc::clone(&writers.target);
    let width = target.columns.fields().len();
    let mut rows = 0;
    while let Some(batch) = input.next().await {
        let batch = match have {
            RowsHave::Columns => conform(&batch?, &target.columns, &target.name, rows)?,
            RowsHave::Ids => batch?,
            RowsHave::Routes => batch?.project(&(0..=width).collect::<Vec<_>>())?,
        };
        rows += batch.num_rows() as u64;
        for (shard, part) in writers.by_shard(batch)? {
            let writer = writers.writer_of(shard);
            let written = match have {
                RowsHave::Columns => writer.write(&part).await,
                RowsHave::Ids | RowsHave::Routes => writer.write_with_ids(&part).await,
            };
            written.map_err(external)?;
        }
    }
    // What the input holds is not needed while the disk syncs.
    drop(input);
    writers.finish().await
}

impl Writers {
    /// Rows by what their segment will say of itself. Those that belong to another node, since
    /// the table was divided otherwise when they were written or their keys have changed, are of
    /// no shard.
    fn by_shard(&self, batch: RecordBatch) -> Result<Vec<(Option<Shard>, RecordBatch)>> {
        let keys = &self.target.keys;
        if keys.is_empty() || batch.num_rows() == 0 {
            return Ok(vec![(None, batch)]);
        }
        let of = self.target.writers.len() as u32;
        let keys: Vec<ArrayRef> = keys
            .iter()
            .map(|key| Arc::clone(batch.column(*key)))
            .collect();
        let mut rows: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (row, shard) in (0..).zip(shards(&keys, of)?) {
            rows.entry(shard).or_default().push(row);
        }
        let shard = |index| {
            let is_here = self.place.is_of(&self.target, index);
            is_here.then_some(Shard { index, of })
        };
        if let [index] = *rows.keys().collect::<Vec<_>>() {
            return Ok(vec![(shard(*index), batch)]);
        }
        rows.into_iter()
            .map(|(index, rows)| {
                let part = take_record_batch(&batch, &UInt32Array::from(rows))?;
                Ok((shard(index), part))
            })
            .collect()
    }

    fn writer_of(&mut self, shard: Option<Shard>) -> &mut SegmentWriter {
        let numbers = &mut self.numbers;
        self.open.entry(shard).or_insert_with(|| {
            // Each gets half of what is left: there are few of them.
            let half = numbers.start + (numbers.end - numbers.start).div_ceil(2);
            let block = numbers.start..half;
            numbers.start = half;
            self.place.writer(&self.target, block, shard)
        })
    }

    async fn finish(self) -> Result<RecordBatch> {
        let mut described = Vec::new();
        for writer in self.open.into_values() {
            for segment in writer.finish().await.map_err(external)? {
                let description = self.place.release(segment, &self.target)?;
                described.push(postcard::to_stdvec(&description).map_err(encoding)?);
            }
        }
        let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values(described));
        Ok(RecordBatch::try_new(
            Arc::clone(&DESCRIPTIONS),
            vec![bytes],
        )?)
    }
}
