//! Scans of schema `sys`: memory, files, and what workers have.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use tokio::sync::mpsc::Sender;

use crate::chunk_codec;
use crate::chunk_columns::Expander;
use crate::chunk_filter::ChunkFilter;
use crate::coalesce_batches::BatchCoalescer;
use crate::distributed_scan::DistributedScan;
use crate::part::Part;
use crate::query_ids::QueryIds;
use crate::query_log::QueryLog;
use crate::segment::SegmentError;
use crate::store::Store;
use crate::sys_table::now;
use crate::tables::Table;

/// Batches that wait to be consumed, per partition.
const CHANNEL_BATCHES: usize = 2;

/// Something to read, with its number of rows.
#[derive(Debug, Clone)]
enum Unit {
    Buffered {
        log: Arc<QueryLog>,
        piece: usize,
    },
    Written {
        part: Arc<Part>,
        row_group: usize,
    },
    /// What a worker has sent, as it is stored.
    RemoteCache {
        batch: RecordBatch,
    },
}

/// What one partition of a scan reads.
#[derive(Debug, Clone, Default)]
struct Share {
    here: Vec<Unit>,
    /// All that these workers have, page by page.
    workers: Vec<i64>,
}

/// What a statement asks for, as far as its filters tell.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) table: Table,
    pub(crate) ids: QueryIds,
    pub(crate) chunks: ChunkFilter,
    /// Columns of the table.
    pub(crate) projection: Arc<[usize]>,
    /// No more rows than these are wanted.
    pub(crate) limit: Option<usize>,
}

impl Question {
    /// The columns that are asked for.
    pub(crate) fn schema(&self) -> Result<SchemaRef> {
        let schema = self.table.definition().schema();
        Ok(Arc::new(schema.project(&self.projection)?))
    }
}

/// What is asked, for people.
impl fmt::Display for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "table=sys.{}", self.table.name())?;
        match &self.ids {
            QueryIds::Listed(ids) => write!(formatter, ", query_id={ids:?}")?,
            ids if *ids != QueryIds::ALL => write!(formatter, ", query_id={ids:?}")?,
            _ => {}
        }
        if let Some(condition) = self.chunks.condition() {
            write!(formatter, ", chunks={condition}")?;
        }
        if let Some(limit) = self.limit {
            write!(formatter, ", limit={limit}")?;
        }
        Ok(())
    }
}

/// What other processes have of a table.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// What they have been asked for, as it is stored.
    pub(crate) fetched: Vec<RecordBatch>,
    /// Those that are to be asked when the scan runs.
    pub(crate) workers: Vec<i64>,
}

