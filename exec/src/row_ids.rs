//! Tables whose rows have ids.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{ScanArgs, ScanResult, Session, TableProvider};
use datafusion::common::{Constraints, DFSchema, Result, Statistics};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

/// The hidden column that identifies a row of a table for as long as the row lives.
pub const ROW_ID: &str = "_row_id";

/// A column that a scan makes of the ids of its rows.
#[derive(Debug, Clone)]
pub struct IdColumn {
    /// What it is called; no other column of the table is.
    pub name: String,
    /// What is in it, `BIGINT` if it is not narrow: an expression over the column [`ROW_ID`].
    pub value: Expr,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Whether it is `INTEGER`: then [`Int32RowId`](crate::Int32RowId) makes it.
    pub narrow: bool,
}

impl IdColumn {
    /// The schema of rows of `schema`, which has [`ROW_ID`], with this column after theirs.
    pub fn after(&self, schema: &Schema) -> SchemaRef {
        let data_type = match self.narrow {
            true => DataType::Int32,
            false => DataType::Int64,
        };
        let value = Field::new(&self.name, data_type, self.nullable);
        let fields = schema.fields().iter().cloned();
        let fields: Vec<FieldRef> = fields.chain([Arc::new(value)]).collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }

    /// Of rows of `schema` the columns at `wanted`, where the one after the last of `schema` is this.
    ///
    /// # Errors
    /// Those of planning the value.
    pub fn projection(
        &self,
        wanted: &[usize],
        schema: &SchemaRef,
        state: &dyn Session,
    ) -> Result<ProjectionExprs> {
        let columns = wanted
            .iter()
            .map(|index| match schema.fields().get(*index) {
                Some(field) => {
                    let column = Arc::new(Column::new(field.name(), *index));
                    Ok(ProjectionExpr::new(column, field.name()))
                }
                None => {
                    let schema = DFSchema::try_from(Arc::clone(schema))?;
                    let value = create_physical_expr(
                        &self.value,
                        &schema,
                        state.execution_props(),
                        &PhysicalPlanningContext::default(),
                    )?;
                    Ok(ProjectionExpr::new(value, &self.name))
                }
            });
        columns
            .collect::<Result<Vec<_>>>()
            .map(ProjectionExprs::new)
    }
}

/// A source of rows that makes a column of their ids while it reads them.
pub trait ScansIds: std::fmt::Debug + Send + Sync {
    /// The rows with [`ROW_ID`], and `ids` as the last column.
    fn with_id_column(&self, ids: IdColumn) -> Arc<dyn TableProvider>;
}

/// A table provider with a twin that also yields the ids of its rows.
///
/// It behaves like `inner`; the lineage rewrite swaps in the twin below a query that is profiled at
/// level `records`.
#[derive(Debug, Clone)]
pub struct IdentifiedTable {
    /// The table as queries see it.
    pub inner: Arc<dyn TableProvider>,
    /// The same rows with the schema of `inner` plus [`ROW_ID`] `BIGINT NOT NULL` as the last column.
    pub with_ids: Arc<dyn TableProvider>,
    /// What `table_name` says of these rows in the log: `schema.table`, or the path of a file.
    pub log_name: String,
    /// `with_ids`, if it can do so.
    scans_ids: Option<Arc<dyn ScansIds>>,
    /// Whether no id has more than 32 bits.
    has_int32_ids: bool,
}

impl IdentifiedTable {
    /// Wraps `inner`, whose rows have the ids that `with_ids` shows.
    pub fn new(
        inner: Arc<dyn TableProvider>,
        with_ids: Arc<dyn TableProvider>,
        log_name: impl Into<String>,
    ) -> Self {
        Self {
            inner,
            with_ids,
            log_name: log_name.into(),
            scans_ids: None,
            has_int32_ids: false,
        }
    }

    /// Says that no id is greater than `i32::MAX`.
    #[must_use]
    pub fn with_int32_ids(mut self, are_narrow: bool) -> Self {
        self.has_int32_ids = are_narrow;
        self
    }

    /// Whether all ids fit into `INTEGER`.
    pub fn has_int32_ids(&self) -> bool {
        self.has_int32_ids
    }

    /// Has `scans_ids`, which are the rows of `with_ids`, make columns of ids; without it that is
    /// done above the scan, which takes longer to plan.
    #[must_use]
    pub fn scanning_ids(mut self, scans_ids: Arc<dyn ScansIds>) -> Self {
        self.scans_ids = Some(scans_ids);
        self
    }

    /// The table with its row ids to see.
    #[must_use]
    pub fn showing_ids(self) -> Self {
        Self {
            inner: Arc::clone(&self.with_ids),
            ..self
        }
    }

    /// The rows of `with_ids`, and `ids` as the last column.
    pub fn with_id_column(&self, ids: IdColumn) -> Arc<dyn TableProvider> {
        if let Some(scan) = &self.scans_ids {
            return scan.with_id_column(ids);
        }
        Arc::new(ProjectedIds {
            schema: ids.after(&self.with_ids.schema()),
            rows: Arc::clone(&self.with_ids),
            ids,
        })
    }
}

/// Rows with ids, of which a projection above their scan makes a column.
#[derive(Debug)]
struct ProjectedIds {
    schema: SchemaRef,
    rows: Arc<dyn TableProvider>,
    ids: IdColumn,
}

#[async_trait]
impl TableProvider for ProjectedIds {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        self.rows.table_type()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let of_rows = self.rows.schema();
        let made = of_rows.fields().len();
        let wanted = match projection {
            Some(projection) => projection.clone(),
            None => (0..=made).collect(),
        };
        let mut read: Vec<usize> = wanted.iter().copied().filter(|c| *c != made).collect();
        let row_id = of_rows.index_of(ROW_ID)?;
        if wanted.contains(&made) && !read.contains(&row_id) {
            read.push(row_id);
        }
        let scan = self.rows.scan(state, Some(&read), filters, limit).await?;
        let places = wanted.iter().map(|column| {
            let place = read.iter().position(|read| read == column);
            place.unwrap_or(read.len())
        });
        let places: Vec<_> = places.collect();
        let columns = self.ids.projection(&places, &scan.schema(), state)?;
        Ok(Arc::new(ProjectionExec::try_new(
            columns.iter().cloned(),
            scan,
        )?))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        self.rows.supports_filters_pushdown(filters)
    }
}

#[async_trait]
impl TableProvider for IdentifiedTable {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.inner.constraints()
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.inner.get_table_definition()
    }

    fn get_logical_plan(&'_ self) -> Option<Cow<'_, LogicalPlan>> {
        self.inner.get_logical_plan()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.inner.get_column_default(column)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.inner.scan(state, projection, filters, limit).await
    }

    async fn scan_with_args<'a>(
        &self,
        state: &dyn Session,
        args: ScanArgs<'a>,
    ) -> Result<ScanResult> {
        self.inner.scan_with_args(state, args).await
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        self.inner.supports_filters_pushdown(filters)
    }

    fn statistics(&self) -> Option<Statistics> {
        self.inner.statistics()
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.inner.insert_into(state, input, insert_op).await
    }
}
