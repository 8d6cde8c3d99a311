//! Files of one format as a table.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::{CsvOptions, TableParquetOptions};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ColumnStatistics, DFSchema, Result, ScalarValue, Statistics};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    CsvSource, FileGroup, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::object_store::ObjectMeta;
use datafusion::parquet::arrow::RowNumber;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion_datasource::compute_all_files_statistics;
use skewer_exec::ROW_ID;

use crate::json_source::{JsonDialect, JsonFiles};
use crate::passes::ranges;
use crate::place_store::store_url;

/// Row number within a file, as the Parquet reader counts it.
const ROW_NUMBER: &str = "_row_number";
/// Rows of the files before.
const FIRST_ROW: &str = "_first_row";

/// How files are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Format {
    Parquet,
    Csv(Box<CsvOptions>),
    Json(JsonDialect),
}

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The column of the file at this place.
    File(usize),
    /// The partition column at this place.
    Partition(usize),
    /// These files have no such column: NULL.
    Nowhere,
}

/// A file, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct ScanFile {
    pub(crate) meta: ObjectMeta,
    /// Of the partition columns.
    pub(crate) values: Vec<ScalarValue>,
    /// Where parts begin, but for the first, that can be read by themselves.
    pub(crate) starts: Vec<u64>,
    /// Of the columns of the file.
    pub(crate) statistics: Option<Statistics>,
    /// Rows of the files before.
    pub(crate) first_row: i64,
}

/// Files with the same columns in the same order.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) format: Format,
    /// The columns of the files, without partition columns.
    pub(crate) file_schema: SchemaRef,
    /// For each column of the table.
    pub(crate) origins: Vec<Origin>,
    pub(crate) files: Vec<ScanFile>,
    /// Rows of a batch at most, where they are so long that the usual number is too many.
    pub(crate) batch_rows: Option<usize>,
}

/// Files as one table. With row ids its last column is `_row_id`: the number of the row, counted
/// from 0 through all the files.
///
/// ```text
/// UnionExec, if there are several layouts
///   ProjectionExec, if columns are missing or rows have ids: _first_row + _row_number AS _row_id
///     DataSourceExec: columns…, partition columns…, _first_row (one value per file), _row_number
/// ```
#[derive(Debug, Clone)]
pub(crate) struct FilesTable {
    pub(crate) schema: SchemaRef,
    pub(crate) partitions: Vec<FieldRef>,
    pub(crate) layouts: Vec<Layout>,
    /// Whether `_row_id` is the last column of the schema. Only Parquet has it.
    pub(crate) row_ids: bool,
}

impl FilesTable {
    /// The same rows with their ids.
    pub(crate) fn with_row_ids(mut self) -> Self {
        let mut fields: Vec<FieldRef> = self.schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
        self.schema = Arc::new(Schema::new(fields));
        self.row_ids = true;
        self
    }

