//! Sums that may leave the range of their type.

use datafusion::arrow::array::{Array, PrimitiveArray};
use datafusion::arrow::datatypes::{ArrowNativeTypeOp, ArrowPrimitiveType, i256};

use crate::functions::arithmetic::narrow;

/// Numbers that are added up.
pub trait Number: ArrowNativeTypeOp + std::hash::Hash + Eq {
    /// `self + other` modulo the range, and how often the true sum is beyond it: -1, 0 or 1.
    fn plus(self, other: Self) -> (Self, i64);

    /// `self - other` in the same way.
    fn minus(self, other: Self) -> (Self, i64);

    /// The same number with the bits of a decimal.
    fn wider(self) -> i128;

    /// How many bits the largest of `values` takes without its sign.
    fn bits(values: &[Self]) -> u32;

    /// The same number, which fits into an `i64`.
    fn narrow(self) -> i64;

    /// The same number, which fits into this type.
    fn of_narrow(value: i64) -> Self;

    /// The sum of `values`.
    fn total(values: &[Self]) -> Wide<Self> {
        let mut total = Wide::default();
        for value in values {
            total.add(*value);
        }
        total
    }
}

impl Number for i64 {
    fn bits(values: &[Self]) -> u32 {
        let all = values
            .iter()
            .fold(0, |all, value| all | (value ^ (value >> 63)));
        u64::BITS - all.leading_zeros()
    }

    #[inline]
    fn narrow(self) -> i64 {
        self
    }

    fn of_narrow(value: i64) -> Self {
        value
    }

    fn wider(self) -> i128 {
        i128::from(self)
    }

    #[inline]
    fn plus(self, other: Self) -> (Self, i64) {
        let (sum, overflows) = self.overflowing_add(other);
        (sum, if overflows { other.signum() } else { 0 })
    }

    #[inline]
    fn minus(self, other: Self) -> (Self, i64) {
        let (difference, overflows) = self.overflowing_sub(other);
        (difference, if overflows { -other.signum() } else { 0 })
    }

    /// Adds up the upper and the lower halves of the numbers, which processors do for several at once.
    fn total(values: &[Self]) -> Wide<Self> {
        let mut total = 0_i128;
        // So many halves fit into 64 bits.
        for values in values.chunks(1 << 30) {
            let (mut upper, mut lower) = (0_i64, 0_i64);
            for value in values {
                upper += value >> 32;
                lower += value & 0xffff_ffff;
            }
            total += (i128::from(upper) << 32) + i128::from(lower);
        }
        let low = total as i64;
        let carry = (total - i128::from(low)) >> 64;
        Wide {
            low,
            carry: carry as i64,
        }
    }
}

impl Number for u64 {
    fn bits(values: &[Self]) -> u32 {
        let all = values.iter().fold(0, |all, value| all | value);
        u64::BITS - all.leading_zeros()
    }

    #[inline]
    fn narrow(self) -> i64 {
        self as i64
    }

    fn of_narrow(value: i64) -> Self {
        value as u64
    }

    fn wider(self) -> i128 {
        i128::from(self)
    }

    #[inline]
    fn plus(self, other: Self) -> (Self, i64) {
        let (sum, overflows) = self.overflowing_add(other);
        (sum, i64::from(overflows))
    }

    #[inline]
    fn minus(self, other: Self) -> (Self, i64) {
        let (difference, overflows) = self.overflowing_sub(other);
        (difference, -i64::from(overflows))
    }
}

impl Number for i128 {
    fn bits(values: &[Self]) -> u32 {
        narrow::bits(values)
    }

    #[inline]
    fn narrow(self) -> i64 {
        self as i64
    }

    fn of_narrow(value: i64) -> Self {
        i128::from(value)
    }

    fn wider(self) -> i128 {
        self
    }

    #[inline]
    fn plus(self, other: Self) -> (Self, i64) {
        let (sum, overflows) = self.overflowing_add(other);
        (sum, if overflows { other.signum() as i64 } else { 0 })
    }

    #[inline]
    fn minus(self, other: Self) -> (Self, i64) {
        let (difference, overflows) = self.overflowing_sub(other);
        (
            difference,
            if overflows { -other.signum() as i64 } else { 0 },
        )
    }
}

/// A sum: `low`, and `carry` times the number of values that its type has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wide<N> {
    /// The sum modulo the range of its type.
    pub low: N,
    /// How often the sum is beyond that range.
    pub carry: i64,
}

impl<N: Number> Wide<N> {
    /// Adds `value`.
    #[inline]
    pub fn add(&mut self, value: N) {
        self.add_wide(Self {
            low: value,
            carry: 0,
        });
    }

    /// Adds another sum.
    #[inline]
    pub fn add_wide(&mut self, other: Self) {
        let (low, carry) = self.low.plus(other.low);
        self.low = low;
        self.carry += carry + other.carry;
    }

    /// Takes another sum away.
    #[inline]
    pub fn subtract_wide(&mut self, other: Self) {
        let (low, carry) = self.low.minus(other.low);
        self.low = low;
        self.carry += carry - other.carry;
    }

    /// The sum, if it is in the range of its type.
    pub fn get(self) -> Option<N> {
        (self.carry == 0).then_some(self.low)
    }

    /// The sum of the values that are not NULL.
    pub fn of_values<T: ArrowPrimitiveType<Native = N>>(values: &PrimitiveArray<T>) -> Self {
        match values.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => N::total(values.values()),
            Some(nulls) => {
                let mut total = Self::default();
                for (value, is_valid) in values.values().iter().zip(nulls.iter()) {
                    total.add(if is_valid { *value } else { N::default() });
                }
                total
            }
        }
    }
}

impl Wide<i128> {
    /// The sum as a number of twice as many bits.
    pub fn in_full(self) -> i256 {
        let carry = i256::from_parts(0, i128::from(self.carry));
        i256::from_i128(self.low).wrapping_add(carry)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    #[test]
    fn a_sum_may_leave_the_range_and_come_back() {
        let mut sum = Wide::of_values(&Int64Array::from(vec![i64::MAX, 1, i64::MAX]));
        assert_eq!(sum.get(), None);
        sum.add(-2);
        assert_eq!(sum.get(), None);
        sum.subtract_wide(Wide::of_values(&Int64Array::from(vec![i64::MAX, i64::MAX])));
        assert_eq!(sum.get(), Some(-1));
        let mut below = Wide::of_values(&Int64Array::from(vec![
            Some(i64::MIN),
            None,
            Some(i64::MIN),
        ]));
        assert_eq!(below.get(), None);
        below.add(i64::MAX);
        below.add(2);
        assert_eq!(below.get(), Some(1 + i64::MIN));
    }

    #[test]
    fn totals_are_those_of_adding_one_by_one() {
        let values: Vec<i64> = (0..999_i64)
            .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64))
            .collect();
        let mut expected = Wide::default();
        for value in &values {
            expected.add(*value);
        }
        assert_eq!(i64::total(&values), expected);
        let unsigned = u64::total(&[u64::MAX, u64::MAX, 1]);
        assert_eq!((unsigned.low, unsigned.carry), (u64::MAX, 1));
    }

    #[test]
    fn sums_of_decimals_have_more_bits_where_they_need_them() {
        let mut sum = Wide::default();
        for _ in 0..4 {
            sum.add(i128::MAX);
        }
        assert_eq!(sum.get(), None);
        let expected = i256::from_i128(i128::MAX).wrapping_mul(i256::from_i128(4));
        assert_eq!(sum.in_full(), expected);
        sum.subtract_wide(sum);
        assert_eq!(sum.in_full(), i256::ZERO);
    }
}
