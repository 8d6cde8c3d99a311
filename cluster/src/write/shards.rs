//! The hash that divides the rows of a table among its owners.
//!
//! It is part of what is stored: a segment says which shard its rows belong to. Integers that are
//! equal have the same hash whatever their width.

use std::hash::Hasher;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, plan_err};
use twox_hash::XxHash64;

/// How the values of a column are hashed.
fn hashed_as(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => DataType::Int64,
        // They do not fit 8 bytes with a sign: by their text.
        DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => DataType::Utf8,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Date32 => DataType::Date32,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()),
        _ => return None,
    })
}

/// Whether rows can be divided by columns of a type.
pub fn has_hash(data_type: &DataType) -> bool {
    hashed_as(data_type).is_some()
}

/// Values of types for which this is the same, and not `None`, have the same hash if they are
/// equal.
pub(crate) fn hashed_alike(data_type: &DataType) -> Option<DataType> {
    match data_type {
        // The text of equal numbers depends on the type.
        DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            Some(data_type.clone())
        }
        other => hashed_as(other),
    }
}

/// The shard of each row, of `of` shards, by the values of its keys.
///
/// # Errors
/// If a column cannot be hashed.
pub fn shards(keys: &[ArrayRef], of: u32) -> Result<Vec<u32>> {
    let rows = keys.first().map_or(0, |key| key.len());
    let mut hashers = vec![XxHash64::with_seed(0); rows];
    for key in keys {
        add(key, &mut hashers)?;
    }
    let shard = |hasher: XxHash64| (hasher.finish() % u64::from(of.max(1))) as u32;
    Ok(hashers.into_iter().map(shard).collect())
}

/// Adds a column: each value with its length, NULL as a length that no value has.
fn add(column: &ArrayRef, hashers: &mut [XxHash64]) -> Result<()> {
    let Some(data_type) = hashed_as(column.data_type()) else {
        return plan_err!("{} has no hash", column.data_type());
    };
    let column = match data_type {
        // Nanoseconds, as they are.
        DataType::Timestamp(..) => cast(&cast(column, &data_type)?, &DataType::Int64)?,
        DataType::Date32 => cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(column, &data_type)?,
    };
    let value = |hasher: &mut XxHash64, bytes: &[u8]| {
        hasher.write(&(bytes.len() as u64).to_le_bytes());
        hasher.write(bytes);
    };
    for (row, hasher) in hashers.iter_mut().enumerate() {
        if column.is_null(row) {
            hasher.write(&u64::MAX.to_le_bytes());
            continue;
        }
        match column.data_type() {
            DataType::Int64 => {
                let number = column.as_primitive::<Int64Type>().value(row);
                value(hasher, &number.to_le_bytes());
            }
            DataType::Float64 => {
                let number = column.as_primitive::<Float64Type>().value(row);
                // -0 equals 0, and there is one NaN.
                let number = match number {
                    0.0 => 0.0,
                    nan if nan.is_nan() => f64::NAN,
                    other => other,
                };
                value(hasher, &number.to_bits().to_le_bytes());
            }
            DataType::Utf8 => value(hasher, column.as_string::<i32>().value(row).as_bytes()),
            _ => value(hasher, column.as_binary::<i32>().value(row)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray, StringViewArray,
    };

    use super::*;

    #[test]
    fn shards_are_the_same_in_every_version() {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter([
            Some(0),
            Some(1),
            Some(-1),
            Some(1 << 40),
            None,
        ]));
        let names: ArrayRef = Arc::new(StringArray::from_iter([
            Some(""),
            Some("a"),
            Some("Skewer"),
            None,
            None,
        ]));
        // What segments say of themselves depends on these numbers.
        let of = |keys: &[ArrayRef]| shards(keys, 1000).unwrap();
        assert_eq!(of(&[Arc::clone(&ids)]), [765, 50, 202, 620, 761]);
        assert_eq!(of(&[Arc::clone(&names)]), [579, 11, 788, 761, 761]);
        assert_eq!(of(&[ids, names]), [8, 689, 574, 70, 28]);
    }

    #[test]
    fn equal_values_have_equal_shards_in_any_representation() {
        let same = |a: ArrayRef, b: ArrayRef| {
            assert_eq!(
                shards(&[a], 1 << 30).unwrap(),
                shards(&[b], 1 << 30).unwrap()
            );
        };
        same(
            Arc::new(Int32Array::from(vec![1, -7, 40])),
            Arc::new(Int64Array::from(vec![1, -7, 40])),
        );
        same(
            Arc::new(StringArray::from(vec!["a", "a string that is longer"])),
            Arc::new(StringViewArray::from(vec!["a", "a string that is longer"])),
        );
        same(
            Arc::new(Float64Array::from(vec![0.0, f64::NAN])),
            Arc::new(Float64Array::from(vec![-0.0, -f64::NAN])),
        );
        let decimal = |value, scale| {
            Arc::new(
                Decimal128Array::from(vec![value])
                    .with_precision_and_scale(20, scale)
                    .unwrap(),
            )
        };
        assert_eq!(shards(&[decimal(150, 2)], 9).unwrap().len(), 1);
    }

    #[test]
    fn rows_are_divided_evenly() {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..30_000));
        let mut counts = [0; 3];
        for shard in shards(&[ids], 3).unwrap() {
            counts[shard as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)));
    }
}
