//! Rows changed by writing the segments that hold them anew.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::catalog::TableProvider;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use datafusion::sql::sqlparser::ast::ObjectName;
use futures::StreamExt;
use skewer_cluster::write::Changes;
use skewer_net::LostWorker;
use skewer_net::identity::NodeId;
use skewer_storage::{MASTER, NewSegment, SegmentMeta, TableMeta};
use tokio::sync::OwnedMutexGuard;

use super::on_workers::{Changed, OnWorkers};
use super::{Context, Outcome};
use crate::catalog::native_table::NativeTable;
use crate::error::Error;

/// A table whose rows nobody else changes, as of now.
pub(crate) struct LockedTable {
    pub(crate) table: Arc<TableMeta>,
    _turn: OwnedMutexGuard<()>,
}

impl Context {
    /// Waits for the turn to change rows of a table, and looks at the database as it is then.
    pub(crate) async fn lock(&mut self, name: &ObjectName) -> Result<LockedTable, Error> {
        loop {
            let id = self.catalog.writable_table(name)?.id;
            let turn = self.session.database_inner().writers.take(id).await;
            self.catalog = self.session.catalog();
            let table = self.catalog.writable_table(name)?;
            // Between the two looks the name may have come to mean another table.
            if table.id == id {
                self.catalog.show_all_rows_of(id);
                return Ok(LockedTable { table, _turn: turn });
            }
        }
    }

