//! What the first step of an aggregation hands to the second: the ids of groups and, where not all
//! records are traced, by which numbers the groups were chosen.
//!
//! Both are one column: between the steps are operators that copy every column in small pieces, for
//! each of which a column costs more than its bytes.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type};
use datafusion::common::{Result, ScalarValue, internal_err};

use crate::traced_groups::NONE;

/// A type of 16 bytes that operators move as a number. These are none: the id is the upper half, what
/// the group was chosen by the lower one.
const WIDTH: (u8, i8) = (38, 0);

/// The type of the column where not all records are traced.
pub(super) const CHOSEN: DataType = DataType::Decimal128(WIDTH.0, WIDTH.1);

/// Groups and the least numbers that they were chosen by, [`NONE`] if they are not traced.
pub(super) fn column(ids: Range<i64>, chosen_by: &[u64]) -> ArrayRef {
    debug_assert_eq!((ids.end - ids.start) as usize, chosen_by.len());
    let both = ids.zip(chosen_by).map(|(id, number)| joined(id, *number));
    Arc::new(Decimal128Array::from_iter_values(both).with_data_type(CHOSEN))
}

/// The same of one group.
pub(super) fn scalar(id: i64, chosen_by: u64) -> ScalarValue {
    ScalarValue::Decimal128(Some(joined(id, chosen_by)), WIDTH.0, WIDTH.1)
}

/// The ids of a [`column`], NULL of those that are not traced, and the numbers.
pub(super) fn read(column: &ArrayRef) -> Result<(Int64Array, Vec<u64>)> {
    let Some(column) = column.as_primitive_opt::<Decimal128Type>() else {
        return internal_err!("lineage_capture: a state is {}", column.data_type());
    };
    if column.null_count() > 0 {
        return internal_err!("lineage_capture: a state is NULL");
    }
    let both = column.values().iter();
    let (ids, chosen_by): (Vec<i64>, Vec<u64>) =
        both.map(|both| ((both >> 64) as i64, *both as u64)).unzip();
    let ids = Int64Array::new(ids.into(), traced(&chosen_by));
    Ok((ids, chosen_by))
}

/// Which of the groups are traced.
pub(super) fn traced(chosen_by: &[u64]) -> Option<NullBuffer> {
    let traced = chosen_by.iter().map(|number| *number != NONE);
    Some(traced.collect::<NullBuffer>()).filter(|traced| traced.null_count() > 0)
}

fn joined(id: i64, number: u64) -> i128 {
    i128::from(id) << 64 | i128::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers_come_out_as_they_went_in() {
        let numbers = [0, NONE, NONE - 1, 1 << 63, 7];
        for first in [0, i64::MIN, -3, i64::MAX - 5] {
            let ids = first..first + 5;
            let column = column(ids.clone(), &numbers);
            assert_eq!((column.data_type(), column.null_count()), (&CHOSEN, 0));
            let (read_ids, read_numbers) = read(&column).unwrap();
            let traced = ids.zip(numbers).map(|(id, n)| (n != NONE).then_some(id));
            assert_eq!(read_ids, traced.collect::<Int64Array>());
            assert_eq!(read_numbers, numbers);
            let second = ScalarValue::try_from_array(&column, 1).unwrap();
            assert_eq!(second, scalar(first + 1, NONE));
        }
        assert_eq!(traced(&[1, 2]), None);
        let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(read(&other).is_err());
        let null: ArrayRef = Arc::new(Decimal128Array::from(vec![None]));
        assert!(read(&null).is_err());
    }
}
