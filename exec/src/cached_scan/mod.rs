//! A scan of a table's segments that takes columns from the [`ColumnCache`] and fills it.
//!
//! It prunes as DataFusion's scan of Parquet does, with DataFusion's filters, and decides row group by row group:
//!
//! ```text
//! CachedScan ── every file: is it a segment, and are its columns read as a whole?
//!   no  → ParquetSource
//!   yes → prune row groups and pages, then every row group that is left:
//!     all columns are in the cache → slices of them, of the rows that pages leave
//!     most of its rows are read    → missing columns are decoded, as entries of the cache where it lets them
//!     few pages are left           → the rows of these pages are decoded, as without a cache
//! ```
//!
//! A row group's rows come in the order of the file, also those from the cache.

mod chunks;
mod open;
mod order;
mod planner;
mod row_groups;

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::file_groups::{FileGroup, FileGroupPartitioner};
use datafusion_datasource::morsel::Morselizer;
use skewer_compat::rules::flat_source;

use self::open::Scan;
use self::order::RowGroupOrder;
use self::planner::CachedMorselizer;
use crate::column_cache::ColumnCache;

/// Row groups and columns that a scan found in the cache, as its metrics call them.
pub const HITS: &str = "cache_hits";

/// Row groups and columns that a scan decoded.
pub const MISSES: &str = "cache_misses";

/// Bytes of the columns that a scan found in the cache.
pub const BYTES: &str = "bytes_from_cache";

/// Parts of the files of a partition, at most: each costs about as much as opening a file.
const MOST_PARTS: u64 = 4;

/// Bytes of a part, at least: some row groups of compressed columns.
const LEAST_PART_BYTES: u64 = 4 << 20;

/// A scan of Parquet whose files are segments, if they have a
/// [`CachedSegment`](crate::column_cache::CachedSegment) as an extension. It shows itself as the scan of Parquet.
#[derive(Clone)]
pub struct CachedScan {
    parquet: ParquetSource,
    cache: Arc<ColumnCache>,
    /// In which order row groups are best read.
    order: Option<RowGroupOrder>,
    batch_size: Option<usize>,
}

impl CachedScan {
    /// `parquet`, reading through `cache`.
    pub fn new(parquet: ParquetSource, cache: Arc<ColumnCache>) -> Self {
        Self {
            parquet,
            cache,
            order: None,
            batch_size: None,
        }
    }

    /// The same scan for another run, which has counters of its own; `None` if its order cannot be asked for again.
    ///
    /// # Errors
    /// Those of merging projections.
    pub fn of_another_run(&self) -> Result<Option<Self>> {
        if self.order.is_some() {
            return Ok(None);
        }
        // DataFusion 55.2 gives a scan of Parquet counters only when it is made.
        let before = &self.parquet;
        let mut parquet = ParquetSource::new(before.table_schema().clone())
            .with_table_parquet_options(before.table_parquet_options().clone());
        if let Some(reader) = before.parquet_file_reader_factory() {
            parquet = parquet.with_parquet_file_reader_factory(Arc::clone(reader));
        }
        if let Some(predicate) = before.filter() {
            parquet = parquet.with_predicate(predicate);
        }
        let made: Arc<dyn FileSource> = match before.projection() {
            Some(projection) => match parquet.try_pushdown_projection(projection)? {
                Some(projected) => projected,
                None => return Ok(None),
            },
            None => Arc::new(parquet),
        };
        let Some(parquet) = made.downcast_ref::<ParquetSource>() else {
            return Ok(None);
        };
        Ok(Some(Self {
            parquet: parquet.clone(),
            ..self.clone()
        }))
    }

    /// The same scan, pruned by a condition.
    pub(crate) fn with_predicate(&self, predicate: Arc<dyn PhysicalExpr>) -> Self {
        Self {
            parquet: self.parquet.with_predicate(predicate),
            ..self.clone()
        }
    }

    /// The same scan after a change of the scan of Parquet.
    fn around(&self, changed: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        match changed.downcast_ref::<ParquetSource>() {
            Some(parquet) => Arc::new(Self {
                parquet: parquet.clone(),
                ..self.clone()
            }),
            None => changed,
        }
    }

    /// The scan of Parquet, with the batch size and a condition that is not deep.
    fn sized(&self) -> ParquetSource {
        let source: Arc<dyn FileSource> = Arc::new(self.parquet.clone());
        let flat = flat_source(&source).unwrap_or(source);
        let sized = match self.batch_size {
            Some(batch_size) => flat.with_batch_size(batch_size),
            None => flat,
        };
        let parquet = sized.downcast_ref::<ParquetSource>();
        parquet.unwrap_or(&self.parquet).clone()
    }
}

/// Into how many parts the files of a partition are cut.
fn parts_of_partition(groups: &[FileGroup], partitions: usize) -> usize {
    let files = groups.iter().flat_map(FileGroup::iter);
    let bytes: u64 = files.map(|file| file.object_meta.size).sum();
    let of_partition = bytes / partitions.max(1) as u64;
    (of_partition / LEAST_PART_BYTES).clamp(1, MOST_PARTS) as usize
}

impl FileSource for CachedScan {
    fn create_file_opener(
        &self,
        _: Arc<dyn ObjectStore>,
        _: &FileScanConfig,
        _: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        internal_err!("a scan of segments plans morsels")
    }

