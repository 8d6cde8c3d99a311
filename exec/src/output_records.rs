//! Where the rows of a profiled result are complete: which records each was made from.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;
use skewer_profiling::{Ids, Latencies, OutputChunk, Recorder, Sources};

use crate::int32_row_id::widened;
use crate::latency_propagation::{Blamed, CarriedInput};
use crate::record_origin::RecordOrigin;

/// A kind of record that result rows are made from.
#[derive(Debug, Clone)]
pub struct ResultRecords {
    /// Where the records come from.
    pub source: RecordOrigin,
    /// The input column with their ids.
    pub id_column: usize,
    /// The input columns whose sum is the computation latency between the record and the
    /// result row, in picoseconds.
    pub latency_columns: Vec<usize>,
}

/// Rows that one of several streams numbers in a row: so many that there are few chunks, and so few
/// that numbers stay small.
const BLOCK: i64 = 1 << 13;

/// One of the tasks that make a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultTask {
    /// Its number, from 0.
    pub index: usize,
    /// How many there are. All have as many partitions.
    pub count: usize,
}

impl ResultTask {
    /// The only one.
    pub const ALONE: ResultTask = ResultTask { index: 0, count: 1 };
}

/// What becomes of the hidden columns of a result.
#[derive(Debug, Clone)]
pub enum Hidden {
    /// They are logged.
    Logged(Vec<ResultRecords>),
    /// What rows carry of these columns, and the sources that it names, is kept in sum.
    Carried(Arc<[CarriedInput]>, Arc<Sources>),
}

/// Strips the hidden columns off the result, and logs them with the numbers of the result rows or
/// keeps what they say of their sources.
///
/// ```text
/// result columns … │ hidden ids and latencies …   →   result columns …
/// ```
///
/// It is the root of a plan, in one partition, unless the rows are written where they are made.
#[derive(Debug)]
pub struct OutputRecordsExec {
    input: Arc<dyn ExecutionPlan>,
    hidden: Hidden,
    recorder: Arc<Recorder>,
    task: ResultTask,
    properties: Arc<PlanProperties>,
}

impl OutputRecordsExec {
    /// Keeps the first columns of `input`, as many as `schema` has.
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        schema: SchemaRef,
        hidden: Hidden,
        recorder: Arc<Recorder>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            hidden,
            recorder,
            task: ResultTask::ALONE,
            properties: Arc::new(properties),
        }
    }

    /// The same in one of several tasks.
    pub fn in_task(self, task: ResultTask) -> Self {
        Self { task, ..self }
    }

    /// The task that it is in.
    pub fn task(&self) -> ResultTask {
        self.task
    }

    /// What becomes of the hidden columns.
    pub fn hidden(&self) -> &Hidden {
        &self.hidden
    }
}

/// Gives the rows of one of several streams numbers that no row of another has. Each takes the
/// numbers of a block at a time, so those of a result are nearly without gaps if streams have about
/// as many rows.
#[derive(Debug)]
struct RowNumbers {
    next: i64,
    /// How far it is from the end of a block to the next one of the stream.
    others: i64,
}

impl RowNumbers {
    /// Those of stream number `stream` of `streams`.
    fn of_stream(stream: usize, streams: usize) -> Self {
        Self {
            next: stream as i64 * BLOCK,
            others: (streams as i64 - 1) * BLOCK,
        }
    }

