//! Joins one partition: as a whole, or part by part.

mod pairs;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use parking_lot::Mutex;

use self::pairs::Pair;
use super::blocks::{Blocks, Next, in_memory};
use super::build::{Built, portion};
use super::disk::Disk;
use super::pieces::batch_of;
use super::probe::{GoingOn, Splitter, with_numbers};
use super::runs::Runs;
use super::spec::{Inputs, Spec};
use super::stage::{Rest, Stage, unaccounted};

/// What is counted of a partition that is not joined as a whole.
struct Counted {
    baseline: BaselineMetrics,
    disk: Disk,
    build_memory: Gauge,
    build_rows: Count,
}

impl Counted {
    fn new(context: &TaskContext, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(metrics, partition),
            disk: Disk::new(context, metrics, partition),
            build_memory: MetricBuilder::new(metrics).gauge("build_mem_used", partition),
            build_rows: MetricBuilder::new(metrics).counter("build_input_rows", partition),
        }
    }
}

/// Joins a partition.
pub(super) struct Driver {
    spec: Arc<Spec>,
    partition: usize,
    context: Arc<TaskContext>,
    unaccounted: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    /// Until the join begins.
    start: Option<(Arc<Stage>, SendableRecordBatchStream)>,
    /// Once it is clear that not all fits.
    counted: Option<Counted>,
    at_work: Option<Work>,
    pairs: Vec<Pair>,
    /// If rows are promised in order.
    runs: Option<Runs>,
    /// How many rows may still be returned.
    rows_left: usize,
}

enum Work {
    /// A join of everything, or rows in order of all joins.
    Whole {
        rows: SendableRecordBatchStream,
        _built: Option<Arc<Built>>,
    },
    InMemory(InMemory),
    Blocks(Box<Blocks>),
}

/// A join of what is in memory.
struct InMemory {
    rows: SendableRecordBatchStream,
    built: Arc<Built>,
    /// What else goes to disk meanwhile.
    splitter: Option<Arc<Mutex<Splitter>>>,
    /// What partitions have in common, and how many there are, if they still do.
    shared: Option<(Arc<Rest>, usize)>,
}

impl Driver {
    pub(super) fn new(
        spec: &Arc<Spec>,
        partition: usize,
        context: Arc<TaskContext>,
        metrics: ExecutionPlanMetricsSet,
        stage: Arc<Stage>,
        probe: SendableRecordBatchStream,
    ) -> Self {
        Self {
            partition,
            unaccounted: unaccounted(&context),
            context,
            metrics,
            start: Some((stage, probe)),
            counted: None,
            at_work: None,
            pairs: vec![],
            runs: None,
            rows_left: spec.fetch.unwrap_or(usize::MAX),
            spec: Arc::clone(spec),
        }
    }

