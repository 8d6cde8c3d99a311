//! The rows of a segment, row group by row group.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, RowSelection, RowSelector};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_expr::projection::Projector;
use datafusion_datasource_parquet::{ParquetFileMetrics, RowGroupAccess};

use super::chunks::{Chunks, Source, decode};
use super::open::Scan;
use crate::column_cache::{CHUNK_ROWS, CachedSegment, Decoded, Filling, Key};

/// Batches of fewer rows than these are asked for where rows are wide: their columns are not decoded for the cache,
/// which keeps chunks of more rows.
const LEAST_ROWS: usize = CHUNK_ROWS / 4;

/// How rows are made of a file's columns.
pub(super) struct Output {
    /// The columns of the file that are read, ascending.
    pub(super) columns: Vec<usize>,
    /// Whether the rows' places in the file come after them.
    pub(super) has_numbers: bool,
    /// Of what is read.
    pub(super) read: SchemaRef,
    pub(super) projector: Projector,
    /// Of what is made, if the scan says it otherwise than the projector: files say less of NULLs, and nothing of
    /// the table.
    pub(super) schema: Option<SchemaRef>,
}

impl Output {
    /// Makes rows of columns that have `rows` rows.
    fn make(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let read = Arc::clone(&self.read);
        let read = RecordBatch::try_new_with_options(read, columns, &options)?;
        let made = self.projector.project_batch(&read)?;
        let Some(schema) = self.schema.clone() else {
            return Ok(made);
        };
        let (_, columns, _) = made.into_parts();
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }
}

/// A row group to read.
pub(super) struct RowGroup {
    pub(super) index: usize,
    /// Rows of the file before it.
    pub(super) rows_before: i64,
    pub(super) access: RowGroupAccess,
}

/// A condition that may change while rows are read.
pub(super) type Watched = (DynamicFilterTracking, Arc<dyn PhysicalExpr>);

/// A segment that has been opened.
pub(super) struct OpenSegment {
    pub(super) scan: Arc<Scan>,
    pub(super) segment: CachedSegment,
    pub(super) reader: Box<dyn AsyncFileReader>,
    pub(super) footer: ArrowReaderMetadata,
    /// The file's columns.
    pub(super) physical: SchemaRef,
    pub(super) metrics: ParquetFileMetrics,
}

/// The rows of a segment that are left to read.
pub(super) struct RowGroups {
    file: OpenSegment,
    output: Output,
    left: VecDeque<RowGroup>,
    watched: Option<Watched>,
    /// Rows that may still be asked for.
    limit: Option<usize>,
    current: Option<Reading>,
}

/// A row group that is being read.
struct Reading {
    /// Rows that are read, counted from the beginning of the row group.
    ranges: VecDeque<Range<usize>>,
    rows_before: i64,
    from: RowsFrom,
}

/// Where its rows come from.
enum RowsFrom {
    /// Only those that are read are decoded.
    File(Box<ParquetPushDecoder>),
    /// Chunks of all rows.
    Chunks(Box<Chunks>),
}

impl RowGroups {
    pub(super) fn new(
        file: OpenSegment,
        output: Output,
        left: VecDeque<RowGroup>,
        watched: Option<Watched>,
    ) -> Self {
        Self {
            limit: file.scan.limit,
            file,
            output,
            left,
            watched,
            current: None,
        }
    }

