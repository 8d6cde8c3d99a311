//! Reading files without the ids of their rows, which are put beside.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::projection::Projector;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::Rows;
use super::consecutive::{ConsecutiveIds, next_ids, next_range};
use crate::SampledRowId;

/// Makes the rows that are asked for of other columns and ids.
#[derive(Debug)]
pub(super) struct NumberedRows {
    /// Of the other columns, and the ids after them.
    pub(super) schema: SchemaRef,
    pub(super) projector: Projector,
    /// What chooses among the ids, if that is all that is made of them; then it is done before the
    /// projection.
    pub(super) sampled: Option<ScalarUDF>,
}

impl NumberedRows {
    /// Of columns that end with the ids.
    fn make_batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)?;
        self.projector.project_batch(&rows)
    }

    fn sampling(&self) -> Option<&SampledRowId> {
        self.sampled.as_ref()?.inner().downcast_ref()
    }
}

/// Opens the files of a partition.
#[derive(Debug)]
pub(super) struct CountingMorselizer {
    pub(super) others: Box<dyn Morselizer>,
    pub(super) rows: Arc<NumberedRows>,
    pub(super) returned: Rows,
    /// Of the files whose ids cannot be counted, if there are any.
    pub(super) reading: Option<Box<dyn Morselizer>>,
}

impl Morselizer for CountingMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let ids = file.extension::<ConsecutiveIds>();
        let ids = ids.map(|ids| match self.returned {
            Rows::All => Ids::Next(Arc::new(Mutex::new(ids.of_part(file.range.as_ref())))),
            Rows::Some => Ids::At(ids.clone()),
        });
        match (ids, &self.reading) {
            (Some(ids), _) => Ok(Box::new(CountingPlanner {
                others: self.others.plan_file(file)?,
                ids,
                rows: Arc::clone(&self.rows),
            })),
            (None, Some(reading)) => reading.plan_file(file),
            (None, None) => internal_err!("a file's row ids are not known"),
        }
    }
}

/// The ids of a file's rows.
#[derive(Debug, Clone)]
enum Ids {
    /// Of the rows that have not come yet, in order.
    Next(Arc<Mutex<VecDeque<Range<i64>>>>),
    /// Of the rows at the places that the last column has.
    At(ConsecutiveIds),
}

impl Ids {
    /// The columns of a batch, and after them the ids of its rows, or those that `sampling` chooses.
    fn beside(&self, batch: RecordBatch, sampling: Option<&SampledRowId>) -> Result<Vec<ArrayRef>> {
        let (_, mut columns, rows) = batch.into_parts();
        let ids = match self {
            Self::Next(left) => {
                let mut left = left.lock();
                if let Some(sampling) = sampling
                    && let Some(ids) = next_range(&mut left, rows)
                {
                    drop(left);
                    columns.push(Arc::new(sampling.of_range(ids)));
                    return Ok(columns);
                }
                next_ids(&mut left, rows)?
            }
            Self::At(ids) => {
                // Unless the reader has kept them, their memory becomes that of the ids.
                let places = columns.pop();
                let places = places.and_then(|places| places.as_primitive_opt().cloned());
                let Some(places) = places else {
                    return internal_err!("a segment's reader does not say which rows it returns");
                };
                ids.ids_at(places)?
            }
        };
        columns.push(match sampling {
            Some(sampling) => sampling.traced_ids(&ids),
            None => Arc::new(ids),
        });
        Ok(columns)
    }
}

/// Plans what reads the other columns of a file, and has the ids put beside.
#[derive(Debug)]
struct CountingPlanner {
    others: Box<dyn MorselPlanner>,
    ids: Ids,
    rows: Arc<NumberedRows>,
}

impl CountingPlanner {
    fn around(others: Box<dyn MorselPlanner>, ids: &Ids, rows: &Arc<NumberedRows>) -> Self {
        Self {
            others,
            ids: ids.clone(),
            rows: Arc::clone(rows),
        }
    }
}

impl MorselPlanner for CountingPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { others, ids, rows } = *self;
        let Some(mut plan) = others.plan()? else {
            return Ok(None);
        };
        let morsels = plan.take_morsels().into_iter().map(|others| {
            let (ids, rows) = (ids.clone(), Arc::clone(&rows));
            Box::new(CountedMorsel { others, ids, rows }) as Box<dyn Morsel>
        });
        let planners = plan.take_ready_planners().into_iter();
        let planners = planners
            .map(|others| Box::new(Self::around(others, &ids, &rows)) as Box<dyn MorselPlanner>);
        let mut counted = MorselPlan::new()
            .with_morsels(morsels.collect())
            .with_planners(planners.collect());
        if let Some(pending) = plan.take_pending_planner() {
            counted.set_pending_planner(async move {
                let others = pending.await?;
                Ok(Box::new(Self::around(others, &ids, &rows)) as Box<dyn MorselPlanner>)
            });
        }
        Ok(Some(counted))
    }
}

#[derive(Debug)]
struct CountedMorsel {
    others: Box<dyn Morsel>,
    ids: Ids,
    rows: Arc<NumberedRows>,
}

impl Morsel for CountedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { others, ids, rows } = *self;
        let counted = others
            .into_stream()
            .map(move |others| rows.make_batch(ids.beside(others?, rows.sampling())?));
        counted.boxed()
    }
}
