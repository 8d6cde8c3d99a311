//! Records of recursive queries.
//!
//! A row of a recursive query may be made of a row of the iteration before, and that one of another.
//! What it is made of in the end travels with it, in one more column of the working table
//! ([`CarriedState`]), and is logged when the row is returned ([`RowCapture`]): so no edge leads from
//! an operator to itself. A row that the recursive term makes of several has the states of all
//! ([`MergedState`]). Of rows that are equal but for that, `UNION` has the first ([`FirstSeen`]).
//!
//! Where no log is kept, what travels is what all those records carry together: the same three numbers,
//! however many they are.
//!
//! A recursive query in the recursive term of another is an operator of that term like others: what its
//! rows are made of goes on travelling. It begins anew in each iteration ([`RestartExec`]).

mod merged;
mod restart;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, Int64Builder, ListArray, ListBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use parking_lot::Mutex;
use skewer_profiling::Recorder;

use crate::capture::{Capture, Edges, Latency, column};
use crate::int32_row_id::wide_ids;
use crate::latency_propagation::{self, CarriedInput};
use crate::record_origin::{AggregateOrigin, RecordOrigin, ScanOrigin};

pub use self::merged::MergedState;
pub use self::restart::RestartExec;

/// A record is three numbers of a state: its source, its id, and its latency since it was read or
/// made, in picoseconds.
const NUMBERS: usize = 3;

/// The type of what a row was made of: the numbers of its records, one after the other.
fn state_type() -> DataType {
    DataType::new_list(DataType::Int64, true)
}

/// One kind of record that the rows of a term have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StateRecord {
    /// Where it comes from.
    pub origin: Origin,
    /// The function's argument with its ids, or with the state of the row before.
    pub argument: usize,
    /// The function's arguments whose sum is what it took, in picoseconds.
    pub latency_arguments: Vec<usize>,
}

/// Where a record of a recursive query comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// From this one of the query's sources.
    Source(usize),
    /// From a row of the iteration before: all that this one was made of.
    Before,
}

/// What the rows of a term say of what they are made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RowState {
    /// Each of these records.
    Records(Vec<StateRecord>),
    /// What these carry together; NULL of none.
    Carried(Vec<CarriedInput>),
}

impl RowState {
    /// The type of the column that has it.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Records(_) => state_type(),
            Self::Carried(_) => latency_propagation::data_type(),
        }
    }
}

/// `carried_state(ids, states and latencies …) → state`: what a row is made of.
#[derive(Debug)]
pub struct CarriedState {
    recorder: Arc<Recorder>,
    state: RowState,
    scans: Vec<Arc<ScanOrigin>>,
    signature: Signature,
}

impl CarriedState {
    /// The function for rows that say `state`, some of whose records are base records of `scans`; its
    /// time is overhead of `recorder`'s query.
    pub fn new(recorder: Arc<Recorder>, state: RowState, scans: Vec<Arc<ScanOrigin>>) -> Self {
        let any = vec![TypeSignature::VariadicAny, TypeSignature::Nullary];
        Self {
            recorder,
            state,
            scans,
            signature: Signature::one_of(any, Volatility::Immutable),
        }
    }

    /// The scans whose records it carries.
    pub fn scans(&self) -> &[Arc<ScanOrigin>] {
        &self.scans
    }

    fn states(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(match &self.state {
            RowState::Records(records) => Arc::new(states_of(records, arrays, rows)?),
            RowState::Carried(inputs) => {
                Arc::new(latency_propagation::together(arrays, inputs, rows)?)
            }
        })
    }
}

/// What each row is made of that has `records` among `arrays`.
fn states_of(records: &[StateRecord], arrays: &[ArrayRef], rows: usize) -> Result<ListArray> {
    let columns = state_columns(records, arrays)?;
    let mut builder = ListBuilder::with_capacity(Int64Builder::new(), rows);
    let mut numbers = Vec::new();
    for row in 0..rows {
        numbers.clear();
        for column in &columns {
            column.add(row, &mut numbers);
        }
        builder.values().append_slice(&numbers);
        builder.append(true);
    }
    Ok(builder.finish())
}

