//! Whole numbers.
//!
//! Loops over values without branches keep whether any has overflowed. Only then Arrow's checked kernels compute it
//! again: they know which rows are NULL, and which operands to name.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Datum, Int64Array, PrimitiveArray, Scalar,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::kernels::bitwise::bitwise_xor;
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::compute::try_binary;
use datafusion::arrow::datatypes::{
    ArrowNativeTypeOp, ArrowNumericType, ArrowPrimitiveType, UInt64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, internal_err};

use super::{Operand, Operation, out_of_range};

/// Whole numbers, computed with modulo their range; the flag says whether the result is out of it.
pub trait Integer: ArrowNativeTypeOp + std::ops::BitXor<Output = Self> {
    fn plus(self, other: Self) -> (Self, bool);
    fn minus(self, other: Self) -> (Self, bool);
    fn times(self, other: Self) -> (Self, bool);
}

macro_rules! signed {
    ($($own:ty),*) => {$(
        impl Integer for $own {
            #[inline]
            fn plus(self, other: Self) -> (Self, bool) {
                let sum = self.wrapping_add(other);
                (sum, (self ^ sum) & (other ^ sum) < 0)
            }

            #[inline]
            fn minus(self, other: Self) -> (Self, bool) {
                let difference = self.wrapping_sub(other);
                (difference, (self ^ other) & (self ^ difference) < 0)
            }

            #[inline]
            fn times(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
        }
    )*};
}

macro_rules! unsigned {
    ($($own:ty),*) => {$(
        impl Integer for $own {
            #[inline]
            fn plus(self, other: Self) -> (Self, bool) {
                let sum = self.wrapping_add(other);
                (sum, sum < self)
            }

            #[inline]
            fn minus(self, other: Self) -> (Self, bool) {
                (self.wrapping_sub(other), self < other)
            }

            #[inline]
            fn times(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
        }
    )*};
}

signed!(i8, i16, i32, i64);
unsigned!(u8, u16, u32, u64);

/// `operation` of two columns, or of a column and a value.
pub fn compute<T>(operation: Operation, left: &Operand, right: &Operand) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Integer,
{
    let computed = match operation {
        Operation::Add => modulo::<T>(left, right, Integer::plus),
        Operation::Subtract => modulo::<T>(left, right, Integer::minus),
        Operation::Multiply => modulo::<T>(left, right, Integer::times),
        other => return internal_err!("{other:?} of whole numbers"),
    };
    match computed {
        Some(result) => Ok(Arc::new(result)),
        None => checked(operation, left, right),
    }
}

/// The result, if no row seems to be out of range. Rows that are NULL have values, too.
fn modulo<T: ArrowPrimitiveType>(
    left: &Operand,
    right: &Operand,
    compute: impl Fn(T::Native, T::Native) -> (T::Native, bool),
) -> Option<PrimitiveArray<T>> {
    let (left, is_left_one) = (left.0.as_primitive::<T>(), left.1);
    let (right, is_right_one) = (right.0.as_primitive::<T>(), right.1);
    let mut overflows = false;
    let mut flagged = |(value, overflow): (T::Native, bool)| {
        overflows |= overflow;
        value
    };
    let (values, nulls): (Vec<T::Native>, _) = match (is_left_one, is_right_one) {
        (false, true) if right.is_valid(0) => {
            let right = right.value(0);
            let values = left.values().iter();
            let values = values.map(|left| flagged(compute(*left, right)));
            (values.collect(), left.nulls().cloned())
        }
        (true, false) if left.is_valid(0) => {
            let left = left.value(0);
            let values = right.values().iter();
            let values = values.map(|right| flagged(compute(left, *right)));
            (values.collect(), right.nulls().cloned())
        }
        (false, false) if left.len() == right.len() => {
            let values = left.values().iter().zip(right.values());
            let values = values.map(|(left, right)| flagged(compute(*left, *right)));
            (
                values.collect(),
                NullBuffer::union(left.nulls(), right.nulls()),
            )
        }
        _ => return None,
    };
    (!overflows).then(|| PrimitiveArray::new(values.into(), nulls))
}

/// The same, row by row.
fn checked(operation: Operation, left: &Operand, right: &Operand) -> Result<ArrayRef> {
    let (left, right) = (datum(left), datum(right));
    let result = match operation {
        Operation::Add => numeric::add(&*left, &*right),
        Operation::Subtract => numeric::sub(&*left, &*right),
        _ => numeric::mul(&*left, &*right),
    };
    result.map_err(|error| with_type(error, left.get().0))
}

/// As Arrow's kernels take an operand.
pub fn datum((array, is_scalar): &Operand) -> Box<dyn Datum> {
    match is_scalar {
        true => Box::new(Scalar::new(Arc::clone(array))),
        false => Box::new(Arc::clone(array)),
    }
}

/// Says of Arrow's error of an overflow which type it is of, and of which operands.
fn with_type(error: ArrowError, operand: &dyn Array) -> DataFusionError {
    match error {
        ArrowError::ArithmeticOverflow(text) => {
            let operands = text
                .rsplit_once(": ")
                .map_or(&*text, |(_, operands)| operands);
            out_of_range(operand.data_type(), operands)
        }
        other => other.into(),
    }
}

/// `-a`.
pub fn negated<T>(operand: &ArrayRef) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Integer,
{
    let zero: Operand = (
        Arc::new(PrimitiveArray::<T>::new_scalar(T::Native::ZERO).into_inner()),
        true,
    );
    match modulo::<T>(&zero, &(Arc::clone(operand), false), Integer::minus) {
        Some(result) => Ok(Arc::new(result)),
        None => match numeric::neg(operand) {
            Ok(result) => Ok(result),
            Err(ArrowError::ArithmeticOverflow(text)) => {
                let value = text.rsplit_once(": ").map_or(&*text, |(_, value)| value);
                let value = value.trim_start_matches("- ");
                Err(out_of_range(operand.data_type(), &format!("-({value})")))
            }
            Err(other) => Err(other.into()),
        },
    }
}

/// `a - b` of numbers without sign.
pub fn difference(left: &Operand, right: &Operand) -> Result<ArrayRef> {
    let difference = |left: u64, right: u64| {
        let difference = i128::from(left) - i128::from(right);
        i64::try_from(difference)
            .map_err(|_| ArrowError::ArithmeticOverflow(format!(": {left} - {right}")))
    };
    let (lefts, rights) = (
        left.0.as_primitive::<UInt64Type>(),
        right.0.as_primitive::<UInt64Type>(),
    );
    let computed: Result<Int64Array, ArrowError> = match (left.1, right.1) {
        (_, true) if rights.is_null(0) => Ok(Int64Array::new_null(lefts.len())),
        (_, true) => {
            let right = rights.value(0);
            lefts.try_unary(|left| difference(left, right))
        }
        (true, false) if lefts.is_null(0) => Ok(Int64Array::new_null(rights.len())),
        (true, false) => {
            let left = lefts.value(0);
            rights.try_unary(|right| difference(left, right))
        }
        (false, false) => try_binary(lefts, rights, difference),
    };
    let none = Int64Array::new_null(0);
    Ok(Arc::new(computed.map_err(|error| with_type(error, &none))?))
}

/// `a ^ b`, bit by bit.
pub fn xor<T>(left: &PrimitiveArray<T>, right: &PrimitiveArray<T>) -> Result<PrimitiveArray<T>>
where
    T: ArrowNumericType,
    T::Native: std::ops::BitXor<Output = T::Native>,
{
    Ok(bitwise_xor(left, right)?)
}
