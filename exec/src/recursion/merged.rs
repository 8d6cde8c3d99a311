//! What rows are made of that are made of several rows of the iteration before.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::mem::{size_of, size_of_val};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, ArrayRef, Int64Builder, ListBuilder};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use skewer_profiling::Recorder;

use super::{NUMBERS, StateRecord, records, state, state_columns, state_type};

/// The aggregate function `merged_state(ids, states and latencies …) → state`: what a group of rows is
/// made of, or the rows of a frame. Each record is there once, with the longest that it took.
#[derive(Debug)]
pub struct MergedState {
    name: String,
    recorder: Arc<Recorder>,
    records: Arc<[StateRecord]>,
    signature: Signature,
}

impl MergedState {
    /// The function for rows that have `records`; its time is overhead of `recorder`'s query. Its name
    /// is its own in its query.
    pub fn new(name: String, recorder: Arc<Recorder>, records: Vec<StateRecord>) -> Self {
        Self {
            name,
            recorder,
            records: records.into(),
            signature: Signature::variadic_any(Volatility::Volatile),
        }
    }

    fn merging(&self, rows: Rows) -> Merging {
        Merging {
            recorder: Arc::clone(&self.recorder),
            records: Arc::clone(&self.records),
            rows,
            merged: BTreeMap::new(),
        }
    }
}

impl PartialEq for MergedState {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recorder, &other.recorder) && self.name == other.name
    }
}

impl Eq for MergedState {}

impl Hash for MergedState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl AggregateUDFImpl for MergedState {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(state_type())
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.merging(Rows::Stay)))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.merging(Rows::Leave)))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[state]", args.name);
        Ok(vec![Field::new(name, state_type(), true).into()])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// What becomes of rows that have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// They stay: of a record the longest that it took is enough.
    Stay,
    /// They may leave again, as those of frames do.
    Leave,
}

/// The rows of a group or a frame.
#[derive(Debug)]
struct Merging {
    recorder: Arc<Recorder>,
    records: Arc<[StateRecord]>,
    rows: Rows,
    /// How many rows are made of a record that took so long in them: by source, id and picoseconds.
    merged: BTreeMap<[i64; NUMBERS], usize>,
}

impl Merging {
    fn add(&mut self, record: [i64; NUMBERS]) {
        if self.rows == Rows::Stay {
            let [source, id, latency] = record;
            let mut known = self
                .merged
                .range([source, id, i64::MIN]..=[source, id, i64::MAX]);
            match known.next().map(|(known, _)| *known) {
                Some([_, _, longer]) if longer >= latency => return,
                Some(shorter) => drop(self.merged.remove(&shorter)),
                None => {}
            }
        }
        *self.merged.entry(record).or_default() += 1;
    }

    fn remove(&mut self, record: [i64; NUMBERS]) {
        if let Some(rows) = self.merged.get_mut(&record) {
            *rows -= 1;
            if *rows == 0 {
                self.merged.remove(&record);
            }
        }
    }

    /// Calls `each` with all records of the rows of a batch.
    fn for_each(
        &mut self,
        values: &[ArrayRef],
        each: impl Fn(&mut Self, [i64; NUMBERS]),
    ) -> Result<()> {
        let started = Instant::now();
        let known = Arc::clone(&self.records);
        let rows = values.first().map_or(0, Array::len);
        for column in state_columns(&known, values)? {
            for row in 0..rows {
                column.for_each(row, |record| each(self, record));
            }
        }
        self.recorder.overhead(started.elapsed());
        Ok(())
    }
}

impl Accumulator for Merging {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.for_each(values, Self::add)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.for_each(values, Self::remove)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let states = state(states, 0)?;
        for row in 0..states.len() {
            records(states, row)
                .iter()
                .for_each(|record| self.add(*record));
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut builder = ListBuilder::new(Int64Builder::new());
        let mut records = self.merged.keys().peekable();
        while let Some(record) = records.next() {
            // The longest that a record took is the last of it.
            if records.peek().is_none_or(|next| next[..2] != record[..2]) {
                builder.values().append_slice(record);
            }
        }
        builder.append(true);
        Ok(ScalarValue::List(Arc::new(builder.finish())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.merged.len() * size_of::<([i64; NUMBERS], usize)>()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array};
    use skewer_profiling::{Level, RecorderLimits};

    use super::super::Origin;
    use super::*;

    fn merging(records: &[StateRecord], rows: Rows) -> Merging {
        let recorder = Recorder::new(1, Level::Records, 1.0, RecorderLimits::default());
        MergedState::new("merged".to_owned(), recorder, records.to_vec()).merging(rows)
    }

    fn numbers(merging: &mut Merging) -> Vec<i64> {
        let ScalarValue::List(list) = merging.evaluate().unwrap() else {
            panic!("no list");
        };
        list.value(0)
            .as_primitive::<datafusion::arrow::datatypes::Int64Type>()
            .values()
            .to_vec()
    }

    #[test]
    fn a_group_has_each_record_of_its_rows_once_and_a_frame_loses_them() {
        let read = StateRecord {
            origin: Origin::Source(1),
            argument: 0,
            latency_arguments: vec![1],
        };
        let read = [read];
        let mut merged = merging(&read, Rows::Stay);
        let batch = |ids: Vec<Option<i64>>, latencies: Vec<i64>| -> [ArrayRef; 2] {
            [
                Arc::new(Int64Array::from(ids)),
                Arc::new(Int64Array::from(latencies)),
            ]
        };
        assert!(numbers(&mut merged).is_empty());
        let first = batch(vec![Some(7), None, Some(3)], vec![5, 6, 2]);
        merged.update_batch(&first).unwrap();
        merged.update_batch(&batch(vec![Some(7)], vec![4])).unwrap();
        assert_eq!(numbers(&mut merged), [1, 3, 2, 1, 7, 5]);

        let before = StateRecord {
            origin: Origin::Before,
            argument: 0,
            latency_arguments: vec![1],
        };
        let states = merged.state().unwrap()[0].to_array().unwrap();
        let mut then = merging(&[before], Rows::Stay);
        let ten: ArrayRef = Arc::new(Int64Array::from(vec![10]));
        then.update_batch(&[Arc::clone(&states), ten]).unwrap();
        assert_eq!(numbers(&mut then), [1, 3, 12, 1, 7, 15]);
        then.merge_batch(&[states]).unwrap();
        assert_eq!(numbers(&mut then), [1, 3, 12, 1, 7, 15]);

        let mut frame = merging(&read, Rows::Leave);
        let second = batch(vec![Some(7)], vec![4]);
        frame.update_batch(&first).unwrap();
        frame.update_batch(&second).unwrap();
        assert_eq!(numbers(&mut frame), [1, 3, 2, 1, 7, 5]);
        frame.retract_batch(&first).unwrap();
        assert_eq!(numbers(&mut frame), [1, 7, 4], "one of its rows is left");
        frame.retract_batch(&second).unwrap();
        assert!(numbers(&mut frame).is_empty());
    }
}
