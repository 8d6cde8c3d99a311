//! Detectors of users: the views of schema `detectors`, whose findings count like the ones of schema `sys`.
//!
//! The findings are looked for when `sys.user_detections` is scanned, each view by itself: one that fails, or takes
//! too long, is named and left out.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::definition::{Origin, SysRow, array, column, heap, sys_table, value};
use crate::query_ids::{QueryIds, concerns_only_query_ids};
use crate::store::Store;

/// The schema whose views are detectors.
pub const DETECTORS: &str = "detectors";

sys_table! {
    /// One row per finding of a detector of the user's: a view of schema `detectors`. Its columns have these names;
    /// only `query_id` is required, missing ones are NULL, others are ignored. A view that fails, or takes longer than
    /// five seconds, makes one harmless finding `broken detector` for each query that was asked for by number.
    struct UserDetection = "user_detections" {
        /// The query.
        row query_id: Int,
        /// The rule's name; the view's name if the view does not say.
        row detector: OptText,
        /// The place in words.
        row subject: OptText,
        /// One sentence that names the cause and what it costs.
        row cause: OptText,
        /// What to do.
        row advice: OptText,
        /// The fragment.
        row fragment_id: OptInt,
        /// The operator.
        row operator_id: OptInt,
        /// The worker.
        row worker_id: OptInt,
        /// The partition.
        row partition: OptInt,
        /// The exchange.
        row exchange_id: OptInt,
        /// The table.
        row table_name: OptText,
        /// The record: `_row_id` of the table.
        row row_id: OptInt,
        /// Nanoseconds that the query would save.
        row cost_ns: OptInt,
        /// How conspicuous it is.
        row score: OptFloat,
        /// From which `score` on it is a finding.
        row threshold: OptFloat,
        /// How often such findings are true, 0 to 1; NULL if that was not measured.
        row confidence: OptFloat,
        /// Whether it explains without calling for action.
        row innocent: OptFlag,
        /// SQL that shows why.
        row evidence_sql: OptText,
    }
}

impl UserDetection {
    /// Findings as a batch.
    pub fn rows(rows: &[Self]) -> RecordBatch {
        Self::batch(&Origin::nobody(), rows)
    }
}

/// Runs the views of schema `detectors`.
#[async_trait]
pub trait UserDetectors: Debug + Send + Sync {
    /// The findings about some queries, or about all; batches with the columns of [`UserDetection`].
    async fn findings(&self, queries: Option<&[i64]>) -> Vec<RecordBatch>;
}

/// An extension of the sessions in which detectors run: in them there are no findings of users. A detector may read
/// `sys.diagnoses` without asking itself.
#[derive(Debug)]
pub struct WithinDetector;

/// `sys.user_detections` as DataFusion sees it.
#[derive(Debug)]
pub(crate) struct UserDetectionsProvider {
    store: Arc<Store>,
    schema: SchemaRef,
}

impl UserDetectionsProvider {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            schema: UserDetection::TABLE.schema(),
        }
    }
}

#[async_trait]
impl TableProvider for UserDetectionsProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let supported = |filter: &&Expr| match concerns_only_query_ids(filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(supported).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_within = state.config().get_extension::<WithinDetector>().is_some();
        let detectors = self.store.present().detectors().filter(|_| !is_within);
        let mut findings = Vec::new();
        if let Some(detectors) = detectors {
            let queries = match QueryIds::of_filters(filters) {
                QueryIds::Listed(ids) => Some(ids.into_iter().collect::<Vec<_>>()),
                QueryIds::Range(_) => None,
            };
            findings = detectors.findings(queries.as_deref()).await;
        }
        let rows = MemTable::try_new(self.schema(), vec![findings])?;
        rows.scan(state, projection, &[], limit).await
    }
}