    /// The numbers of the next `rows` rows: of each run of consecutive numbers the first, and which
    /// of the rows have them.
    fn take(&mut self, rows: usize) -> Vec<(i64, Range<usize>)> {
        let mut runs = Vec::new();
        let mut taken = 0;
        while taken < rows {
            let left = match self.others {
                0 => rows - taken,
                _ => (rows - taken).min((BLOCK - self.next % BLOCK) as usize),
            };
            runs.push((self.next, taken..taken + left));
            taken += left;
            self.next += left as i64;
            if self.next % BLOCK == 0 {
                self.next += self.others;
            }
        }
        runs
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
        let replaced = Self::new(
            children.swap_remove(0),
            self.schema(),
            self.hidden.clone(),
            Arc::clone(&self.recorder),
        );
        Ok(Arc::new(replaced.in_task(self.task)))
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
        let partitions = self.properties.output_partitioning().partition_count();
        if partition >= partitions {
            return internal_err!("OutputRecordsExec has {partitions} partitions: no {partition}");
        }
        let ResultTask { index, count } = self.task;
        let mut numbers = RowNumbers::of_stream(index * partitions + partition, count * partitions);
        let schema = self.schema();
        let recorder = Arc::clone(&self.recorder);
        let mut keeping = Keeping::new(&self.hidden, &self.recorder);
        let stream = self.input.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let started = Instant::now();
            match &mut keeping {
                Keeping::Log(records) => {
                    for (first_row, rows) in numbers.take(batch.num_rows()) {
                        let run = batch.slice(rows.start, rows.len());
                        for records in records.iter() {
                            log(&recorder, records, &run, first_row);
                        }
                    }
                }
                Keeping::Sum(blamed) => blamed.add(&batch)?,
            }
            recorder.overhead(started.elapsed());
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

/// [`Hidden`], while the rows of a partition pass.
enum Keeping {
    Log(Vec<ResultRecords>),
    Sum(Blamed),
}

impl Keeping {
    fn new(hidden: &Hidden, recorder: &Arc<Recorder>) -> Self {
        match hidden {
            Hidden::Logged(records) => Self::Log(records.clone()),
            Hidden::Carried(inputs, sources) => Self::Sum(Blamed::new(
                Arc::clone(inputs),
                Arc::clone(sources),
                Arc::clone(recorder),
            )),
        }
    }
}

fn log(recorder: &Recorder, records: &ResultRecords, batch: &RecordBatch, first_row: i64) {
    let ids = widened(batch.column(records.id_column));
    let ids: &Int64Array = ids.as_primitive::<Int64Type>();
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
        let made = |id: &i64| records.source.operator_of(*id) == operator_id;
        let of_operator: Int64Array = match operators.len() {
            1 => ids.clone(),
            _ => ids.iter().map(|id| id.filter(made)).collect(),
        };
        // A latency may be shared by all records of a row; no record has none.
        let latency = latency.iter().enumerate();
        let latency = latency.map(|(row, ps)| if of_operator.is_valid(row) { *ps } else { 0 });
        let latency: Vec<i64> = latency.collect();
        recorder.output_records(OutputChunk {
            first_output_row: first_row,
            operator_id,
            table_name: records.source.table_name(),
            record_ids: Ids::encode_nullable(&of_operator),
            latency: Latencies::encode(&latency),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_rows_of_one_stream_are_numbered_one_after_the_other() {
        let mut numbers = RowNumbers::of_stream(0, 1);
        assert_eq!(numbers.take(10_000), [(0, 0..10_000)]);
        assert_eq!(numbers.take(0), []);
        assert_eq!(numbers.take(2), [(10_000, 0..2)]);
    }

    #[test]
    fn no_two_rows_of_several_streams_have_one_number() {
        let mut seen = BTreeSet::new();
        let mut given = 0;
        for stream in 0..6 {
            let mut numbers = RowNumbers::of_stream(stream, 6);
            for rows in [1, 8191, 0, 100, 20_000, stream * 5000] {
                let mut covered = 0;
                for (first, of_rows) in numbers.take(rows) {
                    assert_eq!(of_rows.start, covered);
                    covered = of_rows.end;
                    seen.extend(first..first + of_rows.len() as i64);
                }
                assert_eq!(covered, rows);
                given += rows;
            }
        }
        assert_eq!(seen.len(), given);
        // As long as streams have as many rows each there are no gaps.
        let mut streams: Vec<_> = (0..3)
            .map(|stream| RowNumbers::of_stream(stream, 3))
            .collect();
        let mut all: Vec<i64> = Vec::new();
        for numbers in &mut streams {
            for (first, rows) in numbers.take(2 * BLOCK as usize) {
                all.extend(first..first + rows.len() as i64);
            }
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..6 * BLOCK));
    }
}