    /// The files of a layout that filters over partition columns leave.
    fn left<'a>(
        &self,
        layout: &'a Layout,
        filters: &[Expr],
        state: &dyn Session,
    ) -> Result<Vec<&'a ScanFile>> {
        let mut files: Vec<&ScanFile> = layout.files.iter().collect();
        let is_partition = |name: &str| self.partitions.iter().any(|field| field.name() == name);
        for filter in filters {
            let columns = filter.column_refs();
            let is_about_partitions = !columns.is_empty()
                && columns.iter().all(|column| is_partition(&column.name))
                && !filter.is_volatile()
                && !filter.exists(|part| Ok(is_subquery(part)))?;
            if !is_about_partitions || files.is_empty() {
                continue;
            }
            let schema = Arc::new(Schema::new(self.partitions.clone()));
            let names = DFSchema::try_from(Arc::clone(&schema))?;
            let unqualified = filter.clone().transform(|part| {
                Ok(match part {
                    Expr::Column(column) => Transformed::yes(Expr::Column(
                        datafusion::common::Column::new_unqualified(column.name),
                    )),
                    other => Transformed::no(other),
                })
            })?;
            let condition = create_physical_expr(
                &unqualified.data,
                &names,
                state.execution_props(),
                &PhysicalPlanningContext::default(),
            );
            // Who cannot be evaluated here is evaluated with the rows.
            let Ok(condition) = condition else {
                continue;
            };
            let columns = (0..self.partitions.len())
                .map(|place| {
                    ScalarValue::iter_to_array(files.iter().map(|file| file.values[place].clone()))
                })
                .collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(files.len()));
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let Ok(kept) = condition
                .evaluate(&batch)
                .and_then(|k| k.into_array(files.len()))
            else {
                continue;
            };
            let Some(kept) = kept.as_boolean_opt() else {
                continue;
            };
            let mut row = 0;
            files.retain(|_| {
                row += 1;
                kept.is_valid(row - 1) && kept.value(row - 1)
            });
        }
        Ok(files)
    }

    /// The scan of a layout's `files`, with the columns at `wanted`.
    async fn scan_layout(
        &self,
        layout: &Layout,
        files: &[&ScanFile],
        wanted: &[usize],
        limit: Option<usize>,
        state: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = layout.file_schema.fields().len();
        let mut partitions = self.partitions.clone();
        let mut virtual_columns: Vec<FieldRef> = Vec::new();
        // Partition columns are after the file's, virtual ones after those.
        let first_row = columns + partitions.len();
        if self.row_ids {
            partitions.push(Arc::new(Field::new(FIRST_ROW, DataType::Int64, false)));
            let number = Field::new(ROW_NUMBER, DataType::Int64, false);
            virtual_columns.push(Arc::new(number.with_extension_type(RowNumber)));
        }
        let table_schema = TableSchemaBuilder::new(SchemaRef::clone(&layout.file_schema))
            .with_table_partition_cols(partitions)
            .with_virtual_columns(virtual_columns)
            .build();
        let scan_schema = SchemaRef::clone(table_schema.table_schema());

        let mut scanned = Vec::new();
        for column in wanted {
            match layout.origins.get(*column) {
                Some(Origin::File(place)) => scanned.push(*place),
                Some(Origin::Partition(place)) => scanned.push(columns + place),
                Some(Origin::Nowhere) => {}
                None => scanned.extend([first_row, first_row + 1]),
            }
        }
        let source: Arc<dyn FileSource> = match &layout.format {
            Format::Parquet => Arc::new(ParquetSource::new(table_schema.clone())),
            Format::Csv(options) => {
                Arc::new(CsvSource::new(table_schema.clone()).with_csv_options((**options).clone()))
            }
            Format::Json(dialect) => Arc::new(JsonFiles::new(*dialect, table_schema.clone())),
        };
        let target = state.config_options().execution.target_partitions;
        let known = state.config_options().execution.collect_statistics;
        let all = table_schema.schema_without_virtual_columns();
        let groups = self.groups(files, target);
        let (groups, statistics) =
            compute_all_files_statistics(groups, SchemaRef::clone(all), known, false)?;
        let batch_rows = layout.batch_rows;
        let config = FileScanConfigBuilder::new(store_url()?, source)
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(Some(scanned.clone()))?
            .with_limit(limit)
            .with_batch_size(batch_rows)
            .build();
        let scan = match layout.format {
            Format::Parquet => {
                let options = TableParquetOptions {
                    global: state.config_options().execution.parquet.clone(),
                    ..TableParquetOptions::default()
                };
                ParquetFormat::default()
                    .with_options(options)
                    .create_physical_plan(state, config)
                    .await?
            }
            Format::Csv(_) | Format::Json(_) => DataSourceExec::from_data_source(config),
        };
        let is_all = wanted.iter().all(|column| {
            matches!(
                layout.origins.get(*column),
                Some(Origin::File(_) | Origin::Partition(_))
            )
        });
        if is_all
            && scan
                .schema()
                .fields()
                .iter()
                .zip(wanted)
                .all(|(field, column)| field.name() == self.schema.field(*column).name())
        {
            return Ok(scan);
        }
        let at = |column: usize| -> Arc<dyn PhysicalExpr> {
            let position = scanned.iter().position(|c| *c == column);
            let name = scan_schema.field(column).name();
            Arc::new(Column::new(name, position.unwrap_or_default()))
        };
        let output = wanted
            .iter()
            .map(|column| {
                let field = self.schema.field(*column);
                let value: Arc<dyn PhysicalExpr> = match layout.origins.get(*column) {
                    Some(Origin::File(place)) => at(*place),
                    Some(Origin::Partition(place)) => at(columns + place),
                    Some(Origin::Nowhere) => {
                        Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?))
                    }
                    None => {
                        let (first, number) = (at(first_row), at(first_row + 1));
                        Arc::new(BinaryExpr::new(first, Operator::Plus, number))
                    }
                };
                Ok((value, field.name().clone()))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(output, scan)?))
    }

    /// The files dealt to so many partitions, in their order.
    fn groups(&self, files: &[&ScanFile], partitions: usize) -> Vec<FileGroup> {
        let whole = |file: &ScanFile| {
            let mut values = file.values.clone();
            if self.row_ids {
                values.push(ScalarValue::Int64(Some(file.first_row)));
            }
            let mut scanned = PartitionedFile::new_from_meta(file.meta.clone())
                .with_partition_values(values.clone());
            scanned.statistics = file
                .statistics
                .as_ref()
                .map(|statistics| Arc::new(with_partitions(statistics.clone(), &values)));
            scanned
        };
        if partitions == 1 || files.iter().all(|file| file.starts.is_empty()) {
            let files = files.iter().map(|file| whole(file)).collect();
            return FileGroup::new(files).split_files(partitions);
        }
        let bytes: u64 = files.iter().map(|file| file.meta.size).sum();
        let share = bytes.div_ceil(partitions as u64).max(1);
        let mut groups: Vec<Vec<PartitionedFile>> = vec![Vec::new()];
        let mut filled = 0;
        for file in files {
            let size = file.meta.size;
            let parts = ranges(&file.starts, size);
            let mut begin = 0;
            for part in &parts {
                filled += part.end - part.start;
                let is_full = filled >= share && groups.len() < partitions;
                if !is_full && part.end != size {
                    continue;
                }
                let scanned = match (begin, part.end) {
                    (0, end) if end == size => whole(file),
                    (begin, end) => whole(file).with_range(begin as i64, end as i64),
                };
                if let Some(group) = groups.last_mut() {
                    group.push(scanned);
                }
                begin = part.end;
                if is_full {
                    groups.push(Vec::new());
                    filled = 0;
                }
            }
        }
        groups.retain(|group| !group.is_empty());
        groups.into_iter().map(FileGroup::new).collect()
    }
}