    fn create_morselizer(
        &self,
        object_store: Arc<dyn ObjectStore>,
        base_config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let parquet = self.sized();
        let plain = parquet.create_morselizer(object_store, base_config, partition)?;
        let Some(batch_size) = self.batch_size else {
            return Ok(plain);
        };
        let order = self.order.clone();
        let cache = Arc::clone(&self.cache);
        let scan = Scan::try_new(&parquet, cache, order, batch_size, base_config, partition)?;
        Ok(match scan {
            Some(scan) => Box::new(CachedMorselizer::new(plain, scan)),
            None => plain,
        })
    }

    fn table_schema(&self) -> &TableSchema {
        self.parquet.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self {
            batch_size: Some(batch_size),
            ..self.clone()
        })
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.parquet.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.parquet.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.parquet.metrics()
    }

    fn file_type(&self) -> &str {
        self.parquet.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parquet.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.parquet.supports_repartitioning()
    }

    /// Cuts files into more parts than there are partitions. Partitions share one queue of parts, so whichever is free
    /// takes the next one: where some rows take longer than others, no partition waits for another for long.
    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
        config: &FileScanConfig,
    ) -> Result<Option<FileScanConfig>> {
        if !self.supports_repartitioning() {
            return Ok(None);
        }
        // Where order counts, each partition reads its own files.
        let parts = match output_ordering.is_some() {
            true => 1,
            false => parts_of_partition(&config.file_groups, target_partitions),
        };
        let groups = FileGroupPartitioner::new()
            .with_target_partitions(target_partitions * parts)
            .with_repartition_file_min_size(repartition_file_min_size)
            .with_preserve_order_within_groups(output_ordering.is_some())
            .repartition_file_groups(&config.file_groups);
        Ok(groups.map(|groups| {
            let of_partitions = groups.chunks(parts).map(|parts| {
                let files = parts.iter().flat_map(FileGroup::iter).cloned();
                FileGroup::new(files.collect())
            });
            let mut cut = config.clone();
            cut.file_groups = of_partitions.collect();
            cut
        }))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut pushed = self.parquet.try_pushdown_filters(filters, config)?;
        pushed.updated_node = pushed.updated_node.map(|changed| self.around(changed));
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        use SortOrderPushdownResult::{Exact, Inexact, Unsupported};
        Ok(match self.parquet.try_pushdown_sort(order, properties)? {
            Exact { inner } => Exact {
                inner: self.around(inner),
            },
            Inexact { inner } => {
                let asked = RowGroupOrder::new(order, self.table_schema().file_schema());
                let ordered = Self {
                    order: Some(asked),
                    ..self.clone()
                };
                Inexact {
                    inner: ordered.around(inner),
                }
            }
            Unsupported => Unsupported,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.parquet.reorder_files(files)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let changed = self.parquet.try_pushdown_projection(projection)?;
        Ok(changed.map(|changed| self.around(changed)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.parquet.apply_expressions(f)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::physical_expr::expressions::Column;
    use datafusion_datasource::file_scan_config::FileScanConfigBuilder;
    use skewer_compat::operators::memory_pool::{MemoryBudget, RaisedBy};

    use super::*;

    const FILE: u64 = 64 << 20;

    /// The parts of files that each of two partitions reads: the file, and from and up to which byte.
    fn parts(files: &[(&str, u64)], is_ordered: bool) -> Vec<Vec<(String, i64, i64)>> {
        let field = Field::new("a", DataType::Int64, true);
        let table = TableSchema::from(Arc::new(Schema::new(vec![field])));
        let memory = Arc::new(MemoryBudget::new(None, RaisedBy::Setting));
        let cache = ColumnCache::new(&memory, None);
        let scan = Arc::new(CachedScan::new(ParquetSource::new(table), cache));
        let files = files
            .iter()
            .map(|(name, bytes)| PartitionedFile::new(*name, *bytes));
        let url = ObjectStoreUrl::local_filesystem();
        let config = FileScanConfigBuilder::new(url, Arc::clone(&scan) as _)
            .with_file_groups(vec![FileGroup::new(files.collect())])
            .build();
        let order =
            LexOrdering::new([PhysicalSortExpr::new_default(Arc::new(Column::new("a", 0)))]);
        let order = order.filter(|_| is_ordered);
        let cut = scan.repartitioned(2, 1, order, &config).unwrap();
        let groups = cut.map_or(config.file_groups, |cut| cut.file_groups);
        let parts = groups.iter().map(|group| {
            let parts = group.iter().map(|file| {
                let name = file.object_meta.location.to_string();
                let all = file.object_meta.size as i64;
                let range = file.range.as_ref();
                range.map_or((name.clone(), 0, all), |range| {
                    (name, range.start, range.end)
                })
            });
            parts.collect()
        });
        parts.collect()
    }

    #[test]
    fn partitions_have_several_parts_of_large_files_and_read_each_byte_once() {
        for (files, is_ordered, expected) in [
            (&[("one", FILE)][..], false, [4, 4]),
            (&[("one", FILE), ("two", FILE / 2)], false, [4, 5]),
            // Rows in order are read by one partition each.
            (&[("one", FILE)], true, [1, 1]),
            // A part would be small.
            (&[("one", 6 << 20)], false, [1, 1]),
        ] {
            let parts = parts(files, is_ordered);
            let counts: Vec<_> = parts.iter().map(Vec::len).collect();
            assert_eq!(counts, expected, "{parts:?}");
            let mut all: Vec<_> = parts.into_iter().flatten().collect();
            all.sort();
            for (name, bytes) in files {
                let of_file = all.iter().filter(|(of, ..)| of == name);
                let end = of_file.fold(0, |end, (_, from, until)| {
                    assert_eq!(*from, end, "{all:?}");
                    *until
                });
                assert_eq!(end, *bytes as i64, "{all:?}");
            }
        }
    }
}
