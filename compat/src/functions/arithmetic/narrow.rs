//! Operations on decimals that cannot leave the range, which no row has to check.
//!
//! Arrow checks each product of two numbers of 128 bits, which takes several multiplications, and multiplies both
//! operands of a sum by powers of ten in the same way. A column's numbers are mostly small: one look at all of them
//! tells that no result needs more than 126 bits, and often that the operands fit into 64.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type};

use super::{Operand, Operation};

/// Results of so many bits have 38 digits at most: 2^126 is less than 10^38.
const BITS: u32 = 126;

/// Operands of so many bits fit into an `i64`, and so does their sum.
const NARROW_BITS: u32 = 62;

/// `operation` of operands that are multiplied by `factors` first. `None` if a result might be out of range, or the
/// operation is another one than a sum, a difference or a product.
pub(super) fn compute(
    operation: Operation,
    left: &Operand,
    right: &Operand,
    factors: (i128, i128),
    result: &DataType,
) -> Option<ArrayRef> {
    let (lefts, rights) = (
        left.0.as_primitive_opt::<Decimal128Type>()?,
        right.0.as_primitive_opt()?,
    );
    let is_of_all_rows = |operand: &Operand| operand.1 && operand.0.is_valid(0);
    if (left.1 && !is_of_all_rows(left)) || (right.1 && !is_of_all_rows(right)) {
        return None;
    }
    if !left.1 && !right.1 && lefts.len() != rights.len() {
        return None;
    }
    let width = |values: &Decimal128Array, factor: i128| bits(values.values()) + bits(&[factor]);
    let (of_left, of_right) = (width(lefts, factors.0), width(rights, factors.1));
    let is_narrow = of_left <= NARROW_BITS && of_right <= NARROW_BITS;
    let each = Each { left, right };
    let (first, second) = factors;
    let (narrow_first, narrow_second) = (first as i64, second as i64);
    let values = match operation {
        Operation::Add if is_narrow => each.narrow(lefts, rights, |left, right| {
            i128::from(left * narrow_first + right * narrow_second)
        }),
        Operation::Subtract if is_narrow => each.narrow(lefts, rights, |left, right| {
            i128::from(left * narrow_first - right * narrow_second)
        }),
        Operation::Multiply if is_narrow => each.narrow(lefts, rights, |left, right| {
            i128::from(left) * i128::from(right)
        }),
        Operation::Add if of_left.max(of_right) < BITS => {
            each.wide(lefts, rights, |left, right| left * first + right * second)
        }
        Operation::Subtract if of_left.max(of_right) < BITS => {
            each.wide(lefts, rights, |left, right| left * first - right * second)
        }
        Operation::Multiply if of_left + of_right <= BITS => {
            each.wide(lefts, rights, |left, right| left * right)
        }
        _ => return None,
    };
    let nulls = |operand: &Operand| operand.0.nulls().filter(|_| !operand.1).cloned();
    let nulls = NullBuffer::union(nulls(left).as_ref(), nulls(right).as_ref());
    let computed = Decimal128Array::new(values.into(), nulls);
    Some(Arc::new(computed.with_data_type(result.clone())))
}

/// How many bits the largest value takes without its sign: none is more than two to this power. NULL counts as the
/// value that its place has.
pub(crate) fn bits(values: &[i128]) -> u32 {
    let (mut upper, mut lower) = (0, 0);
    for value in values {
        let sign = value >> 127;
        upper |= ((value ^ sign) >> 64) as u64;
        lower |= (value ^ sign) as u64;
    }
    match upper {
        0 => u64::BITS - lower.leading_zeros(),
        upper => i128::BITS - upper.leading_zeros(),
    }
}

/// Two operands, of which each has a value a row, or one for all.
struct Each<'a> {
    left: &'a Operand,
    right: &'a Operand,
}

