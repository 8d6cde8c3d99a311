//! Rows of one table of schema `sys` as a Parquet file, on disk or, for a database in memory,
//! in memory.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::reader::ChunkReader;
use datafusion::parquet::file::statistics::Statistics;

use crate::chunk_codec;
use crate::chunk_columns::{ChunkError, Expander};
use crate::chunk_filter::ChunkFilter;
use crate::operator_kind::{is_derived, with_kinds};
use crate::query_ids::QueryIds;
use crate::segment_writer::{QueryEnd, rows_of_groups, write};
use crate::tables::Table;

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
    /// A chunk of records is not what was written.
    #[error("a damaged chunk of {place}: {source}")]
    Chunk {
        /// The file, or the table if it is in memory.
        place: String,
        /// What is wrong with the chunk.
        source: ChunkError,
    },
}

/// Rows of a batch that is read: DataFusion's own default.
const BATCH_ROWS: usize = 8192;

/// A Parquet file of one table.
#[derive(Debug)]
pub(crate) struct Segment {
    table: Table,
    data: Data,
    bytes: u64,
    /// Removed from disk when the last reader is done with it.
    doomed: AtomicBool,
    footer: OnceLock<Option<Footer>>,
}

/// What the end of a file says.
#[derive(Debug)]
struct Footer {
    metadata: ArrowReaderMetadata,
    /// Rows of the table in each row group.
    rows: Vec<usize>,
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
    pub(crate) fn found(table: Table, path: PathBuf, bytes: u64) -> Segment {
        Segment::new(table, Data::Disk(path), bytes)
    }

    fn new(table: Table, data: Data, bytes: u64) -> Segment {
        Segment {
            table,
            data,
            bytes,
            doomed: AtomicBool::new(false),
            footer: OnceLock::new(),
        }
    }