    /// The next batch; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.limit == Some(0) {
                return Ok(None);
            }
            if let Some(mut current) = self.current.take() {
                let batch = match &mut current.from {
                    RowsFrom::File(decoder) => {
                        let batch = decode(decoder, &mut self.file.reader).await?;
                        batch.map(|batch| {
                            let rows = batch.num_rows();
                            let (_, columns, _) = batch.into_parts();
                            (columns, rows, take_rows(&mut current.ranges, rows))
                        })
                    }
                    RowsFrom::Chunks(chunks) => {
                        let most = self.file.scan.batch_size;
                        let ranges = &mut current.ranges;
                        let piece = chunks.next(ranges, most, &mut self.file.reader).await?;
                        piece.map(|(columns, range)| (columns, range.len(), vec![range]))
                    }
                };
                if let Some((mut columns, rows, ranges)) = batch {
                    if self.output.has_numbers {
                        columns.push(places(current.rows_before, &ranges));
                    }
                    let mut made = self.output.make(columns, rows)?;
                    if let Some(limit) = &mut self.limit {
                        made = made.slice(0, rows.min(*limit));
                        *limit -= made.num_rows();
                    }
                    self.current = Some(current);
                    return Ok(Some(made));
                }
            }
            self.prune_again();
            let Some(row_group) = self.left.pop_front() else {
                return Ok(None);
            };
            self.current = Some(self.begin(row_group)?);
        }
    }

    /// Skips row groups that a condition which has changed rules out.
    fn prune_again(&mut self) {
        let Some((tracking, predicate)) = &mut self.watched else {
            return;
        };
        let has_changed = tracking.watcher().is_some_and(|watcher| watcher.changed());
        if !has_changed || self.left.is_empty() {
            return;
        }
        let before = self.left.len();
        let left = std::mem::take(&mut self.left);
        let scan = &self.file.scan;
        self.left = scan.pruned_again(left, predicate, &self.file.physical, &self.file.footer);
        let pruned = before - self.left.len();
        self.file
            .metrics
            .row_groups_pruned_dynamic_filter
            .add(pruned);
    }

    /// Begins to read a row group, the way that fits what is in the cache.
    fn begin(&self, row_group: RowGroup) -> Result<Reading> {
        let index = row_group.index;
        let rows = self.file.footer.metadata().row_group(index).num_rows();
        let rows = usize::try_from(rows).unwrap_or_default();
        let selection = match row_group.access {
            RowGroupAccess::Selection(selection) => Some(selection),
            RowGroupAccess::Scan | RowGroupAccess::Skip => None,
        };
        let ranges = match &selection {
            Some(selection) => selected(selection),
            None => std::iter::once(0..rows).collect(),
        };
        let read: usize = ranges.iter().map(Range::len).sum();
        let columns = self.output.columns.iter();
        let found: Vec<_> = columns
            .map(|column| {
                let data_type = self.file.physical.field(*column).data_type();
                self.file
                    .scan
                    .cache
                    .get(self.key(index, *column), data_type)
            })
            .collect();
        let missing = found.iter().filter(|found| found.is_none()).count();
        let is_decoded_whole =
            2 * read >= rows && self.limit.is_none() && self.file.scan.batch_size >= LEAST_ROWS;
        let from = if missing == 0 || is_decoded_whole {
            RowsFrom::Chunks(Box::new(self.chunks(index, rows, found)?))
        } else {
            self.file.scan.metrics.misses.add(found.len());
            let columns = self.output.columns.iter().copied();
            let mut decoder = self.decoder(index, columns, self.file.scan.batch_size);
            if let Some(selection) = selection {
                decoder = decoder.with_row_selection(selection);
            }
            if let Some(limit) = self.limit {
                decoder = decoder.with_limit(limit);
            }
            RowsFrom::File(Box::new(decoder.build()?))
        };
        Ok(Reading {
            ranges,
            rows_before: row_group.rows_before,
            from,
        })
    }

    /// The chunks of a row group of whose columns some are in the cache. The others are decoded.
    fn chunks(
        &self,
        row_group: usize,
        rows: usize,
        found: Vec<Option<Arc<Decoded>>>,
    ) -> Result<Chunks> {
        let metrics = &self.file.scan.metrics;
        for cached in found.iter().flatten() {
            metrics.hits.add(1);
            metrics.bytes.add(cached.bytes());
        }
        let decoded = found.iter().filter(|found| found.is_none());
        metrics.misses.add(decoded.count());
        let mut missing = Vec::new();
        let columns = self.output.columns.iter().zip(found);
        let columns = columns.map(|(column, found)| match found {
            Some(decoded) => Source::Cache(decoded),
            None => {
                missing.push(*column);
                Source::Decoder(self.filling(row_group, *column, rows))
            }
        });
        let columns = columns.collect();
        let decoder = if missing.is_empty() {
            None
        } else {
            Some(self.decoder(row_group, missing, CHUNK_ROWS).build()?)
        };
        Ok(Chunks::new(rows, columns, decoder))
    }

    fn key(&self, row_group: usize, column: usize) -> Key {
        Key {
            segment: self.file.segment.id(),
            row_group,
            column,
        }
    }

    /// The right to fill an entry of the cache, if it gives it.
    fn filling(&self, row_group: usize, column: usize, rows: usize) -> Option<Filling> {
        let field = self.file.physical.field(column);
        let group = self.file.footer.metadata().row_group(row_group);
        let estimate = match field.data_type().primitive_width() {
            Some(width) => width * rows,
            // A view of each text, and the texts, unless they are in a dictionary.
            None => {
                let described = self.file.footer.parquet_schema();
                let leaves = group.columns().iter().enumerate();
                let own = leaves.filter(|(leaf, _)| described.get_column_root_idx(*leaf) == column);
                let bytes = own.map(|(_, leaf)| leaf.uncompressed_size().max(0) as usize);
                size_of::<u128>() * rows + bytes.sum::<usize>()
            }
        };
        let key = self.key(row_group, column);
        let cache = &self.file.scan.cache;
        cache.begin(key, &self.file.segment, field.name(), estimate)
    }

    /// Decodes columns of a row group.
    fn decoder(
        &self,
        row_group: usize,
        columns: impl IntoIterator<Item = usize>,
        batch_size: usize,
    ) -> ParquetPushDecoderBuilder {
        let mask = ProjectionMask::roots(self.file.footer.parquet_schema(), columns);
        ParquetPushDecoderBuilder::new_with_metadata(self.file.footer.clone())
            .with_row_groups(vec![row_group])
            .with_projection(mask)
            .with_batch_size(batch_size)
    }
}

