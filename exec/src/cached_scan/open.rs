//! Opening a segment: its footer, the columns that it has, and the row groups and pages that may have rows.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use datafusion::physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprSimplifier};
use datafusion::physical_expr_adapter::rewrite::rewrite_input_file_name_in_projection;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapterFactory,
};
use datafusion::physical_optimizer::pruning::{
    FilePruner, PruningPredicate, PruningPredicateBuilder,
};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion_datasource_parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, ParquetFileMetrics, ParquetFileReaderFactory,
    RowGroupAccess, RowGroupAccessPlanFilter, apply_file_schema_type_coercions,
};

use super::order::RowGroupOrder;
use super::row_groups::{OpenSegment, Output, RowGroup, RowGroups};
use super::{BYTES, HITS, MISSES};
use crate::column_cache::{CachedSegment, ColumnCache};

/// A partition of a scan, as all of its files need it.
pub(super) struct Scan {
    pub(super) cache: Arc<ColumnCache>,
    pub(super) partition: usize,
    pub(super) batch_size: usize,
    pub(super) limit: Option<usize>,
    pub(super) max_in_list_size: usize,
    pub(super) metrics: ScanMetrics,
    readers: Arc<dyn ParquetFileReaderFactory>,
    /// Of the columns of `logical`, and `numbers` after them.
    projection: ProjectionExprs,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// The table's columns, as far as they are stored.
    logical: SchemaRef,
    /// A column of the rows' places in the file.
    numbers: Option<FieldRef>,
    output: SchemaRef,
    adapters: Arc<dyn PhysicalExprAdapterFactory>,
    order: Option<RowGroupOrder>,
    keeps_order: bool,
    prunes_row_groups: bool,
    prunes_pages: bool,
}

/// What a partition of a scan counts.
#[derive(Debug, Clone)]
pub(super) struct ScanMetrics {
    all: ExecutionPlanMetricsSet,
    pub(super) hits: Count,
    pub(super) misses: Count,
    pub(super) bytes: Count,
}

impl Scan {
    /// A partition of `parquet`. `None` if it does what the cache does not: evaluates conditions on rows, reads
    /// parts of nested columns, or makes columns of its own other than the rows' places.
    pub(super) fn try_new(
        parquet: &ParquetSource,
        cache: Arc<ColumnCache>,
        order: Option<RowGroupOrder>,
        batch_size: usize,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Option<Self>> {
        let options = &parquet.table_parquet_options().global;
        let schema = parquet.table_schema();
        let evaluates = options.pushdown_filters && parquet.filter().is_some();
        let numbers = match &schema.virtual_columns()[..] {
            [] => None,
            [numbers] => Some(Arc::clone(numbers)),
            _ => return Ok(None),
        };
        let (Some(readers), Some(projection)) =
            (parquet.parquet_file_reader_factory(), parquet.projection())
        else {
            return Ok(None);
        };
        let is_off = cache.size() == 0;
        if is_off || evaluates || !schema.table_partition_cols().is_empty() {
            return Ok(None);
        }
        let logical = schema.file_schema();
        let is_part = |expr: &Arc<dyn PhysicalExpr>| {
            let mut columns = collect_columns(expr).into_iter();
            let is_nested = |column: Column| {
                let fields = logical.fields().get(column.index());
                fields.is_some_and(|field| field.data_type().is_nested())
            };
            !expr.is::<Column>() && columns.any(is_nested)
        };
        if projection.iter().any(|made| is_part(&made.expr)) {
            return Ok(None);
        }
        let all = parquet.metrics();
        let count = |name: &'static str| MetricBuilder::new(all).counter(name, partition);
        let adapters = config.expr_adapter_factory.clone();
        Ok(Some(Self {
            cache,
            partition,
            batch_size,
            limit: config.limit,
            max_in_list_size: options.max_in_list_size,
            metrics: ScanMetrics {
                hits: count(HITS),
                misses: count(MISSES),
                bytes: count(BYTES),
                all: all.clone(),
            },
            readers: Arc::clone(readers),
            projection: projection.clone(),
            predicate: parquet.filter(),
            logical: Arc::clone(logical),
            numbers,
            output: Arc::new(projection.project_schema(schema.table_schema())?),
            adapters: adapters.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory)),
            order,
            keeps_order: config.preserve_order,
            prunes_row_groups: options.pruning,
            prunes_pages: options.enable_page_index,
        }))
    }

    /// Rows groups that may have rows for which `predicate` holds, as far as it can be told by bounds.
    fn pruning(
        &self,
        predicate: &Arc<dyn PhysicalExpr>,
        physical: &SchemaRef,
        errors: &Count,
    ) -> Option<Arc<PruningPredicate>> {
        PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(physical))
            .with_error_counter(errors)
            .with_max_in_list_size(self.max_in_list_size)
            .build(Arc::clone(predicate))
    }
}

