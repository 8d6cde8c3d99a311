//! One NaN for all.
//!
//! IEEE 754 knows many. The processor's `0 / 0` has a sign, and Arrow compares bits: that NaN would sort before all
//! numbers, and be another group than `'NaN'::DOUBLE`, where SQL has one NaN that is greater than all numbers
//! (PostgreSQL's manual, 8.1.3). So whatever computes floating-point numbers here gives the one without a sign.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type,
};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

/// `values` with the one NaN for each NaN; other types as they are.
pub fn with_one_nan(values: ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float16 => of_floats::<Float16Type>(values, |value| match value.is_nan() {
            true => <Float16Type as ArrowPrimitiveType>::Native::NAN,
            false => value,
        }),
        DataType::Float32 => of_floats::<Float32Type>(values, |value| match value.is_nan() {
            true => f32::NAN,
            false => value,
        }),
        DataType::Float64 => of_floats::<Float64Type>(values, |value| match value.is_nan() {
            true => f64::NAN,
            false => value,
        }),
        _ => values,
    }
}

/// The same for what a function returns.
pub(crate) fn result_with_one_nan(result: ColumnarValue) -> ColumnarValue {
    match result {
        ColumnarValue::Array(values) => ColumnarValue::Array(with_one_nan(values)),
        ColumnarValue::Scalar(value) => ColumnarValue::Scalar(value_with_one_nan(value)),
    }
}

/// The same for one value.
pub(crate) fn value_with_one_nan(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Float32(Some(value)) if value.is_nan() => f32::NAN.into(),
        ScalarValue::Float64(Some(value)) if value.is_nan() => f64::NAN.into(),
        other => other,
    }
}

/// In place, if nobody else has the values.
fn of_floats<T: ArrowPrimitiveType>(
    values: ArrayRef,
    one: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let own = values.as_primitive::<T>().clone();
    drop(values);
    let replaced: PrimitiveArray<T> = own
        .unary_mut(&one)
        .unwrap_or_else(|shared| shared.unary(&one));
    Arc::new(replaced)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float32Array, Float64Array, Int32Array};
    use datafusion::arrow::datatypes::Float64Type;

    use super::*;

    #[test]
    fn a_nan_loses_its_sign_and_other_numbers_stay() {
        let numbers = vec![Some(-f64::NAN), Some(f64::NAN), None, Some(-0.0), Some(1.5)];
        let column: ArrayRef = Arc::new(Float64Array::from(numbers));
        let kept = Arc::clone(&column);
        for column in [with_one_nan(Arc::clone(&column)), with_one_nan(column)] {
            let bits = column.as_primitive::<Float64Type>().iter();
            let bits: Vec<_> = bits.map(|value| value.map(f64::to_bits)).collect();
            let nan = Some(f64::NAN.to_bits());
            let zero = Some((-0.0_f64).to_bits());
            assert_eq!(bits, [nan, nan, None, zero, Some(1.5_f64.to_bits())]);
        }
        let first = kept.as_primitive::<Float64Type>().value(0);
        assert_eq!(
            first.to_bits(),
            (-f64::NAN).to_bits(),
            "a shared column stays"
        );
        let narrow = with_one_nan(Arc::new(Float32Array::from(vec![-f32::NAN])));
        let narrow = narrow.as_primitive::<Float32Type>().value(0);
        assert_eq!(narrow.to_bits(), f32::NAN.to_bits());
        let whole: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert_eq!(&with_one_nan(Arc::clone(&whole)), &whole);
    }
}
