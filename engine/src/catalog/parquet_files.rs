//! Parquet files with the numbers of their rows as ids.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue, Statistics};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingTableUrl, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::object_store::ObjectMeta;
use datafusion::parquet::arrow::RowNumber;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use skewer_exec::ROW_ID;

use crate::error::Error;

/// Row number within a file, as the Parquet reader counts it.
const ROW_NUMBER: &str = "_row_number";
/// Rows of the files before.
const FIRST_ROW: &str = "_first_row";

/// Parquet files, sorted by path, with `_row_id` last: the number of the row, counted from 0
/// through all the files.
///
/// ```text
/// ProjectionExec: columns…, _first_row + _row_number AS _row_id
///   DataSourceExec: columns…, _first_row (one value per file), _row_number (from the reader)
/// ```
#[derive(Debug)]
pub(crate) struct ParquetFiles {
    schema: SchemaRef,
    store: ObjectStoreUrl,
    files: Vec<(ObjectMeta, i64)>,
    rows: i64,
}

impl ParquetFiles {
    /// Reads the footers to learn how many rows each file has.
    pub(crate) async fn open(
        state: &SessionState,
        schema: SchemaRef,
        files: &[(ListingTableUrl, ObjectMeta)],
    ) -> Result<Self, Error> {
        let Some((url, _)) = files.first() else {
            return Err(Error::Internal("no Parquet files to number".to_owned()));
        };
        let store = state.runtime_env().object_store(url)?;
        let format = ParquetFormat::default();
        let mut numbered = Vec::with_capacity(files.len());
        let mut rows = 0;
        for (_, meta) in files {
            let statistics = format
                .infer_stats(state, &store, SchemaRef::clone(&schema), meta)
                .await?;
            numbered.push((meta.clone(), rows));
            rows += statistics.num_rows.get_value().copied().unwrap_or(0) as i64;
        }
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            store: url.object_store(),
            files: numbered,
            rows,
        })
    }
}

#[async_trait]
impl TableProvider for ParquetFiles {
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
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = self.schema.fields().len() - 1;
        let file_schema = Arc::new(self.schema.project(&(0..columns).collect::<Vec<_>>())?);
        let first_row: FieldRef = Arc::new(Field::new(FIRST_ROW, DataType::Int64, false));
        let row_number: FieldRef =
            Arc::new(Field::new(ROW_NUMBER, DataType::Int64, false).with_extension_type(RowNumber));
        let table_schema = TableSchemaBuilder::new(file_schema)
            .with_table_partition_cols(vec![first_row])
            .with_virtual_columns(vec![row_number])
            .build();
        let scan_schema = SchemaRef::clone(table_schema.table_schema());

        let all: Vec<usize> = (0..=columns).collect();
        let wanted = projection.unwrap_or(&all);
        let mut scanned: Vec<usize> = wanted.iter().copied().filter(|c| *c < columns).collect();
        if wanted.contains(&columns) {
            scanned.extend([columns, columns + 1]);
        }
        let groups = self
            .files
            .iter()
            .map(|(meta, first)| {
                PartitionedFile::new_from_meta(meta.clone())
                    .with_partition_values(vec![ScalarValue::Int64(Some(*first))])
            })
            .collect();
        let partitions = state.config_options().execution.target_partitions;
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let config = FileScanConfigBuilder::new(
            self.store.clone(),
            Arc::new(ParquetSource::new(table_schema)),
        )
        .with_file_groups(FileGroup::new(groups).split_files(partitions))
        .with_projection_indices(Some(scanned.clone()))?
        .with_limit(limit)
        .build();
        let scan = ParquetFormat::default()
            .with_options(options)
            .create_physical_plan(state, config)
            .await?;

        let at = |column: usize| -> Arc<dyn PhysicalExpr> {
            let position = scanned
                .iter()
                .position(|c| *c == column)
                .unwrap_or_default();
            Arc::new(Column::new(scan_schema.field(column).name(), position))
        };
        let output: Vec<(Arc<dyn PhysicalExpr>, String)> = wanted
            .iter()
            .map(|column| {
                if *column == columns {
                    let id = BinaryExpr::new(at(columns), Operator::Plus, at(columns + 1));
                    (Arc::new(id) as Arc<dyn PhysicalExpr>, ROW_ID.to_owned())
                } else {
                    (at(*column), scan_schema.field(*column).name().clone())
                }
            })
            .collect();
        Ok(Arc::new(ProjectionExec::try_new(output, scan)?))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(self.rows as usize);
        Some(statistics)
    }
}