/// `schema`, and `more` after it.
fn with_field(schema: &SchemaRef, more: Option<&FieldRef>) -> SchemaRef {
    let Some(more) = more else {
        return Arc::clone(schema);
    };
    let fields = schema.fields().iter().chain([more]).cloned();
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Opens a segment; `None` if none of its rows are to be read.
pub(super) async fn open(
    scan: Arc<Scan>,
    file: PartitionedFile,
    segment: CachedSegment,
) -> Result<Option<RowGroups>> {
    let name = file.object_meta.location.to_string();
    let metrics = ParquetFileMetrics::new(scan.partition, &name, &scan.metrics.all);
    let errors =
        MetricBuilder::new(&scan.metrics.all).global_counter("num_predicate_creation_errors");
    if let Some(predicate) = &scan.predicate
        && let Some(mut pruner) =
            FilePruner::try_new(Arc::clone(predicate), &scan.logical, &file, errors.clone())
        && pruner.should_prune()?
    {
        metrics.files_ranges_pruned_statistics.add_pruned(1);
        return Ok(None);
    }
    metrics.files_ranges_pruned_statistics.add_matched(1);

    let readers = &scan.readers;
    let hint = file.metadata_size_hint;
    let mut reader: Box<dyn AsyncFileReader> =
        readers.create_reader(scan.partition, file.clone(), hint, &scan.metrics.all)?;
    let mut options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Skip);
    let mut timer = metrics.metadata_load_time.timer();
    let mut footer = ArrowReaderMetadata::load_async(&mut reader, options.clone()).await?;
    timer.stop();
    drop(timer);
    let mut physical = Arc::clone(footer.schema());
    if let Some(coerced) = apply_file_schema_type_coercions(&scan.logical, &physical) {
        physical = Arc::new(coerced);
        options = options.with_schema(Arc::clone(&physical));
        footer = ArrowReaderMetadata::try_new(Arc::clone(footer.metadata()), options.clone())?;
    }

    // Rewrites expressions over the table's columns to columns of the file. Missing ones become NULL, others are cast.
    let numbers = scan.numbers.as_ref();
    let with_numbers = with_field(&physical, numbers);
    let logical = with_field(&scan.logical, numbers);
    let adapter = scan.adapters.create(logical, Arc::clone(&with_numbers))?;
    let simplifier = PhysicalExprSimplifier::new(&with_numbers);
    let adapt = |expr: Arc<dyn PhysicalExpr>| simplifier.simplify(adapter.rewrite(expr)?);
    let projection = rewrite_input_file_name_in_projection(scan.projection.clone(), &name)?;
    let projection = projection.try_map_exprs(adapt)?;
    let predicate = scan.predicate.clone().map(adapt).transpose()?;

    // Followed from before it is first asked, so that no change is missed.
    let tracking = predicate.as_ref().map(DynamicFilterTracking::classify);
    let pruning = predicate.as_ref();
    let pruning = pruning.and_then(|predicate| scan.pruning(predicate, &physical, &errors));
    let mut row_groups = all_row_groups(&file, footer.metadata());
    let groups = footer.metadata().row_groups();
    match pruning.filter(|_| scan.prunes_row_groups) {
        Some(pruning) => {
            let described = footer.parquet_schema();
            row_groups.prune_by_statistics(&physical, described, groups, &pruning, &metrics);
        }
        None => {
            let left = row_groups.remaining_row_group_count();
            metrics.row_groups_pruned_statistics.add_matched(left);
        }
    }
    let left = row_groups.remaining_row_group_count();
    metrics.row_groups_pruned_bloom_filter.add_matched(left);
    if let (Some(limit), false) = (scan.limit, scan.keeps_order) {
        row_groups.prune_by_limit(limit, groups, &metrics);
    }
    let pages = predicate.as_ref().filter(|_| scan.prunes_pages);
    let pages =
        pages.map(|predicate| PagePruningAccessPlanFilter::new(predicate, Arc::clone(&physical)));
    let pages = pages.filter(|pages| pages.filter_number() > 0);
    let is_uncertain = {
        let matched = row_groups.is_fully_matched();
        let mut left = row_groups.row_group_indexes();
        left.any(|group| !matched[group] && has_page_index(footer.metadata(), group))
    };
    let mut access = row_groups.build();
    if let Some(pages) = pages.filter(|_| is_uncertain) {
        let options = options.with_page_index_policy(PageIndexPolicy::Optional);
        footer = ArrowReaderMetadata::load_async(&mut reader, options).await?;
        let (described, pages_of) = (footer.parquet_schema(), footer.metadata());
        access = pages.prune_plan_with_page_index(access, &physical, described, pages_of, &metrics);
    }

    let left = in_order(&scan, access, &physical, footer.metadata());
    if left.is_empty() {
        return Ok(None);
    }
    let output = output(&scan, &projection, &physical)?;
    let watched = tracking
        .filter(|tracking| matches!(tracking, DynamicFilterTracking::Watching(_)))
        .filter(|_| scan.prunes_row_groups)
        .zip(predicate);
    let file = OpenSegment {
        scan,
        segment,
        reader,
        footer,
        physical,
        metrics,
    };
    Ok(Some(RowGroups::new(file, output, left, watched)))
}

