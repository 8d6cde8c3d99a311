//! `lineage_capture`: the aggregate that logs which records went into which group.
//!
//! An accumulator is handed `(values, group_indices)`: that *is* the mapping from rows to
//! groups. It appends the edges to the log and returns, as its state and its result, the ids
//! of the groups. So the same function captures both steps of a two-step aggregation: the
//! partial step logs base record → partial group, the final step partial group → group. It
//! holds for early emission, spilling and skipped partial aggregation, too, because group ids
//! are never reused.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::mem::size_of_val;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use skewer_profiling::{Ids, Latencies, LineageChunk, Operator, Recorder};

use crate::position::{self, Position};
use crate::source::{AggregateSource, RecordSource};
use crate::traced_groups::TracedGroups;

/// One kind of input record of a captured aggregate.
#[derive(Debug, Clone)]
pub struct CapturedInput {
    /// Where the records come from.
    pub source: RecordSource,
    /// The function's argument with the records' ids.
    pub id_argument: usize,
    /// The function's arguments whose sum is a record's computation latency, in picoseconds.
    pub latency_arguments: Vec<usize>,
}

/// What `lineage_capture` of one aggregate of the plan does.
#[derive(Debug)]
pub struct Capture {
    recorder: Arc<Recorder>,
    inputs: Vec<CapturedInput>,
    groups: Arc<AggregateSource>,
}

impl Capture {
    /// One that gives ids to `rows`, each of which is a record of its own.
    pub(crate) fn of_rows(recorder: Arc<Recorder>, rows: Arc<AggregateSource>) -> Self {
        Self {
            recorder,
            inputs: Vec::new(),
            groups: rows,
        }
    }

    pub(crate) fn groups(&self) -> &Arc<AggregateSource> {
        &self.groups
    }

    /// Logs `edges` from records of sources to `rows` new records, whose ids it gives.
    pub(crate) fn log_rows<'a>(
        this: &Arc<Self>,
        rows: usize,
        edges: impl Iterator<Item = (&'a RecordSource, Edges)>,
    ) -> ArrayRef {
        let started = Instant::now();
        let mut alone = GroupedCapture::of_single_rows(this, rows);
        alone.set_groups(rows);
        for (source, edges) in edges {
            let ids = Int64Array::from(edges.inputs);
            let latency = Latency::Sum(edges.latencies);
            alone.mark_traced(Groups::Listed(&edges.outputs), source, &ids);
            alone.log(Groups::Listed(&edges.outputs), source, &ids, &latency);
        }
        this.recorder.overhead(started.elapsed());
        alone.emit(EmitTo::All).0
    }

