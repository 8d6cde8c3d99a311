//! Tables whose rows have ids.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{ScanArgs, ScanResult, Session, TableProvider};
use datafusion::common::{Constraints, Result, Statistics};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// The hidden column that identifies a row of a table for as long as the row lives.
pub const ROW_ID: &str = "_row_id";

/// A table provider with a twin that also yields the ids of its rows.
///
/// It behaves like `inner`; the lineage rewrite swaps in `with_ids` below a query that is
/// profiled at level `records`.
#[derive(Debug, Clone)]
pub struct IdentifiedTable {
    /// The table as queries see it.
    pub inner: Arc<dyn TableProvider>,
    /// The same rows with the schema of `inner` plus [`ROW_ID`] `BIGINT NOT NULL` as the last column.
    pub with_ids: Arc<dyn TableProvider>,
    /// What `table_name` says of these rows in the log: `schema.table`, or the path of a file.
    pub log_name: String,
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
        }
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
