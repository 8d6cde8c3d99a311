//! A table's segments as a scan.

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
use datafusion_datasource_parquet::metadata::DFParquetMetadata;
use skewer_cluster::{OfShard, has_workers};
use skewer_exec::{IdColumn, IdentifiedTable, ROW_ID, ScansIds};
use skewer_storage::{Partitioning as Placement, SegmentMeta, Storage, TableMeta};

use crate::catalog::batch_rows::batch_rows;
use crate::catalog::counted_ids::{ConsecutiveIds, CountedIds, begins};
use crate::catalog::zones::in_zone;

/// Tables of more segments are planned by their numbers of rows alone: reading a footer takes some
/// 50 µs, and planning should not take longer than small queries.
const MAX_FOOTERS: usize = 128;

/// What planning needs of a segment's footer.
struct Footer {
    statistics: Arc<Statistics>,
    /// Where in the file its row groups begin.
    row_groups: Vec<i64>,
    /// If they are asked for.
    ids: Option<ConsecutiveIds>,
}

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
            .with_narrow_ids(are_narrow)
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

    /// Reads all columns.
    fn source(
        &self,
        state: &dyn Session,
        options: TableParquetOptions,
    ) -> Result<Arc<dyn FileSource>> {
        let runtime = state.runtime_env();
        let store = runtime.object_store(&self.store)?;
        let footers = runtime.cache_manager.get_file_metadata_cache();
        let reader = CachedParquetFileReaderFactory::new(store, footers);
        let source = ParquetSource::new(SchemaRef::clone(&self.schema))
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(reader));
        Ok(Arc::new(source))
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

    fn table_statistics(&self) -> Statistics {
        let sum = |of: fn(&SegmentMeta) -> u64| -> usize {
            self.segments.iter().map(|s| of(s) as usize).sum()
        };
        Statistics {
            num_rows: Precision::Exact(sum(|s| s.rows)),
            total_byte_size: Precision::Inexact(sum(|s| s.bytes)),
            column_statistics: Statistics::unknown_column(&self.schema),
        }
    }

    /// What the footers of the segments say: with what they say of the columns the planner puts joins
    /// in a better order. Only for tables whose footers are few; the scan reads them anyway, and
    /// finds them in the cache. A footer that cannot be read is the scan's to report.
    async fn read_footers(&self, state: &dyn Session) -> Option<Vec<Footer>> {
        if self.segments.len() > MAX_FOOTERS {
            return None;
        }
        let runtime = state.runtime_env();
        let store = runtime.object_store(&self.store).ok()?;
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let mut footers = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let file = PartitionedFile::new(segment.location.to_string(), segment.bytes);
            let read = DFParquetMetadata::new(&store, &file.object_meta)
                .with_file_metadata_cache(Some(Arc::clone(&cache)));
            let footer = read.fetch_metadata().await.ok()?;
            let statistics =
                DFParquetMetadata::statistics_from_parquet_metadata(&footer, &self.schema);
            footers.push(Footer {
                statistics: Arc::new(statistics.ok()?),
                row_groups: footer.row_groups().iter().map(begins).collect(),
                ids: match self.ids {
                    Some(_) => ConsecutiveIds::of(&footer),
                    None => None,
                },
            });
        }
        Some(footers)
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
    fn row_groups(&self, footers: &[Footer], state: &dyn Session) -> Option<Vec<FileGroup>> {
        let row_groups: usize = footers.iter().map(|footer| footer.row_groups.len()).sum();
        let options = state.config_options();
        let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        let is_cut = bytes >= options.optimizer.repartition_file_min_size as u64;
        let is_one_each = self.segments.len() == row_groups;
        if row_groups >= options.execution.target_partitions || (is_one_each && !is_cut) {
            return None;
        }
        let mut groups = Vec::with_capacity(row_groups);
        for (segment, footer) in self.segments.iter().zip(footers) {
            let file = self.file(segment, Some(footer));
            let begins = footer.row_groups.iter().copied();
            let ends = begins.clone().skip(1).chain([segment.bytes as i64]);
            let parts = begins.zip(ends);
            groups.extend(
                parts.map(|(begin, end)| FileGroup::new(vec![file.clone().with_range(begin, end)])),
            );
        }
        Some(groups)
    }

    /// A segment as a file to scan.
    fn file(&self, segment: &SegmentMeta, footer: Option<&Footer>) -> PartitionedFile {
        let mut file = PartitionedFile::new(segment.location.to_string(), segment.bytes);
        file = file.with_statistics(match footer {
            Some(footer) => Arc::clone(&footer.statistics),
            None => Arc::new(self.segment_statistics(segment)),
        });
        if let Some(ids) = footer.and_then(|footer| footer.ids.as_ref()) {
            file = file.with_extension(ids.clone());
        }
        if let Some(shard) = segment.shard
            && let Some(keys) = self.hash_keys()
        {
            file = file.with_extension(OfShard { shard, keys });
        }
        file
    }

    /// Consecutive segments per partition, so that every partition has about as many rows.
    fn segment_groups(&self, partitions: usize, footers: Option<&[Footer]>) -> Vec<FileGroup> {
        let total: u64 = self.segments.iter().map(|s| s.rows).sum();
        let partitions = partitions.clamp(1, self.segments.len().max(1));
        let share = (total / partitions as u64).max(1);
        let mut groups = vec![Vec::new(); partitions];
        let mut before = 0;
        for (number, segment) in self.segments.iter().enumerate() {
            let group = ((before + segment.rows / 2) / share).min(partitions as u64 - 1);
            before += segment.rows;
            let file = self.file(segment, footers.map(|footers| &footers[number]));
            groups[group as usize].push(file);
        }
        let groups = groups.into_iter().filter(|files| !files.is_empty());
        groups.map(FileGroup::new).collect()
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
        _filters: &[Expr],
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
        let footers = self.read_footers(state).await;
        let mut statistics = match &footers {
            Some(footers) => {
                let segments = footers.iter().map(|footer| footer.statistics.as_ref());
                Statistics::try_merge_iter(segments, &self.schema)?
            }
            None => self.table_statistics(),
        };
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
        let counts = footers.iter().flatten().any(|footer| footer.ids.is_some());
        let distributed = has_workers(state.config());
        let footers = footers.as_deref();
        let by_row_group = footers
            .filter(|_| !distributed)
            .and_then(|footers| self.row_groups(footers, state));
        // That they are partitions of their own keeps the planner from cutting them.
        let as_they_are = by_row_group
            .as_ref()
            .map(|groups| Partitioning::UnknownPartitioning(groups.len()));
        let mut groups = by_row_group.unwrap_or_else(|| self.segment_groups(partitions, footers));
        if distributed {
            // Each worker will read a part of the table: no operator above may take for granted
            // that all of its rows are in one partition.
            groups.resize_with(groups.len().max(2), || FileGroup::new(Vec::new()));
        }
        let mut source = self.source(state, options)?;
        let mut columns = projection.cloned();
        if let Some((ids, schema)) = &self.ids {
            let all = (0..schema.fields().len()).collect();
            let made = ids.projection(columns.as_ref().unwrap_or(&all), &self.schema, state)?;
            // Workers do not know of scans that count.
            if counts && !distributed {
                source = Arc::new(CountedIds::try_new(source, &made)?);
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
        // Segments prune by statistics; what remains is filtered above.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.table_statistics())
    }
}

impl std::fmt::Display for NativeTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.table.schema_name, self.table.name)
    }
}
