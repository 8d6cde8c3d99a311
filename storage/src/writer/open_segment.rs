//! A segment that rows are written to.

use std::io;
use std::path::Path;

use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::compute::{max, min};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::errors::ParquetError;

use super::sink::Sink;
use crate::distinct_values::SegmentSketches;
use crate::row_groups::{RowGroups, in_parallel};
use crate::snapshot::SegmentFile;
use crate::{Result, StorageError};

/// Rows of about so many encoded bytes are given to the encoder at once: of what it is given, it puts
/// all that is left over from one row group into the next.
const SLICE_BYTES: usize = 1 << 20;

/// Rows of a row group that are encoded before anything is known of their size.
const FIRST_SLICE_ROWS: usize = 64;

#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) rows: u64,
    pub(super) min_row_id: i64,
    pub(super) max_row_id: i64,
    pub(super) writer: RowGroups<Sink>,
    pub(super) sketches: SegmentSketches,
    pub(super) file: SegmentFile,
}

impl OpenSegment {
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
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
pub(super) fn ids_of(batch: &RecordBatch) -> Result<&Int64Array> {
    let ids = batch.columns().last();
    ids.and_then(|ids| ids.as_primitive_opt())
        .ok_or_else(|| StorageError::Internal {
            detail: "row ids are not BIGINT".to_owned(),
        })
}

/// Tells the disk's failures from the encoder's.
pub(super) fn write_error(path: &Path, error: ParquetError) -> StorageError {
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