/// Reads a table of schema `sys`: the buffers of queries in memory and row groups of files,
/// dealt out to partitions; and, where that is not done by the workers themselves, what they have.
#[derive(Debug)]
pub struct SysScan {
    store: Arc<Store>,
    question: Question,
    partitions: Vec<Share>,
    /// `None` if some of them are yet to be asked for.
    rows: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl SysScan {
    /// A scan of what is here, and of `others`.
    pub(crate) fn new(
        store: &Arc<Store>,
        question: Question,
        others: Others,
        partitions: usize,
    ) -> Result<SysScan> {
        let units = units(store, &question, others.fetched)?;
        let rows = units.iter().map(|(_, rows)| rows).sum();
        let rows = others.workers.is_empty().then_some(rows);
        let mut shares = deal(units, partitions);
        shares.extend(others.workers.into_iter().map(|worker| Share {
            here: Vec::new(),
            workers: vec![worker],
        }));
        Self::of_shares(store, question, shares, rows)
    }

    /// A scan of what is here, and of what `workers` have, in exactly so many partitions.
    pub(crate) fn in_partitions(
        store: &Arc<Store>,
        question: Question,
        workers: &[i64],
        partitions: usize,
    ) -> Result<SysScan> {
        let units = units(store, &question, Vec::new())?;
        let rows = units.iter().map(|(_, rows)| rows).sum();
        let rows = workers.is_empty().then_some(rows);
        let mut shares = deal(units, partitions);
        shares.resize_with(partitions.max(1), Share::default);
        // From the last to the first: the first have something already.
        let places: Vec<usize> = (0..shares.len()).rev().collect();
        for (worker, place) in workers.iter().zip(places.into_iter().cycle()) {
            shares[place].workers.push(*worker);
        }
        Self::of_shares(store, question, shares, rows)
    }

    fn of_shares(
        store: &Arc<Store>,
        question: Question,
        shares: Vec<Share>,
        rows: Option<usize>,
    ) -> Result<SysScan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(question.schema()?),
            Partitioning::UnknownPartitioning(shares.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(SysScan {
            store: Arc::clone(store),
            question,
            partitions: shares,
            rows,
            properties: Arc::new(properties),
        })
    }

    /// Whether other nodes have parts of the table: each can scan its own.
    pub fn is_of_cluster(&self) -> bool {
        self.store.fetched().is_some()
    }

    /// Whether workers have more of what it reads than has been asked for already.
    pub fn asks_workers(&self) -> bool {
        self.partitions
            .iter()
            .any(|share| !share.workers.is_empty())
    }

    /// The scans of `nodes`, in their order: each of its own part, in so many partitions. Node 0,
    /// the master, also reads what those workers have that are not among them. `None` without it.
    pub fn placed(&self, nodes: &[u32], partitions: usize) -> Option<Vec<DistributedScan>> {
        let fetched = self.store.fetched()?;
        if !nodes.contains(&0) {
            return None;
        }
        let mut without = match self.question.table.is_of_workers() {
            true => fetched.others(),
            false => Vec::new(),
        };
        without.retain(|worker| nodes.iter().all(|node| i64::from(*node) != *worker));
        let of_node = |node: &u32| {
            let workers = match node {
                0 => without.clone(),
                _ => Vec::new(),
            };
            DistributedScan::new(self.question.clone(), workers, partitions, self.schema())
        };
        Some(nodes.iter().map(of_node).collect())
    }
}

/// What there is to read here, each with its number of rows, and what has been fetched.
fn units(
    store: &Arc<Store>,
    question: &Question,
    fetched: Vec<RecordBatch>,
) -> Result<Vec<(Unit, usize)>> {
    let Question {
        table, ids, chunks, ..
    } = question;
    let snapshot = store.snapshot();
    let mut units: Vec<(Unit, usize)> = Vec::new();
    for part in &snapshot.parts {
        let Some(segment) = part.segment(*table, ids) else {
            continue;
        };
        let groups = segment.row_groups(ids).unwrap_or_else(|error| {
            store.warn(format!("skipped {error}"));
            Vec::new()
        });
        units.extend(groups.into_iter().map(|(row_group, rows)| {
            let part = Arc::clone(part);
            (Unit::Written { part, row_group }, rows)
        }));
    }
    for log in &snapshot.buffered {
        if ids.contains(log.query_id()) {
            let pieces = log.wanted(*table, chunks).into_iter();
            units.extend(pieces.map(|(piece, rows)| {
                let log = Arc::clone(log);
                (Unit::Buffered { log, piece }, rows)
            }));
        }
    }
    let packed = chunk_codec::schema(*table).is_some();
    units.extend(fetched.into_iter().map(|batch| {
        let rows = match packed {
            true => chunk_codec::records(&batch),
            false => batch.num_rows(),
        };
        (Unit::RemoteCache { batch }, rows)
    }));
    if let (Table::Workers, Some(cluster)) = (table, store.fetched()) {
        let batch = now(&cluster.workers())?;
        let rows = batch.num_rows();
        units.push((Unit::RemoteCache { batch }, rows));
    }
    Ok(units)
}

/// Deals units out to at most `partitions` consecutive shares of about equal rows; there is at
/// least one share.
fn deal(units: Vec<(Unit, usize)>, partitions: usize) -> Vec<Share> {
    /// Below so many rows another partition is not worth its task.
    const ROWS: usize = 16 * 1024;
    let total: usize = units.iter().map(|(_, rows)| rows).sum();
    let shares = partitions.clamp(1, total / ROWS + 1);
    let per_share = total.div_ceil(shares).max(1);
    let mut dealt = vec![Share::default(); shares];
    let mut before = 0;
    for (unit, rows) in units {
        dealt[(before / per_share).min(shares - 1)].here.push(unit);
        before += rows;
    }
    dealt
}

impl DisplayAs for SysScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SysScan: {}", self.question)
    }
}

impl ExecutionPlan for SysScan {
    fn name(&self) -> &str {
        "SysScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let reader = Arc::new(Reader {
            store: Arc::clone(&self.store),
            question: self.question.clone(),
            schema: self.schema(),
        });
        let limit = self.question.limit.unwrap_or(usize::MAX);
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema(), CHANNEL_BATCHES);
        let Share { here, workers } = self.partitions[partition].clone();
        if !workers.is_empty() {
            let (reader, sender) = (Arc::clone(&reader), builder.tx());
            builder.spawn(async move {
                for worker in workers {
                    reader.ask(worker, limit, &sender).await?;
                }
                Ok(())
            });
        }
        if !here.is_empty() {
            let sender = builder.tx();
            builder.spawn_blocking(move || reader.read_all(&here, limit, &sender));
        }
        Ok(builder.build())
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let share = if args.partition().is_some() {
            self.partitions.len()
        } else {
            1
        };
        let projection = &self.question.projection;
        let rows = match self.rows {
            Some(rows) => Precision::Inexact(rows / share),
            None => Precision::Absent,
        };
        Ok(Arc::new(Statistics {
            total_byte_size: rows.map(|rows| rows * 8 * projection.len()),
            num_rows: rows,
            column_statistics: vec![ColumnStatistics::new_unknown(); projection.len()],
        }))
    }
}

