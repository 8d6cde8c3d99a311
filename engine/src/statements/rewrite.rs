//! Rows changed by writing the segments that hold them anew.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{filter_record_batch, interleave, not};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::catalog::TableProvider;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use datafusion::sql::sqlparser::ast::ObjectName;
use futures::StreamExt;
use skewer_storage::{SegmentMeta, TableMeta};
use tokio::sync::OwnedMutexGuard;

use super::{Context, Outcome};
use crate::catalog::native_table::NativeTable;
use crate::error::Error;

/// What is to become of rows, by their ids in ascending order.
pub(crate) enum Changes {
    /// They go.
    Delete(Vec<i64>),
    /// They get new values in some columns, given by their place in the table.
    Update {
        ids: Vec<i64>,
        columns: Vec<(usize, ArrayRef)>,
    },
}

impl Changes {
    fn ids(&self) -> &[i64] {
        match self {
            Self::Delete(ids) | Self::Update { ids, .. } => ids,
        }
    }
}

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
        table: &TableMeta,
        changes: Changes,
    ) -> Result<Outcome, Error> {
        let ids = changes.ids();
        if ids.is_empty() {
            return Ok(Outcome::Count(0));
        }
        let mut writer = self.storage().writer(table);
        let mut removed = Vec::new();
        let mut wrote = false;
        for segment in &table.segments {
            let hits = self.hits(table, segment, ids).await?;
            if hits == 0 {
                continue;
            }
            removed.push(segment.id);
            if matches!(changes, Changes::Delete(_)) && hits == segment.rows {
                continue;
            }
            let mut stream = self.read(table, segment, None).await?;
            while let Some(batch) = stream.next().await {
                let batch = apply(&batch?, &changes)?;
                if batch.num_rows() > 0 {
                    writer.write_with_ids(&batch).await?;
                    wrote = true;
                }
            }
        }
        let added = match wrote {
            true => writer.finish().await?,
            false => Vec::new(),
        };
        let mut transaction = self.storage().begin();
        transaction.replace_segments(table.id, &removed, added)?;
        self.commit(transaction).await?;
        self.session.database_inner().has_grown(table.id);
        Ok(Outcome::Count(ids.len() as u64))
    }

    /// How many rows of a segment have one of the ids, which are sorted.
    async fn hits(
        &self,
        table: &TableMeta,
        segment: &Arc<SegmentMeta>,
        ids: &[i64],
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
            let found = batch.column(0).as_primitive::<Int64Type>();
            hits += found
                .values()
                .iter()
                .filter(|id| ids[from..to].binary_search(id).is_ok())
                .count() as u64;
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

/// A batch with row ids last, after the changes.
fn apply(batch: &RecordBatch, changes: &Changes) -> Result<RecordBatch, Error> {
    let row_ids = batch
        .column(batch.num_columns() - 1)
        .as_primitive::<Int64Type>();
    match changes {
        Changes::Delete(ids) => {
            let goes: BooleanArray = is_in(row_ids, ids);
            Ok(filter_record_batch(batch, &not(&goes)?)?)
        }
        Changes::Update { ids, columns } => {
            let sources: Vec<(usize, usize)> = row_ids
                .values()
                .iter()
                .enumerate()
                .map(|(row, id)| match ids.binary_search(id) {
                    Ok(new) => (1, new),
                    Err(_) => (0, row),
                })
                .collect();
            let mut arrays = batch.columns().to_vec();
            for (column, new) in columns {
                arrays[*column] = interleave(&[&*arrays[*column], &**new], &sources)?;
            }
            Ok(RecordBatch::try_new(batch.schema(), arrays)?)
        }
    }
}

fn is_in(row_ids: &Int64Array, ids: &[i64]) -> BooleanArray {
    debug_assert_eq!(row_ids.data_type(), &DataType::Int64);
    row_ids
        .values()
        .iter()
        .map(|id| Some(ids.binary_search(id).is_ok()))
        .collect()
}
