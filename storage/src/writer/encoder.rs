//! The blocking part of a writer: which rows go into which segment, and the segments' files.

use std::hash::Hasher;
use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;

use super::NewSegment;
use super::open_segment::{OpenSegment, ids_of, write_error};
use super::properties::properties;
use super::reserved_numbers::SegmentIds;
use super::sink::Sink;
use crate::distinct_values::{self, SegmentSketches};
use crate::placement::{SegmentName, Shard};
use crate::row_groups::RowGroups;
use crate::snapshot::{Root, SegmentFile, SegmentMeta, SegmentNumbers, TableId};
use crate::{Result, StorageError, row_ids};

/// A segment is closed early at this size, so that changing one of its rows stays affordable.
const SEGMENT_BYTES: u64 = 512 << 20;

/// The blocking part: Parquet encoding and files.
#[derive(Debug)]
pub(super) struct Encoder {
    pub(super) root: Arc<Root>,
    pub(super) table: TableId,
    pub(super) shard: Option<Shard>,
    pub(super) physical: SchemaRef,
    pub(super) segment_ids: SegmentIds,
    pub(super) segment_rows: u64,
    pub(super) order: IdOrder,
    /// Columns among whose numbers is a NaN. A segment keeps no statistics of them: Parquet's leave NaN out,
    /// and readers would skip it, or take all rows for the only other number.
    pub(super) with_nan: Vec<usize>,
    pub(super) open: Option<OpenSegment>,
    pub(super) done: Vec<NewSegment>,
}

/// In which order the row ids come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdOrder {
    Unknown,
    /// Every id so far is greater than the ones before; `last` is the greatest.
    Ascending {
        last: i64,
    },
}

impl Encoder {
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
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

    pub(super) fn finish(mut self: Box<Self>) -> Result<Vec<NewSegment>> {
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
