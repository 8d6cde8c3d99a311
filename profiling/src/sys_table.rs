//! Tables of schema `sys` as DataFusion sees them: memory, files and what workers have together,
//! read-only.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::chunk_filter::{ChunkFilter, concerns_only_chunks};
use crate::definition::{Origin, SysRow};
use crate::isolation::expanded::ExpandedTable;
use crate::kept_view::KeptView;
use crate::query_ids::{QueryIds, concerns_only_query_ids};
use crate::remote_cache::{AtMost, OfWorkers, RemoteCache};
use crate::scan::{Others, Question, SysScan};
use crate::store::Store;
use crate::sys_tables::SysTables;
use crate::tables::{Table, WorkerRow};

/// One table of schema `sys`.
#[derive(Debug)]
pub(crate) struct SysTable {
    store: Arc<Store>,
    table: Table,
    schema: SchemaRef,
}

impl SysTable {
    pub(crate) fn new(store: Arc<Store>, table: Table) -> SysTable {
        SysTable {
            store,
            table,
            schema: table.definition().schema(),
        }
    }
}

/// Whether a plan reads what the nodes of a cluster recorded.
pub fn reads_sys(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && (provider.is::<SysTable>()
                || provider.is::<ExpandedTable>()
                || provider.is::<KeptView>())
        {
            reads = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    // The walk itself has no errors.
    reads && walked.is_ok()
}

#[async_trait]
impl TableProvider for SysTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Filters on `query_id`, and on what is the same for all records of a chunk, choose what is
    /// read, roughly.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let supported = |filter: &&Expr| {
            if concerns_only_query_ids(filter) || concerns_only_chunks(self.table, filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
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
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let question = Question {
            table: self.table,
            ids: QueryIds::of_filters(filters),
            chunks: ChunkFilter::of_filters(self.table, filters, state)?,
            projection: projection.into(),
            limit,
        };
        let partitions = state.config().target_partitions();
        let others = self.others(&question.ids, can_be_placed(state)).await?;
        let scan = SysScan::new(&self.store, question, others, partitions)?;
        Ok(Arc::new(scan))
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        read_only(self.table.name())
    }

    async fn delete_from(
        &self,
        _state: &dyn Session,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        read_only(self.table.name())
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        read_only(self.table.name())
    }

    async fn truncate(&self, _state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        read_only(self.table.name())
    }
}

/// Whether what is planned in `session` may run on the workers of a cluster: its plans can be sent
/// to where a [`SysTables`] is.
fn can_be_placed(session: &dyn Session) -> bool {
    session.config().get_extension::<SysTables>().is_some()
}

impl SysTable {
    /// Rows of few queries are asked for at once, so that it is known how many they are, and kept:
    /// unless they are many and can be read where they are.
    async fn others(&self, ids: &QueryIds, placeable: bool) -> Result<Others> {
        let Some(fetched) = self.store.fetched() else {
            return Ok(Others::default());
        };
        if !self.table.is_of_workers() {
            return Ok(Others::default());
        }
        for lost in fetched.newly_lost() {
            self.store.warn(format!(
                "what worker {lost} recorded is left out until it is back: it is lost"
            ));
        }
        if !RemoteCache::keeps(ids) {
            return Ok(Others {
                fetched: Vec::new(),
                workers: fetched.others(),
            });
        }
        let at_most = match placeable {
            true => AtMost::Page,
            false => AtMost::All,
        };
        let OfWorkers {
            batches,
            more,
            missing,
        } = fetched.rows(self.table, ids, at_most).await;
        for missing in missing {
            self.store.warn(format!("skipped {missing}"));
        }
        Ok(Others {
            fetched: batches,
            workers: more,
        })
    }
}

/// Rows of `sys.workers` that belong to no query.
pub(crate) fn now(workers: &[WorkerRow]) -> Result<RecordBatch> {
    let rows = WorkerRow::batch(&Origin::nobody(), workers);
    let mut columns = rows.columns().to_vec();
    columns[0] = new_null_array(columns[0].data_type(), rows.num_rows());
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// The answer to an attempt to change something in schema `sys`.
pub(crate) fn read_only<T>(name: &str) -> Result<T> {
    plan_err!(
        "sys.{name} is read-only: tables of schema sys are written by the profiler alone; \
         what they keep is set by profile.retention_bytes and profile.retention_age"
    )
}
