//! Rows of one table of schema `sys` as a Parquet file, on disk or, for a database in memory,
//! in memory.

use std::fs::File;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::arrow::{ArrowWriter, ProjectionMask};
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::reader::ChunkReader;
use datafusion::parquet::file::statistics::Statistics;
use datafusion::parquet::schema::types::ColumnPath;

use crate::definition::{Kind, TableDefinition};
use crate::query_ids::QueryIds;

/// Why a segment of schema `sys` could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The file cannot be created, written, renamed or opened.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what was written.
    #[error("{place}: damaged: {source}")]
    Damaged {
        /// The file, or the table if it is in memory.
        place: String,
        /// What is wrong with it.
        source: ParquetError,
    },
}

/// A row group is closed at the end of a query's rows once it has this many rows, so that a
/// query's rows are found without reading much of other queries.
const ROW_GROUP_ROWS: usize = 64 * 1024;

/// Rows of a batch that is read: DataFusion's own default.
const BATCH_ROWS: usize = 8192;

/// A Parquet file of one table.
#[derive(Debug)]
pub(crate) struct Segment {
    table: &'static TableDefinition,
    data: Data,
    bytes: u64,
    /// Removed from disk when the last reader is done with it.
    doomed: AtomicBool,
    metadata: OnceLock<Option<ArrowReaderMetadata>>,
}

#[derive(Debug, Clone)]
enum Data {
    Disk(PathBuf),
    Memory(Bytes),
}

/// Where segments go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// A file of this path; its directory exists.
    Disk(&'a Path),
    Memory,
}

impl Segment {
    /// A file that an earlier process wrote. It is not read before it is scanned.
    pub(crate) fn found(table: &'static TableDefinition, path: PathBuf, bytes: u64) -> Segment {
        Segment::new(table, Data::Disk(path), bytes)
    }

    fn new(table: &'static TableDefinition, data: Data, bytes: u64) -> Segment {
        Segment {
            table,
            data,
            bytes,
            doomed: AtomicBool::new(false),
            metadata: OnceLock::new(),
        }
    }

    /// Writes batches, ordered by query, of which each holds rows of whole queries or a part of
    /// one. The file appears under its name only when it is complete.
    ///
    /// It is not synced: a crash of the machine may leave it damaged, and then it is skipped.
    pub(crate) fn write(
        table: &'static TableDefinition,
        target: Target<'_>,
        batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
    ) -> Result<Segment, SegmentError> {
        match target {
            Target::Memory => {
                let mut buffer = Vec::new();
                write(table, &mut buffer, batches).map_err(|source| SegmentError::Damaged {
                    place: format!("sys.{}", table.name),
                    source,
                })?;
                buffer.shrink_to_fit();
                let bytes = buffer.len() as u64;
                Ok(Segment::new(table, Data::Memory(buffer.into()), bytes))
            }
            Target::Disk(path) => {
                let temporary = path.with_extension("tmp");
                let failed = |source| SegmentError::Io {
                    path: path.to_owned(),
                    source,
                };
                let written = File::create(&temporary)
                    .map_err(ParquetError::from)
                    .and_then(|file| write(table, io::BufWriter::new(file), batches))
                    .map_err(io::Error::other)
                    .and_then(|()| std::fs::rename(&temporary, path));
                if let Err(source) = written {
                    // The error that matters is the first one; a leftover is removed at open.
                    let _ = std::fs::remove_file(&temporary);
                    return Err(failed(source));
                }
                let bytes = std::fs::metadata(path).map_err(failed)?.len();
                Ok(Segment::new(table, Data::Disk(path.to_owned()), bytes))
            }
        }
    }

    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the file as soon as nobody reads it.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    /// The file's footer, read once; `Err` the first time that it turns out to be unreadable,
    /// `Ok(None)` afterwards.
    fn metadata(&self) -> Result<Option<&ArrowReaderMetadata>, SegmentError> {
        if let Some(known) = self.metadata.get() {
            return Ok(known.as_ref());
        }
        let read = match &self.data {
            Data::Memory(bytes) => self.load(bytes),
            Data::Disk(path) => open(path).and_then(|file| self.load(&file)),
        };
        match read {
            Ok(metadata) => Ok(self.metadata.get_or_init(|| Some(metadata)).as_ref()),
            Err(error) => match self.metadata.set(None) {
                Ok(()) => Err(error),
                Err(_) => Ok(None),
            },
        }
    }

    /// The row groups that may have rows of these queries, each with its number of rows.
    pub(crate) fn row_groups(&self, ids: &QueryIds) -> Result<Vec<(usize, usize)>, SegmentError> {
        let Some(metadata) = self.metadata()? else {
            return Ok(Vec::new());
        };
        let groups = metadata.metadata().row_groups().iter().enumerate();
        Ok(groups
            .filter(|(_, group)| match group.column(0).statistics() {
                Some(Statistics::Int64(range)) => match (range.min_opt(), range.max_opt()) {
                    (Some(min), Some(max)) => ids.overlaps(*min, *max),
                    _ => true,
                },
                _ => true,
            })
            .map(|(index, group)| (index, usize::try_from(group.num_rows()).unwrap_or(0)))
            .collect())
    }

