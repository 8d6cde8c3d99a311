//! Arrow batches to Parquet segments, with row ids.

use std::hash::Hasher;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::{max, min};
use datafusion::arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Schema, SchemaRef,
};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::SortingColumn;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::schema::types::ColumnPath;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use twox_hash::XxHash64;

use crate::conform::conform;
use crate::disk::DiskFile;
use crate::distinct_values::{self, SegmentSketches};
use crate::distributed_write::{ReserveRowIds, WriteSpec};
use crate::placement::{SegmentName, Shard};
use crate::remote::Writer;
use crate::row_groups::{RowGroups, in_parallel};
use crate::snapshot::{
    ROW_ID, Root, SegmentFile, SegmentMeta, SegmentNumbers, TableId, with_row_id,
};
use crate::{Result, StorageError, row_ids};

/// Rows of a row group: the unit that a scan gives to a thread, so a segment feeds eight.
const ROW_GROUP_ROWS: usize = 1 << 17;
/// A row group is closed early when its encoded pages take this much memory: wide rows, too, are
/// to feed several threads.
const ROW_GROUP_BYTES: usize = 16 << 20;
/// Rows of about so many encoded bytes are given to the encoder at once: of what it is given, it puts
/// all that is left over from one row group into the next.
const SLICE_BYTES: usize = 1 << 20;
/// Rows of a row group that are encoded before anything is known of their size.
const FIRST_SLICE_ROWS: usize = 64;
/// A segment is closed early at this size, so that changing one of its rows stays affordable.
const SEGMENT_BYTES: u64 = 512 << 20;
/// Rows of a page: what is read to get at one row by its id.
const PAGE_ROWS: usize = 1 << 13;
/// Bytes of a dictionary of numbers. Who reads one row reads the dictionary of its row group first: it is no
/// larger than a page of 64-bit numbers.
const NUMBERS_DICTIONARY: usize = PAGE_ROWS * 8;
/// Bytes of a dictionary of texts, which saves more.
const DICTIONARY: usize = 1 << 18;
/// Batches that may wait for the encoder.
const QUEUE: usize = 2;
/// Row ids that a writer asks for at once where asking takes long: first so many, later more.
const ROW_ID_BLOCKS: Range<u64> = 1 << 13..1 << 17;
/// Size of a write to the file.
const WRITE_BYTES: usize = 1 << 20;

/// A segment that is on disk, to be published by a transaction. Dropped without that, its file is
/// removed.
#[derive(Debug)]
pub struct NewSegment {
    pub(crate) table: TableId,
    pub(crate) meta: Arc<SegmentMeta>,
    /// The worker that wrote it, if it was written on another node.
    pub(crate) writer: Option<Writer>,
}

/// Where numbers of segments come from.
#[derive(Debug)]
pub(crate) enum SegmentIds {
    /// All writers of the process take from it.
    Shared(Arc<AtomicU64>),
    /// One writer's own.
    Block(Range<u64>),
}

impl SegmentIds {
    fn next(&mut self) -> Result<u64> {
        match self {
            Self::Shared(next) => Ok(next.fetch_add(1, Ordering::Relaxed)),
            Self::Block(block) => block.next().ok_or_else(|| {
                StorageError::invalid("one statement writes more segments than have numbers")
            }),
        }
    }
}

impl NewSegment {
    /// What will be published.
    pub fn meta(&self) -> &Arc<SegmentMeta> {
        &self.meta
    }
}

/// Row ids for one writer: reserved by the block where they are kept far away, but for the first
/// rows, so that small statements leave no gaps.
#[derive(Debug)]
pub struct RowIds {
    from: Arc<dyn ReserveRowIds>,
    /// Those that are reserved.
    spare: Range<i64>,
    /// How many to reserve next, at least.
    block: u64,
}

impl RowIds {
    /// Ids that `from` reserves.
    pub fn new(from: Arc<dyn ReserveRowIds>) -> Self {
        Self {
            from,
            spare: 0..0,
            block: 0,
        }
    }

