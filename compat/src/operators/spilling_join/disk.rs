//! Rows of several parts in one temporary file.
//!
//! A file per part would be simpler, but a plan with many joins on many threads would open thousands.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::spill_file::{SpillFile, SpillWriter};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use tokio::task::JoinHandle;

/// Where to write, and what is counted of it.
#[derive(Clone)]
pub(super) struct Disk {
    manager: Arc<DiskManager>,
    compression: Option<CompressionType>,
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
    /// Made when something is written: without, nothing is shown.
    counted: Arc<OnceLock<SpillMetrics>>,
}

impl Disk {
    pub(super) fn new(
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Self {
        Self {
            manager: Arc::clone(&context.runtime_env().disk_manager),
            compression: context.session_config().spill_compression().into(),
            metrics: metrics.clone(),
            partition,
            counted: Arc::default(),
        }
    }

    fn counted(&self) -> &SpillMetrics {
        self.counted
            .get_or_init(|| SpillMetrics::new(&self.metrics, self.partition))
    }
}

/// Some rows of a part: an Arrow IPC stream of its own.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    offset: u64,
    bytes: usize,
}

/// Parts that are being written.
pub(super) struct PartsWriter {
    disk: Disk,
    schema: SchemaRef,
    /// Made when the first rows come.
    open: Option<(Arc<dyn SpillFile>, Box<dyn SpillWriter>)>,
    end: u64,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Default)]
struct Part {
    chunks: Vec<Chunk>,
    rows: usize,
}

impl PartsWriter {
    pub(super) fn new(disk: Disk, schema: SchemaRef) -> Self {
        Self {
            disk,
            schema,
            open: None,
            end: 0,
            parts: vec![],
        }
    }

    /// Appends the rows of `batch`, whose buffers have no others, to a part.
    ///
    /// # Errors
    /// If the directory for temporary files is full, or its limit is reached.
    pub(super) fn append(&mut self, part: usize, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if self.open.is_none() {
            let file = self.disk.manager.create_tmp_file("joining")?;
            let writer = file.open_writer()?;
            self.disk.counted().spill_file_count.add(1);
            self.open = Some((file, writer));
        }
        let Some((_, writer)) = &mut self.open else {
            return internal_err!("the temporary file of a join is not open");
        };
        let options = IpcWriteOptions::default().try_with_compression(self.disk.compression)?;
        let mut encoder = StreamWriter::try_new_with_options(vec![], &self.schema, options)?;
        encoder.write(batch)?;
        let bytes = encoder.into_inner()?;
        writer.write_all(&bytes).map_err(from_io)?;
        if self.parts.len() <= part {
            self.parts.resize(part + 1, Part::default());
        }
        let written = &mut self.parts[part];
        written.chunks.push(Chunk {
            offset: self.end,
            bytes: bytes.len(),
        });
        written.rows += batch.num_rows();
        self.end += bytes.len() as u64;
        self.disk.counted().spilled_bytes.add(bytes.len());
        self.disk.counted().spilled_rows.add(batch.num_rows());
        Ok(())
    }

    /// What was written, to be read.
    pub(super) fn finish(self) -> Result<Parts> {
        let file = match self.open {
            Some((file, mut writer)) => {
                writer.flush().map_err(from_io)?;
                writer.finish()?;
                Some(file)
            }
            None => None,
        };
        Ok(Parts {
            file,
            schema: self.schema,
            parts: self.parts,
        })
    }
}

/// The error of the temporary file's limit comes as one of input and output.
fn from_io(error: std::io::Error) -> DataFusionError {
    match error.downcast::<DataFusionError>() {
        Ok(error) => error,
        Err(error) => DataFusionError::IoError(error),
    }
}

/// Parts that have been written. The file is deleted when nobody has or reads it any more.
pub(super) struct Parts {
    file: Option<Arc<dyn SpillFile>>,
    schema: SchemaRef,
    parts: Vec<Part>,
}

impl Parts {
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn rows(&self, part: usize) -> usize {
        self.parts.get(part).map_or(0, |part| part.rows)
    }

    /// The rows of a part in the order in which they were written.
    pub(super) fn read(&self, part: usize) -> SendableRecordBatchStream {
        let chunks = self.parts.get(part).map(|part| part.chunks.clone());
        let reader = Reader {
            file: self.file.clone(),
            chunks: chunks.unwrap_or_default().into_iter(),
            ahead: None,
            opened: None,
        };
        let batches = futures::stream::try_unfold(reader, |mut reader| async move {
            let batch = reader.next().await?;
            Ok(batch.map(|batch| (batch, reader)))
        });
        let schema = Arc::clone(&self.schema);
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}

/// The file, and the bytes of a chunk of it.
type ReadAhead = (File, Vec<u8>);

/// Reads a chunk while the one before is worked on.
struct Reader {
    file: Option<Arc<dyn SpillFile>>,
    chunks: std::vec::IntoIter<Chunk>,
    ahead: Option<JoinHandle<std::io::Result<ReadAhead>>>,
    opened: Option<File>,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.ahead.is_none() {
            self.read_ahead()?;
        }
        let Some(ahead) = self.ahead.take() else {
            return Ok(None);
        };
        let read = ahead
            .await
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        let (file, bytes) = read.map_err(DataFusionError::IoError)?;
        self.opened = Some(file);
        self.read_ahead()?;
        let mut bytes = Buffer::from(bytes);
        let batch = StreamDecoder::new().decode(&mut bytes)?;
        batch
            .map(Some)
            .ok_or_else(|| internal_datafusion_err!("a temporary file of a join is cut off"))
    }

    fn read_ahead(&mut self) -> Result<()> {
        let Some(chunk) = self.chunks.next() else {
            return Ok(());
        };
        let opened = self.opened.take();
        let file = self.file.clone();
        self.ahead = Some(tokio::task::spawn_blocking(move || {
            let path = file.as_ref().and_then(|file| file.path());
            let path = path.ok_or(std::io::ErrorKind::NotFound)?;
            let mut opened = match opened {
                Some(opened) => opened,
                None => File::open(path)?,
            };
            opened.seek(SeekFrom::Start(chunk.offset))?;
            let mut bytes = Vec::with_capacity(chunk.bytes);
            let read = (&mut opened)
                .take(chunk.bytes as u64)
                .read_to_end(&mut bytes)?;
            if read < chunk.bytes {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            Ok((opened, bytes))
        }));
        Ok(())
    }
}
