//! What the record level's operators say of records, as it travels to workers in their plans.
//!
//! A plan defines what it names: workers share nothing with whoever planned the query. Scans are
//! their tables and their numbers. An aggregate is known by the numbers of its operators; every
//! worker has its own counters for it, of which the tasks of one query must use the same, so that
//! no two records get one id.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::common::{Result, exec_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::DistributedTaskContext;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use skewer_exec::{
    AggregateOrigin, CapturedFrames, CapturedInput, CarriedInput, FrameCapture, Hidden, KeySample,
    LineageCapture, OutputRecordsExec, RecordOrigin, ResultRecords, ResultTask, Sampled,
    ScanOrigin,
};
use skewer_profiling::{Recorder, Sources};

/// No aggregate has more operators than these: ids of records have no room for more.
const MOST_OPERATORS: usize = 7;
const _: () = assert!(skewer_exec::frames::OPERATOR_PAIRS <= MOST_OPERATORS);

/// The operators of an aggregate, each with the number for merging what it has spilled.
type Operators = Vec<(i64, i64)>;

/// A source of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EncodedSource {
    /// [`ScanOrigin`].
    Scan {
        table_name: String,
        operator_id: i64,
    },
    /// [`AggregateOrigin`].
    Aggregate(Operators),
}

/// A function that logs lineage, without its name.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EncodedCapture {
    inputs: Vec<EncodedInput>,
    groups: Operators,
}

/// [`CapturedFrames`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EncodedFrames {
    Logged(EncodedCapture),
    Carried(Vec<EncodedCarried>),
}

/// [`CapturedInput`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EncodedInput {
    source: EncodedSource,
    id_argument: usize,
    latency_arguments: Vec<usize>,
}

/// [`OutputRecordsExec`] without its input.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EncodedOutputs {
    /// How many columns the result has.
    columns: usize,
    hidden: EncodedHidden,
}

/// [`Hidden`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum EncodedHidden {
    Logged(Vec<EncodedRecords>),
    Carried {
        inputs: Vec<EncodedCarried>,
        tables: Vec<String>,
    },
}

/// [`CarriedInput`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EncodedCarried {
    records: usize,
    latencies: Vec<usize>,
}

impl From<&CarriedInput> for EncodedCarried {
    fn from(input: &CarriedInput) -> Self {
        Self {
            records: input.records,
            latencies: input.latencies.clone(),
        }
    }
}

impl From<EncodedCarried> for CarriedInput {
    fn from(input: EncodedCarried) -> Self {
        Self {
            records: input.records,
            latencies: input.latencies,
        }
    }
}

/// [`ResultRecords`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EncodedRecords {
    source: EncodedSource,
    id_column: usize,
    latency_columns: Vec<usize>,
}

impl From<&OutputRecordsExec> for EncodedOutputs {
    fn from(outputs: &OutputRecordsExec) -> Self {
        let logged = |records: &ResultRecords| EncodedRecords {
            source: (&records.source).into(),
            id_column: records.id_column,
            latency_columns: records.latency_columns.clone(),
        };
        Self {
            columns: outputs.schema().fields().len(),
            hidden: match outputs.hidden() {
                Hidden::Logged(records) => {
                    EncodedHidden::Logged(records.iter().map(logged).collect())
                }
                Hidden::Carried(inputs, sources) => EncodedHidden::Carried {
                    inputs: inputs.iter().map(Into::into).collect(),
                    tables: sources.tables().iter().map(ToString::to_string).collect(),
                },
            },
        }
    }
}

impl From<&RecordOrigin> for EncodedSource {
    fn from(source: &RecordOrigin) -> Self {
        match source {
            RecordOrigin::Scan(scan) => Self::Scan {
                table_name: scan.table_name.to_string(),
                operator_id: scan.operator_id(),
            },
            RecordOrigin::Aggregate(aggregate) => Self::Aggregate(aggregate.operators()),
        }
    }
}

impl EncodedCapture {
    fn new(inputs: &[CapturedInput], groups: &AggregateOrigin) -> Self {
        let inputs = inputs.iter().map(|input| EncodedInput {
            source: (&input.source).into(),
            id_argument: input.id_argument,
            latency_arguments: input.latency_arguments.clone(),
        });
        Self {
            inputs: inputs.collect(),
            groups: groups.operators(),
        }
    }
}

impl From<&LineageCapture> for EncodedCapture {
    fn from(capture: &LineageCapture) -> Self {
        Self::new(capture.inputs(), capture.groups())
    }
}

impl From<&FrameCapture> for EncodedFrames {
    fn from(capture: &FrameCapture) -> Self {
        match capture.frames() {
            CapturedFrames::Logged(inputs, frames) => {
                Self::Logged(EncodedCapture::new(inputs, frames))
            }
            CapturedFrames::Carried(inputs) => {
                Self::Carried(inputs.iter().map(Into::into).collect())
            }
        }
    }
}

/// The aggregates and the functions that log lineage of one query on one worker, as far as its
/// tasks have brought them.
#[derive(Debug, Default)]
pub struct QueryRecords {
    aggregates: Mutex<HashMap<Operators, Arc<AggregateOrigin>>>,
    captures: Mutex<HashMap<String, Arc<AggregateUDF>>>,
    keys: Mutex<Vec<Weak<KeySample>>>,
}

