//! Values in binary.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType, UInt32Type,
};
use datafusion::arrow::error::ArrowError;

use pgwire::api::Type;

use super::types::PgType;
use super::{Column, Format, Writer, numeric, text, with_length};

/// Days from 1970 to 2000, where PostgreSQL counts from.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = 86_400_000_000 * EPOCH_DAYS as i64;

/// Writes the values of a canonical array.
pub(super) fn writer(array: &ArrayRef, kind: PgType) -> Result<Writer, ArrowError> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().clone();
            Box::new(move |row, out| out.put_u8(values.value(row).into()))
        }
        DataType::Int16 => {
            let values = array.as_primitive::<Int16Type>().clone();
            Box::new(move |row, out| out.put_i16(values.value(row)))
        }
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>().clone();
            Box::new(move |row, out| out.put_i32(values.value(row)))
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>().clone();
            Box::new(move |row, out| out.put_i64(values.value(row)))
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().clone();
            Box::new(move |row, out| out.put_f32(values.value(row)))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().clone();
            Box::new(move |row, out| out.put_f64(values.value(row)))
        }
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>().clone();
            Box::new(move |row, out| numeric::write(&values.value_as_string(row), out))
        }
        DataType::Decimal256(..) => {
            let values = array.as_primitive::<Decimal256Type>().clone();
            Box::new(move |row, out| numeric::write(&values.value_as_string(row), out))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>().clone();
            Box::new(move |row, out| out.put_slice(values.value(row)))
        }
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row, out| out.put_i32(values.value(row).saturating_sub(EPOCH_DAYS)))
        }
        DataType::Time64(_) => {
            let values = array.as_primitive::<Time64MicrosecondType>().clone();
            Box::new(move |row, out| out.put_i64(values.value(row)))
        }
        DataType::Timestamp(..) => {
            let values = array.as_primitive::<TimestampMicrosecondType>().clone();
            Box::new(move |row, out| out.put_i64(values.value(row).saturating_sub(EPOCH_MICROS)))
        }
        DataType::Interval(_) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row, out| {
                let value = values.value(row);
                out.put_i64(value.nanoseconds / 1_000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            })
        }
        DataType::List(item) if item.data_type() == &DataType::UInt32 => {
            let lists = array.as_list::<i32>().clone();
            let oids = lists.values().as_primitive::<UInt32Type>().clone();
            let values = Column {
                array: Arc::clone(lists.values()),
                writer: Box::new(move |row, out| out.put_u32(oids.value(row))),
            };
            Box::new(move |row, out| {
                let range = lists.value_offsets();
                let range = range[row] as usize..range[row + 1] as usize;
                write_list(&values, range, Type::OID.oid(), out);
            })
        }
        DataType::List(item) => {
            let item = PgType::of_type(item.data_type()).kind.oid();
            let lists = array.as_list::<i32>().clone();
            let values = Column::new(lists.values(), Format::Binary)?;
            Box::new(move |row, out| {
                let range = lists.value_offsets();
                let range = range[row] as usize..range[row + 1] as usize;
                write_list(&values, range, item, out);
            })
        }
        _ => {
            debug_assert_eq!(kind.size(), -1);
            text::writer(&Arc::clone(array))?
        }
    })
}

/// One dimension, counted from 1; none if there is no element.
fn write_list(values: &Column, range: std::ops::Range<usize>, item: u32, out: &mut BytesMut) {
    out.put_i32(i32::from(!range.is_empty()));
    let has_nulls = range.clone().any(|row| values.array.is_null(row));
    out.put_i32(has_nulls.into());
    out.put_u32(item);
    if range.is_empty() {
        return;
    }
    out.put_i32(i32::try_from(range.len()).unwrap_or(i32::MAX));
    out.put_i32(1);
    for row in range {
        with_length(out, |out| values.write(row, out));
    }
}
