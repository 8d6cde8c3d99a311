//! Results of several joins of parts, put in the order of the probe side.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;

use super::disk::{Disk, PartsWriter};
use super::pieces::compacted;
use super::spec::numbered;
use crate::operators::batch_bytes::estimated_batch_bytes;

/// What a merge reads of each run at once, in bytes.
const PIECE: usize = 64 << 10;

/// Runs on disk, each in order.
pub(super) struct Runs {
    writer: PartsWriter,
    schema: SchemaRef,
    run: usize,
}

impl Runs {
    /// Runs of rows of this `schema`, behind which there is the number of the probe row.
    pub(super) fn new(disk: Disk, schema: &SchemaRef) -> Self {
        let schema = numbered(schema);
        Self {
            writer: PartsWriter::new(disk, Arc::clone(&schema)),
            schema,
            run: 0,
        }
    }

    pub(super) fn begin(&mut self) {
        self.run += 1;
    }

    pub(super) fn append(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        let pieces = estimated_batch_bytes(batch).div_ceil(PIECE).max(1);
        let step = rows.div_ceil(pieces).max(1);
        for first in (0..rows).step_by(step) {
            let piece = batch.slice(first, step.min(rows - first));
            self.writer.append(self.run, &compacted(&piece)?)?;
        }
        Ok(())
    }

    /// All rows by the numbers of their probe rows.
    pub(super) fn merge(self, context: &TaskContext) -> Result<SendableRecordBatchStream> {
        let parts = self.writer.finish()?;
        let runs = (0..parts.len()).filter(|&run| parts.rows(run) > 0);
        let streams: Vec<_> = runs.map(|run| parts.read(run)).collect();
        if streams.is_empty() {
            // The merge of no streams is an error to DataFusion.
            return Ok(Box::pin(EmptyRecordBatchStream::new(self.schema)));
        }
        let number = self.schema.fields().len() - 1;
        let number = Column::new(self.schema.field(number).name(), number);
        let order: LexOrdering = [PhysicalSortExpr::new_default(Arc::new(number))].into();
        // A piece of each run is all that it holds.
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(self.schema)
            .with_expressions(&order)
            .with_metrics(BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0))
            .with_batch_size(context.session_config().batch_size())
            .with_reservation(MemoryConsumer::new("join").register(&pool))
            .build()
    }
}
