//! Plans of statements that write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{Int64Array, RecordBatch, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use datafusion_distributed::NetworkBoundaryExt;
use skewer_exec::NumberedExec;
use skewer_storage::{MASTER, ROW_ID};
use url::Url;

use super::apply::{ApplyChangesExec, Changes};
use super::destination::{IngestReceipt, SegmentDestination};
use super::ingest::EntryExec;
use super::route::{ROUTE, RouteExec, routes};
use super::segments::{RowsHave, WriteSegmentsExec};
use super::target::Target;
use crate::distributed::cut_at_exchanges;
use crate::workers::Workers;

/// Rows whose changes are sent at once.
const CHANGES_PER_BATCH: usize = 1 << 13;

/// Asks for the rows of a query to be written by those that make them: an extension of the
/// session that the query is planned in.
#[derive(Debug)]
pub struct Writing {
    target: Arc<Target>,
    is_planned: AtomicBool,
}

impl Writing {
    /// The query's rows go into `target`.
    pub fn new(target: Arc<Target>) -> Arc<Self> {
        Arc::new(Self {
            target,
            is_planned: AtomicBool::new(false),
        })
    }

    /// Whether the query's plan returns [descriptions](super::descriptions) of what it wrote
    /// rather than its rows. A query that stays in one place does not write.
    pub fn is_planned(&self) -> bool {
        self.is_planned.load(Ordering::Acquire)
    }

    pub(crate) fn planned(&self) {
        self.is_planned.store(true, Ordering::Release);
    }

    pub(crate) fn of_session(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }
}

/// `plan`, and then its rows are written.
pub(crate) fn wrap(
    plan: Arc<dyn ExecutionPlan>,
    writing: &Writing,
    workers: &Workers,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let target = &writing.target;
    let all_write = workers
        .list()
        .iter()
        .all(|worker| target.writers.contains(&worker.number));
    let is_divided = plan.output_partitioning().partition_count() > 1;
    if all_write && is_divided && target.keys.is_empty() {
        let written = WriteSegmentsExec::new(plan, Arc::clone(target), RowsHave::Columns);
        return Ok(Arc::new(CoalescePartitionsExec::new(Arc::new(written))));
    }
    routed(plan, target, false, partitions)
}

fn routed(
    rows: Arc<dyn ExecutionPlan>,
    target: &Arc<Target>,
    has_ids: bool,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let route = RouteExec::new(rows, Arc::clone(target), has_ids, partitions);
    let by_route = Partitioning::Hash(vec![route.route()], partitions);
    let sent = RepartitionExec::try_new(Arc::new(route), by_route)?;
    let written = WriteSegmentsExec::new(Arc::new(sent), Arc::clone(target), RowsHave::Routes);
    Ok(Arc::new(CoalescePartitionsExec::new(Arc::new(written))))
}

/// Writes `rows`, which have the table's columns and their ids and enter here, in a session made
/// by [`Workers::query`]. The plan gives descriptions of the segments; rows enter as long as the
/// second part of the result is there.
///
/// # Errors
/// Those of planning.
pub async fn ingest(
    rows: SendableRecordBatchStream,
    target: &Arc<Target>,
    state: &SessionState,
) -> Result<(Arc<dyn ExecutionPlan>, IngestReceipt)> {
    let place = SegmentDestination::of_session(state.config())?;
    let schema = rows.schema();
    let receipt = place.ingest(rows);
    let entry = Arc::new(EntryExec::new(receipt.number(), schema));
    // One stream feeds them.
    let plan = routed(entry, target, true, 1)?;
    Ok((cut_at_exchanges(&plan, state).await?, receipt))
}

/// Rows of a table that are written anew.
#[derive(Debug)]
pub struct Rewrite {
    /// A scan of their segments in one partition, with row ids last.
    pub scan: Arc<dyn ExecutionPlan>,
    /// What becomes of them. Without it they stay as they are.
    pub changes: Option<Changes>,
    /// The node that has each of the rows that change.
    pub owners: Vec<u32>,
    /// Whether they go to whom they belong, rather than stay where they are.
    pub moved: bool,
}