/// Reads one partition.
struct Reader {
    store: Arc<Store>,
    question: Question,
    schema: SchemaRef,
}

impl Reader {
    /// Sends at most `left` rows of `units` to `sender`; blocks.
    fn read_all(
        &self,
        units: &[Unit],
        mut left: usize,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let mut gathered = BatchCoalescer::new(&self.schema);
        let mut expander = Expander::new(&self.schema);
        for unit in units {
            for batch in self.read(unit, &mut expander) {
                for batch in gathered.push(batch?)? {
                    let batch = batch.slice(0, batch.num_rows().min(left));
                    left -= batch.num_rows();
                    // The receiver is gone when nobody wants more.
                    if sender.blocking_send(Ok(batch)).is_err() || left == 0 {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(batch) = gathered.take()? {
            let batch = batch.slice(0, batch.num_rows().min(left));
            // As above.
            let _ = sender.blocking_send(Ok(batch));
        }
        Ok(())
    }

    /// The unit's rows. What is damaged is skipped with a warning.
    fn read<'a>(
        &'a self,
        unit: &Unit,
        expander: &'a mut Expander,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch>> + 'a> {
        let Question {
            table,
            ids,
            chunks,
            projection,
            ..
        } = &self.question;
        match unit {
            Unit::Buffered { log, piece } => {
                let batch = log.expand(*table, *piece, projection, expander);
                let batch = batch.map_err(|error| DataFusionError::External(error.into()));
                Box::new(std::iter::once(batch))
            }
            Unit::Written { part, row_group } => {
                let Some(segment) = part.segment(*table, &QueryIds::ALL) else {
                    return Box::new(std::iter::empty());
                };
                match segment.read(*row_group, projection, (ids, chunks), expander) {
                    Ok(batches) => Box::new(batches.filter_map(|batch| match batch {
                        Ok(batch) => Some(Ok(batch)),
                        Err(error @ SegmentError::Chunk { .. }) => {
                            self.store.warn(format!("skipped {error}"));
                            None
                        }
                        Err(error) => {
                            self.store.warn(format!("skipped the rest of {error}"));
                            None
                        }
                    })),
                    Err(error) => {
                        self.store.warn(format!("skipped {error}"));
                        Box::new(std::iter::empty())
                    }
                }
            }
            Unit::RemoteCache { batch } => self.rows_of(batch, expander),
        }
    }

    /// Rows that are stored in a batch. What is damaged is skipped with a warning.
    fn rows_of<'a>(
        &'a self,
        batch: &RecordBatch,
        expander: &'a mut Expander,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch>> + 'a> {
        let Question {
            table,
            ids,
            chunks,
            projection,
            ..
        } = &self.question;
        if chunk_codec::schema(*table).is_none() {
            let rows = batch.project(projection).map_err(Into::into);
            return Box::new(std::iter::once(rows));
        }
        let batch = batch.clone();
        let chunks = chunks.wanted(*table, &batch).into_iter();
        Box::new(chunks.filter_map(move |chunk| {
            let rows = chunk_codec::expand(*table, &batch, chunk, projection, ids, expander)?;
            let rows = rows.inspect_err(|error| {
                let name = table.name();
                self.store
                    .warn(format!("skipped a chunk of sys.{name}: {error}"));
            });
            Some(Ok(rows.ok()?))
        }))
    }

    /// Sends at most `left` rows of a worker to `sender`, as they come.
    async fn ask(
        &self,
        worker_id: i64,
        mut left: usize,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let Some(fetched) = self.store.fetched() else {
            return Ok(());
        };
        let Question { table, ids, .. } = &self.question;
        let mut pages = fetched.read(worker_id, *table, ids);
        let mut gathered = BatchCoalescer::new(&self.schema);
        let mut expander = Expander::new(&self.schema);
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    let missing = format!("skipped what worker {worker_id} recorded: {error}");
                    self.store.warn(missing);
                    break;
                }
            };
            for batch in page {
                let mut complete = Vec::new();
                for rows in self.rows_of(&batch, &mut expander) {
                    complete.extend(gathered.push(rows?)?);
                }
                for batch in complete {
                    let batch = batch.slice(0, batch.num_rows().min(left));
                    left -= batch.num_rows();
                    // The receiver is gone when nobody wants more.
                    if sender.send(Ok(batch)).await.is_err() || left == 0 {
                        return Ok(());
                    }
                }
            }
        }
        if let Some(batch) = gathered.take()? {
            let batch = batch.slice(0, batch.num_rows().min(left));
            // As above.
            let _ = sender.send(Ok(batch)).await;
        }
        Ok(())
    }
}
