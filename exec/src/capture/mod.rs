//! `lineage_capture`: the aggregate that logs which records went into which group.
//!
//! An accumulator is handed `(values, group_indices)`: that *is* the mapping from rows to
//! groups. It appends the edges to the log and returns, as its state and its result, the ids
//! of the groups. So the same function captures both steps of a two-step aggregation: the
//! partial step logs base record → partial group, the final step partial group → group. It
//! holds for early emission, spilling and skipped partial aggregation, too, because group ids
//! are never reused.

mod accumulator;
mod state;
mod values;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};
use skewer_profiling::Recorder;

use self::accumulator::{GroupedCapture, UngroupedCapture};
pub(crate) use self::values::{Edges, Groups, Latency, column, int64};
use crate::record_origin::{AggregateOrigin, RecordOrigin};

/// One kind of input record of a captured aggregate.
#[derive(Debug, Clone)]
pub struct CapturedInput {
    /// Where the records come from.
    pub source: RecordOrigin,
    /// The function's argument with the records' ids, or what [`RecordColumn`](crate::RecordColumn) has
    /// made of ids and latencies.
    pub id_argument: usize,
    /// The function's arguments whose sum is a record's computation latency, in picoseconds; none where
    /// that is packed with the id.
    pub latency_arguments: Vec<usize>,
}

/// What `lineage_capture` of one aggregate of the plan does.
#[derive(Debug)]
pub struct Capture {
    recorder: Arc<Recorder>,
    inputs: Vec<CapturedInput>,
    groups: Arc<AggregateOrigin>,
}

impl Capture {
    /// One that gives ids to `rows`, each of which is a record of its own.
    pub(crate) fn of_rows(recorder: Arc<Recorder>, rows: Arc<AggregateOrigin>) -> Self {
        Self {
            recorder,
            inputs: Vec::new(),
            groups: rows,
        }
    }

    pub(crate) fn groups(&self) -> &Arc<AggregateOrigin> {
        &self.groups
    }

    /// Logs `edges` from records of sources to `rows` new records, whose ids it gives.
    pub(crate) fn log_rows<'a>(
        this: &Arc<Self>,
        rows: usize,
        edges: impl Iterator<Item = (&'a RecordOrigin, Edges)>,
    ) -> ArrayRef {
        let started = Instant::now();
        let ids = GroupedCapture::log_rows(this, rows, edges);
        this.recorder.overhead(started.elapsed());
        ids
    }

    /// Whether all records are of base tables, among which the sample is chosen.
    fn is_of_tables(&self) -> bool {
        let mut inputs = self.inputs.iter();
        inputs.all(|input| matches!(input.source, RecordOrigin::Scan(_)))
    }

    /// The first record id of a new accumulator of operator `operator_id`.
    fn add_accumulator(&self, operator_id: i64) -> i64 {
        let worker = self.recorder.worker_id();
        self.groups.add_accumulator(worker, operator_id)
    }
}

/// The aggregate function `lineage_capture(ids and latencies …) → BIGINT`, the id of the group.
#[derive(Debug)]
pub struct LineageCapture {
    name: String,
    capture: Arc<Capture>,
    signature: Signature,
}

impl LineageCapture {
    /// A function that logs edges from `inputs` to the groups of `groups`. Its name is its own in
    /// its query: that is how workers know which one a plan asks for.
    pub fn new(
        name: String,
        recorder: Arc<Recorder>,
        inputs: Vec<CapturedInput>,
        groups: Arc<AggregateOrigin>,
    ) -> Self {
        Self {
            name,
            capture: Arc::new(Capture {
                recorder,
                inputs,
                groups,
            }),
            signature: Signature::variadic_any(Volatility::Volatile),
        }
    }

    /// The records that it logs edges from.
    pub fn inputs(&self) -> &[CapturedInput] {
        &self.capture.inputs
    }

    /// The groups that the function gives ids to.
    pub fn groups(&self) -> &Arc<AggregateOrigin> {
        &self.capture.groups
    }
}

impl PartialEq for LineageCapture {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.capture, &other.capture)
    }
}

impl Eq for LineageCapture {}

impl Hash for LineageCapture {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.capture).hash(state);
    }
}

impl AggregateUDFImpl for LineageCapture {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(UngroupedCapture(GroupedCapture::new(Arc::clone(
            &self.capture,
        )))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let data_type = match self.capture.recorder.sampling().is_complete() {
            true => DataType::Int64,
            false => state::CHOSEN,
        };
        let name = format!("{}[group id]", args.name);
        Ok(vec![Arc::new(Field::new(name, data_type, true))])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(GroupedCapture::new(Arc::clone(&self.capture))))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}