/// The records of each kind of a batch's rows.
fn state_columns<'a>(
    records: &[StateRecord],
    arrays: &'a [ArrayRef],
) -> Result<Vec<StateColumn<'a>>> {
    let columns = records.iter().map(|record| {
        let latency = Latency::new(arrays, &record.latency_arguments)?;
        Ok(match record.origin {
            Origin::Source(source) => {
                let ids = wide_ids(column(arrays, record.argument)?)?;
                StateColumn::Ids(source as i64, ids, latency)
            }
            Origin::Before => StateColumn::States(state(arrays, record.argument)?, latency),
        })
    });
    columns.collect()
}

/// The records of one kind of a batch's rows.
enum StateColumn<'a> {
    Ids(i64, Int64Array, Latency),
    States(&'a ListArray, Latency),
}

impl StateColumn<'_> {
    /// Adds the records of a row to `numbers`; those that are there already are, with the longest that
    /// they took on any way to the row.
    fn add(&self, row: usize, numbers: &mut Vec<i64>) {
        // No column has a record twice. The states of long chains are long.
        let known = numbers.len();
        self.for_each(row, |record| {
            let (before, _) = numbers[..known].as_chunks_mut::<NUMBERS>();
            match before.iter_mut().find(|known| known[..2] == record[..2]) {
                Some(known) => known[2] = known[2].max(record[2]),
                None => numbers.extend(record),
            }
        });
    }

    /// Calls `each` with the records of a row.
    fn for_each(&self, row: usize, mut each: impl FnMut([i64; NUMBERS])) {
        match self {
            Self::Ids(source, ids, latency) => {
                if ids.is_valid(row) {
                    each([*source, ids.value(row), latency.latency_of(row)]);
                }
            }
            Self::States(states, latency) => {
                for record in records(states, row) {
                    each([record[0], record[1], record[2] + latency.latency_of(row)]);
                }
            }
        }
    }
}

/// The records of a row; none of a state that is NULL.
fn records(states: &ListArray, row: usize) -> &[[i64; NUMBERS]] {
    if states.is_null(row) {
        return &[];
    }
    let offsets = states.value_offsets();
    let numbers = states.values().as_primitive::<Int64Type>().values();
    let (records, _) = numbers[offsets[row] as usize..offsets[row + 1] as usize].as_chunks();
    records
}

fn state(arrays: &[ArrayRef], argument: usize) -> Result<&ListArray> {
    match arrays
        .get(argument)
        .and_then(|array| array.as_list_opt::<i32>())
    {
        Some(states) if *states.data_type() == state_type() => Ok(states),
        _ => internal_err!("recursive query: argument {argument} is no state"),
    }
}

fn arrays_of(args: ScalarFunctionArgs) -> Result<Vec<ArrayRef>> {
    let rows = args.number_rows;
    let arrays = args.args.into_iter().map(|arg| arg.into_array(rows));
    arrays.collect()
}

impl PartialEq for CarriedState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recorder, &other.recorder) && self.state == other.state
    }
}

impl Eq for CarriedState {}

impl Hash for CarriedState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.state.hash(state);
    }
}

impl ScalarUDFImpl for CarriedState {
    fn name(&self) -> &str {
        "carried_state"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.state.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let started = Instant::now();
        let rows = args.number_rows;
        let states = self.states(&arrays_of(args)?, rows)?;
        self.recorder.overhead(started.elapsed());
        Ok(ColumnarValue::Array(states))
    }
}

/// `row_capture(state) → BIGINT`: the id of a record that the row is from here on. Logs what it is
/// made of.
#[derive(Debug)]
pub struct RowCapture {
    capture: Arc<Capture>,
    sources: Vec<RecordOrigin>,
    signature: Signature,
}