fn is_subquery(part: &Expr) -> bool {
    matches!(
        part,
        Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::ScalarSubquery(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
    )
}

/// The statistics of a file, and those of partition columns with one value each, which may be NULL.
fn with_partitions(mut statistics: Statistics, values: &[ScalarValue]) -> Statistics {
    for value in values {
        let (nulls, bound) = match value.is_null() {
            true => (statistics.num_rows, Precision::Absent),
            false => (Precision::Exact(0), Precision::Exact(value.clone())),
        };
        statistics.column_statistics.push(ColumnStatistics {
            null_count: nulls,
            min_value: bound.clone(),
            max_value: bound,
            ..ColumnStatistics::new_unknown()
        });
    }
    statistics
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
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
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let wanted = projection.unwrap_or(&all);
        let mut scans = Vec::new();
        for layout in &self.layouts {
            let files = self.left(layout, filters, state)?;
            if !files.is_empty() {
                scans.push(
                    self.scan_layout(layout, &files, wanted, limit, state)
                        .await?,
                );
            }
        }
        match scans.len() {
            0 => Ok(Arc::new(EmptyExec::new(Arc::new(
                self.schema.project(wanted)?,
            )))),
            1 => Ok(scans.remove(0)),
            _ => UnionExec::try_new(scans),
        }
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        if !self.row_ids {
            return None;
        }
        let files = self.layouts.iter().flat_map(|layout| &layout.files);
        let rows = files.map(|file| file.statistics.as_ref()?.num_rows.get_value().copied());
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(rows.sum::<Option<usize>>()?);
        Some(statistics)
    }
}
