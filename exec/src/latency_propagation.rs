//! `carried_latency`: the aggregate that carries latencies on instead of logging them.
//!
//! Where `lineage_capture` returns the id of a group and logs its edges, this returns what the
//! group carries by then: total latency, source and remediated latency, as a struct. Its state is
//! the same struct, so both steps of a two-step aggregation, early emission, spilling and skipped
//! partial aggregation need nothing of their own.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::mem::size_of_val;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StructArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use parking_lot::Mutex;
use skewer_profiling::{Carried, Gathering, Impacts, Recorder, Sources};

use crate::call_stack;
use crate::capture::{Groups, Latency, column, int64};
use crate::record_column::Records;

/// One kind of record whose latencies are carried.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CarriedInput {
    /// The argument or column that says which records: numbers of [`Sources`], what
    /// [`RecordColumn`](crate::RecordColumn) has made of them, or what an aggregate returned.
    pub records: usize,
    /// The arguments or columns whose sum is the computation latency since then, in picoseconds; none
    /// where that is packed with the numbers.
    pub latencies: Vec<usize>,
}

/// The fields of what a record carries: the [numbers](Carried::numbers).
fn fields() -> Fields {
    let field = |name| Field::new(name, DataType::Int64, true);
    Fields::from(vec![
        field("total_ps"),
        field("source"),
        field("remediated_ps"),
    ])
}

/// The type of what a record carries.
pub(crate) fn data_type() -> DataType {
    DataType::Struct(fields())
}

/// What each row carries of all its records together, if it has any.
pub(crate) fn of_rows(
    columns: &[ArrayRef],
    inputs: &[CarriedInput],
    count: usize,
) -> Result<Vec<Option<Carried>>> {
    let mut rows: Vec<Option<Carried>> = vec![None; count];
    for input in inputs {
        for_each(columns, input, |row, carried| {
            rows[row] = Some(rows[row].map_or(carried, |others| others.and(carried)));
        })?;
    }
    Ok(rows)
}

/// What each row carries of all its records together, NULL if it has none.
pub(crate) fn together(
    columns: &[ArrayRef],
    inputs: &[CarriedInput],
    count: usize,
) -> Result<StructArray> {
    let rows = of_rows(columns, inputs, count)?.into_iter();
    let rows = rows.map(|row| (row.unwrap_or(Carried::OF_NOTHING), row.is_some()));
    Ok(struct_array(rows))
}

/// What a record carries that was made of none.
///
/// # Errors
/// None; what makes such values may fail of others.
pub fn carried_of_nothing() -> Result<ScalarValue> {
    scalar(Some(Carried::OF_NOTHING))
}

/// A value that carries a record's latencies, or none.
pub(crate) fn scalar(carried: Option<Carried>) -> Result<ScalarValue> {
    let row = (carried.unwrap_or(Carried::OF_NOTHING), carried.is_some());
    ScalarValue::try_from_array(&struct_array(std::iter::once(row)), 0)
}

/// Calls `each` with the row and what it carries of each record of `input` among `columns`.
fn for_each(
    columns: &[ArrayRef],
    input: &CarriedInput,
    mut each: impl FnMut(usize, Carried),
) -> Result<()> {
    let latency = Latency::new(columns, &input.latencies)?;
    let records = column(columns, input.records)?;
    let Some(carried) = records.as_struct_opt() else {
        match Records::of_column(records)? {
            Records::Ids(numbers) => for_each_present(records, |row| {
                each(
                    row,
                    Carried::base(numbers.value(row)).after(latency.latency_of(row)),
                );
            }),
            Records::Dictionary(records) => records.for_each(|row, number, latency| {
                each(row, Carried::base(number).after(latency));
            }),
        }
        return Ok(());
    };
    let number = |field: usize| int64(carried.columns(), field);
    let (totals, sources, remediated) = (number(0)?, number(1)?, number(2)?);
    for_each_present(records, |row| {
        let numbers = [totals, sources, remediated].map(|numbers| numbers.value(row));
        each(
            row,
            Carried::of_numbers(numbers).after(latency.latency_of(row)),
        );
    });
    Ok(())
}

