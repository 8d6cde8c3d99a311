//! Statistics of a table for the order of joins: distinct values from sketches, and a sample of its rows.
//!
//! Both are read when a query first asks, column by column, and kept with the segment.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::compute::{cast, concat, concat_batches};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    CachedParquetFileReaderFactory, ParquetFileReaderFactory,
};
use datafusion::object_store::ObjectStoreExt;
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use datafusion::parquet::file::metadata::PageIndexPolicy;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::TryStreamExt;
use skewer_optimizer::join_order::statistics::{ColumnSummary, Sample, TableSummary};
use skewer_storage::distinct_values::{DistinctValues, EncodedSketch, decode_sketches};

use super::NativeTable;
use crate::catalog::footers::{self, Footer, Read};

/// Runs of neighbouring rows that are sampled of a table, if it has fewer segments.
const RUNS: usize = 16;
/// Rows of a run.
const RUN_ROWS: usize = 256;
/// Rows of a page: a run begins with one, so that no rows before it are decoded.
const PAGE_ROWS: usize = 1 << 13;
/// Bytes of sketches in a segment at most, for some thousand columns.
const MOST_SKETCHES: u64 = 16 << 20;

impl NativeTable {
    /// The number of rows of the table.
    pub(crate) fn rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Identifies the version of the table.
    pub(crate) fn version(&self) -> usize {
        Arc::as_ptr(&self.table) as usize
    }