impl Each<'_> {
    /// What `compute` makes of the rows' values, which fit into 64 bits.
    fn narrow(
        &self,
        lefts: &Decimal128Array,
        rights: &Decimal128Array,
        compute: impl Fn(i64, i64) -> i128,
    ) -> Vec<i128> {
        self.wide(lefts, rights, |left, right| {
            compute(left as i64, right as i64)
        })
    }

    fn wide(
        &self,
        lefts: &Decimal128Array,
        rights: &Decimal128Array,
        compute: impl Fn(i128, i128) -> i128,
    ) -> Vec<i128> {
        let (lefts, rights) = (lefts.values(), rights.values());
        match (self.left.1, self.right.1) {
            (true, _) => {
                let left = lefts[0];
                rights.iter().map(|right| compute(left, *right)).collect()
            }
            (false, true) => {
                let right = rights[0];
                lefts.iter().map(|left| compute(*left, right)).collect()
            }
            (false, false) => {
                let pairs = lefts.iter().zip(rights.iter());
                pairs.map(|(left, right)| compute(*left, *right)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::compute::kernels::numeric;

    use super::*;

    fn column(values: &[Option<i128>], precision: u8, scale: i8) -> Operand {
        let values: Decimal128Array = values.iter().copied().collect();
        let values = values.with_precision_and_scale(precision, scale).unwrap();
        (Arc::new(values), false)
    }

    /// Numbers of few bits and of many, with NULLs.
    fn columns() -> Vec<Operand> {
        let wide = 10_i128.pow(30);
        vec![
            column(&[Some(1), Some(-1), None, Some(0)], 15, 2),
            column(
                &[
                    Some(i128::from(i64::MAX)),
                    Some(i128::from(i64::MIN)),
                    None,
                    Some(7),
                ],
                20,
                2,
            ),
            column(
                &[Some(1 << 61), Some(-(1 << 62)), Some((1 << 62) - 1), None],
                19,
                0,
            ),
            column(&[Some(wide), Some(-wide), Some(3), Some(-3)], 31, 4),
        ]
    }

    #[test]
    fn results_are_those_of_checked_operations() {
        let mut computed = 0;
        for left in columns() {
            for right in columns() {
                let one = (right.0.slice(0, 1), true);
                for (left, right) in [(&left, &right), (&left, &one), (&one, &left)] {
                    let expected = expected(left, right);
                    for (operation, expected, factors) in expected {
                        let result = expected.data_type();
                        if let Some(own) = compute(operation, left, right, factors, result) {
                            assert_eq!(&own, &expected, "{operation:?}");
                            computed += 1;
                        }
                    }
                }
            }
        }
        // Whatever fits into 126 bits.
        assert!(computed > 100, "{computed}");
    }

    /// What Arrow computes, as far as it does, and by what the operands are multiplied.
    fn expected(left: &Operand, right: &Operand) -> Vec<(Operation, ArrayRef, (i128, i128))> {
        let (first, second) = (
            super::super::integers::datum(left),
            super::super::integers::datum(right),
        );
        let scale = |operand: &Operand| match operand.0.data_type() {
            DataType::Decimal128(_, scale) => *scale as u32,
            other => panic!("{other} is no decimal"),
        };
        let most = scale(left).max(scale(right));
        let factors = (
            10_i128.pow(most - scale(left)),
            10_i128.pow(most - scale(right)),
        );
        let all = [
            (Operation::Add, numeric::add(&*first, &*second), factors),
            (
                Operation::Subtract,
                numeric::sub(&*first, &*second),
                factors,
            ),
            (Operation::Multiply, numeric::mul(&*first, &*second), (1, 1)),
        ];
        let all = all.into_iter();
        all.filter_map(|(operation, computed, factors)| Some((operation, computed.ok()?, factors)))
            .collect()
    }

    #[test]
    fn no_value_has_more_bits_than_are_counted() {
        assert_eq!(bits(&[]), 0);
        assert_eq!(bits(&[0, -1]), 0);
        assert_eq!(bits(&[1, -2]), 1);
        assert_eq!(bits(&[-(1 << 70), 5]), 70);
        assert_eq!(bits(&[1 << 70]), 71);
        assert_eq!(bits(&[i128::MIN]), 127);
    }
}
