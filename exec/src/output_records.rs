//! The root of a profiled plan: which records each result row was made from.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, Distribution, ExecutionPlan,
    ExecutionPlanProperties, InputDistributionRequirements, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;
use skewer_profiling::{Ids, Latencies, OutputChunk, Recorder};

use crate::source::RecordSource;

/// A kind of record that result rows are made from.
#[derive(Debug, Clone)]
pub struct ResultRecords {
    /// Where the records come from.
    pub source: RecordSource,
    /// The input column with their ids.
    pub id_column: usize,
    /// The input columns whose sum is the computation latency between the record and the
    /// result row, in picoseconds.
    pub latency_columns: Vec<usize>,
}

/// Strips the hidden columns off the result and logs them with the numbers of the result rows.
///
/// ```text
/// result columns … │ hidden ids and latencies …   →   result columns …
/// ```
#[derive(Debug)]
pub struct OutputRecordsExec {
    input: Arc<dyn ExecutionPlan>,
    records: Vec<ResultRecords>,
    recorder: Arc<Recorder>,
    properties: Arc<PlanProperties>,
}

impl OutputRecordsExec {
    /// Keeps the first columns of `input`, as many as `schema` has. `input` has one partition.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        schema: SchemaRef,
        records: Vec<ResultRecords>,
        recorder: Arc<Recorder>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            records,
            recorder,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for OutputRecordsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            _ => write!(f, "OutputRecordsExec"),
        }
    }
}

impl ExecutionPlan for OutputRecordsExec {
    fn name(&self) -> &'static str {
        "OutputRecordsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
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
            return internal_err!("OutputRecordsExec has one input");
        }
        Ok(Arc::new(Self::new(
            children.swap_remove(0),
            self.schema(),
            self.records.clone(),
            Arc::clone(&self.recorder),
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
        if partition != 0 {
            return internal_err!("OutputRecordsExec has one partition, not {partition}");
        }
        let schema = self.schema();
        let records = self.records.clone();
        let recorder = Arc::clone(&self.recorder);
        let mut first_row = 0;
        let stream = self.input.execute(0, context)?.map(move |batch| {
            let batch = batch?;
            let started = Instant::now();
            for records in &records {
                log(&recorder, records, &batch, first_row);
            }
            recorder.overhead(started.elapsed());
            first_row += batch.num_rows() as i64;
            let kept = batch.columns()[..schema.fields().len()].to_vec();
            let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(
                Arc::clone(&schema),
                kept,
                &rows,
            )?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}

fn log(recorder: &Recorder, records: &ResultRecords, batch: &RecordBatch, first_row: i64) {
    let ids: &Int64Array = batch.column(records.id_column).as_primitive::<Int64Type>();
    let mut latency = vec![0; ids.len()];
    for column in &records.latency_columns {
        let column: &Int64Array = batch.column(*column).as_primitive::<Int64Type>();
        for (total, ps) in latency.iter_mut().zip(column) {
            *total += ps.unwrap_or_default();
        }
    }
    // One chunk for each operator that made some of the records: one, unless groups spilled.
    let mut operators: Vec<i64> = Vec::new();
    let mut last = None;
    for id in ids.iter().flatten() {
        let key = records.source.run_key(id);
        if last != Some(key) {
            last = Some(key);
            let operator = records.source.operator_of(id);
            if !operators.contains(&operator) {
                operators.push(operator);
            }
        }
    }
    for operator_id in operators.iter().copied() {
        let of_operator = if operators.len() == 1 {
            Ids::encode_nullable(ids)
        } else {
            let made = |id: &i64| records.source.operator_of(*id) == operator_id;
            Ids::encode_nullable(&ids.iter().map(|id| id.filter(made)).collect())
        };
        recorder.output_records(OutputChunk {
            first_output_row: first_row,
            operator_id,
            table_name: records.source.table_name(),
            record_ids: of_operator,
            latency: Latencies::encode(&latency),
        });
    }
}