    /// Whether all records are of base tables, among which the sample is chosen.
    fn is_of_tables(&self) -> bool {
        let mut inputs = self.inputs.iter();
        inputs.all(|input| matches!(input.source, RecordSource::Scan(_)))
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
        groups: Arc<AggregateSource>,
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
    pub fn groups(&self) -> &Arc<AggregateSource> {
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
        let field = |what: &str| {
            let name = format!("{}[{what}]", args.name);
            Arc::new(Field::new(name, DataType::Int64, true))
        };
        let mut fields = vec![field("group id")];
        if !self.capture.recorder.sampling().is_complete() {
            fields.push(field("chosen by"));
        }
        Ok(fields)
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

/// What an accumulator is, known from its first call on.
#[derive(Debug, Clone, Copy)]
struct Identity {
    position: Position,
    operator_id: i64,
    /// Id of the group that the caller calls 0 now.
    first_id: i64,
}

/// The accumulator of one partition.
#[derive(Debug)]
struct GroupedCapture {
    capture: Arc<Capture>,
    identity: Option<Identity>,
    /// Groups not emitted yet.
    groups: usize,
    /// If not all records are traced: which of these groups have one that is. Who reads the others
    /// gets NULL and has nothing to log.
    traced: Option<TracedGroups>,
}

impl GroupedCapture {
    fn new(capture: Arc<Capture>) -> Self {
        let traced = TracedGroups::new(capture.recorder.sampling());
        Self {
            capture,
            identity: None,
            groups: 0,
            traced,
        }
    }

    /// One whose groups are `rows` rows.
    fn of_single_rows(capture: &Arc<Capture>, rows: usize) -> Self {
        let position = position::here();
        let operator_id = position.operator_id;
        let worker = capture.recorder.worker_id();
        let mut alone = Self::new(Arc::clone(capture));
        alone.identity = Some(Identity {
            position,
            operator_id,
            first_id: capture.groups.add_single_rows(worker, operator_id, rows),
        });
        alone
    }

    /// There are `groups` groups now.
    fn set_groups(&mut self, groups: usize) {
        self.groups = groups;
        if let Some(traced) = &mut self.traced {
            traced.resize(groups);
        }
    }

    /// The rows of a batch whose records `ids` of `source` are not NULL make their groups traced.
    fn mark_traced(&mut self, groups: Groups<'_>, source: &RecordSource, ids: &Int64Array) {
        let Some(traced) = &mut self.traced else {
            return;
        };
        match source {
            RecordSource::Scan(_) => {
                traced.add(groups, ids, |row| TracedGroups::number_of(ids.value(row)));
            }
            _ => traced.add(groups, ids, |_| 0),
        }
    }

    /// After a batch of `rows`: lets the sample rate fall if nearly all of many groups are traced.
    fn look_at_rate(&mut self, rows: usize) {
        if let Some(traced) = &mut self.traced
            && self.capture.is_of_tables()
        {
            traced.look(rows, self.capture.recorder.sampling());
        }
    }

    /// The accumulator's identity; the operator being executed on this thread is its own.
    fn identity(&mut self) -> Identity {
        *self.identity.get_or_insert_with(|| {
            let position = position::here();
            Identity {
                position,
                operator_id: position.operator_id,
                first_id: self.capture.add_accumulator(position.operator_id),
            }
        })
    }

    /// Logs the edges of one batch from the records of `source` to `groups`.
    fn log(
        &mut self,
        groups: Groups<'_>,
        source: &RecordSource,
        ids: &Int64Array,
        latency: &Latency,
    ) {
        let Some(identity) = self.identity else {
            return;
        };
        if ids.null_count() == ids.len() {
            return;
        }
        let chunk =
            |outputs: Ids, inputs: Ids, first_input: i64, latency: Latencies| LineageChunk {
                fragment_id: identity.position.fragment_id,
                operator_id: identity.operator_id,
                partition: identity.position.partition,
                input_operator_id: source.operator_of(first_input),
                table_name: source.table_name(),
                output_ids: outputs,
                input_ids: inputs,
                latency,
            };
        let same_run = ids.null_count() == 0
            && ids.values().first().is_some_and(|first| {
                let key = source.run_key(*first);
                matches!(source, RecordSource::Scan(_))
                    || ids.values().iter().all(|id| source.run_key(*id) == key)
            });
        if same_run {
            self.capture.recorder.lineage(chunk(
                groups.encode(identity.first_id, ids.len(), self.groups),
                Ids::encode(ids.values()),
                ids.value(0),
                latency.encode(ids.len()),
            ));
            return;
        }
        // Absent inputs (padding of outer joins and unions, records not sampled) have no edge;
        // groups made by several accumulators are logged apart, which keeps their ids short.
        let mut runs: Vec<Edges> = Vec::new();
        let mut run_of_key: HashMap<i64, usize> = HashMap::new();
        let mut latest = None;
        let every = NullBuffer::new_valid(ids.len());
        for row in ids.nulls().unwrap_or(&every).valid_indices() {
            let id = ids.value(row);
            let key = source.run_key(id);
            let run = match latest {
                Some((latest, run)) if latest == key => run,
                _ => *run_of_key.entry(key).or_insert(runs.len()),
            };
            latest = Some((key, run));
            if run == runs.len() {
                runs.push(Edges::default());
            }
            runs[run].add(groups.of(row), id, latency.of(row));
        }
        for edges in runs {
            self.capture.recorder.lineage(chunk(
                Ids::encode_indexes(identity.first_id, &edges.outputs, self.groups),
                Ids::encode(&edges.inputs),
                edges.inputs[0],
                Latencies::encode(&edges.latencies),
            ));
        }
    }

    /// The ids of the groups that are emitted, and by which numbers they were chosen, if not all are
    /// traced.
    fn emit(&mut self, emit_to: EmitTo) -> (ArrayRef, Option<ArrayRef>) {
        let mut identity = self.identity();
        let emitted = match emit_to {
            EmitTo::All => self.groups,
            EmitTo::First(n) => n.min(self.groups),
        };
        let ids = identity.first_id..identity.first_id + emitted as i64;
        self.groups -= emitted;
        identity.first_id += emitted as i64;
        self.identity = Some(identity);
        let sampling = self.capture.recorder.sampling();
        let traced = self.traced.as_mut();
        let numbers = traced.map(|traced| traced.take(emitted, sampling));
        let traced = numbers
            .as_ref()
            .and_then(|numbers| numbers.nulls().cloned());
        let ids = Arc::new(Int64Array::new(ids.collect(), traced));
        (ids, numbers.map(|numbers| Arc::new(numbers) as ArrayRef))
    }

    fn emit_state(&mut self, emit_to: EmitTo) -> Vec<ArrayRef> {
        let (ids, numbers) = self.emit(emit_to);
        std::iter::once(ids).chain(numbers).collect()
    }
}

/// Edges from the records of one operator.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    outputs: Vec<usize>,
    inputs: Vec<i64>,
    latencies: Vec<i64>,
}

impl Edges {
    /// Record `input`, which took `latency`, went into group `output`.
    pub(crate) fn add(&mut self, output: usize, input: i64, latency: i64) {
        self.outputs.push(output);
        self.inputs.push(input);
        self.latencies.push(latency);
    }
}

/// The group of each row of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Groups<'a> {
    /// As the caller says.
    Listed(&'a [usize]),
    /// All rows are of group 0.
    One,
    /// Every row is a group of its own.
    Each,
}

impl Groups<'_> {
    pub(crate) fn of(self, row: usize) -> usize {
        match self {
            Groups::Listed(groups) => groups[row],
            Groups::One => 0,
            Groups::Each => row,
        }
    }

    /// The ids of the groups of all `rows`, where group 0 has the id `first_id` and there are
    /// `total` groups.
    fn encode(self, first_id: i64, rows: usize, total: usize) -> Ids {
        match self {
            Groups::Listed(groups) => Ids::encode_indexes(first_id, groups, total),
            Groups::One => Ids::constant(first_id, rows),
            Groups::Each => Ids::range(first_id, rows),
        }
    }
}

/// Latencies of a batch's records, in picoseconds.
pub(crate) enum Latency {
    None,
    One(Int64Array),
    Sum(Vec<i64>),
}

impl Latency {
    pub(crate) fn new(values: &[ArrayRef], arguments: &[usize]) -> Result<Self> {
        Ok(match arguments {
            [] => Latency::None,
            [one] => Latency::One(int64(values, *one)?.clone()),
            several => {
                let mut sum = vec![0; values[several[0]].len()];
                for argument in several {
                    let array = int64(values, *argument)?;
                    for (row, total) in sum.iter_mut().enumerate() {
                        *total += if array.is_null(row) {
                            0
                        } else {
                            array.value(row)
                        };
                    }
                }
                Latency::Sum(sum)
            }
        })
    }

