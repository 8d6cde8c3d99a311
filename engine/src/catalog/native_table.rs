//! A table's segments as a scan.

mod summary;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use skewer_cluster::{ShardOf, has_workers};
use skewer_exec::cached_scan::CachedScan;
use skewer_exec::column_cache::ColumnCache;
use skewer_exec::implicit_row_ids::{ConsecutiveIds, ImplicitRowIds};
use skewer_exec::{IdColumn, IdentifiedTable, ROW_ID, ScansIds};
use skewer_storage::{Partitioning as Placement, SegmentMeta, Storage, TableMeta};

use crate::catalog::batch_rows::batch_rows;
use crate::catalog::footers::{self, Footer, Read};
use skewer_compat::session_zone::in_zone;

/// Where more segments are left, tables are planned by their numbers of rows alone: planning should not
/// take longer than small queries.
const MAX_STATISTICS: usize = 128;

/// The rows of one version of a table, read from its segments.
#[derive(Debug, Clone)]
pub(crate) struct NativeTable {
    table: Arc<TableMeta>,
    /// Of the columns in the segments that can be read.
    schema: SchemaRef,
    /// A column that is made of the row ids, and the schema with it as the last.
    ids: Option<(IdColumn, SchemaRef)>,
    segments: Vec<Arc<SegmentMeta>>,
    store: ObjectStoreUrl,
}

impl NativeTable {
    /// The table as queries see it.
    pub(crate) fn new(table: &Arc<TableMeta>, storage: &Storage) -> Self {
        Self {
            table: Arc::clone(table),
            schema: SchemaRef::clone(&table.schema),
            ids: None,
            segments: table.segments.clone(),
            store: storage.object_store_url(),
        }
    }

    /// The table with its row ids as last column.
    pub(crate) fn with_row_ids(table: &Arc<TableMeta>, storage: &Storage) -> Self {
        Self {
            schema: table.physical_schema(),
            ..Self::new(table, storage)
        }
    }

    /// Only some of its segments.
    pub(crate) fn only(mut self, segments: Vec<Arc<SegmentMeta>>) -> Self {
        self.segments = segments;
        self
    }

    /// The table, whose instants are shown in `zone`.
    fn in_zone(mut self, zone: &str) -> Self {
        self.schema = in_zone(&self.schema, zone);
        self
    }

    /// The table with a twin that shows its row ids, under the name that the profiler logs. Instants are shown
    /// in `zone`.
    pub(crate) fn identified(
        table: &Arc<TableMeta>,
        storage: &Storage,
        row_ids_visible: bool,
        zone: &str,
    ) -> IdentifiedTable {
        let with_ids = Arc::new(Self::with_row_ids(table, storage).in_zone(zone));
        let inner: Arc<dyn TableProvider> = if row_ids_visible {
            Arc::clone(&with_ids) as _
        } else {
            Arc::new(Self::new(table, storage).in_zone(zone))
        };
        let log_name = format!("{}.{}", table.schema_name, table.name);
        let mut segments = table.segments.iter();
        let are_narrow = segments.all(|segment| i32::try_from(segment.max_row_id).is_ok());
        IdentifiedTable::new(inner, Arc::clone(&with_ids) as _, log_name)
            .scanning_ids(with_ids)
            .with_int32_ids(are_narrow)
    }

    /// The table that a provider of a stored table reads.
    pub(crate) fn of_provider(provider: &Arc<dyn TableProvider>) -> Option<&Self> {
        let table = provider.downcast_ref::<IdentifiedTable>()?;
        table.inner.downcast_ref::<Self>()
    }

    /// The version of the table, if it is read as it is stored: all segments, and no column that is made of row ids.
    pub(crate) fn whole(&self) -> Option<&Arc<TableMeta>> {
        let is_whole = self.ids.is_none() && self.segments.len() == self.table.segments.len();
        is_whole.then_some(&self.table)
    }

