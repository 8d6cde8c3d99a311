//! PostgreSQL's values as Arrow's: what a client needs that shows Arrow batches.

use datafusion::arrow::array::{ArrayRef, new_empty_array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use pgwire::api::Type;

use crate::decode;
use crate::encode::Format;

/// A value that a server has sent cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the server's answer cannot be read: {0}")]
pub struct Unreadable(String);

/// The Arrow type of a column; text where there is none, or its digits are not known.
pub fn data_type(kind: &Type, modifier: i32) -> DataType {
    if let postgres_types::Kind::Array(item) = kind.kind() {
        return DataType::new_list(data_type(item, modifier), true);
    }
    if *kind == Type::NUMERIC && modifier >= 4 {
        let packed = modifier - 4;
        let precision = u8::try_from(packed >> 16).unwrap_or(u8::MAX);
        let scale = i8::try_from(packed & 0xFFFF).unwrap_or(i8::MAX);
        return match precision {
            ..=38 => DataType::Decimal128(precision, scale),
            _ => DataType::Decimal256(precision, scale),
        };
    }
    decode::arrow_type(kind).unwrap_or(DataType::Utf8)
}

/// The values of a column as they come in binary; `None` is NULL.
///
/// # Errors
/// If the bytes are no values of the type.
pub fn array<'a>(
    values: impl Iterator<Item = Option<&'a [u8]>>,
    kind: &Type,
    wanted: &DataType,
) -> Result<ArrayRef, Unreadable> {
    let unreadable =
        |error: datafusion::common::DataFusionError| Unreadable(error.strip_backtrace());
    let values = values.map(|bytes| match bytes {
        None => ScalarValue::try_from(wanted).map_err(unreadable),
        Some(bytes) => decode::value(bytes, kind, Format::Binary, "UTC")
            .map_err(|error| Unreadable(error.message))?
            .cast_to(wanted)
            .map_err(unreadable),
    });
    let values = values.collect::<Result<Vec<_>, _>>()?;
    if values.is_empty() {
        return Ok(new_empty_array(wanted));
    }
    ScalarValue::iter_to_array(values).map_err(unreadable)
}
