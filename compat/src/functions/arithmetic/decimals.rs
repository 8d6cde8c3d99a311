//! Decimals.
//!
//! Sums, differences and products have Arrow's types. Two things are different:
//!
//! * A quotient has at least six digits more after the point than either operand, and up to sixteen in all where
//!   there is room for them before it. Its last digit is rounded half away from zero, as PostgreSQL's numeric.
//!   Arrow adds four digits to the dividend's and cuts.
//! * A product that might need more than 38 digits, and more than 20 of them after the point, keeps 20, or as many
//!   as an operand has. Quotients of quotients would have no digits left before the point.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum, Decimal128Array};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::compute::try_binary;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, internal_err, plan_err};

use super::integers::datum;
use super::{Operand, Operation, narrow, out_of_range};

/// The digits that a DECIMAL has at most.
const DIGITS: i16 = DECIMAL128_MAX_PRECISION as i16;

/// The digits after the point that quotients have more than their operands at least.
const MORE_DIGITS: i16 = 6;

/// The digits after the point that quotients have where there is room.
const QUOTIENT_SCALE: i16 = 16;

/// The digits after the point that a product keeps where there is not enough room for all.
const PRODUCT_SCALE: i16 = 20;

/// Whether it is a type of this module's: a DECIMAL of up to 38 digits.
pub fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(_, scale) if *scale >= 0)
}

/// Precision and scale.
fn digits(data_type: &DataType) -> Result<(i16, i16)> {
    match data_type {
        DataType::Decimal128(precision, scale) if *scale >= 0 => {
            Ok((i16::from(*precision), i16::from(*scale)))
        }
        other => plan_err!("{other} is no DECIMAL"),
    }
}

fn decimal(precision: i16, scale: i16) -> DataType {
    DataType::Decimal128(
        precision.clamp(1, DIGITS) as u8,
        scale.clamp(0, DIGITS) as i8,
    )
}

/// The type of `left / right`.
///
/// # Errors
/// If one of them is no DECIMAL.
pub fn quotient_type(left: &DataType, right: &DataType) -> Result<DataType> {
    let ((precision, left_scale), (_, right_scale)) = (digits(left)?, digits(right)?);
    let whole = precision - left_scale + right_scale;
    let scale = quotient_scale(left_scale.max(right_scale), whole);
    Ok(decimal(whole + scale, scale))
}

/// The type of the average of values of `data_type`.
///
/// # Errors
/// If it is no DECIMAL.
pub fn average_type(data_type: &DataType) -> Result<DataType> {
    let (precision, scale) = digits(data_type)?;
    let whole = precision - scale;
    let scale = quotient_scale(scale, whole);
    Ok(decimal(whole + scale, scale))
}

/// The digits after the point of a quotient with up to `whole` before it.
fn quotient_scale(of_operands: i16, whole: i16) -> i16 {
    let room = (DIGITS - whole).min(QUOTIENT_SCALE);
    (of_operands + MORE_DIGITS).max(room).min(DIGITS)
}

/// The type of `left * right`.
///
/// # Errors
/// If one of them is no DECIMAL.
pub fn product_type(left: &DataType, right: &DataType) -> Result<DataType> {
    let ((left_digits, left_scale), (right_digits, right_scale)) = (digits(left)?, digits(right)?);
    let (precision, scale) = (left_digits + right_digits + 1, left_scale + right_scale);
    let most = left_scale.max(right_scale).max(PRODUCT_SCALE);
    Ok(match precision > DIGITS && scale > most {
        true => decimal(DIGITS, most),
        false => decimal(precision, scale),
    })
}

/// `operation` of two columns, or of a column and a value, as a `result`.
pub(super) fn compute(
    operation: Operation,
    left: &Operand,
    right: &Operand,
    result: &DataType,
) -> Result<ArrayRef> {
    let (_, left_scale) = digits(left.0.data_type())?;
    let (_, right_scale) = digits(right.0.data_type())?;
    let (precision, scale) = digits(result)?;
    if operation == Operation::Divide {
        let shift = scale - left_scale + right_scale;
        let quotient = |left, right| quotient(left, right, shift, precision);
        return by_row(left, right, result, "/", quotient);
    }
    let cut = left_scale + right_scale - scale;
    if operation == Operation::Multiply && cut > 0 {
        let product = |left, right| product(left, right, cut, precision);
        return by_row(left, right, result, "*", product);
    }
    let factor = |of_operand: i16| match operation {
        Operation::Add | Operation::Subtract => {
            let shift = u32::try_from(scale - of_operand).ok();
            shift.and_then(|shift| 10_i128.checked_pow(shift))
        }
        _ => Some(1),
    };
    let computed = factor(left_scale).zip(factor(right_scale));
    let computed =
        computed.and_then(|factors| narrow::compute(operation, left, right, factors, result));
    if let Some(computed) = computed {
        return Ok(computed);
    }
    let (left, right) = (datum(left), datum(right));
    let (sign, computed) = match operation {
        Operation::Add => ("+", numeric::add(&*left, &*right)),
        Operation::Subtract => ("-", numeric::sub(&*left, &*right)),
        Operation::Multiply => ("*", numeric::mul(&*left, &*right)),
        other => return internal_err!("{other:?} of decimals"),
    };
    let what = || out_of_range(result, &operands(&*left, sign, &*right));
    let computed = computed.map_err(|error| match error {
        ArrowError::ArithmeticOverflow(_) => what(),
        other => other.into(),
    })?;
    // What has fewer digits fits: the type was made for it.
    if precision == DIGITS && !fits(computed.as_primitive()) {
        return Err(what());
    }
    Ok(computed)
}