/// Writes rows anew in a session made by [`Workers::query`] with one partition. The plan gives
/// descriptions of the segments; changes are sent as long as the second part of the result is
/// there.
///
/// # Errors
/// Those of planning.
pub async fn rewritten(
    rewrite: Rewrite,
    target: &Arc<Target>,
    workers: &Workers,
    state: &SessionState,
) -> Result<(Arc<dyn ExecutionPlan>, Option<IngestReceipt>)> {
    let Rewrite {
        scan,
        changes,
        owners,
        moved,
    } = rewrite;
    let (rows, receipt) = match changes {
        None => (scan, None),
        Some(changes) => {
            let updated = changes.updated();
            let parts = parts_for_tasks(changes, &owners, workers)?;
            let schema = parts.schema();
            let receipt = SegmentDestination::of_session(state.config())?.ingest(parts);
            let by_route = Column::new(ROUTE, schema.fields().len() - 1);
            let entry = Arc::new(EntryExec::new(receipt.number(), schema));
            let to_tasks = Partitioning::Hash(vec![Arc::new(by_route)], 1);
            let sent = Arc::new(RepartitionExec::try_new(entry, to_tasks)?);
            let changed = ApplyChangesExec::new(scan, sent, updated);
            (Arc::new(changed) as _, Some(receipt))
        }
    };
    let plan = match moved {
        true => routed(rows, target, true, 1)?,
        false => {
            let written = WriteSegmentsExec::new(rows, Arc::clone(target), RowsHave::Ids);
            Arc::new(CoalescePartitionsExec::new(Arc::new(written)))
        }
    };
    Ok((cut_at_exchanges(&plan, state).await?, receipt))
}

/// The changes as batches of ids, new values and the route to the task whose rows they are about.
fn parts_for_tasks(
    changes: Changes,
    owners: &[u32],
    workers: &Workers,
) -> Result<SendableRecordBatchStream> {
    let everywhere = workers.shares_segments();
    let places = (0..changes.ids().len() as u32).zip(owners);
    // By task, and in pieces that a frame has room for.
    let mut pieces: Vec<(i64, Vec<u32>)> = Vec::new();
    for (worker, route) in workers.list().iter().zip(routes(workers.count())?) {
        let of_worker = places
            .clone()
            .filter(|(_, owner)| everywhere || **owner == worker.number);
        let of_worker: Vec<u32> = of_worker.map(|(place, _)| place).collect();
        let chunks = of_worker.chunks(CHANGES_PER_BATCH);
        pieces.extend(chunks.map(|chunk| (route, chunk.to_vec())));
    }
    let mut fields = vec![Field::new(ROW_ID, DataType::Int64, false)];
    if let Changes::Update { columns, .. } = &changes {
        let new = columns.iter().enumerate();
        fields.extend(new.map(|(n, (_, values))| {
            Field::new(format!("new value {n}"), values.data_type().clone(), true)
        }));
    }
    fields.push(Field::new(ROUTE, DataType::Int64, false));
    let schema = Arc::new(Schema::new(fields));
    let of_parts = Arc::clone(&schema);
    let parts = pieces.into_iter().map(move |(route, places)| {
        let rows = places.len();
        let mut arrays = changes.part(&UInt32Array::from(places))?;
        arrays.push(Arc::new(Int64Array::from(vec![route; rows])));
        Ok(RecordBatch::try_new(Arc::clone(&of_parts), arrays)?)
    });
    let parts = futures::stream::iter(parts);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, parts)))
}

/// How many tasks an operator that writes wants.
pub(crate) fn tasks_of(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let segments = plan.downcast_ref::<WriteSegmentsExec>()?;
    (segments.have() == RowsHave::Routes).then(|| segments.target().tasks())
}

/// Who runs the tasks of the stage that `plan` is the head of, if it is not all workers in their
/// order: who writes, and where rows enter.
pub(crate) fn routes_to(
    plan: &Arc<dyn ExecutionPlan>,
    tasks: usize,
    workers: &Workers,
) -> Result<Option<Vec<Url>>> {
    let url_of = |number: u32| match workers.list().iter().find(|w| w.number == number) {
        Some(worker) => Ok(worker.url.clone()),
        None => exec_err!("worker {number} takes no part in the query"),
    };
    let plan = inner(plan);
    if tasks_of(plan).is_some() {
        let Some(segments) = plan.downcast_ref::<WriteSegmentsExec>() else {
            return internal_err!("{} writes no segments", plan.name());
        };
        let writers = segments.target().writers.iter().cycle().take(tasks);
        return writers
            .map(|number| url_of(*number))
            .collect::<Result<_>>()
            .map(Some);
    }
    if has_entry(plan) {
        return Ok(Some(vec![url_of(MASTER)?]));
    }
    Ok(None)
}

fn inner(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<NumberedExec>() {
        Some(numbered) => inner(&numbered.observed().inner),
        None => plan,
    }
}

/// Whether rows enter in a stage.
fn has_entry(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let plan = inner(plan);
    if plan.is_network_boundary() {
        return false;
    }
    plan.is::<EntryExec>() || plan.children().into_iter().any(has_entry)
}
