//! Choosing the base records that are traced.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::hash_utils::RandomState;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// `sampled_row_id(row id) → row id or NULL`: the id if the record is traced. The choice
/// depends on the id alone, so every run traces the same records.
#[derive(Debug)]
pub struct SampledRowId {
    rate: f64,
    signature: Signature,
}

impl SampledRowId {
    /// Traces a share of `rate` (0 to 1) of all records.
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable),
        }
    }
}

impl SampledRowId {
    /// The share of records that is traced, 0 to 1.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

impl PartialEq for SampledRowId {
    fn eq(&self, other: &Self) -> bool {
        self.rate.to_bits() == other.rate.to_bits()
    }
}

impl Eq for SampledRowId {}

impl Hash for SampledRowId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rate.to_bits().hash(state);
    }
}

/// Whether record `id` is among the share of `rate` of all records that is traced.
pub fn is_sampled(id: i64, rate: f64) -> bool {
    // A fixed seed: the same records on every run and in every process.
    let hash = RandomState::with_seed(0x5ec0_11ec).hash_one(id);
    (hash as f64) < rate * u64::MAX as f64
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
        let ids = ids.as_primitive::<Int64Type>();
        let sampled: Int64Array = ids
            .iter()
            .map(|id| id.filter(|id| is_sampled(*id, self.rate)))
            .collect();
        Ok(ColumnarValue::Array(Arc::new(sampled)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_a_larger_sample_contains_the_smaller() {
        for rate in [0.0, 0.001, 0.1, 0.5, 1.0] {
            let sampled = (0..100_000).filter(|id| is_sampled(*id, rate)).count() as f64;
            assert!(
                (sampled / 100_000.0 - rate).abs() < 0.005,
                "{rate}: {sampled}"
            );
        }
        assert!((0..10_000).all(|id| !is_sampled(id, 0.1) || is_sampled(id, 0.2)));
    }
}
