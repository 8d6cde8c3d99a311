//! Sums, differences, products, quotients and remainders of floating-point numbers.

use datafusion::arrow::array::{ArrayRef, Datum, Scalar};
use datafusion::arrow::compute::kernels::numeric::{add, div, mul, neg, rem, sub};
use datafusion::common::{Result, internal_err};

use super::{Operand, Operation};
use crate::functions::one_nan::with_one_nan;

/// What `operation` makes of operands of one type.
pub(super) fn compute(operation: Operation, left: &Operand, right: &Operand) -> Result<ArrayRef> {
    let compute = match operation {
        Operation::Add => add,
        Operation::Subtract => sub,
        Operation::Multiply => mul,
        Operation::Divide => div,
        Operation::Modulo => rem,
        other => return internal_err!("{other:?} of floating-point numbers"),
    };
    let result = compute(datum(left).as_ref(), datum(right).as_ref())?;
    Ok(with_one_nan(result))
}

fn datum((array, is_scalar): &Operand) -> Box<dyn Datum> {
    let array = ArrayRef::clone(array);
    match is_scalar {
        true => Box::new(Scalar::new(array)),
        false => Box::new(array),
    }
}

/// `-a` of each number.
pub(super) fn negated(operand: &ArrayRef) -> Result<ArrayRef> {
    Ok(with_one_nan(neg(operand)?))
}
