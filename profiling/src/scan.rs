//! Tables of schema `sys` as DataFusion sees them: memory and files together, read-only.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, Statistics, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
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

use crate::chunk_columns::Expander;
use crate::chunk_filter::{ChunkFilter, concerns_only_chunks};
use crate::definition::{Origin, SysRow};
use crate::fetched::{Fetched, OfWorkers};
use crate::packed;
use crate::part::Part;
use crate::query_ids::{QueryIds, concerns_only_query_ids};
use crate::query_log::QueryLog;
use crate::segment::SegmentError;
use crate::store::Store;
use crate::tables::{Table, WorkerRow};

/// Batches that wait to be consumed, per partition.
const CHANNEL_BATCHES: usize = 2;

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
        let partitions = state.config().target_partitions();
        let ids = QueryIds::of_filters(filters);
        let chunks = ChunkFilter::of_filters(self.table, filters, state)?;
        let wanted = Wanted { ids, chunks };
        let others = self.others(&wanted).await?;
        let scan = SysScan::new(
            &self.store,
            self.table,
            wanted,
            others,
            projection,
            partitions,
            limit,
        )?;
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

/// What other processes have of a table.
#[derive(Debug, Default)]
struct Others {
    /// What they have been asked for, as it is stored, with the number of rows.
    fetched: Vec<(RecordBatch, usize)>,
    /// Those that are to be asked when the scan runs.
    workers: Vec<i64>,
}

impl SysTable {
    /// Rows of few queries are asked for at once, so that it is known how many they are.
    async fn others(&self, wanted: &Wanted) -> Result<Others> {
        let Some(fetched) = self.store.fetched() else {
            return Ok(Others::default());
        };
        if self.table == Table::Workers {
            let now = now(&fetched.workers())?;
            let rows = now.num_rows();
            return Ok(Others {
                fetched: vec![(now, rows)],
                workers: Vec::new(),
            });
        }
        if !self.table.is_of_workers() {
            return Ok(Others::default());
        }
        if !Fetched::keeps(&wanted.ids) {
            return Ok(Others {
                fetched: Vec::new(),
                workers: fetched.others(),
            });
        }
        let OfWorkers { batches, missing } = fetched.rows(self.table, &wanted.ids).await;
        for missing in missing {
            self.store.warn(format!("skipped {missing}"));
        }
        let chunks = packed::schema(self.table).is_some();
        let rows = |batch: &RecordBatch| match chunks {
            true => packed::records(batch),
            false => batch.num_rows(),
        };
        Ok(Others {
            fetched: batches
                .into_iter()
                .map(|batch| (batch.clone(), rows(&batch)))
                .collect(),
            workers: Vec::new(),
        })
    }
}

/// Rows of `sys.workers` that belong to no query.
fn now(workers: &[WorkerRow]) -> Result<RecordBatch> {
    let nobody = Origin {
        query_id: 0,
        worker_id: 0,
        profile_level: String::new(),
        sample_rate: 1.0,
    };
    let rows = WorkerRow::batch(&nobody, workers);
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
    Fetched {
        batch: RecordBatch,
    },
}

/// What one partition of a scan reads.
#[derive(Debug, Clone)]
enum Share {
    Here(Vec<Unit>),
    /// All that a worker has, page by page.
    OfWorker(i64),
}

/// What a statement asks for, as far as its filters tell.
#[derive(Debug, Clone)]
struct Wanted {
    ids: QueryIds,
    chunks: ChunkFilter,
}