    /// The columns of the segments at `projection` of this table's; none but those of its schema.
    fn read(&self, projection: &[usize]) -> Result<Vec<usize>> {
        let stored = self.schema.fields().len();
        let mut read: Vec<_> = projection.iter().copied().filter(|c| *c < stored).collect();
        if read.len() < projection.len() {
            read.push(self.schema.index_of(ROW_ID)?);
        }
        Ok(read)
    }

    /// Reads all columns, through `cache` if there is one.
    fn source(
        &self,
        state: &dyn Session,
        options: TableParquetOptions,
        cache: Option<Arc<ColumnCache>>,
    ) -> Result<Arc<dyn FileSource>> {
        let runtime = state.runtime_env();
        let store = runtime.object_store(&self.store)?;
        let footers = runtime.cache_manager.get_file_metadata_cache();
        let reader = CachedParquetFileReaderFactory::new(store, footers);
        let source = ParquetSource::new(SchemaRef::clone(&self.schema))
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(reader));
        Ok(match cache {
            Some(cache) => Arc::new(CachedScan::new(source, cache)),
            None => Arc::new(source),
        })
    }

    /// Row counts are exact, and so are the bounds of row ids: `WHERE _row_id = …` opens one
    /// segment.
    fn segment_statistics(&self, segment: &SegmentMeta) -> Statistics {
        let column_statistics = self
            .schema
            .fields()
            .iter()
            .map(|field| {
                if field.name() == ROW_ID {
                    ColumnStatistics::new_unknown()
                        .with_null_count(Precision::Exact(0))
                        .with_min_value(exact(segment.min_row_id))
                        .with_max_value(exact(segment.max_row_id))
                } else {
                    ColumnStatistics::new_unknown()
                }
            })
            .collect();
        Statistics {
            num_rows: Precision::Exact(segment.rows as usize),
            total_byte_size: Precision::Inexact(segment.bytes as usize),
            column_statistics,
        }
    }

    /// The places of the columns by whose hash the table is divided, if it is.
    fn hash_keys(&self) -> Option<Arc<[usize]>> {
        let Placement::Hash(keys) = &self.table.partitioning else {
            return None;
        };
        let places = keys.iter().map(|key| self.table.schema.index_of(key).ok());
        places.collect()
    }

    /// A partition for each row group, if there are fewer than partitions are asked for: as only one
    /// thread decodes a row group, the other partitions would have nothing to do. The planner has its
    /// rows dealt out to them instead. `None` where the planner itself does not cut files, or leaves
    /// no partition without rows.
    fn row_groups(
        &self,
        segments: &[Read<'_>],
        state: &dyn Session,
        cache: Option<&Arc<ColumnCache>>,
    ) -> Option<Vec<FileGroup>> {
        let footers = segments.iter().map(|read| read.footer.as_deref());
        let footers = footers.collect::<Option<Vec<_>>>()?;
        let row_groups: usize = footers.iter().map(|footer| footer.row_groups.len()).sum();
        let options = state.config_options();
        let bytes: u64 = segments.iter().map(|read| read.segment.bytes).sum();
        let is_cut = bytes >= options.optimizer.repartition_file_min_size as u64;
        let is_one_each = segments.len() == row_groups;
        if row_groups >= options.execution.target_partitions || (is_one_each && !is_cut) {
            return None;
        }
        let mut groups = Vec::with_capacity(row_groups);
        for (read, footer) in segments.iter().zip(footers) {
            let file = self.file(read, cache);
            let begins = footer.row_groups.iter().copied();
            let ends = begins.clone().skip(1).chain([read.segment.bytes as i64]);
            let parts = begins.zip(ends);
            groups.extend(
                parts.map(|(begin, end)| FileGroup::new(vec![file.clone().with_range(begin, end)])),
            );
        }
        Some(groups)
    }

    /// A segment as a file to scan, whose columns may be in `cache`.
    fn file(&self, read: &Read<'_>, cache: Option<&Arc<ColumnCache>>) -> PartitionedFile {
        let Read { segment, footer } = read;
        let mut file = PartitionedFile::new(segment.location.to_string(), segment.bytes);
        file = file.with_statistics(match footer {
            Some(footer) => footer.statistics(&self.schema),
            None => Arc::new(self.segment_statistics(segment)),
        });
        if let Some(ids) = footer.as_ref().and_then(|footer| self.consecutive(footer)) {
            file = file.with_extension(ids.clone());
        }
        if let Some(shard) = segment.shard
            && let Some(keys) = self.hash_keys()
        {
            file = file.with_extension(ShardOf { shard, keys });
        }
        if let Some(cache) = cache {
            let table = &self.table;
            let cached = segment
                .kept
                .get_or_put(|| cache.segment(segment.id, table.id.0, &table.qualified_name()));
            file = file.with_extension(cached.as_ref().clone());
        }
        file
    }

    /// Which of a segment's ids are consecutive, if the table has a column that is made of them.
    fn consecutive<'a>(&self, footer: &'a Footer) -> Option<&'a ConsecutiveIds> {
        self.ids.as_ref().and(footer.ids.as_ref())
    }

    /// Consecutive segments per partition, so that every partition has about as many rows. One group without
    /// files for no segments.
    fn segment_groups(
        &self,
        segments: &[Read<'_>],
        partitions: usize,
        cache: Option<&Arc<ColumnCache>>,
    ) -> Vec<FileGroup> {
        let total: u64 = segments.iter().map(|read| read.segment.rows).sum();
        let partitions = partitions.clamp(1, segments.len().max(1));
        let share = (total / partitions as u64).max(1);
        let mut groups = vec![Vec::new(); partitions];
        let mut before = 0;
        for read in segments {
            let rows = read.segment.rows;
            let group = ((before + rows / 2) / share).min(partitions as u64 - 1);
            before += rows;
            groups[group as usize].push(self.file(read, cache));
        }
        if segments.len() > 1 {
            groups.retain(|files| !files.is_empty());
        }
        groups.into_iter().map(FileGroup::new).collect()
    }

    /// The segments that rows may be in for which all of `filters` hold.
    fn pruned<'a>(
        &self,
        segments: Vec<Read<'a>>,
        filters: &[Expr],
        state: &dyn Session,
    ) -> Vec<Read<'a>> {
        let footers = segments.iter().map(|read| read.footer.as_deref());
        let Some(footers) = footers.collect::<Option<Vec<_>>>() else {
            return segments;
        };
        let statistics = footers.iter().map(|footer| footer.statistics(&self.schema));
        match footers::may_hold(statistics.collect(), filters, &self.schema, state) {
            Some(kept) => {
                let kept = segments.into_iter().zip(kept);
                kept.filter_map(|(read, kept)| kept.then_some(read))
                    .collect()
            }
            None => segments,
        }
    }

    /// What is known of the rows of `segments`.
    fn statistics_of(&self, segments: &[Read<'_>]) -> Result<Statistics> {
        let footers = segments.iter().map(|read| read.footer.as_deref());
        match footers.collect::<Option<Vec<_>>>() {
            Some(footers) if (1..=MAX_STATISTICS).contains(&footers.len()) => {
                let statistics = footers.iter().map(|footer| footer.statistics(&self.schema));
                let statistics: Vec<_> = statistics.collect();
                let statistics = statistics.iter().map(AsRef::as_ref);
                Statistics::try_merge_iter(statistics, &self.schema)
            }
            _ => Ok(self.counted(segments.iter().map(|read| read.segment))),
        }
    }

    /// How many rows `segments` have.
    fn counted<'a>(&self, segments: impl Iterator<Item = &'a Arc<SegmentMeta>>) -> Statistics {
        let (rows, bytes) = segments.fold((0, 0), |(rows, bytes), segment| {
            (rows + segment.rows as usize, bytes + segment.bytes as usize)
        });
        Statistics {
            num_rows: Precision::Exact(rows),
            total_byte_size: Precision::Inexact(bytes),
            column_statistics: Statistics::unknown_column(&self.schema),
        }
    }
}