impl QueryRecords {
    /// The source of a definition.
    ///
    /// # Errors
    /// If no plan has such a source.
    pub(crate) fn source(&self, source: EncodedSource) -> Result<RecordOrigin> {
        Ok(match source {
            EncodedSource::Scan {
                table_name,
                operator_id,
            } => RecordOrigin::Scan(Arc::new(ScanOrigin::with_operator(
                &table_name,
                operator_id,
            ))),
            EncodedSource::Aggregate(operators) => {
                RecordOrigin::Aggregate(self.aggregate(operators)?)
            }
        })
    }

    fn aggregate(&self, operators: Operators) -> Result<Arc<AggregateOrigin>> {
        if operators.len() > MOST_OPERATORS {
            return exec_err!("an aggregate has no {} operators", operators.len());
        }
        let mut aggregates = self.aggregates.lock();
        let known = aggregates.entry(operators).or_insert_with_key(|operators| {
            Arc::new(AggregateOrigin::with_operators(operators.clone()))
        });
        Ok(Arc::clone(known))
    }

    /// What a definition says is captured, and what gives ids to what is made of it.
    fn captured(
        &self,
        capture: EncodedCapture,
    ) -> Result<(Vec<CapturedInput>, Arc<AggregateOrigin>)> {
        let inputs = capture.inputs.into_iter().map(|input| {
            Ok(CapturedInput {
                source: self.source(input.source)?,
                id_argument: input.id_argument,
                latency_arguments: input.latency_arguments,
            })
        });
        Ok((
            inputs.collect::<Result<_>>()?,
            self.aggregate(capture.groups)?,
        ))
    }

    /// The function of a window's definition, called `name`, which logs to `recorder`.
    ///
    /// # Errors
    /// If no plan has such a function.
    pub(crate) fn frames(
        &self,
        name: &str,
        frames: EncodedFrames,
        recorder: &Arc<Recorder>,
    ) -> Result<FrameCapture> {
        let captured = match frames {
            EncodedFrames::Logged(capture) => {
                let (inputs, frames) = self.captured(capture)?;
                CapturedFrames::Logged(inputs, frames)
            }
            EncodedFrames::Carried(inputs) => {
                CapturedFrames::Carried(inputs.into_iter().map(Into::into).collect())
            }
        };
        Ok(FrameCapture::new(
            name.to_owned(),
            Arc::clone(recorder),
            captured,
        ))
    }

    /// The function of a definition, called `name`, which logs to `recorder`; always the same for
    /// a name.
    ///
    /// # Errors
    /// If no plan has such a function.
    pub(crate) fn capture(
        &self,
        name: &str,
        capture: EncodedCapture,
        recorder: &Arc<Recorder>,
    ) -> Result<Arc<AggregateUDF>> {
        let (inputs, groups) = self.captured(capture)?;
        let mut captures = self.captures.lock();
        let known = captures.entry(name.to_owned()).or_insert_with(|| {
            let capture =
                LineageCapture::new(name.to_owned(), Arc::clone(recorder), inputs, groups);
            Arc::new(AggregateUDF::from(capture))
        });
        Ok(Arc::clone(known))
    }

    /// The operator of a definition on top of `input`, in the task of `context`, which logs to
    /// `recorder`.
    ///
    /// # Errors
    /// If no plan has such an operator.
    pub(crate) fn outputs(
        &self,
        outputs: EncodedOutputs,
        input: &Arc<dyn ExecutionPlan>,
        context: &TaskContext,
        recorder: &Arc<Recorder>,
    ) -> Result<OutputRecordsExec> {
        let hidden = input.schema();
        if outputs.columns > hidden.fields().len() {
            return exec_err!("{} columns of {hidden}", outputs.columns);
        }
        let schema = hidden.project(&(0..outputs.columns).collect::<Vec<_>>())?;
        let logged = |records: EncodedRecords| {
            Ok(ResultRecords {
                source: self.source(records.source)?,
                id_column: records.id_column,
                latency_columns: records.latency_columns,
            })
        };
        let kept = match outputs.hidden {
            EncodedHidden::Logged(records) => {
                let records = records.into_iter().map(logged);
                Hidden::Logged(records.collect::<Result<_>>()?)
            }
            EncodedHidden::Carried { inputs, tables } => {
                let sources = Sources::new(tables.iter().map(String::as_str));
                let inputs = inputs.into_iter().map(Into::into);
                Hidden::Carried(inputs.collect(), Arc::new(sources))
            }
        };
        let task = context
            .session_config()
            .get_extension::<DistributedTaskContext>();
        let task = task.map_or(ResultTask::ALONE, |task| ResultTask {
            index: task.task_index,
            count: task.task_count,
        });
        let (input, recorder) = (Arc::clone(input), Arc::clone(recorder));
        let logged = OutputRecordsExec::new(input, Arc::new(schema), kept, recorder);
        Ok(logged.in_task(task))
    }

    /// A sample of the keys in `columns` of what goes into an exchange or a join.
    pub(crate) fn keys(
        &self,
        columns: Vec<usize>,
        of: Sampled,
        recorder: &Arc<Recorder>,
    ) -> Arc<KeySample> {
        let sample = Arc::new(KeySample::new(columns, of, recorder));
        self.keys.lock().push(Arc::downgrade(&sample));
        sample
    }

    /// Has all samples of keys reported: the query has ended, even if its plans are kept.
    pub(crate) fn report_keys(&self) {
        for sample in self.keys.lock().drain(..) {
            if let Some(sample) = sample.upgrade() {
                sample.report();
            }
        }
    }
}
