//! Rows of a table that workers write.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::execution::SessionState;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use futures::StreamExt;
use skewer_cluster::Workers;
use skewer_cluster::write::{Changes, IngestReceipt, Rewrite, Target, descriptions, rewritten};
use skewer_storage::{MASTER, NewSegment, Partitioning, SegmentMeta, Storage, TableMeta, Write};

use crate::catalog::native_table::NativeTable;
use crate::error::Error;

/// A statement that writes segments on workers.
pub(crate) struct OnWorkers {
    pub(crate) workers: Workers,
    pub(crate) target: Arc<Target>,
    storage: Storage,
    /// Dropped, it gives up what workers have written.
    write: Write,
}

/// Who gets the rows that are written.
#[derive(Debug, Clone)]
pub(crate) enum Division {
    /// Those of a shard whoever has it, as long as all of those take part; others in turns.
    AsBefore,
    /// All workers, by hash if the table is divided by hash.
    Anew,
    /// So many these workers, one after the other; the last what remains.
    Quotas(Vec<(u32, u64)>),
}

/// Changes of rows, and the node that has each.
pub(crate) struct Changed {
    pub(crate) changes: Changes,
    pub(crate) owners: Vec<u32>,
}

impl OnWorkers {
    /// Begins to write rows of `table` on `workers`; `None` if none of them takes segments.
    pub(crate) fn begin(
        storage: &Storage,
        table: &Arc<TableMeta>,
        workers: Option<Workers>,
        division: Division,
    ) -> Result<Option<Self>, Error> {
        let Some(workers) = workers else {
            return Ok(None);
        };
        let shares_segments = workers.shares_segments();
        let present = writers_among(&workers);
        if present.is_empty() {
            return Ok(None);
        }
        let owners = match shares_segments {
            true => &[MASTER][..],
            false => &present,
        };
        let most = Target::max_writers(workers.count());
        let write = storage.begin_write(table, owners, most)?;
        let keys = match (&table.partitioning, &division) {
            (Partitioning::RoundRobin, _) | (_, Division::Quotas(_)) => Vec::new(),
            (Partitioning::Hash(keys), _) => keys
                .iter()
                .map(|key| Ok(table.schema.index_of(key)?))
                .collect::<Result<_, Error>>()?,
        };
        let (writers, quotas) = match division {
            Division::Quotas(quotas) => quotas.into_iter().unzip(),
            Division::AsBefore if !keys.is_empty() => {
                let writers = writers_of_shards(table, present, shares_segments);
                (writers, Vec::new())
            }
            Division::AsBefore | Division::Anew => (present, Vec::new()),
        };
        let target = Arc::new(Target {
            table: table.id.0,
            name: table.name.clone(),
            columns: Arc::clone(&table.schema),
            keys,
            writers,
            quotas,
            shares_segments,
            statement: write.first_segment_id(),
        });
        Ok(Some(Self {
            workers,
            target,
            storage: storage.clone(),
            write,
        }))
    }

    /// A plan that writes `segments` anew, with `changes`: where they are, or, if rows are `moved`,
    /// on those to whom they belong by the target. It runs in `state`, which is for the workers
    /// and has one partition, since several would make several small segments, as long as the
    /// second part of the result is there.
    pub(crate) async fn rewriting(
        &self,
        state: &SessionState,
        table: &Arc<TableMeta>,
        segments: Vec<Arc<SegmentMeta>>,
        changes: Option<Changed>,
        moved: bool,
    ) -> Result<(Arc<dyn ExecutionPlan>, Option<IngestReceipt>), Error> {
        let scan = NativeTable::with_row_ids(table, &self.storage)
            .only(segments)
            .scan(state, None, &[], None)
            .await?;
        let (changes, owners) = match changes {
            Some(Changed { changes, owners }) => (Some(changes), owners),
            None => (None, Vec::new()),
        };
        let rewrite = Rewrite {
            scan,
            changes,
            owners,
            moved,
        };
        Ok(rewritten(rewrite, &self.target, &self.workers, state).await?)
    }

    /// The segments that a stream describes, and how many rows they have.
    pub(crate) async fn adopt(
        self,
        mut stream: SendableRecordBatchStream,
    ) -> Result<(Vec<NewSegment>, u64), Error> {
        let mut segments = Vec::new();
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            for description in descriptions(&batch?)? {
                rows += description.rows;
                segments.push(self.storage.adopt(&description)?);
            }
        }
        drop(stream);
        self.write.mark_adopted();
        Ok((segments, rows))
    }
}

/// The workers that take segments. In one process all have those of the database.
pub(crate) fn writers_among(workers: &Workers) -> Vec<u32> {
    let numbers = workers.list().iter().map(|worker| worker.number);
    numbers
        .filter(|number| workers.shares_segments() || *number != MASTER)
        .collect()
}

/// Who writes which shard of a table that is divided by hash: as long as they take part, those who
/// have them, so that all rows of a shard stay together; otherwise those who are `present`.
fn writers_of_shards(table: &TableMeta, present: Vec<u32>, shares_segments: bool) -> Vec<u32> {
    let Some(owners) = table.owners_of_shards() else {
        return present;
    };
    if owners.len() > present.len() {
        return present;
    }
    if shares_segments {
        return present[..owners.len()].to_vec();
    }
    let writers: Vec<u32> = owners
        .iter()
        .zip(&present)
        .map(|(owner, next)| owner.unwrap_or(*next))
        .collect();
    let differ = writers.iter().collect::<BTreeSet<_>>().len() == writers.len();
    let take_part = writers.iter().all(|writer| present.contains(writer));
    match differ && take_part {
        true => writers,
        false => present,
    }
}