/// Reads a table of schema `sys`: the buffers of queries in memory and row groups of files,
/// dealt out to partitions.
#[derive(Debug)]
struct SysScan {
    store: Arc<Store>,
    table: Table,
    wanted: Wanted,
    projection: Arc<[usize]>,
    partitions: Vec<Share>,
    rows: usize,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl SysScan {
    fn new(
        store: &Arc<Store>,
        table: Table,
        wanted: Wanted,
        others: Others,
        projection: Vec<usize>,
        partitions: usize,
        limit: Option<usize>,
    ) -> Result<SysScan> {
        let snapshot = store.snapshot();
        let ids = &wanted.ids;
        let mut units: Vec<(Unit, usize)> = Vec::new();
        for part in &snapshot.parts {
            let Some(segment) = part.segment(table, ids) else {
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
                let pieces = log.wanted(table, &wanted.chunks).into_iter();
                units.extend(pieces.map(|(piece, rows)| {
                    let log = Arc::clone(log);
                    (Unit::Buffered { log, piece }, rows)
                }));
            }
        }
        let fetched = others.fetched.into_iter();
        units.extend(fetched.map(|(batch, rows)| (Unit::Fetched { batch }, rows)));
        let rows = units.iter().map(|(_, rows)| rows).sum();
        let schema = Arc::new(table.definition().schema().project(&projection)?);
        let dealt = deal(units, partitions).into_iter().map(Share::Here);
        let others = others.workers.into_iter().map(Share::OfWorker);
        let dealt: Vec<Share> = dealt.chain(others).collect();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(dealt.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(SysScan {
            store: Arc::clone(store),
            table,
            wanted,
            projection: projection.into(),
            partitions: dealt,
            rows,
            limit,
            properties: Arc::new(properties),
        })
    }
}

/// Deals units out to at most `partitions` consecutive shares of about equal rows; there is at
/// least one share.
fn deal(units: Vec<(Unit, usize)>, partitions: usize) -> Vec<Vec<Unit>> {
    /// Below so many rows another partition is not worth its task.
    const ROWS: usize = 16 * 1024;
    let total: usize = units.iter().map(|(_, rows)| rows).sum();
    let shares = partitions.clamp(1, total / ROWS + 1);
    let per_share = total.div_ceil(shares).max(1);
    let mut dealt = vec![Vec::new(); shares];
    let mut before = 0;
    for (unit, rows) in units {
        dealt[(before / per_share).min(shares - 1)].push(unit);
        before += rows;
    }
    dealt
}

impl DisplayAs for SysScan {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SysScan: table=sys.{}", self.table.name())?;
        match &self.wanted.ids {
            QueryIds::Listed(ids) => write!(formatter, ", query_id={ids:?}")?,
            ids if *ids != QueryIds::ALL => write!(formatter, ", query_id={ids:?}")?,
            _ => {}
        }
        if let Some(condition) = self.wanted.chunks.condition() {
            write!(formatter, ", chunks={condition}")?;
        }
        if let Some(limit) = self.limit {
            write!(formatter, ", limit={limit}")?;
        }
        Ok(())
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
        let reader = Reader {
            store: Arc::clone(&self.store),
            table: self.table,
            wanted: self.wanted.clone(),
            projection: Arc::clone(&self.projection),
            schema: self.schema(),
        };
        let left = self.limit.unwrap_or(usize::MAX);
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema(), CHANNEL_BATCHES);
        let sender = builder.tx();
        let units = match self.partitions[partition].clone() {
            Share::Here(units) => units,
            Share::OfWorker(worker_id) => {
                builder.spawn(async move { reader.ask(worker_id, left, &sender).await });
                return Ok(builder.build());
            }
        };
        let mut left = left;
        builder.spawn_blocking(move || {
            let mut gathered = Gathered::new(&reader.schema);
            let mut expander = Expander::new(&reader.schema);
            for unit in &units {
                for batch in reader.read(unit, &mut expander) {
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
        });
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
        let rows = self.rows / share;
        Ok(Arc::new(Statistics {
            num_rows: Precision::Inexact(rows),
            total_byte_size: Precision::Inexact(rows * 8 * self.projection.len()),
            column_statistics: vec![ColumnStatistics::new_unknown(); self.projection.len()],
        }))
    }
}

/// Reads units on a blocking thread.
struct Reader {
    store: Arc<Store>,
    table: Table,
    wanted: Wanted,
    projection: Arc<[usize]>,
    schema: SchemaRef,
}

impl Reader {
    /// The unit's rows. What is damaged is skipped with a warning.
    fn read<'a>(
        &'a self,
        unit: &Unit,
        expander: &'a mut Expander,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch>> + 'a> {
        match unit {
            Unit::Buffered { log, piece } => {
                let batch = log.expand(self.table, *piece, &self.projection, expander);
                let batch = batch.map_err(|error| DataFusionError::External(error.into()));
                Box::new(std::iter::once(batch))
            }
            Unit::Written { part, row_group } => {
                let Some(segment) = part.segment(self.table, &QueryIds::ALL) else {
                    return Box::new(std::iter::empty());
                };
                let wanted = (&self.wanted.ids, &self.wanted.chunks);
                match segment.read(*row_group, &self.projection, wanted, expander) {
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
            Unit::Fetched { batch } => self.rows_of(batch, expander),
        }
    }

    /// Rows that are stored in a batch. What is damaged is skipped with a warning.
    fn rows_of<'a>(
        &'a self,
        batch: &RecordBatch,
        expander: &'a mut Expander,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch>> + 'a> {
        if packed::schema(self.table).is_none() {
            let rows = batch.project(&self.projection).map_err(Into::into);
            return Box::new(std::iter::once(rows));
        }
        let batch = batch.clone();
        let chunks = self.wanted.chunks.wanted(self.table, &batch).into_iter();
        Box::new(chunks.filter_map(move |chunk| {
            let (table, ids) = (self.table, &self.wanted.ids);
            let rows = packed::expand(table, &batch, chunk, &self.projection, ids, expander)?;
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
        let mut pages = fetched.pages(worker_id, self.table, self.wanted.ids.clone());
        let mut gathered = Gathered::new(&self.schema);
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

/// Gathers small batches and cuts large ones.
struct Gathered {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
}

impl Gathered {
    /// Rows of a batch: DataFusion's own default.
    const ROWS: usize = 8192;

    fn new(schema: &SchemaRef) -> Gathered {
        Gathered {
            schema: Arc::clone(schema),
            batches: Vec::new(),
            rows: 0,
        }
    }

    /// Adds a batch and returns what is complete.
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        if batch.num_rows() >= Self::ROWS / 2 {
            // Large enough to go on as it is: to join it to what waits would be to copy it.
            let before = self.take()?;
            return Ok(before.into_iter().chain(cut(&batch)).collect());
        }
        self.rows += batch.num_rows();
        self.batches.push(batch);
        if self.rows < Self::ROWS {
            return Ok(Vec::new());
        }
        Ok(self.take()?.iter().flat_map(cut).collect())
    }

    /// All rows so far; none if there are none.
    fn take(&mut self) -> Result<Option<RecordBatch>> {
        let (batches, rows) = (std::mem::take(&mut self.batches), self.rows);
        self.rows = 0;
        match batches.as_slice() {
            [] => Ok(None),
            [batch] => Ok(Some(batch.clone())),
            _ if self.schema.fields().is_empty() => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::clone(&self.schema);
                let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options)?;
                Ok(Some(batch))
            }
            _ => Ok(Some(concat_batches(&self.schema, &batches)?)),
        }
    }
}

/// Slices of a batch of at most [`Gathered::ROWS`] rows.
fn cut(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let starts = (0..batch.num_rows()).step_by(Gathered::ROWS);
    starts.map(|start| batch.slice(start, Gathered::ROWS.min(batch.num_rows() - start)))
}