/// The rows of a selection.
fn selected(selection: &RowSelection) -> VecDeque<Range<usize>> {
    let selectors: Vec<RowSelector> = selection.clone().into();
    let mut ranges: VecDeque<Range<usize>> = VecDeque::new();
    let mut row = 0;
    for selector in selectors {
        let end = row + selector.row_count;
        if !selector.skip && selector.row_count > 0 {
            match ranges.back_mut() {
                Some(last) if last.end == row => last.end = end,
                _ => ranges.push_back(row..end),
            }
        }
        row = end;
    }
    ranges
}

/// Takes the next `rows` rows of `ranges`.
fn take_rows(ranges: &mut VecDeque<Range<usize>>, mut rows: usize) -> Vec<Range<usize>> {
    let mut taken = Vec::new();
    while rows > 0
        && let Some(next) = ranges.front_mut()
    {
        let end = next.end.min(next.start + rows);
        taken.push(next.start..end);
        rows -= end - next.start;
        next.start = end;
        if next.start == next.end {
            ranges.pop_front();
        }
    }
    taken
}

/// The places in the file of rows of a row group that has so many rows before it.
fn places(rows_before: i64, ranges: &[Range<usize>]) -> ArrayRef {
    let rows = ranges.iter().cloned().flatten();
    let places: Int64Array = rows
        .map(|row| rows_before + row as i64)
        .collect::<Vec<_>>()
        .into();
    Arc::new(places)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn rows_of_a_selection_are_taken_in_order() {
        let selection = RowSelection::from(vec![
            RowSelector::skip(3),
            RowSelector::select(2),
            RowSelector::select(4),
            RowSelector::skip(1),
            RowSelector::select(1),
        ]);
        let mut ranges = selected(&selection);
        assert_eq!(ranges, [3..9, 10..11]);
        assert_eq!(take_rows(&mut ranges, 2).first(), Some(&(3..5)));
        let rest = take_rows(&mut ranges, 5);
        assert_eq!(rest, [5..9, 10..11]);
        assert!(take_rows(&mut ranges, 1).is_empty());
        let places = places(100, &rest);
        let places = places.as_primitive::<Int64Type>().values();
        assert_eq!(places, &[105, 106, 107, 108, 110]);
    }
}
