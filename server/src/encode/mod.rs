//! Arrow values as PostgreSQL's.
//!
//! * [`types`]: which PostgreSQL type a column has
//! * [`text`], [`binary`]: values in the two formats
//! * [`numeric`]: decimals in binary

mod binary;
mod numeric;
pub(crate) mod text;
pub(crate) mod types;

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationNanosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use pgwire::messages::data::DataRow;

pub(crate) use self::binary::{EPOCH_DAYS, EPOCH_MICROS};
pub(crate) use self::numeric::read as read_numeric;
use self::types::PgType;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

/// Appends the value of a row, which is not NULL.
type Writer = Box<dyn Fn(usize, &mut BytesMut) + Send + Sync>;

/// A column of a batch, ready to be written.
pub(crate) struct Column {
    array: ArrayRef,
    writer: Writer,
}

impl Column {
    pub(crate) fn new(array: &ArrayRef, format: Format) -> Result<Self, ArrowError> {
        let array = canonical(array)?;
        let kind = PgType::of_type(array.data_type());
        let writer = match format {
            Format::Text => text::writer(&array)?,
            Format::Binary => binary::writer(&array, kind)?,
        };
        Ok(Self { array, writer })
    }

    /// Appends the value, if there is one.
    pub(crate) fn write(&self, row: usize, out: &mut BytesMut) -> bool {
        let is_value = self.array.is_valid(row);
        if is_value {
            (self.writer)(row, out);
        }
        is_value
    }
}

/// The columns of a batch, ready to be written as rows.
pub(crate) struct Rows {
    columns: Vec<Column>,
    rows: usize,
    next: usize,
    buffer: BytesMut,
}

impl Rows {
    /// `formats` has one format for each column.
    pub(crate) fn new(batch: &RecordBatch, formats: &[Format]) -> Result<Self, ArrowError> {
        let columns = batch.columns().iter().zip(formats);
        let columns = columns.map(|(column, format)| Column::new(column, *format));
        Ok(Self {
            columns: columns.collect::<Result<_, _>>()?,
            rows: batch.num_rows(),
            next: 0,
            buffer: BytesMut::new(),
        })
    }
}

impl Iterator for Rows {
    type Item = DataRow;

    fn next(&mut self) -> Option<DataRow> {
        let row = self.next;
        if row >= self.rows {
            return None;
        }
        self.next += 1;
        for column in &self.columns {
            with_length(&mut self.buffer, |out| column.write(row, out));
        }
        // Planning refuses more columns than an i16 can count long before.
        let fields = i16::try_from(self.columns.len()).unwrap_or(i16::MAX);
        Some(DataRow::new(self.buffer.split(), fields))
    }
}

/// Appends what `write` appends after its length in bytes; −1 if `write` says that it is NULL.
fn with_length(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> bool) {
    let start = out.len();
    out.put_i32(-1);
    if write(out) {
        let length = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// The same values in one of the few types that there are writers for.
fn canonical(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if let DataType::Duration(_) = array.data_type() {
        return days_and_time(array);
    }
    match canonical_type(array.data_type()) {
        Some(data_type) if &data_type == array.data_type() => Ok(Arc::clone(array)),
        Some(data_type) => cast(array, &data_type),
        None => as_text(array),
    }
}

/// Differences of timestamps as PostgreSQL has them: days, and what is left of a day.
fn days_and_time(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    const DAY: i64 = 86_400_000_000_000;
    let nanos = cast(array, &DataType::Duration(TimeUnit::Nanosecond))?;
    let nanos = nanos.as_primitive::<DurationNanosecondType>();
    let intervals = nanos.unary::<_, IntervalMonthDayNanoType>(|nanos| {
        let days = i32::try_from(nanos / DAY).unwrap_or_default();
        IntervalMonthDayNano::new(0, days, nanos % DAY)
    });
    Ok(Arc::new(intervals))
}

/// `None` where only the value's text is left.
fn canonical_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Null | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(zone)) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(zone)))
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            DataType::Interval(IntervalUnit::MonthDayNano)
        }
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Dictionary(_, value) => canonical_type(value)?,
        DataType::RunEndEncoded(_, value) => canonical_type(value.data_type())?,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => {
            let inner = match item.data_type() {
                // A list of oids.
                DataType::UInt32 => DataType::UInt32,
                other => canonical_type(other)?,
            };
            if matches!(inner, DataType::List(_)) {
                return None;
            }
            let item = item.as_ref().clone().with_data_type(inner);
            DataType::List(Arc::new(item.with_nullable(true)))
        }
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32 => data_type.clone(),
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => return None,
    })
}

fn as_text(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    use datafusion::arrow::array::StringBuilder;
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let mut builder = StringBuilder::new();
    for row in 0..array.len() {
        match array.is_valid(row) {
            true => builder.append_value(formatter.value(row).try_to_string()?),
            false => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}