impl ScansIds for NativeTable {
    fn with_id_column(&self, ids: IdColumn) -> Arc<dyn TableProvider> {
        let schema = ids.after(&self.schema);
        Arc::new(Self {
            ids: Some((ids, schema)),
            ..self.clone()
        })
    }
}

fn exact(id: i64) -> Precision<ScalarValue> {
    Precision::Exact(ScalarValue::Int64(Some(id)))
}

#[async_trait]
impl TableProvider for NativeTable {
    fn schema(&self) -> SchemaRef {
        let ids = self.ids.as_ref();
        SchemaRef::clone(ids.map_or(&self.schema, |(_, schema)| schema))
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.segments.is_empty() {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema().project(columns)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let partitions = state.config_options().execution.target_partitions;
        let segments = footers::read(&self.table, &self.segments, &self.store, state).await;
        let segments = self.pruned(segments, filters, state);
        let mut statistics = self.statistics_of(&segments)?;
        let most = state.config().batch_size();
        let read = projection
            .map(|projection| self.read(projection))
            .transpose()?;
        let batch_rows = batch_rows(&statistics, read.as_deref(), most);
        if let (Some(of_batch), Precision::Exact(rows)) = (batch_rows, statistics.num_rows)
            && (of_batch + 1..=most).contains(&rows)
        {
            // So few rows are one batch to the planner, which it does not divide among threads; what
            // it does not know exactly it does.
            statistics.num_rows = Precision::Inexact(rows);
        }
        let mut footers = segments.iter().filter_map(|read| read.footer.as_ref());
        let counts = footers.any(|footer| self.consecutive(footer).is_some());
        let distributed = has_workers(state.config());
        // Workers do not know of it.
        let cache = state.config().get_extension::<ColumnCache>();
        let cache = cache.filter(|_| !distributed);
        let by_row_group = (!distributed && !segments.is_empty())
            .then(|| self.row_groups(&segments, state, cache.as_ref()))
            .flatten();
        // That they are partitions of their own keeps the planner from cutting them.
        let as_they_are = by_row_group
            .as_ref()
            .map(|groups| Partitioning::UnknownPartitioning(groups.len()));
        let mut groups = by_row_group
            .unwrap_or_else(|| self.segment_groups(&segments, partitions, cache.as_ref()));
        if distributed {
            // Each worker will read a part of the table: no operator above may take for granted
            // that all of its rows are in one partition.
            groups.resize_with(groups.len().max(2), || FileGroup::new(Vec::new()));
        }
        let mut source = self.source(state, options, cache)?;
        let mut columns = projection.cloned();
        if let Some((ids, schema)) = &self.ids {
            let all = (0..schema.fields().len()).collect();
            let made = ids.projection(columns.as_ref().unwrap_or(&all), &self.schema, state)?;
            // Workers do not know of scans that count.
            if counts && !distributed {
                source = Arc::new(ImplicitRowIds::try_new(source, &made)?);
            } else if let Some(reading) = source.try_pushdown_projection(&made)? {
                source = reading;
            }
            columns = None;
        }
        let config = FileScanConfigBuilder::new(self.store.clone(), source)
            .with_file_groups(groups)
            .with_output_partitioning(as_they_are)
            .with_statistics(statistics)
            .with_projection_indices(columns)?
            .with_limit(limit)
            .with_batch_size(batch_rows)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Segments are pruned by statistics; what remains is filtered above.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.counted(self.segments.iter()))
    }
}

impl std::fmt::Display for NativeTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.table.schema_name, self.table.name)
    }
}