impl RowCapture {
    /// A function that logs edges from the records of `sources` to the rows of `rows`.
    pub fn new(
        recorder: Arc<Recorder>,
        sources: Vec<RecordOrigin>,
        rows: Arc<AggregateOrigin>,
    ) -> Self {
        Self {
            capture: Arc::new(Capture::of_rows(recorder, rows)),
            sources,
            signature: Signature::any(1, Volatility::Volatile),
        }
    }

    /// The rows that the function gives ids to.
    pub fn rows(&self) -> &Arc<AggregateOrigin> {
        self.capture.groups()
    }
}

impl PartialEq for RowCapture {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.capture, &other.capture)
    }
}

impl Eq for RowCapture {}

impl Hash for RowCapture {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.capture).hash(state);
    }
}

impl ScalarUDFImpl for RowCapture {
    fn name(&self) -> &str {
        "row_capture"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = arrays_of(args)?;
        let states = state(&arrays, 0)?;
        let mut edges: Vec<_> = self.sources.iter().map(|_| Edges::default()).collect();
        for row in 0..rows {
            for [source, id, latency] in records(states, row) {
                let Some(edges) = edges.get_mut(*source as usize) else {
                    return internal_err!("recursive query: no source {source}");
                };
                edges.add(row, *id, *latency);
            }
        }
        let edges = self.sources.iter().zip(edges);
        let ids = Capture::log_rows(&self.capture, rows, edges);
        Ok(ColumnarValue::Array(ids))
    }
}

/// `first_seen(columns …) → BOOLEAN`: whether a row is the first with these values, in any term and any
/// iteration of one recursive query. Equal is what is equal to GROUP BY.
pub struct FirstSeen {
    seen: Arc<Mutex<Option<Seen>>>,
    signature: Signature,
}

struct Seen {
    rows: Box<dyn GroupValues>,
    /// The row of each of a batch's rows.
    numbers: Vec<usize>,
}

impl Seen {
    fn new(columns: &[ArrayRef]) -> Result<Self> {
        let fields = columns.iter().zip(0..).map(|(column, n): (_, usize)| {
            Field::new(format!("c{n}"), column.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self {
            rows: new_group_values(schema, &GroupOrdering::None)?,
            numbers: Vec::new(),
        })
    }

    fn first(&mut self, columns: &[ArrayRef]) -> Result<BooleanArray> {
        let mut known = self.rows.len();
        self.numbers.clear();
        self.rows.intern(columns, &mut self.numbers)?;
        // New rows get the next numbers.
        let first = self.numbers.iter().map(|number| {
            let is_new = *number == known;
            known += usize::from(is_new);
            Some(is_new)
        });
        Ok(first.collect())
    }
}

impl FirstSeen {
    /// A function that has seen nothing.
    #[expect(clippy::new_without_default, reason = "no two of them are the same")]
    pub fn new() -> Self {
        Self {
            seen: Arc::default(),
            signature: Signature::variadic_any(Volatility::Volatile),
        }
    }

    /// Forgets all rows.
    fn forget(&self) {
        *self.seen.lock() = None;
    }
}

impl fmt::Debug for FirstSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstSeen").finish_non_exhaustive()
    }
}

impl PartialEq for FirstSeen {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.seen, &other.seen)
    }
}

impl Eq for FirstSeen {}

impl Hash for FirstSeen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.seen).hash(state);
    }
}