    /// A hash that is equal as long as the table has the same rows: segments never change.
    fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.table.id.0.hash(&mut hasher);
        self.table.schema.hash(&mut hasher);
        for segment in &self.segments {
            segment.id.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Statistics of `columns`, and a sample of rows with `sampled` columns. What cannot be read is not known.
    pub(crate) async fn summary(
        &self,
        columns: &BTreeSet<String>,
        sampled: &BTreeSet<String>,
        state: &dyn Session,
    ) -> Result<TableSummary> {
        let reads = footers::read(&self.table, &self.segments, &self.store, state).await;
        let statistics = self.statistics_of(&reads)?;
        let distinct = self.distinct(&reads, columns, state).await;
        let rows = self.rows();
        let mut summaries = HashMap::new();
        for name in columns {
            let Ok(place) = self.schema.index_of(name) else {
                continue;
            };
            let Some(known) = statistics.column_statistics.get(place) else {
                continue;
            };
            let bytes = known.byte_size.get_value().map(|bytes| *bytes as f64);
            let summary = ColumnSummary {
                distinct: distinct.get(name).map(DistinctValues::estimate),
                nulls: known.null_count.get_value().map(|nulls| *nulls as u64),
                min: value(&known.min_value),
                max: value(&known.max_value),
                bytes: bytes.map(|bytes| bytes / rows.max(1) as f64),
            };
            summaries.insert(name.clone(), summary);
        }
        let sample = match sampled.is_empty() {
            true => None,
            // A scan says what is wrong with a file.
            false => self.sample(&reads, sampled, state).await.ok().flatten(),
        };
        Ok(TableSummary {
            version: Some(self.content()),
            rows,
            columns: summaries,
            sample,
        })
    }

    /// The sketches of all segments together, of columns that all have one of.
    async fn distinct(
        &self,
        reads: &[Read<'_>],
        columns: &BTreeSet<String>,
        state: &dyn Session,
    ) -> HashMap<String, DistinctValues> {
        let mut together: HashMap<String, DistinctValues> = HashMap::new();
        for (place, read) in reads.iter().enumerate() {
            let Some(sketches) = self.sketches(read, state).await else {
                return HashMap::new();
            };
            if place == 0 {
                let names = columns.iter().filter(|name| sketches.contains_key(*name));
                together.extend(names.map(|name| (name.clone(), DistinctValues::default())));
            }
            together.retain(|name, merged| match sketches.get(name) {
                Some(sketch) => {
                    sketch.merge_into(merged);
                    true
                }
                None => false,
            });
        }
        together
    }

    /// The sketches of a segment.
    async fn sketches(
        &self,
        read: &Read<'_>,
        state: &dyn Session,
    ) -> Option<Arc<HashMap<String, EncodedSketch>>> {
        let footer = read.footer.as_ref()?;
        if let Some(known) = &footer.read.lock().distinct {
            return Some(Arc::clone(known));
        }
        let place = footer.sketches.clone()?;
        if place.end > read.segment.bytes || place.end - place.start > MOST_SKETCHES {
            return None;
        }
        let store = state.runtime_env().object_store(&self.store).ok()?;
        let bytes = store.get_range(&read.segment.location, place).await.ok()?;
        let sketches = Arc::new(decode_sketches(&bytes)?);
        footer.read.lock().distinct = Some(Arc::clone(&sketches));
        Some(sketches)
    }

    /// Rows from all over the table, with these columns.
    async fn sample(
        &self,
        reads: &[Read<'_>],
        columns: &BTreeSet<String>,
        state: &dyn Session,
    ) -> Result<Option<Sample>> {
        let fields = columns
            .iter()
            .filter_map(|name| self.schema.field_with_name(name).ok());
        let fields: Vec<&Field> = fields.collect();
        let step = reads.len().div_ceil(RUNS).max(1);
        let chosen: Vec<_> = reads.iter().step_by(step).collect();
        let runs = (RUNS / chosen.len().max(1)).max(1);
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); fields.len()];
        for read in chosen {
            let Some(footer) = &read.footer else {
                return Ok(None);
            };
            let values = self.sampled(read, footer, &fields, runs, state).await?;
            for (part, values) in parts.iter_mut().zip(values) {
                part.push(values);
            }
        }
        if parts.is_empty() || parts.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let columns = parts.iter().map(|part| {
            let part: Vec<_> = part.iter().map(AsRef::as_ref).collect();
            concat(&part)
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let fields = fields
            .into_iter()
            .map(|field| field.clone().with_nullable(true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Ok(Some(Sample {
            rows: RecordBatch::try_new(Arc::new(schema), columns)?,
            run: RUN_ROWS,
        }))
    }

    /// The values that `fields` have in the sampled rows of a segment.
    async fn sampled(
        &self,
        read: &Read<'_>,
        footer: &Footer,
        fields: &[&Field],
        runs: usize,
        state: &dyn Session,
    ) -> Result<Vec<ArrayRef>> {
        let key = |field: &Field| (field.name().clone(), runs);
        let missing: Vec<&Field> = {
            let known = footer.read.lock();
            let is_missing = |field: &&&Field| !known.samples.contains_key(&key(field));
            fields.iter().filter(is_missing).copied().collect()
        };
        if !missing.is_empty() {
            let ranges = runs_of(read.segment.rows as usize, runs);
            let rows = self.rows_at(read, &ranges, &missing, state).await?;
            let mut known = footer.read.lock();
            for field in missing {
                let values = match rows.column_by_name(field.name()) {
                    Some(values) => cast(values, field.data_type())?,
                    None => new_null_array(field.data_type(), rows.num_rows()),
                };
                known.samples.insert(key(field), values);
            }
        }
        let known = footer.read.lock();
        let values = fields
            .iter()
            .map(|field| match known.samples.get(&key(field)) {
                // The table may show the instants of another zone now.
                Some(values) => Ok(cast(values, field.data_type())?),
                None => internal_err!("no sample of {}", field.name()),
            });
        values.collect()
    }

    /// The rows of a segment at these places, with those of `fields` that the segment has.
    async fn rows_at(
        &self,
        read: &Read<'_>,
        ranges: &[Range<usize>],
        fields: &[&Field],
        state: &dyn Session,
    ) -> Result<RecordBatch> {
        let runtime = state.runtime_env();
        let store = runtime.object_store(&self.store)?;
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let file = PartitionedFile::new(read.segment.location.to_string(), read.segment.bytes);
        let metrics = ExecutionPlanMetricsSet::new();
        let reader: Box<dyn AsyncFileReader> = CachedParquetFileReaderFactory::new(store, cache)
            .create_reader(0, file, None, &metrics)?;
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await?;
        let stored = builder.parquet_schema().root_schema().get_fields().iter();
        let wanted = stored
            .enumerate()
            .filter(|(_, column)| fields.iter().any(|field| field.name() == column.name()));
        let wanted: Vec<usize> = wanted.map(|(place, _)| place).collect();
        let selected: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        if wanted.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(selected));
            let schema = Arc::new(Schema::empty());
            return Ok(RecordBatch::try_new_with_options(schema, vec![], &options)?);
        }
        let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
        let total = read.segment.rows as usize;
        let selection = RowSelection::from_consecutive_ranges(ranges.iter().cloned(), total);
        let rows = builder
            .with_projection(mask)
            .with_row_selection(selection)
            .with_batch_size(selected.max(1))
            .build()?;
        let schema = Arc::clone(rows.schema());
        let batches: Vec<RecordBatch> = rows.try_collect().await.map_err(DataFusionError::from)?;
        Ok(concat_batches(&schema, &batches)?)
    }
}

fn value<T: Clone + std::fmt::Debug + PartialEq + Eq + PartialOrd>(
    bound: &Precision<T>,
) -> Option<T> {
    bound.get_value().cloned()
}

/// Where the runs of a segment of so many rows are: in equal parts of it, all rows of a small one.
fn runs_of(rows: usize, runs: usize) -> Vec<Range<usize>> {
    let part = rows / runs.max(1);
    if part <= RUN_ROWS {
        return std::iter::once(0..rows).collect();
    }
    let starts = (0..runs).map(|run| {
        let start = run * part;
        let page = start.next_multiple_of(PAGE_ROWS);
        match page + RUN_ROWS <= start + part {
            true => page,
            false => start,
        }
    });
    starts.map(|start| start..start + RUN_ROWS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_in_order_and_within_the_segment() {
        for (rows, runs, expected) in [
            (0, 16, 0),
            (100, 16, 100),
            (4_000, 16, 4_000),
            (60_000, 16, 4_096),
            (1 << 20, 16, 4_096),
            (1 << 20, 1, 256),
            (300, 1, 256),
        ] {
            let ranges = runs_of(rows, runs);
            assert_eq!(
                ranges.iter().map(ExactSizeIterator::len).sum::<usize>(),
                expected
            );
            assert!(ranges.is_sorted_by(|one, other| one.end <= other.start));
            assert!(ranges.iter().all(|range| range.end <= rows));
        }
    }
}
