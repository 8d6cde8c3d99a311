//! Rows into a table's new segments: here, or on the workers that will own them.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::common::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::StreamExt;
use parking_lot::Mutex;
use skewer_cluster::Workers;
use skewer_cluster::write::{Writing, conform, ingest};
use skewer_storage::{NewSegment, TableMeta};

use super::Context;
use super::on_workers::{Division, OnWorkers};
use crate::error::Error;

impl Context {
    /// Writes a stream whose columns are the table's, in its order, to new segments. They are not
    /// published yet. Gives the number of rows.
    ///
    /// Rows get their ids in the order of the stream, wherever they are written.
    pub(crate) async fn write(
        &mut self,
        stream: SendableRecordBatchStream,
        table: &Arc<TableMeta>,
    ) -> Result<(Vec<NewSegment>, u64), Error> {
        match self.begin_writing(table, self.workers(true))? {
            Some(on) => self.write_on(on, stream, table).await,
            None => self.write_here(stream, table).await,
        }
    }

    /// Writes the rows of a query to new segments as [`Context::write`] does; where the query is
    /// distributed, each worker writes what it has made.
    pub(crate) async fn write_query(
        &mut self,
        plan: &LogicalPlan,
        table: &Arc<TableMeta>,
    ) -> Result<(Vec<NewSegment>, u64), Error> {
        let mut state = self.catalog.planning_state();
        if comes_sorted(plan) {
            // Casts above the sort would be divided among partitions, whose rows come as they may.
            let options = state.config_mut().options_mut();
            options.optimizer.enable_round_robin_repartition = false;
        }
        let Some(on) = self.begin_writing(table, self.workers(true))? else {
            let workers = self.workers(false);
            let stream = self.start(plan, state, workers).await?;
            return self.write_here(stream, table).await;
        };
        let writing = Writing::new(Arc::clone(&on.target));
        state.config_mut().set_extension(Arc::clone(&writing));
        // Rows that come here enter with the master's part of the statement; the query needs none.
        let workers = self.workers(skewer_profiling::reads_sys(plan));
        let stream = self.start(plan, state, workers).await?;
        match writing.is_planned() {
            true => on.adopt(stream).await,
            false => self.write_on(on, stream, table).await,
        }
    }

    async fn write_here(
        &mut self,
        mut stream: SendableRecordBatchStream,
        table: &TableMeta,
    ) -> Result<(Vec<NewSegment>, u64), Error> {
        let mut writer = self.storage().writer(table);
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            let batch = conform(&batch?, &table.schema, &table.name, rows)?;
            writer.write(&batch).await?;
            rows += batch.num_rows() as u64;
            self.progress.add_rows(batch.num_rows() as u64);
        }
        drop(stream);
        Ok((writer.finish().await?, rows))
    }

    /// A statement that is to write new rows on `workers`; `None` if none of them takes segments.
    pub(crate) fn begin_writing(
        &self,
        table: &Arc<TableMeta>,
        workers: Option<Workers>,
    ) -> Result<Option<OnWorkers>, Error> {
        OnWorkers::begin(self.storage(), table, workers, Division::AsBefore)
    }

    /// Rows that come here go to their owners.
    async fn write_on(
        &mut self,
        on: OnWorkers,
        stream: SendableRecordBatchStream,
        table: &Arc<TableMeta>,
    ) -> Result<(Vec<NewSegment>, u64), Error> {
        let failure: Failure = Arc::default();
        let rows = self.numbered(stream, table, &failure);
        let state = self.on_workers(&on.workers, self.catalog.planning_state())?;
        let (plan, receipt) = ingest(rows, &on.target, &state).await?;
        let stream = self.start_writing(&on, plan, &state)?;
        let outcome = on.adopt(stream).await;
        drop(receipt);
        // What went wrong here, workers report as the error of somebody else.
        let first = failure.lock().take();
        match (outcome, first) {
            (Err(_), Some(first)) => Err(first.into()),
            (outcome, _) => outcome,
        }
    }

    pub(crate) fn start_writing(
        &mut self,
        on: &OnWorkers,
        plan: Arc<dyn ExecutionPlan>,
        state: &SessionState,
    ) -> Result<SendableRecordBatchStream, Error> {
        self.runs_on(&on.workers, &plan);
        self.execute(plan, state)
    }

    /// Rows as the table has them, with the ids that are theirs; the first error is kept in
    /// `failure`.
    fn numbered(
        &self,
        stream: SendableRecordBatchStream,
        table: &Arc<TableMeta>,
        failure: &Failure,
    ) -> SendableRecordBatchStream {
        let (table, failure) = (Arc::clone(table), Arc::clone(failure));
        let (physical, progress) = (table.physical_schema(), self.progress.clone());
        let mut rows = 0;
        let numbered = stream.map(move |batch| {
            let numbered = batch.and_then(|batch| {
                let batch = conform(&batch, &table.schema, &table.name, rows)?;
                rows += batch.num_rows() as u64;
                progress.add_rows(batch.num_rows() as u64);
                with_row_ids(&batch, &table)
            });
            numbered.map_err(|error| {
                let error = Arc::new(error);
                let kept = DataFusionError::Shared(Arc::clone(&error));
                failure.lock().get_or_insert(kept);
                DataFusionError::Shared(error)
            })
        });
        Box::pin(RecordBatchStreamAdapter::new(physical, numbered))
    }
}

/// Whether a query asks for an order of its rows.
fn comes_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => comes_sorted(&projection.input),
        LogicalPlan::Limit(limit) => comes_sorted(&limit.input),
        _ => false,
    }
}

/// The first error of rows that enter here.
type Failure = Arc<Mutex<Option<DataFusionError>>>;

fn with_row_ids(batch: &RecordBatch, table: &TableMeta) -> Result<RecordBatch, DataFusionError> {
    let rows = batch.num_rows() as u64;
    let first = match rows {
        0 => 0,
        rows => table.reserve_row_ids(rows),
    };
    let ids = Int64Array::from_iter_values(first..first + rows.cast_signed());
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(ids) as ArrayRef);
    Ok(RecordBatch::try_new(table.physical_schema(), columns)?)
}