    /// Writes batches, ordered by query, of which each holds rows of whole queries or a part of
    /// one. The file appears under its name only when it is complete.
    ///
    /// It is not synced: a crash of the machine may leave it damaged, and then it is skipped.
    pub(crate) fn write(
        table: Table,
        target: Target<'_>,
        batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
    ) -> Result<Segment, SegmentError> {
        match target {
            Target::Memory => {
                let mut buffer = Vec::new();
                write(table, &mut buffer, batches).map_err(|source| SegmentError::Damaged {
                    place: format!("sys.{}", table.name()),
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
    fn footer(&self) -> Result<Option<&Footer>, SegmentError> {
        if let Some(known) = self.footer.get() {
            return Ok(known.as_ref());
        }
        let read = match &self.data {
            Data::Memory(bytes) => self.load(bytes),
            Data::Disk(path) => open(path).and_then(|file| self.load(&file)),
        };
        match read {
            Ok(footer) => Ok(self.footer.get_or_init(|| Some(footer)).as_ref()),
            Err(error) => match self.footer.set(None) {
                Ok(()) => Err(error),
                Err(_) => Ok(None),
            },
        }
    }

    /// The row groups that may have rows of these queries, each with its number of rows.
    pub(crate) fn row_groups(&self, ids: &QueryIds) -> Result<Vec<(usize, usize)>, SegmentError> {
        let Some(footer) = self.footer()? else {
            return Ok(Vec::new());
        };
        let groups = footer.metadata.metadata().row_groups().iter();
        let groups = groups.zip(&footer.rows).enumerate();
        Ok(groups
            .filter(|(_, (group, _))| match group.column(0).statistics() {
                Some(Statistics::Int64(range)) => match (range.min_opt(), range.max_opt()) {
                    (Some(min), Some(max)) => ids.overlaps(*min, *max),
                    _ => true,
                },
                _ => true,
            })
            .map(|(index, (_, rows))| (index, *rows))
            .collect())
    }

    /// Reads a row group: the table's columns `projection` of the rows that belong to wanted
    /// queries and chunks, and maybe others. What cannot be read ends the iteration with an error,
    /// but for damaged chunks: each is an error, and the next one follows.
    pub(crate) fn read<'a>(
        &self,
        row_group: usize,
        projection: &'a [usize],
        (ids, filter): (&'a QueryIds, &'a ChunkFilter),
        expander: &'a mut Expander,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, SegmentError>> + 'a>, SegmentError>
    {
        let Some(schema) = chunk_codec::schema(self.table) else {
            return Ok(Box::new(self.read_stored(row_group, Some(projection))?));
        };
        let columns = [projection, filter.columns()].concat();
        let needed = chunk_codec::needed(&schema, &columns);
        let mut batches = self.read_stored(row_group, Some(&needed))?;
        let (table, place) = (self.table, self.place());
        let mut chunks: Option<(RecordBatch, std::vec::IntoIter<usize>)> = None;
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                while let Some((batch, wanted)) = &mut chunks
                    && let Some(chunk) = wanted.next()
                {
                    let rows = chunk_codec::expand(table, batch, chunk, projection, ids, expander);
                    if let Some(rows) = rows {
                        let place = &place;
                        return Some(rows.map_err(|source| SegmentError::Chunk {
                            place: place.clone(),
                            source,
                        }));
                    }
                }
                match batches.next()? {
                    Ok(batch) => {
                        let wanted = filter.wanted(table, &batch);
                        chunks = Some((batch, wanted.into_iter()));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
        })))
    }

    /// Reads a row group as it is stored, and of it the columns `projection` or all.
    pub(crate) fn read_stored(
        &self,
        row_group: usize,
        projection: Option<&[usize]>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, SegmentError>> + use<>, SegmentError> {
        let place = self.place();
        let chunks = chunk_codec::schema(self.table);
        let batch_rows = match &chunks {
            Some(_) => chunk_codec::BATCH_CHUNKS,
            None => BATCH_ROWS,
        };
        let mut schema = chunks.unwrap_or_else(|| self.table.definition().schema());
        if let Some(projection) = projection {
            let projected = schema.project(projection);
            schema = Arc::new(projected.map_err(|error| self.damaged(error.into()))?);
        }
        let footer = self.footer()?;
        let lacks_kinds = footer.is_some_and(|footer| self.lacks_kinds(footer, &schema));
        let stored = if lacks_kinds {
            self.table.definition().schema()
        } else {
            Arc::clone(&schema)
        };
        let mut reader = match footer {
            None => None,
            Some(footer) => {
                let rows = Rows {
                    metadata: footer.metadata.clone(),
                    row_group,
                    schema: &stored,
                    batch_rows,
                };
                let reader = match &self.data {
                    Data::Memory(bytes) => rows.read_from(bytes.clone()),
                    Data::Disk(path) => rows.read_from(open(path)?),
                };
                Some(reader.map_err(|source| self.damaged(source))?)
            }
        };
        Ok(std::iter::from_fn(move || {
            let next = catch(|| {
                let next = reader.as_mut().and_then(Iterator::next).transpose()?;
                let next = next.map(|batch| fit(&batch, &stored)).transpose()?;
                match next {
                    Some(batch) if lacks_kinds => Ok(Some(fit(&with_kinds(&batch)?, &schema)?)),
                    next => Ok(next),
                }
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

    /// Whether a version wrote the file that knew no kinds of operators, and `wanted` has any of the columns
    /// that say them.
    fn lacks_kinds(&self, footer: &Footer, wanted: &SchemaRef) -> bool {
        let mut wanted = wanted.fields().iter();
        self.table == Table::Operators
            && footer.metadata.schema().index_of("kind").is_err()
            && wanted.any(|field| is_derived(field.name()))
    }

    fn load(&self, source: &impl ChunkReader) -> Result<Footer, SegmentError> {
        let load = || {
            let metadata = ArrowReaderMetadata::load(source, ArrowReaderOptions::new())?;
            let rows = rows_of_groups(self.table, metadata.metadata())?;
            Ok(Footer { metadata, rows })
        };
        catch(load).map_err(|source| self.damaged(source))
    }

    fn place(&self) -> String {
        match &self.data {
            Data::Disk(path) => path.display().to_string(),
            Data::Memory(_) => format!("sys.{} in memory", self.table.name()),
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
    row_group: usize,
    batch_rows: usize,
    schema: &'a SchemaRef,
}

impl Rows<'_> {
    fn read_from(
        self,
        source: impl ChunkReader + 'static,
    ) -> ParquetResult<ParquetRecordBatchReader> {
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
                .with_row_groups(vec![self.row_group])
                .with_batch_size(self.batch_rows)
                .build()
        })
    }
}