    /// Ids for so many rows, ascending.
    ///
    /// # Errors
    /// If none can be reserved: the node that gives them out is not reached.
    pub async fn next(&mut self, rows: u64) -> Result<Int64Array> {
        if !self.from.is_far() {
            let first = self.from.reserve(rows).await?;
            return Ok(Int64Array::from_iter_values(
                first..first + rows.cast_signed(),
            ));
        }
        let mut ids = Vec::with_capacity(rows as usize);
        loop {
            ids.extend(self.spare.by_ref().take(rows as usize - ids.len()));
            let missing = rows - ids.len() as u64;
            if missing == 0 {
                return Ok(Int64Array::from(ids));
            }
            let block = self.block.max(missing);
            let first = self.from.reserve(block).await?;
            self.spare = first..first + block.cast_signed();
            self.block = (self.block * 2).clamp(ROW_ID_BLOCKS.start, ROW_ID_BLOCKS.end);
        }
    }
}

/// Writes rows of one table into new segments.
///
/// Encoding runs on one of tokio's blocking threads and a few that help it, a few batches behind the caller;
/// outside of a tokio runtime it runs in place. Memory is bounded by one row group. Several writers of one table may
/// run at once: row ids never clash.
///
/// Dropped without [`SegmentWriter::finish`], it removes its files. After an error it only
/// repeats that something failed.
#[derive(Debug)]
pub struct SegmentWriter {
    columns: SchemaRef,
    physical: SchemaRef,
    row_ids: RowIds,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle(Box<Encoder>),
    Running {
        batches: mpsc::Sender<RecordBatch>,
        task: JoinHandle<Result<Vec<NewSegment>>>,
    },
    Failed,
}

impl SegmentWriter {
    pub(crate) fn new(
        root: Arc<Root>,
        segment_ids: SegmentIds,
        segment_rows: u64,
        spec: &WriteSpec,
    ) -> Self {
        let physical = with_row_id(&spec.columns);
        Self {
            columns: Arc::clone(&spec.columns),
            physical: Arc::clone(&physical),
            row_ids: RowIds::new(Arc::clone(&spec.row_ids)),
            state: State::Idle(Box::new(Encoder {
                root,
                table: spec.table,
                shard: spec.shard,
                physical,
                segment_ids,
                segment_rows,
                order: IdOrder::Unknown,
                with_nan: Vec::new(),
                open: None,
                done: Vec::new(),
            })),
        }
    }

    /// For [`SegmentWriter::write_with_ids`] of rows whose ids ascend, as far as is known: their
    /// segments say so. Where one does not, another segment begins, and none says so any more.
    #[must_use]
    pub(crate) fn in_order_of_ids(mut self) -> Self {
        if let State::Idle(encoder) = &mut self.state {
            encoder.order = IdOrder::Ascending { last: i64::MIN };
        }
        self
    }