/// Calls `each` with the number of each row that is not NULL.
fn for_each_present(records: &ArrayRef, each: impl FnMut(usize)) {
    match records.nulls() {
        Some(nulls) => nulls.valid_indices().for_each(each),
        None => (0..records.len()).for_each(each),
    }
}

/// What each row carries, if it has been made of traced records.
fn struct_array(carried: impl Iterator<Item = (Carried, bool)>) -> StructArray {
    let rows = carried.size_hint().0;
    let mut columns = [const { Vec::new() }; 3];
    columns.iter_mut().for_each(|column| column.reserve(rows));
    let mut present = Vec::with_capacity(rows);
    for (carried, is_traced) in carried {
        for (column, number) in columns.iter_mut().zip(carried.numbers()) {
            column.push(number);
        }
        present.push(is_traced);
    }
    let columns = columns.map(|column| Arc::new(Int64Array::from(column)) as ArrayRef);
    StructArray::new(fields(), columns.to_vec(), Some(NullBuffer::from(present)))
}

/// The aggregate function `carried_latency(records and latencies …) → STRUCT`.
#[derive(Debug)]
pub struct CarriedLatency {
    name: String,
    carry: Arc<Carry>,
    signature: Signature,
}

#[derive(Debug)]
struct Carry {
    recorder: Arc<Recorder>,
    inputs: Vec<CarriedInput>,
    /// Whether groups are charged with what the aggregate spends.
    charges: bool,
    /// Of each partition's stream, the nanoseconds that groups have been charged with: an aggregate
    /// may go on with another accumulator.
    charged_ns: Mutex<HashMap<u64, f64>>,
}

impl CarriedLatency {
    /// A function of `inputs`. Its name is its own in its query.
    pub fn new(name: String, recorder: Arc<Recorder>, inputs: Vec<CarriedInput>) -> Self {
        Self::charging(true, name, recorder, inputs)
    }

    /// The same in a recursive term: its groups are no records yet, and what they are made of takes no
    /// shuffle latency there.
    pub fn in_recursion(name: String, recorder: Arc<Recorder>, inputs: Vec<CarriedInput>) -> Self {
        Self::charging(false, name, recorder, inputs)
    }

    fn charging(
        charges: bool,
        name: String,
        recorder: Arc<Recorder>,
        inputs: Vec<CarriedInput>,
    ) -> Self {
        Self {
            name,
            carry: Arc::new(Carry {
                recorder,
                inputs,
                charges,
                charged_ns: Mutex::default(),
            }),
            signature: Signature::variadic_any(Volatility::Volatile),
        }
    }

    /// The records whose latencies it carries.
    pub fn inputs(&self) -> &[CarriedInput] {
        &self.carry.inputs
    }
}

impl PartialEq for CarriedLatency {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.carry.inputs == other.carry.inputs
    }
}

impl Eq for CarriedLatency {}

impl Hash for CarriedLatency {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.carry.inputs.hash(state);
    }
}

impl AggregateUDFImpl for CarriedLatency {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(data_type())
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Ungrouped(Grouped::new(Arc::clone(&self.carry)))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[carried]", args.name);
        let field = Field::new(name, data_type(), true);
        Ok(vec![Arc::new(field)])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Grouped::new(Arc::clone(&self.carry))))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The accumulator of one partition.
#[derive(Debug)]
struct Grouped {
    carry: Arc<Carry>,
    gathering: Mutex<Gathering>,
}