/// The row groups of a file, or of a part of one.
fn all_row_groups(file: &PartitionedFile, footer: &ParquetMetaData) -> RowGroupAccessPlanFilter {
    let chosen = file.extension::<ParquetAccessPlan>().cloned();
    let all = || ParquetAccessPlan::new_all(footer.num_row_groups());
    let mut row_groups = RowGroupAccessPlanFilter::new(chosen.unwrap_or_else(all));
    if let Some(range) = &file.range {
        row_groups.prune_by_range(footer.row_groups(), range);
    }
    row_groups
}

fn has_page_index(footer: &ParquetMetaData, row_group: usize) -> bool {
    let mut columns = footer.row_group(row_group).columns().iter();
    columns.any(|column| column.column_index_offset().is_some())
}

/// The row groups that `access` leaves, in the order in which they are read.
fn in_order(
    scan: &Scan,
    access: ParquetAccessPlan,
    physical: &Schema,
    footer: &ParquetMetaData,
) -> VecDeque<RowGroup> {
    let mut chosen = access.row_group_indexes();
    if let Some(order) = &scan.order {
        chosen = order.apply(chosen, physical, footer);
    }
    let mut before = Vec::with_capacity(footer.num_row_groups());
    let mut rows = 0;
    for row_group in footer.row_groups() {
        before.push(rows);
        rows += row_group.num_rows();
    }
    let mut access: Vec<_> = access.into_inner();
    let chosen = chosen.into_iter();
    chosen
        .map(|index| RowGroup {
            index,
            rows_before: before[index],
            access: std::mem::replace(&mut access[index], RowGroupAccess::Skip),
        })
        .collect()
}

/// How rows are made of the file's columns.
fn output(scan: &Scan, projection: &ProjectionExprs, physical: &SchemaRef) -> Result<Output> {
    let mut columns = BTreeSet::new();
    let mut has_numbers = false;
    for made in projection.iter() {
        for column in collect_columns(&made.expr) {
            if column.index() < physical.fields().len() {
                columns.insert(column.index());
            } else {
                has_numbers = true;
            }
        }
    }
    let columns: Vec<_> = columns.into_iter().collect();
    let read = Arc::new(physical.project(&columns)?);
    let read = with_field(&read, scan.numbers.as_ref().filter(|_| has_numbers));
    let rebased = projection.clone();
    let rebased = rebased.try_map_exprs(|expr| reassign_expr_columns(expr, &read))?;
    let projector = rebased.make_projector(&read)?;
    let is_said_otherwise = projector.output_schema() != &scan.output;
    Ok(Output {
        columns,
        has_numbers,
        read,
        projector,
        schema: is_said_otherwise.then(|| Arc::clone(&scan.output)),
    })
}

impl Scan {
    /// Which of `left` may still have rows for which `predicate` holds, which has changed.
    pub(super) fn pruned_again(
        &self,
        mut left: VecDeque<RowGroup>,
        predicate: &Arc<dyn PhysicalExpr>,
        physical: &SchemaRef,
        footer: &ArrowReaderMetadata,
    ) -> VecDeque<RowGroup> {
        let Some(pruning) = self.pruning(predicate, physical, &Count::new()) else {
            return left;
        };
        let mut access = ParquetAccessPlan::new_none(footer.metadata().num_row_groups());
        for row_group in &left {
            access.scan(row_group.index);
        }
        let mut row_groups = RowGroupAccessPlanFilter::new(access);
        // They have been counted when the file was opened.
        let uncounted =
            ParquetFileMetrics::new(self.partition, "", &ExecutionPlanMetricsSet::new());
        let (described, groups) = (footer.parquet_schema(), footer.metadata().row_groups());
        row_groups.prune_by_statistics(physical, described, groups, &pruning, &uncounted);
        let access = row_groups.build();
        left.retain(|row_group| access.should_scan(row_group.index));
        left
    }
}