impl ScalarUDFImpl for FirstSeen {
    fn name(&self) -> &str {
        "first_seen"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = arrays_of(args)?;
        let mut seen = self.seen.lock();
        let seen = match &mut *seen {
            Some(seen) => seen,
            none => none.insert(Seen::new(&columns)?),
        };
        Ok(ColumnarValue::Array(Arc::new(seen.first(&columns)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(numbers: &[Option<i64>]) -> ArrayRef {
        Arc::new(numbers.iter().copied().collect::<Int64Array>())
    }

    fn record(origin: Origin, argument: usize, latency: Option<usize>) -> StateRecord {
        StateRecord {
            origin,
            argument,
            latency_arguments: latency.into_iter().collect(),
        }
    }

    fn numbers(states: &ListArray, row: usize) -> Vec<[i64; NUMBERS]> {
        records(states, row).to_vec()
    }

    #[test]
    fn a_row_has_what_the_row_before_was_made_of_and_what_it_met_each_once() {
        let first = [record(Origin::Source(0), 0, Some(1))];
        let ids = array(&[Some(7), None, Some(9)]);
        let latencies = array(&[Some(10), Some(20), None]);
        let before = states_of(&first, &[ids, latencies], 3).unwrap();
        assert_eq!(numbers(&before, 0), [[0, 7, 10]]);
        assert_eq!(numbers(&before, 1), [[0; 3]; 0]);
        assert_eq!(numbers(&before, 2), [[0, 9, 0]]);

        let then = [
            record(Origin::Before, 0, Some(3)),
            record(Origin::Source(0), 1, None),
            record(Origin::Source(1), 2, Some(3)),
        ];
        let states_before = Arc::new(before) as ArrayRef;
        let arrays = [
            Arc::clone(&states_before),
            array(&[Some(7), Some(7), None]),
            array(&[Some(7), None, Some(1)]),
            array(&[Some(1), Some(2), Some(3)]),
        ];
        let states = states_of(&then, &arrays, 3).unwrap();
        assert_eq!(numbers(&states, 0), [[0, 7, 11], [1, 7, 1]]);
        assert_eq!(numbers(&states, 1), [[0, 7, 0]]);
        assert_eq!(numbers(&states, 2), [[0, 9, 3], [1, 1, 3]]);
        // The padding of an outer join.
        let padding = ListArray::new_null(states_field(), 3);
        let arrays = [
            Arc::new(padding) as ArrayRef,
            array(&[Some(1), None, None]),
            array(&[None, None, None]),
            array(&[Some(1), Some(2), Some(3)]),
        ];
        let states = states_of(&then, &arrays, 3).unwrap();
        assert_eq!(numbers(&states, 0), [[0, 1, 0]]);
        assert_eq!(numbers(&states, 1), [[0; 3]; 0]);

        // On another way it took longer.
        let ways = [
            record(Origin::Before, 0, None),
            record(Origin::Source(0), 1, Some(2)),
        ];
        let again = array(&[Some(7), None, Some(9)]);
        let took = array(&[Some(30), Some(30), Some(5)]);
        let states = states_of(&ways, &[states_before, again, took], 3).unwrap();
        assert_eq!(numbers(&states, 0), [[0, 7, 30]]);
        assert_eq!(numbers(&states, 1), [[0; 3]; 0]);
        assert_eq!(numbers(&states, 2), [[0, 9, 5]]);
    }

    #[test]
    fn of_equal_rows_the_first_is_seen_whichever_batch_it_is_in() {
        let mut seen: Option<Seen> = None;
        let mut first = |a: &[Option<i64>], b: &[Option<i64>]| {
            let columns = [array(a), array(b)];
            let seen = seen.get_or_insert_with(|| Seen::new(&columns).unwrap());
            let first = seen.first(&columns).unwrap();
            first.iter().map(Option::unwrap).collect::<Vec<_>>()
        };
        let some = [Some(1), None, Some(1), Some(2), None];
        let others = [Some(1), None, Some(1), Some(1), Some(1)];
        assert_eq!(first(&some, &others), [true, true, false, true, true]);
        assert_eq!(first(&[], &[]), [false; 0]);
        let others = [Some(3), None, Some(3), Some(1), Some(2)];
        assert_eq!(first(&some, &others), [true, false, false, false, true]);
    }

    fn states_field() -> datafusion::arrow::datatypes::FieldRef {
        match state_type() {
            DataType::List(field) => field,
            other => panic!("{other}"),
        }
    }
}