    pub(crate) fn of(&self, row: usize) -> i64 {
        match self {
            Latency::None => 0,
            Latency::One(array) if array.is_null(row) => 0,
            Latency::One(array) => array.value(row),
            Latency::Sum(sum) => sum[row],
        }
    }

    fn encode(&self, rows: usize) -> Latencies {
        match self {
            Latency::None => Latencies::constant(0, rows),
            Latency::One(array) if array.null_count() == 0 => Latencies::encode(array.values()),
            Latency::One(array) => Latencies::encode(
                &array
                    .iter()
                    .map(Option::unwrap_or_default)
                    .collect::<Vec<_>>(),
            ),
            Latency::Sum(sum) => Latencies::encode(sum),
        }
    }
}

pub(crate) fn int64(values: &[ArrayRef], argument: usize) -> Result<&Int64Array> {
    match values
        .get(argument)
        .and_then(|array| array.as_primitive_opt::<Int64Type>())
    {
        Some(array) => Ok(array),
        None => internal_err!("record level: argument {argument} is no BIGINT"),
    }
}

impl GroupedCapture {
    fn update(
        &mut self,
        values: &[ArrayRef],
        groups: Groups<'_>,
        total_num_groups: usize,
    ) -> Result<()> {
        let started = Instant::now();
        self.identity();
        self.set_groups(total_num_groups);
        let capture = Arc::clone(&self.capture);
        for input in &capture.inputs {
            let ids = int64(values, input.id_argument)?;
            let latency = Latency::new(values, &input.latency_arguments)?;
            self.mark_traced(groups, &input.source, ids);
            self.log(groups, &input.source, ids, &latency);
        }
        self.look_at_rate(values.first().map_or(0, Array::len));
        capture.recorder.overhead(started.elapsed());
        Ok(())
    }