    /// Writes rows of the table's columns, in the table's order (names are not compared), and
    /// gives them row ids. Strings and binaries may be in any Arrow representation.
    ///
    /// # Errors
    /// [`StorageError::Invalid`] if the columns do not fit, or one that is NOT NULL has NULLs.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let mut columns = conform(batch, &self.columns)?;
        columns.push(Arc::new(self.row_ids.next(batch.num_rows() as u64).await?));
        if let State::Idle(encoder) = &mut self.state
            && encoder.open.is_none()
        {
            encoder.order = IdOrder::Ascending { last: i64::MIN };
        }
        self.send(columns, batch.num_rows()).await
    }

    /// Writes rows that have ids: the table's columns and `_row_id` last. For rows that are
    /// moved or updated.
    ///
    /// # Errors
    /// As [`SegmentWriter::write`].
    pub async fn write_with_ids(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = conform(batch, &self.physical)?;
        self.send(columns, batch.num_rows()).await
    }

    async fn send(&mut self, columns: Vec<ArrayRef>, rows: usize) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.physical);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(StorageError::invalid)?;
        if let State::Idle(encoder) = &mut self.state {
            let Ok(runtime) = Handle::try_current() else {
                return encoder.write(&batch);
            };
            let State::Idle(mut encoder) = std::mem::replace(&mut self.state, State::Failed) else {
                unreachable!("matched above");
            };
            let (batches, mut queue) = mpsc::channel::<RecordBatch>(QUEUE);
            let task = runtime.spawn_blocking(move || {
                while let Some(batch) = queue.blocking_recv() {
                    encoder.write(&batch)?;
                }
                encoder.finish()
            });
            self.state = State::Running { batches, task };
        }
        match &self.state {
            State::Running { batches, .. } if batches.send(batch).await.is_ok() => Ok(()),
            _ => Err(self.failure().await),
        }
    }

    /// Completes the segments: when it returns, files and directory are synced. Returns none if
    /// nothing was written.
    pub async fn finish(mut self) -> Result<Vec<NewSegment>> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Idle(encoder) => encoder.finish(),
            State::Running { batches, task } => {
                drop(batches);
                task.await.unwrap_or_else(|error| Err(panicked(&error)))
            }
            State::Failed => Err(self.failure().await),
        }
    }

    /// Why the encoder stopped.
    async fn failure(&mut self) -> StorageError {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Running { task, .. } => match task.await {
                Ok(Err(error)) => return error,
                Err(error) => return panicked(&error),
                Ok(Ok(_)) => {}
            },
            State::Idle(_) | State::Failed => {}
        }
        StorageError::Internal {
            detail: "segment writer used after an error".to_owned(),
        }
    }
}

fn panicked(error: &tokio::task::JoinError) -> StorageError {
    StorageError::Internal {
        detail: format!("segment encoder stopped: {error}"),
    }
}

/// The blocking part: Parquet encoding and files.
#[derive(Debug)]
struct Encoder {
    root: Arc<Root>,
    table: TableId,
    shard: Option<Shard>,
    physical: SchemaRef,
    segment_ids: SegmentIds,
    segment_rows: u64,
    order: IdOrder,
    /// Columns among whose numbers is a NaN. A segment keeps no statistics of them: Parquet's leave NaN out,
    /// and readers would skip it, or take all rows for the only other number.
    with_nan: Vec<usize>,
    open: Option<OpenSegment>,
    done: Vec<NewSegment>,
}

/// In which order the row ids come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdOrder {
    Unknown,
    /// Every id so far is greater than the ones before; `last` is the greatest.
    Ascending {
        last: i64,
    },
}

#[derive(Debug)]
struct OpenSegment {
    rows: u64,
    min_row_id: i64,
    max_row_id: i64,
    writer: RowGroups<Sink>,
    sketches: SegmentSketches,
    file: SegmentFile,
}