/// Which types an operation is of that has failed.
fn operands(left: &dyn Datum, sign: &str, right: &dyn Datum) -> String {
    let name = |operand: &dyn Array| match operand.data_type() {
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        other => other.to_string(),
    };
    format!("{} {sign} {}", name(left.get().0), name(right.get().0))
}

/// Whether all values have 38 digits at most.
fn fits(values: &Decimal128Array) -> bool {
    let limit = 10_i128.pow(u32::from(DECIMAL128_MAX_PRECISION)) as u128;
    // The upper half of a number tells whether it may have more, quickly. NULL has any value.
    let upper = (limit >> 64) as u64;
    let may_be_outside = |value: &i128| ((value >> 64) as i64).unsigned_abs() >= upper;
    let values_seen = values.values().iter();
    let any = values_seen.fold(false, |any, value| any | may_be_outside(value));
    !any || !values
        .iter()
        .flatten()
        .any(|value| value.unsigned_abs() >= limit)
}

/// What `compute` makes of each row's values; `None` is out of range.
fn by_row(
    left: &Operand,
    right: &Operand,
    result: &DataType,
    sign: &str,
    compute: impl Fn(i128, i128) -> Result<Option<i128>, ArrowError>,
) -> Result<ArrayRef> {
    let compute = |left, right| match compute(left, right)? {
        Some(value) => Ok(value),
        None => Err(ArrowError::ArithmeticOverflow(String::new())),
    };
    let values = |operand: &Operand| operand.0.as_primitive::<Decimal128Type>().clone();
    let (lefts, rights) = (values(left), values(right));
    let computed = match (left.1, right.1) {
        (_, true) if rights.is_null(0) => Ok(Decimal128Array::new_null(lefts.len())),
        (_, true) => {
            let right = rights.value(0);
            lefts.try_unary(|left| compute(left, right))
        }
        (true, false) if lefts.is_null(0) => Ok(Decimal128Array::new_null(rights.len())),
        (true, false) => {
            let left = lefts.value(0);
            rights.try_unary(|right| compute(left, right))
        }
        (false, false) => try_binary(&lefts, &rights, compute),
    };
    let computed: Decimal128Array = computed.map_err(|error| match error {
        ArrowError::ArithmeticOverflow(_) => {
            out_of_range(result, &operands(&*datum(left), sign, &*datum(right)))
        }
        other => other.into(),
    })?;
    Ok(Arc::new(computed.with_data_type(result.clone())))
}

/// `left * 10^shift / right`, rounded.
fn quotient(
    left: i128,
    right: i128,
    shift: i16,
    precision: i16,
) -> Result<Option<i128>, ArrowError> {
    if right == 0 {
        return Err(ArrowError::DivideByZero);
    }
    Ok(shifted_quotient(left, right, shift).filter(|value| has_digits(*value, precision)))
}

fn shifted_quotient(left: i128, right: i128, shift: i16) -> Option<i128> {
    let shift = u32::try_from(shift).ok()?;
    let narrow = 10_i128.checked_pow(shift);
    match narrow.and_then(|power| left.checked_mul(power)) {
        Some(dividend) => rounded_quotient(dividend, right),
        None => {
            let power = i256::from_i128(10).checked_pow(shift)?;
            let dividend = i256::from_i128(left).checked_mul(power)?;
            rounded_wide(dividend, i256::from_i128(right))?.to_i128()
        }
    }
}

/// `left * right / 10^cut`, rounded.
fn product(left: i128, right: i128, cut: i16, precision: i16) -> Result<Option<i128>, ArrowError> {
    let cut = u32::try_from(cut).unwrap_or_default();
    let rounded = || {
        let product = i256::from_i128(left).checked_mul(i256::from_i128(right))?;
        rounded_wide(product, i256::from_i128(10).checked_pow(cut)?)?.to_i128()
    };
    Ok(rounded().filter(|value| has_digits(*value, precision)))
}

/// Whether `value` has `precision` digits at most.
pub(crate) fn has_digits(value: i128, precision: i16) -> bool {
    let limit = u32::try_from(precision).ok();
    let limit = limit.and_then(|precision| 10_u128.checked_pow(precision));
    limit.is_none_or(|limit| value.unsigned_abs() < limit)
}

/// `dividend / divisor`, rounded half away from zero; `None` if it does not fit, or the divisor is zero.
pub(crate) fn rounded_quotient(dividend: i128, divisor: i128) -> Option<i128> {
    let (quotient, rest) = (
        dividend.checked_div(divisor)?,
        dividend.checked_rem(divisor)?,
    );
    let (rest, whole) = (rest.unsigned_abs(), divisor.unsigned_abs());
    match rest >= whole - rest {
        true if (dividend < 0) == (divisor < 0) => quotient.checked_add(1),
        true => quotient.checked_sub(1),
        false => Some(quotient),
    }
}

/// The same of numbers with up to 76 digits.
pub(crate) fn rounded_wide(dividend: i256, divisor: i256) -> Option<i256> {
    let (quotient, rest) = (
        dividend.checked_div(divisor)?,
        dividend.checked_rem(divisor)?,
    );
    let negative = |value: i256| value < i256::ZERO;
    // Neither is the least number of its type.
    let (rest, whole) = (rest.wrapping_abs(), divisor.wrapping_abs());
    match rest >= whole.wrapping_sub(rest) {
        true if negative(dividend) == negative(divisor) => quotient.checked_add(i256::ONE),
        true => quotient.checked_sub(i256::ONE),
        false => Some(quotient),
    }
}

/// `-a`. The least number has as many digits as the greatest.
pub(super) fn negated(operand: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    let values = operand.as_primitive::<Decimal128Type>();
    let negated: Decimal128Array = values.unary(i128::wrapping_neg);
    Ok(Arc::new(negated.with_data_type(result.clone())))
}