    fn merge(
        &mut self,
        values: &[ArrayRef],
        groups: Groups<'_>,
        total_num_groups: usize,
    ) -> Result<()> {
        let started = Instant::now();
        let mut identity = self.identity();
        let ids = int64(values, 0)?;
        let first = ids.iter().flatten().next();
        if first.is_some_and(|id| self.capture.groups.operator_of(id) == identity.operator_id) {
            self.become_merge_of_spilled_groups(&mut identity);
        }
        self.set_groups(total_num_groups);
        let source = RecordSource::Aggregate(Arc::clone(&self.capture.groups));
        if let Some(traced) = &mut self.traced {
            let numbers = int64(values, 1)?;
            traced.add(groups, ids, |row| numbers.value(row) as u64);
        }
        self.look_at_rate(ids.len());
        self.log(groups, &source, ids, &Latency::None);
        self.capture.recorder.overhead(started.elapsed());
        Ok(())
    }

    /// The states being merged are this operator's own, read back from disk: what comes out is
    /// made from what it made before, under the number reserved for that.
    fn become_merge_of_spilled_groups(&mut self, identity: &mut Identity) {
        let Some(merge_id) = self.capture.groups.merge_operator(identity.operator_id) else {
            return;
        };
        self.capture.recorder.operator(Operator {
            fragment_id: identity.position.fragment_id,
            operator_id: merge_id,
            parent_operator_id: Some(identity.position.operator_id),
            name: "merge of spilled groups".to_owned(),
            details: String::new(),
            estimated_rows: None,
            sql_span: None,
            captures: true,
            table_name: None,
        });
        identity.operator_id = merge_id;
        identity.first_id = self.capture.add_accumulator(merge_id);
        self.identity = Some(*identity);
    }
}

impl GroupsAccumulator for GroupedCapture {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        _opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.update(values, Groups::Listed(group_indices), total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.emit(emit_to).0)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.emit_state(emit_to))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.merge(values, Groups::Listed(group_indices), total_num_groups)
    }

    /// Partial aggregation is skipped: every row becomes a group of its own.
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        _opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, Array::len);
        let mut alone = GroupedCapture::of_single_rows(&self.capture, rows);
        alone.update(values, Groups::Each, rows)?;
        Ok(alone.emit_state(EmitTo::All))
    }

    /// The log is not the accumulator's: emitting state would not free it, and an aggregate
    /// that is told to spill must see its size fall.
    fn size(&self) -> usize {
        size_of_val(self) + self.traced.as_ref().map_or(0, TracedGroups::memory_bytes)
    }
}

/// The accumulator of an aggregate without groups: one group.
#[derive(Debug)]
struct UngroupedCapture(GroupedCapture);

impl UngroupedCapture {
    /// By which number the group was chosen, if not all records are traced, and if it was.
    fn number(&self) -> Option<Option<i64>> {
        let sampling = self.0.capture.recorder.sampling();
        let traced = self.0.traced.as_ref();
        traced.map(|traced| traced.only(sampling))
    }
}

impl Accumulator for UngroupedCapture {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update(values, Groups::One, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let number = self.number();
        let id = self.0.identity().first_id;
        let is_traced = number.is_none_or(|number| number.is_some());
        Ok(ScalarValue::Int64(is_traced.then_some(id)))
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let number = self.number().map(ScalarValue::Int64);
        Ok(std::iter::once(self.evaluate()?).chain(number).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, Groups::One, 1)
    }
}