impl Encoder {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.look_at_order(ids_of(batch)?)?;
        self.look_for_nan(batch)?;
        let mut offset = 0;
        while offset < batch.num_rows() {
            let limit = self.segment_rows;
            let open = self.open_segment()?;
            let room = usize::try_from(limit - open.rows).unwrap_or(usize::MAX);
            let rows = room.min(batch.num_rows() - offset);
            open.write(&batch.slice(offset, rows))?;
            offset += rows;
            let bytes = open.writer.bytes_written() + open.writer.bytes();
            if open.rows >= limit || bytes as u64 >= SEGMENT_BYTES {
                self.close_segment()?;
            }
        }
        Ok(())
    }

    /// Closes the open segment if it says that its ids ascend, and with `ids` they would not.
    fn look_at_order(&mut self, ids: &Int64Array) -> Result<()> {
        let IdOrder::Ascending { last } = self.order else {
            return Ok(());
        };
        let (Some(first), Some(greatest)) = (ids.values().first(), ids.values().last()) else {
            return Ok(());
        };
        if *first > last && ids.values().is_sorted_by(|a, b| a < b) {
            self.order = IdOrder::Ascending { last: *greatest };
            return Ok(());
        }
        self.order = IdOrder::Unknown;
        self.close_segment()
    }

    /// Closes the open segment if it keeps statistics of a column in which the batch has a NaN.
    fn look_for_nan(&mut self, batch: &RecordBatch) -> Result<()> {
        let known = self.with_nan.len();
        for (column, array) in batch.columns().iter().enumerate() {
            if !self.with_nan.contains(&column) && has_nan(array) {
                self.with_nan.push(column);
            }
        }
        match self.with_nan.len() == known {
            true => Ok(()),
            false => self.close_segment(),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<NewSegment>> {
        self.close_segment()?;
        if !self.done.is_empty() {
            let directory = self.root.table_dir(self.table);
            self.root
                .disk
                .sync_dir(&directory)
                .map_err(|source| StorageError::io(&directory, source))?;
        }
        Ok(self.done)
    }

    fn open_segment(&mut self) -> Result<&mut OpenSegment> {
        if self.open.is_none() {
            self.create_directory()?;
            let name = SegmentName {
                owner: self.root.node,
                table: self.table,
                id: self.segment_ids.next()?,
            };
            // Before the file exists, so that a failing create leaves nothing either.
            let file = SegmentFile::new(&self.root, name, false);
            let path = file.path().to_owned();
            let sink = self
                .root
                .disk
                .create(&path)
                .map(Sink::new)
                .map_err(|source| StorageError::io(&path, source))?;
            let sorted_by = match self.order {
                IdOrder::Ascending { .. } => Some(row_ids::ascending(&self.physical)?),
                IdOrder::Unknown => None,
            };
            let properties = properties(&self.physical, sorted_by, &self.with_nan);
            let writer = RowGroups::try_new(sink, &self.physical, properties)
                .map_err(|error| write_error(&path, error))?;
            self.open = Some(OpenSegment {
                rows: 0,
                min_row_id: i64::MAX,
                max_row_id: i64::MIN,
                writer,
                sketches: SegmentSketches::new(&self.physical),
                file,
            });
        }
        self.open.as_mut().ok_or_else(|| StorageError::Internal {
            detail: "no open segment".to_owned(),
        })
    }

    fn create_directory(&self) -> Result<()> {
        if self.root.durable_dirs.lock().contains(&self.table) {
            return Ok(());
        }
        let directory = self.root.table_dir(self.table);
        let parent = self.root.segments_dir();
        let disk = &self.root.disk;
        disk.create_dir(&directory)
            .map_err(|source| StorageError::io(&directory, source))?;
        disk.sync_dir(&parent)
            .map_err(|source| StorageError::io(&parent, source))?;
        self.root.durable_dirs.lock().insert(self.table);
        Ok(())
    }

    fn close_segment(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let OpenSegment {
            rows,
            min_row_id,
            max_row_id,
            mut writer,
            sketches,
            file,
        } = open;
        let path = file.path().to_owned();
        let sketches = sketches.encode(&self.physical);
        writer
            .append(&sketches, distinct_values::place)
            .and_then(|()| writer.finish())
            .map_err(|error| write_error(&path, error))?;
        let sink = writer.sink_mut();
        sink.flush()
            .and_then(|()| sink.file.sync())
            .map_err(|source| StorageError::io(&path, source))?;
        let numbers = SegmentNumbers {
            rows,
            bytes: sink.offset,
            min_row_id,
            max_row_id,
            checksum: sink.hasher.finish(),
        };
        self.done.push(NewSegment {
            table: self.table,
            meta: Arc::new(SegmentMeta::new(numbers, self.shard, file)),
            writer: None,
        });
        Ok(())
    }
}

impl OpenSegment {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let path = || self.file.path().to_owned();
        let ids = ids_of(batch)?;
        self.min_row_id = self.min_row_id.min(min(ids).unwrap_or(i64::MAX));
        self.max_row_id = self.max_row_id.max(max(ids).unwrap_or(i64::MIN));
        self.rows += batch.num_rows() as u64;
        let threads = self
            .writer
            .threads_for(batch.num_rows() * batch.num_columns());
        let columns = self.sketches.of_columns(batch.columns());
        in_parallel(threads, columns, |(sketch, column)| {
            sketch.add(column);
            Ok(())
        })
        .map_err(|error| write_error(&path(), error))?;
        let mut written = 0;
        while written < batch.num_rows() {
            let rows = self.slice_rows().min(batch.num_rows() - written);
            self.writer
                .write(&batch.slice(written, rows))
                .map_err(|error| write_error(&path(), error))?;
            written += rows;
        }
        Ok(())
    }

    /// Rows for the encoder, which have about [`SLICE_BYTES`], if the next are like the row group's.
    fn slice_rows(&self) -> usize {
        match self.writer.rows() {
            0 => FIRST_SLICE_ROWS,
            rows => (SLICE_BYTES * rows / self.writer.bytes().max(1)).max(1),
        }
    }
}

