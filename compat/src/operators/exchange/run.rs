//! Batches of an exchange on disk.

use std::io::BufWriter;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, SpillFile, SpillWriter};
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::SpillMetrics;
use parking_lot::Mutex;

/// A run that has so many bytes gets no more: then a new one is begun, so that disk space is given back
/// while an output is read.
const RUN_BYTES: usize = 128 << 20;

/// Where an output of an exchange spills to.
pub(super) struct Spills {
    environment: Arc<RuntimeEnv>,
    metrics: SpillMetrics,
    reader: SpillManager,
}

impl Spills {
    /// Batches of `schema` are written to the temp directory of `environment`.
    pub(super) fn new(
        environment: Arc<RuntimeEnv>,
        metrics: SpillMetrics,
        schema: SchemaRef,
    ) -> Self {
        let reader = SpillManager::new(Arc::clone(&environment), metrics.clone(), schema);
        Self {
            environment,
            metrics,
            reader,
        }
    }

    /// Begins a run with a batch.
    ///
    /// # Errors
    /// If the batch cannot be written.
    pub(super) fn begin(&self, batch: &RecordBatch) -> Result<Run> {
        let disk = &self.environment.disk_manager;
        let file = disk.create_tmp_file("rows of an exchange")?;
        let to = BufWriter::new(file.open_writer()?);
        let writer = StreamWriter::try_new(to, self.reader.schema())?;
        self.metrics.spill_file_count.add(1);
        let run = Run {
            file,
            metrics: self.metrics.clone(),
            state: Mutex::new(State::Open {
                writer: Box::new(writer),
                bytes: 0,
            }),
        };
        run.append(batch)?;
        Ok(run)
    }

    /// Reads a run, to which nothing is appended any more.
    ///
    /// # Errors
    /// If it could not be written.
    pub(super) fn read(&self, run: &Run) -> Result<SendableRecordBatchStream> {
        run.seal()?;
        let file = Arc::clone(&run.file);
        self.reader.read_spill_as_stream(file, None)
    }
}

/// Batches in a file. It is appended to until it is sealed, and read only then: so its reader waits for
/// nobody.
pub(super) struct Run {
    file: Arc<dyn SpillFile>,
    metrics: SpillMetrics,
    state: Mutex<State>,
}

enum State {
    Open {
        writer: Box<StreamWriter<BufWriter<Box<dyn SpillWriter>>>>,
        bytes: usize,
    },
    Sealed,
    Failed(Arc<DataFusionError>),
}

impl Run {
    /// Appends a batch; `false` if the run is sealed.
    ///
    /// # Errors
    /// If the batch cannot be written. Nobody can read the run then.
    pub(super) fn append(&self, batch: &RecordBatch) -> Result<bool> {
        let mut state = self.state.lock();
        let State::Open { writer, bytes } = &mut *state else {
            return Ok(false);
        };
        if *bytes >= RUN_BYTES {
            self.finish(&mut state)?;
            return Ok(false);
        }
        let batch = compact(batch)?;
        if let Err(error) = writer.write(&batch) {
            return Err(failed(&mut state, error.into()));
        }
        *bytes += batch.get_array_memory_size();
        self.metrics.spilled_rows.add(batch.num_rows());
        Ok(true)
    }

    /// Ends the file.
    fn seal(&self) -> Result<()> {
        let mut state = self.state.lock();
        match &*state {
            State::Open { .. } => self.finish(&mut state),
            State::Sealed => Ok(()),
            State::Failed(error) => Err(DataFusionError::Shared(Arc::clone(error))),
        }
    }

    fn finish(&self, state: &mut State) -> Result<()> {
        let State::Open { writer, .. } = std::mem::replace(state, State::Sealed) else {
            return Ok(());
        };
        let finished = writer.into_inner().map_err(DataFusionError::from);
        let finished = finished.and_then(|to| {
            let mut to = to.into_inner().map_err(|error| error.into_error())?;
            to.finish()
        });
        if let Err(error) = finished {
            return Err(failed(state, error));
        }
        let size = self.file.size().unwrap_or(0);
        self.metrics.spilled_bytes.add(size as usize);
        Ok(())
    }
}

/// Keeps an error for all who have to do with the run.
fn failed(state: &mut State, error: DataFusionError) -> DataFusionError {
    let error = Arc::new(error);
    *state = State::Failed(Arc::clone(&error));
    DataFusionError::Shared(error)
}

/// The same rows, without what other rows left behind views.
fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let has_views = |column: &ArrayRef| {
        matches!(
            column.data_type(),
            DataType::Utf8View | DataType::BinaryView
        )
    };
    if !batch.columns().iter().any(has_views) {
        return Ok(batch.clone());
    }
    let columns = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        });
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}
