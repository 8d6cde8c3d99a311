//! Choosing the base records that are traced.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, new_null_array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use skewer_profiling::{Recorder, consecutive_numbers};

use crate::sparse_ids::sparse_ids;

/// One record traced of so many is few: the ids of all others are not written.
const FEW_OF: usize = 32;

/// `sampled_row_id(row id) → row id or NULL`: the id if the record is traced, as the recorder's
/// [`Sampling`](skewer_profiling::Sampling) says.
#[derive(Debug)]
pub struct SampledRowId {
    recorder: Arc<Recorder>,
    signature: Signature,
}

impl SampledRowId {
    /// Chooses records for `recorder`.
    pub fn new(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable),
        }
    }

    /// Those of `ids` that are traced; the others are NULL.
    pub fn traced_ids(&self, ids: &Int64Array) -> ArrayRef {
        let choice = self.recorder.sampling().choice();
        if choice.is_all() {
            return Arc::new(ids.clone());
        }
        if choice.is_none() {
            return new_null_array(&DataType::Int64, ids.len());
        }
        let started = Instant::now();
        let numbers = ids.values();
        let traced = NullBuffer::new(choice.traced(numbers));
        let traced = NullBuffer::union(Some(&traced), ids.nulls());
        let sampled = Int64Array::new(numbers.clone(), traced);
        self.recorder.overhead(started.elapsed());
        Arc::new(sampled)
    }

    /// The same of ids that follow each other, of which none has to be looked at: where few are traced, only
    /// theirs are written.
    pub fn of_range(&self, ids: Range<i64>) -> Int64Array {
        let choice = self.recorder.sampling().choice();
        if choice.is_all() {
            let mut numbers = Vec::new();
            consecutive_numbers(ids, &mut numbers);
            return numbers.into();
        }
        let started = Instant::now();
        let (first, records) = (ids.start, (ids.end - ids.start) as usize);
        let traced = NullBuffer::new(choice.traced_of_range(first, records));
        let numbers = if records - traced.null_count() > records / FEW_OF {
            let mut numbers = Vec::new();
            consecutive_numbers(ids, &mut numbers);
            numbers.into()
        } else {
            sparse_ids(records, first, traced.valid_indices())
        };
        let sampled = Int64Array::new(numbers, Some(traced));
        self.recorder.overhead(started.elapsed());
        sampled
    }
}

impl PartialEq for SampledRowId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recorder, &other.recorder)
    }
}

impl Eq for SampledRowId {}

impl Hash for SampledRowId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.recorder).hash(state);
    }
}

impl ScalarUDFImpl for SampledRowId {
    fn name(&self) -> &str {
        "sampled_row_id"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [ids] = arrays.as_slice() else {
            return internal_err!("sampled_row_id takes one argument");
        };
        Ok(ColumnarValue::Array(self.traced_ids(ids.as_primitive())))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;
    use skewer_profiling::{Level, RecorderLimits};

    use super::*;

    fn sampled(rate: f64, ids: &[Option<i64>]) -> Int64Array {
        let recorder = Recorder::new(1, Level::Records, rate, RecorderLimits::default());
        let field = Arc::new(Field::new("id", DataType::Int64, true));
        let value = SampledRowId::new(recorder)
            .invoke_with_args(ScalarFunctionArgs {
                args: vec![ColumnarValue::Array(Arc::new(
                    ids.iter().copied().collect::<Int64Array>(),
                ))],
                arg_fields: vec![Arc::clone(&field)],
                number_rows: ids.len(),
                return_field: field,
                config_options: Arc::new(ConfigOptions::new()),
            })
            .unwrap();
        let array = value.into_array(ids.len()).unwrap();
        array.as_primitive().clone()
    }

    #[test]
    fn of_ids_in_a_row_those_are_kept_that_are_kept_of_any() {
        for rate in [0.0, 0.001, 0.3, 1.0] {
            let recorder = Recorder::new(1, Level::Records, rate, RecorderLimits::default());
            let function = SampledRowId::new(recorder);
            for range in [5..5, 64..5_000, 77..10_000] {
                let ids: Vec<Option<i64>> = range.clone().map(Some).collect();
                assert_eq!(function.of_range(range), sampled(rate, &ids), "{rate}");
            }
        }
    }

    #[test]
    fn ids_are_kept_or_null() {
        let mut ids: Vec<Option<i64>> = (0..1000).map(Some).collect();
        ids[7] = None;
        assert_eq!(sampled(1.0, &ids), ids.iter().copied().collect());
        assert_eq!(sampled(0.0, &ids).null_count(), 1000);
        let some = sampled(0.3, &ids);
        assert!((200..400).contains(&(1000 - some.null_count())));
        for (kept, id) in some.iter().zip(&ids) {
            assert!(kept.is_none() || kept == *id);
        }
    }
}