/// The last column of a segment's rows.
fn ids_of(batch: &RecordBatch) -> Result<&Int64Array> {
    let ids = batch.columns().last();
    ids.and_then(|ids| ids.as_primitive_opt())
        .ok_or_else(|| StorageError::Internal {
            detail: "row ids are not BIGINT".to_owned(),
        })
}

/// Whether there is a NaN among floating-point numbers. (What is behind a NULL may look like one.)
fn has_nan(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Float16 => {
            let numbers = array.as_primitive::<Float16Type>();
            numbers.values().iter().any(|number| number.is_nan())
        }
        DataType::Float32 => {
            let numbers = array.as_primitive::<Float32Type>();
            numbers.values().iter().any(|number| number.is_nan())
        }
        DataType::Float64 => {
            let numbers = array.as_primitive::<Float64Type>();
            numbers.values().iter().any(|number| number.is_nan())
        }
        _ => false,
    }
}

/// How a segment with columns of `schema` is encoded; without statistics of the columns at `with_nan`.
fn properties(
    schema: &Schema,
    sorted_by: Option<SortingColumn>,
    with_nan: &[usize],
) -> WriterProperties {
    let row_id = ColumnPath::from(ROW_ID);
    let mut properties = WriterProperties::builder();
    for (at, field) in schema.fields().iter().enumerate() {
        let column = ColumnPath::new(vec![field.name().clone()]);
        if with_nan.contains(&at) {
            let none = EnabledStatistics::None;
            properties = properties.set_column_statistics_enabled(column.clone(), none);
        }
        let bytes = match field.data_type().primitive_width() {
            Some(_) => NUMBERS_DICTIONARY,
            None => DICTIONARY,
        };
        properties = properties.set_column_dictionary_page_size_limit(column, bytes);
    }
    properties
        // Decodes at several times the speed of zstd; scans matter more than bytes.
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_column_dictionary_enabled(row_id.clone(), false)
        .set_column_encoding(row_id, Encoding::DELTA_BINARY_PACKED)
        .set_sorting_columns(sorted_by.map(|column| vec![column]))
        .set_created_by(format!("skewer {}", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Tells the disk's failures from the encoder's.
fn write_error(path: &Path, error: ParquetError) -> StorageError {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => StorageError::io(path, *source),
            Err(source) => StorageError::Internal {
                detail: source.to_string(),
            },
        },
        error => StorageError::Internal {
            detail: error.to_string(),
        },
    }
}

/// Sequential writes to a file, in large pieces, with a running checksum.
struct Sink {
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    offset: u64,
    hasher: XxHash64,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("file", &self.file).finish()
    }
}

impl Sink {
    fn new(file: Arc<dyn DiskFile>) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            offset: 0,
            hasher: XxHash64::with_seed(0),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.file.write_at(self.offset, &self.buffer)?;
        self.hasher.write(&self.buffer);
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
