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

use super::{StateRecord, records, state, state_columns, state_type};

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
        Ok(Box::new(Merging {
            recorder: Arc::clone(&self.recorder),
            records: Arc::clone(&self.records),
            merged: BTreeMap::new(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[state]", args.name);
        Ok(vec![Field::new(name, state_type(), true).into()])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// What is known of a record that rows are made of.
#[derive(Debug, Default)]
struct Merged {
    /// How many rows; a frame loses them again.
    rows: usize,
    /// The longest that it took in any of them, in picoseconds.
    latency: i64,
}

/// The rows of a group or a frame.
#[derive(Debug)]
struct Merging {
    recorder: Arc<Recorder>,
    records: Arc<[StateRecord]>,
    /// By source and id.
    merged: BTreeMap<[i64; 2], Merged>,
}

impl Merging {
    fn add(&mut self, [source, id, latency]: [i64; 3]) {
        let merged = self.merged.entry([source, id]).or_default();
        merged.rows += 1;
        merged.latency = merged.latency.max(latency);
    }

    fn remove(&mut self, [source, id, _]: [i64; 3]) {
        let key = [source, id];
        if let Some(merged) = self.merged.get_mut(&key) {
            merged.rows -= 1;
            if merged.rows == 0 {
                self.merged.remove(&key);
            }
        }
    }

    /// Calls `each` with all records of the rows of a batch.
    fn for_each(&mut self, values: &[ArrayRef], each: impl Fn(&mut Self, [i64; 3])) -> Result<()> {
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
        for ([source, id], merged) in &self.merged {
            builder
                .values()
                .append_slice(&[*source, *id, merged.latency]);
        }
        builder.append(true);
        Ok(ScalarValue::List(Arc::new(builder.finish())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.merged.len() * size_of::<([i64; 2], Merged)>()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array};
    use skewer_profiling::{Level, RecorderLimits};

    use super::super::Origin;
    use super::*;

    fn merging(records: Vec<StateRecord>) -> Merging {
        Merging {
            recorder: Recorder::new(1, Level::Records, 1.0, RecorderLimits::default()),
            records: records.into(),
            merged: BTreeMap::new(),
        }
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
        let mut merged = merging(vec![read]);
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
        let mut then = merging(vec![before]);
        let ten: ArrayRef = Arc::new(Int64Array::from(vec![10]));
        then.update_batch(&[Arc::clone(&states), ten]).unwrap();
        assert_eq!(numbers(&mut then), [1, 3, 12, 1, 7, 15]);
        then.merge_batch(&[states]).unwrap();
        assert_eq!(numbers(&mut then), [1, 3, 12, 1, 7, 15]);

        merged.retract_batch(&first).unwrap();
        assert_eq!(numbers(&mut merged), [1, 7, 5], "one of its rows is left");
        merged
            .retract_batch(&batch(vec![Some(7)], vec![4]))
            .unwrap();
        assert!(numbers(&mut merged).is_empty());
    }
}