impl Grouped {
    fn new(carry: Arc<Carry>) -> Self {
        Self {
            carry,
            gathering: Mutex::default(),
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: Groups<'_>, count: usize) -> Result<()> {
        let started = Instant::now();
        let gathering = self.gathering.get_mut();
        gathering.resize(count);
        let mut arrival = gathering.arrival();
        for input in &self.carry.inputs {
            for_each(values, input, |row, carried| {
                arrival.add(groups.group_of(row), carried);
            })?;
        }
        self.carry.recorder.overhead(started.elapsed());
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: Groups<'_>, count: usize) -> Result<()> {
        let started = Instant::now();
        let gathering = self.gathering.get_mut();
        gathering.resize(count);
        let mut arrival = gathering.arrival();
        for_each(states, &STATE, |row, carried| {
            arrival.add(groups.group_of(row), carried);
        })?;
        self.carry.recorder.overhead(started.elapsed());
        Ok(())
    }

    fn emit(&mut self, emit_to: EmitTo) -> StructArray {
        let gathering = self.gathering.get_mut();
        let count = match emit_to {
            EmitTo::All => gathering.len(),
            EmitTo::First(count) => count.min(gathering.len()),
        };
        let emitted = self
            .carry
            .charge(|spent_ns, charged_ns| gathering.emit(count, spent_ns, charged_ns));
        struct_array(self.carry.traced(emitted))
    }
}

/// The record of a state.
const STATE: CarriedInput = CarriedInput {
    records: 0,
    latencies: Vec::new(),
};

impl Carry {
    /// Calls `emit` with what the operator that is executed on this thread, the accumulator's own,
    /// has spent so far in its partition, and what of that groups have been charged with.
    fn charge<T>(&self, emit: impl FnOnce(i64, &mut f64) -> T) -> T {
        if !self.charges {
            return emit(0, &mut 0.0);
        }
        let (stream, ticks) = call_stack::self_ticks();
        let spent_ns = self.recorder.scale().ns(ticks);
        // Other partitions need not wait: nobody else charges this stream.
        let mut charged_ns = *self.charged_ns.lock().entry(stream).or_default();
        let emitted = emit(spent_ns, &mut charged_ns);
        self.charged_ns.lock().insert(stream, charged_ns);
        emitted
    }

    /// Where only some base records are traced, groups without one of them carry nothing; where all
    /// are, a group of no records is a record all the same.
    fn traced(
        &self,
        emitted: impl Iterator<Item = (Carried, bool)>,
    ) -> impl Iterator<Item = (Carried, bool)> {
        // In a recursive term they are no records.
        let complete = self.charges && self.recorder.sampling().is_complete();
        emitted.map(move |(carried, made_of_any)| (carried, complete || made_of_any))
    }
}

impl GroupsAccumulator for Grouped {
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
        Ok(Arc::new(self.emit(emit_to)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
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
        let started = Instant::now();
        let rows = values.first().map_or(0, Array::len);
        let passed = self.carry.charge(|spent_ns, charged_ns| {
            let mut gathering = self.gathering.lock();
            gathering.pass(spent_ns, charged_ns, rows, |passing| {
                self.carry.inputs.iter().try_for_each(|input| {
                    for_each(values, input, |row, carried| passing.add(row, carried))
                })
            })
        })?;
        let passed = self.carry.traced(passed.into_iter());
        let passed: ArrayRef = Arc::new(struct_array(passed));
        self.carry.recorder.overhead(started.elapsed());
        Ok(vec![passed])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.gathering.lock().memory()
    }
}

/// The accumulator of an aggregate without groups: one group.
#[derive(Debug)]
struct Ungrouped(Grouped);

impl Accumulator for Ungrouped {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update(values, Groups::One, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.gathering.get_mut().resize(1);
        ScalarValue::try_from_array(&self.0.emit(EmitTo::All), 0)
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(&self.0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, Groups::One, 1)
    }
}

/// The base records of which result rows say that they come from them. It hands them over when it
/// is dropped: at the end of the result, however it ends.
#[derive(Debug)]
pub(crate) struct Blamed {
    inputs: Arc<[CarriedInput]>,
    sources: Arc<Sources>,
    recorder: Arc<Recorder>,
    impacts: Impacts,
}

impl Blamed {
    pub(crate) fn new(
        inputs: Arc<[CarriedInput]>,
        sources: Arc<Sources>,
        recorder: Arc<Recorder>,
    ) -> Self {
        Self {
            inputs,
            sources,
            recorder,
            impacts: Impacts::default(),
        }
    }

    /// More result rows, of which `inputs` are columns.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = of_rows(batch.columns(), &self.inputs, batch.num_rows())?;
        rows.into_iter()
            .flatten()
            .for_each(|row| self.impacts.add(row));
        Ok(())
    }
}

impl Drop for Blamed {
    fn drop(&mut self) {
        let sources = self.impacts.rows(&self.sources);
        self.recorder
            .impactful_sources(sources, self.impacts.forgotten());
    }
}