    /// Collects rows that begin with a row id; of rows with the same id the first counts.
    /// The result is sorted by id, and its memory is accounted for.
    pub(crate) async fn collect_by_id(
        &mut self,
        mut stream: SendableRecordBatchStream,
    ) -> Result<(RecordBatch, MemoryReservation), Error> {
        use datafusion::arrow::compute::{concat_batches, take_record_batch};
        let pool = &self.session.database_inner().runtime_env.memory_pool;
        let reservation = MemoryConsumer::new("rows to change").register(pool);
        let schema = stream.schema();
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            reservation.try_grow(batch.get_array_memory_size())?;
            batches.push(batch);
        }
        drop(stream);
        let all = concat_batches(&schema, &batches)?;
        drop(batches);
        let ids = all.column(0).as_primitive::<Int64Type>();
        let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
        order.sort_by_key(|row| ids.value(*row as usize));
        order.dedup_by_key(|row| ids.value(*row as usize));
        let order = datafusion::arrow::array::UInt32Array::from(order);
        Ok((take_record_batch(&all, &order)?, reservation))
    }

    /// Writes the touched segments of `table` anew, without or with other values in the rows that
    /// change, and publishes them in place of the old ones.
    pub(crate) async fn rewrite(
        &mut self,
        table: &Arc<TableMeta>,
        changes: Changes,
    ) -> Result<Outcome, Error> {
        let ids = changes.ids();
        if ids.is_empty() {
            return Ok(Outcome::Count(0));
        }
        let changed_rows = ids.len() as u64;
        let mut owners = vec![MASTER; ids.len()];
        let mut removed = Vec::new();
        let mut rewritten = Vec::new();
        for segment in &table.segments {
            let hits = self.hits(table, segment, ids, &mut owners).await?;
            if hits == 0 {
                continue;
            }
            removed.push(segment.id);
            let all_go = matches!(changes, Changes::Delete(_)) && hits == segment.rows;
            if !all_go {
                rewritten.push(Arc::clone(segment));
            }
        }
        let on = match rewritten.is_empty() {
            true => None,
            false => self.begin_writing(table, self.workers(true))?,
        };
        let added = match on {
            Some(on) => {
                let updated = changes.updated().unwrap_or_default();
                // Their owner may be another afterwards.
                let moved = updated.iter().any(|column| on.target.keys.contains(column));
                let changes = Changed { changes, owners };
                self.rewrite_on(on, table, rewritten, Some(changes), moved)
                    .await?
            }
            None => self.rewrite_here(table, &rewritten, &changes).await?,
        };
        let mut transaction = self.storage().begin();
        transaction.replace_segments(table.id, &removed, added)?;
        self.commit(transaction).await?;
        self.session.database_inner().has_grown(table.id);
        Ok(Outcome::Count(changed_rows))
    }

    async fn rewrite_here(
        &self,
        table: &Arc<TableMeta>,
        segments: &[Arc<SegmentMeta>],
        changes: &Changes,
    ) -> Result<Vec<NewSegment>, Error> {
        let mut writer = self.storage().writer(table);
        for segment in segments {
            let mut stream = self.read(table, segment, None).await?;
            while let Some(batch) = stream.next().await {
                writer.write_with_ids(&changes.apply(&batch?)?).await?;
            }
        }
        Ok(writer.finish().await?)
    }

    /// The owners of the segments write them anew, with `changes`: where they are, or, if rows are
    /// `moved`, those write them to whom they belong by the target.
    pub(crate) async fn rewrite_on(
        &mut self,
        on: OnWorkers,
        table: &Arc<TableMeta>,
        segments: Vec<Arc<SegmentMeta>>,
        changes: Option<Changed>,
        moved: bool,
    ) -> Result<Vec<NewSegment>, Error> {
        self.must_be_there(&on, table, &segments)?;
        let mut state = self.catalog.planning_state();
        state.config_mut().options_mut().execution.target_partitions = 1;
        let state = self.on_workers(&on.workers, state)?;
        let rewriting = on.rewriting(&state, table, segments, changes, moved);
        let (plan, receipt) = rewriting.await?;
        let stream = self.start_writing(&on, plan, &state)?;
        let (segments, _) = on.adopt(stream).await?;
        drop(receipt);
        Ok(segments)
    }

    /// A worker that has one of the segments may have been lost since their rows were read.
    fn must_be_there(
        &self,
        on: &OnWorkers,
        table: &TableMeta,
        segments: &[Arc<SegmentMeta>],
    ) -> Result<(), Error> {
        let there = |owner| on.workers.list().iter().any(|at| at.number == owner);
        let mut owners = segments.iter().map(|segment| segment.owner);
        let gone = owners.find(|owner| *owner != MASTER && !there(*owner));
        let Some(owner) = gone.filter(|_| !on.workers.shares_segments()) else {
            return Ok(());
        };
        let lost = self.session.database_inner().lost(owner);
        let lost = lost.unwrap_or_else(|| LostWorker {
            name: NodeId(owner).to_string(),
            reason: "it took no part as the statement began to write".to_owned(),
        });
        Err(Error::WorkerLost {
            name: lost.name,
            reason: lost.reason,
            tables: vec![table.qualified_name()],
        })
    }

    /// How many rows of a segment have one of the ids, which are sorted. Notes who has them.
    async fn hits(
        &self,
        table: &TableMeta,
        segment: &Arc<SegmentMeta>,
        ids: &[i64],
        owners: &mut [u32],
    ) -> Result<u64, Error> {
        let from = ids.partition_point(|id| *id < segment.min_row_id);
        let to = ids.partition_point(|id| *id <= segment.max_row_id);
        if from == to {
            return Ok(0);
        }
        let row_id = table.schema.fields().len();
        let mut stream = self.read(table, segment, Some(vec![row_id])).await?;
        let mut hits = 0;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            for id in batch.column(0).as_primitive::<Int64Type>().values() {
                if let Ok(place) = ids[from..to].binary_search(id) {
                    owners[from + place] = segment.owner;
                    hits += 1;
                }
            }
        }
        Ok(hits)
    }

    /// One segment's rows with their ids, in its order.
    async fn read(
        &self,
        table: &TableMeta,
        segment: &Arc<SegmentMeta>,
        columns: Option<Vec<usize>>,
    ) -> Result<SendableRecordBatchStream, Error> {
        let state = self.catalog.base();
        let scan = NativeTable::with_row_ids(&Arc::new(table.clone()), self.storage())
            .only(vec![Arc::clone(segment)])
            .scan(state, columns.as_ref(), &[], None)
            .await?;
        Ok(execute_stream(scan, state.task_ctx())?)
    }
}