    /// Reads some row groups, and of them the table's columns `projection`. What cannot be read
    /// ends the iteration with an error.
    pub(crate) fn read(
        &self,
        row_groups: Vec<usize>,
        projection: &[usize],
    ) -> Result<impl Iterator<Item = Result<RecordBatch, SegmentError>> + use<>, SegmentError> {
        let place = self.place();
        let schema = Arc::new(
            self.table
                .schema()
                .project(projection)
                .map_err(|error| self.damaged(error.into()))?,
        );
        let mut reader = match self.metadata()? {
            None => None,
            Some(metadata) => {
                let rows = Rows {
                    metadata: metadata.clone(),
                    row_groups,
                    schema: &schema,
                };
                let reader = match &self.data {
                    Data::Memory(bytes) => rows.of(bytes.clone()),
                    Data::Disk(path) => rows.of(open(path)?),
                };
                Some(reader.map_err(|source| self.damaged(source))?)
            }
        };
        Ok(std::iter::from_fn(move || {
            let next = catch(|| {
                let next = reader.as_mut().and_then(Iterator::next).transpose()?;
                Ok(next.map(|batch| fit(&batch, &schema)).transpose()?)
            });
            match next {
                Ok(batch) => batch.map(Ok),
                Err(source) => {
                    reader = None;
                    let place = place.clone();
                    Some(Err(SegmentError::Damaged { place, source }))
                }
            }
        }))
    }

    fn load(&self, source: &impl ChunkReader) -> Result<ArrowReaderMetadata, SegmentError> {
        catch(|| ArrowReaderMetadata::load(source, ArrowReaderOptions::new()))
            .map_err(|source| self.damaged(source))
    }

    fn place(&self) -> String {
        match &self.data {
            Data::Disk(path) => path.display().to_string(),
            Data::Memory(_) => format!("sys.{} in memory", self.table.name),
        }
    }

    fn damaged(&self, source: ParquetError) -> SegmentError {
        let place = self.place();
        SegmentError::Damaged { place, source }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let (true, Data::Disk(path)) = (self.doomed.load(Ordering::Relaxed), &self.data)
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
    }
}

/// Whether a batch ends the rows of a query, so that a row group may end there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryEnd {
    Yes,
    No,
}

fn write(
    table: &TableDefinition,
    sink: impl Write + Send,
    batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
) -> ParquetResult<()> {
    let mut writer = ArrowWriter::try_new(sink, table.schema(), Some(properties(table)?))?;
    for (batch, end) in batches {
        writer.write(&batch)?;
        if end == QueryEnd::Yes && writer.in_progress_rows() >= ROW_GROUP_ROWS {
            writer.flush()?;
        }
    }
    writer.close()?;
    Ok(())
}

/// Numbers are stored as differences, which for a run of one value, too, takes next to nothing
/// and is quicker than looking every number up in a dictionary; texts as a dictionary.
fn properties(table: &TableDefinition) -> ParquetResult<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_created_by("skewer".to_owned());
    for column in table.columns {
        if matches!(
            column.kind,
            Kind::Int | Kind::OptInt | Kind::Time | Kind::OptTime
        ) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}

/// The batch with exactly the columns of `schema`; a column that the file does not have yet is
/// NULL.
fn fit(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| match batch.column_by_name(field.name()) {
            Some(column) => Arc::clone(column),
            None => new_null_array(field.data_type(), batch.num_rows()),
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Damaged files make the reader panic now and then; that is an error, too.
fn catch<T>(read: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("the reader gave up".to_owned())))
}

fn open(path: &Path) -> Result<File, SegmentError> {
    File::open(path).map_err(|source| SegmentError::Io {
        path: path.to_owned(),
        source,
    })
}

/// What to read of a file.
struct Rows<'a> {
    metadata: ArrowReaderMetadata,
    row_groups: Vec<usize>,
    schema: &'a SchemaRef,
}

impl Rows<'_> {
    fn of(self, source: impl ChunkReader + 'static) -> ParquetResult<ParquetRecordBatchReader> {
        catch(|| {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(source, self.metadata);
            let stored = builder.schema().fields();
            let wanted = self.schema.fields().iter().filter_map(|field| {
                stored
                    .iter()
                    .position(|stored| stored.name() == field.name())
            });
            let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
            builder
                .with_projection(mask)
                .with_row_groups(self.row_groups)
                .with_batch_size(BATCH_ROWS)
                .build()
        })
    }
}