    /// The join's rows.
    pub(super) fn stream(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.spec.schema);
        let rows = futures::stream::try_unfold(self, |mut driver| async move {
            let batch = driver.next().await?;
            Ok(batch.map(|batch| (batch, driver)))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some((stage, probe)) = self.start.take() {
            self.begin(stage, probe).await?;
        }
        if self.rows_left == 0 && self.counted.is_some() {
            self.stop();
        }
        while let Some(batch) = self.next_rows().await? {
            if batch.num_rows() == 0 {
                continue;
            }
            let Some(counted) = &self.counted else {
                return Ok(Some(batch));
            };
            let rows = batch.num_rows().min(self.rows_left);
            self.rows_left -= rows;
            let own = batch.columns()[..self.spec.own_columns().len()].to_vec();
            let batch = batch_of(&self.spec.schema, own, batch.num_rows())?.slice(0, rows);
            return Ok(Some(batch.record_output(&counted.baseline)));
        }
        Ok(None)
    }

    fn stop(&mut self) {
        self.at_work = None;
        self.pairs.clear();
        self.runs = None;
    }

    async fn begin(&mut self, stage: Arc<Stage>, probe: SendableRecordBatchStream) -> Result<()> {
        let built = stage.building.clone().await;
        let built = built.map_err(DataFusionError::Shared)?;
        let Some(on_disk) = &built.on_disk else {
            let rows = self.start_join(&stage.whole, &built, self.partition, probe)?;
            self.count_for_the_plan(&stage.whole);
            self.at_work = Some(Work::Whole {
                rows,
                _built: Some(built),
            });
            return Ok(());
        };
        self.cancel_dynamic_filter(&stage)?;
        let counted = Counted::new(&self.context, &self.metrics, self.partition);
        if self.partition == 0 || !self.spec.collects_left {
            counted.build_memory.set_max(built.reservation.size());
            let rows = (0..on_disk.parts.len()).map(|part| on_disk.parts.rows(part));
            counted.build_rows.add(rows.sum());
        }
        if self.spec.ordered {
            self.runs = Some(Runs::new(counted.disk.clone(), &self.spec.schema));
        }
        let probe = self.numbered(probe);
        let (rest, partitions) = (&stage.shared, stage.partitions);
        let splitter = Splitter::new(&self.spec, probe, on_disk, counted.disk.clone())
            .with_portion(portion(&self.context), built.reservation.new_empty())
            .telling(&rest.seen);
        self.counted = Some(counted);
        let splitter = Arc::new(Mutex::new(splitter));
        let (inputs, partition) = match partitions {
            1 => (Arc::new(self.inputs(PartitionMode::Partitioned, 1)?), 0),
            _ => (self.shared_inputs(&stage)?, self.partition),
        };
        let probe = Box::pin(GoingOn(Arc::clone(&splitter)));
        let probe = (self.spec.pace)(probe, &self.context);
        let rows = self.start_join(&inputs, &built, partition, probe)?;
        self.begin_run();
        self.at_work = Some(Work::InMemory(InMemory {
            rows,
            built,
            splitter: Some(splitter),
            shared: Some((Arc::clone(rest), partitions)),
        }));
        Ok(())
    }

    /// A hash join counts for the plan node that it was made of; others count for themselves.
    fn count_for_the_plan(&self, whole: &Inputs) {
        if self.spec.has_no_keys()
            && let Some(metrics) = whole.join.metrics()
        {
            let own = metrics.iter();
            for metric in own.filter(|metric| metric.partition() == Some(self.partition)) {
                self.metrics.register(Arc::clone(metric));
            }
        }
    }

    /// Lets whoever waits for the build sides of all partitions not wait for this one.
    fn cancel_dynamic_filter(&self, stage: &Stage) -> Result<()> {
        let whole = &stage.whole;
        if self.spec.collects_left {
            return Ok(());
        }
        let none = |schema| in_memory(&schema, vec![]);
        let partition = self.partition;
        whole.left.put(partition, none(whole.left.schema()));
        whole.right.put(partition, none(whole.right.schema()));
        let context = Arc::clone(&self.unaccounted);
        drop(whole.join.execute(partition, context)?);
        Ok(())
    }

    fn numbered(&self, probe: SendableRecordBatchStream) -> SendableRecordBatchStream {
        if !self.spec.ordered {
            return probe;
        }
        with_numbers(&self.spec.probe_schema, probe)
    }

    /// The join of what is in memory with the probe sides of all partitions.
    fn shared_inputs(&self, stage: &Stage) -> Result<Arc<Inputs>> {
        let mut in_memory = stage.in_memory.lock();
        if let Some(inputs) = &*in_memory {
            return Ok(Arc::clone(inputs));
        }
        let inputs = Arc::new(self.inputs(PartitionMode::CollectLeft, stage.partitions)?);
        *in_memory = Some(Arc::clone(&inputs));
        Ok(inputs)
    }

    fn inputs(&self, mode: PartitionMode, partitions: usize) -> Result<Inputs> {
        let columns = self.spec.columns(self.spec.numbers());
        let (kind, probe_schema) = (self.spec.kind, &self.spec.probe_schema);
        self.spec
            .part(kind, mode, probe_schema, partitions, columns)
    }

    /// Joins build rows in memory with probe rows.
    fn start_join(
        &self,
        inputs: &Inputs,
        built: &Built,
        partition: usize,
        probe: SendableRecordBatchStream,
    ) -> Result<SendableRecordBatchStream> {
        {
            // Who comes second to what all have in common waits until it is there.
            let mut rows = built.rows.lock();
            if let Some(rows) = rows.take() {
                let of_left = if inputs.collects_left { 0 } else { partition };
                let rows = in_memory(&self.spec.build_schema, rows);
                inputs.left.put(of_left, rows);
            }
        }
        inputs.right.put(partition, probe);
        inputs
            .join
            .execute(partition, Arc::clone(&self.unaccounted))
    }

    fn begin_run(&mut self) {
        if let Some(runs) = &mut self.runs {
            runs.begin();
        }
    }

    /// The next rows of any part; if they are to be in order, when all are there.
    async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let rows = match &mut self.at_work {
                None => match (self.pairs.pop(), self.runs.take()) {
                    (Some(pair), runs) => {
                        self.runs = runs;
                        self.begin_pair(pair).await?;
                        continue;
                    }
                    (None, Some(runs)) => {
                        self.at_work = Some(Work::Whole {
                            rows: runs.merge(&self.context)?,
                            _built: None,
                        });
                        continue;
                    }
                    (None, None) => return Ok(None),
                },
                Some(Work::Whole { rows, .. }) => match rows.next().await.transpose()? {
                    Some(batch) => return Ok(Some(batch)),
                    None => {
                        self.at_work = None;
                        continue;
                    }
                },
                Some(Work::InMemory(join)) => match join.rows.next().await.transpose()? {
                    Some(batch) => batch,
                    None => {
                        self.end_in_memory().await?;
                        continue;
                    }
                },
                Some(Work::Blocks(blocks)) => match blocks.next().await? {
                    Next::Rows(batch) => batch,
                    Next::Turn => {
                        self.begin_run();
                        continue;
                    }
                    Next::Nothing => {
                        self.at_work = None;
                        continue;
                    }
                },
            };
            match &mut self.runs {
                Some(runs) => runs.append(&rows)?,
                None => return Ok(Some(rows)),
            }
        }
    }
}
