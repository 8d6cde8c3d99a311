//! Values of parameters, in text and in binary.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;
use pgwire::api::Type;
use skewer::{Item, read_array, read_time};

use crate::encode::Format;
use crate::encode::types::PgType;
use crate::encode::{EPOCH_DAYS, EPOCH_MICROS, read_numeric};
use crate::error::SqlError;

/// Digits that a decimal can have.
const DIGITS_128: usize = 38;
const DIGITS_256: usize = 76;

/// The Arrow type of parameters that a client declares; `None` where the statement should tell.
pub(crate) fn arrow_type(kind: &Type) -> Option<DataType> {
    Some(match *kind {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UUID => {
            DataType::Utf8
        }
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(TimeUnit::Nanosecond),
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        Type::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => {
            let item = arrow_type(item_type(kind)?)?;
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
    })
}

/// One value as the client sent it; a time without zone is one of `zone`.
///
/// # Errors
/// 22P02 and 22P03 for bytes that are no such value.
pub(crate) fn value(
    bytes: &[u8],
    kind: &Type,
    format: Format,
    zone: &str,
) -> Result<ScalarValue, SqlError> {
    match format {
        Format::Text => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| SqlError::new("22021", "a parameter's text is not UTF-8"))?;
            from_text(text, kind, zone)
        }
        Format::Binary => from_binary(bytes, kind),
    }
}

fn malformed(text: &str, kind: &Type) -> SqlError {
    let shown: String = text.chars().take(60).collect();
    SqlError::new("22P02", format!("'{shown}' is not a value of type {kind}"))
}

fn from_text(text: &str, kind: &Type, zone: &str) -> Result<ScalarValue, SqlError> {
    if let Some(element) = item_type(kind) {
        let array = read_array(text).map_err(|why| {
            let mut error = malformed(text, kind);
            error.message = format!("{}: {why}", error.message);
            error
        })?;
        return from_item(array, element, zone);
    }
    let bad = || malformed(text, kind);
    Ok(match *kind {
        Type::TIMESTAMP => {
            let micros = read_time(text, None, TimeUnit::Microsecond).map_err(|_| bad())?;
            ScalarValue::TimestampMicrosecond(Some(micros), None)
        }
        Type::TIMESTAMPTZ => {
            let micros = read_time(text, Some(zone), TimeUnit::Microsecond).map_err(|_| bad())?;
            ScalarValue::TimestampMicrosecond(Some(micros), Some(zone.into()))
        }
        Type::NUMERIC => decimal(text.trim()).ok_or_else(bad)?,
        Type::BYTEA => ScalarValue::Binary(Some(bytea(text).ok_or_else(bad)?)),
        Type::BOOL => ScalarValue::Boolean(Some(match text.trim().to_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "on" | "1" => true,
            "f" | "false" | "n" | "no" | "off" | "0" => false,
            _ => return Err(bad()),
        })),
        _ => {
            let text_value = ScalarValue::Utf8(Some(text.to_owned()));
            match arrow_type(kind) {
                None | Some(DataType::Utf8) => text_value,
                Some(wanted) => {
                    let value = ScalarValue::Utf8(Some(text.trim().to_owned()));
                    let value = value.cast_to(&wanted).map_err(|_| bad())?;
                    if value.is_null() {
                        return Err(bad());
                    }
                    value
                }
            }
        }
    })
}

fn from_binary(bytes: &[u8], kind: &Type) -> Result<ScalarValue, SqlError> {
    let bad = || {
        let message = format!(
            "{} bytes are not a binary value of type {kind}",
            bytes.len()
        );
        SqlError::new("22P03", message)
    };
    fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    let i64_of = |bytes: &[u8]| fixed(bytes).map(i64::from_be_bytes).ok_or_else(bad);
    let i32_of = |bytes: &[u8]| fixed(bytes).map(i32::from_be_bytes).ok_or_else(bad);
    if let Some(item) = item_type(kind) {
        let (lengths, items) = binary_items(bytes).ok_or_else(bad)?;
        let items = items.into_iter().map(|bytes| match bytes {
            Some(bytes) => from_binary(bytes, item),
            None => Ok(ScalarValue::Null),
        });
        let mut items = items.collect::<Result<Vec<_>, _>>()?;
        // The last dimension's elements are next to each other.
        for length in lengths.iter().skip(1).rev() {
            let lists = items.chunks((*length).max(1));
            let lists = lists.map(|items| list(items.to_vec(), item));
            items = lists.collect::<Result<_, _>>()?;
        }
        return list(items, item);
    }
    Ok(match *kind {
        Type::BOOL => match bytes {
            [0] => false.into(),
            [_] => true.into(),
            _ => return Err(bad()),
        },
        Type::INT2 => fixed(bytes).map(i16::from_be_bytes).ok_or_else(bad)?.into(),
        Type::INT4 => i32_of(bytes)?.into(),
        Type::INT8 => i64_of(bytes)?.into(),
        Type::OID => {
            let oid = fixed(bytes).map(u32::from_be_bytes).ok_or_else(bad)?;
            i64::from(oid).into()
        }
        Type::FLOAT4 => fixed(bytes).map(f32::from_be_bytes).ok_or_else(bad)?.into(),
        Type::FLOAT8 => fixed(bytes).map(f64::from_be_bytes).ok_or_else(bad)?.into(),
        Type::NUMERIC => {
            let text = read_numeric(bytes).ok_or_else(bad)?;
            decimal(&text).ok_or_else(bad)?
        }
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        Type::DATE => ScalarValue::Date32(Some(i32_of(bytes)?.saturating_add(EPOCH_DAYS))),
        Type::TIME => {
            ScalarValue::Time64Nanosecond(Some(i64_of(bytes)?.checked_mul(1_000).ok_or_else(bad)?))
        }
        Type::TIMESTAMP => {
            let micros = i64_of(bytes)?.saturating_add(EPOCH_MICROS);
            ScalarValue::TimestampMicrosecond(Some(micros), None)
        }
        Type::TIMESTAMPTZ => {
            let micros = i64_of(bytes)?.saturating_add(EPOCH_MICROS);
            ScalarValue::TimestampMicrosecond(Some(micros), Some("+00:00".into()))
        }
        Type::INTERVAL => {
            if bytes.len() != 16 {
                return Err(bad());
            }
            let nanos = i64_of(&bytes[..8])?.checked_mul(1_000).ok_or_else(bad)?;
            let (days, months) = (i32_of(&bytes[8..12])?, i32_of(&bytes[12..])?);
            let value = IntervalMonthDayNano::new(months, days, nanos);
            ScalarValue::IntervalMonthDayNano(Some(value))
        }
        Type::UUID => {
            let bytes: [u8; 16] = fixed(bytes).ok_or_else(bad)?;
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let parts = [
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
            ];
            ScalarValue::Utf8(Some(parts.join("-")))
        }
        _ => {
            let text = String::from_utf8(bytes.to_vec());
            ScalarValue::Utf8(Some(text.map_err(|_| bad())?))
        }
    })
}

/// The type of an array's elements, if `kind` is an array.
fn item_type(kind: &Type) -> Option<&Type> {
    match kind.kind() {
        postgres_types::Kind::Array(item) => Some(item),
        _ => None,
    }
}

fn from_item(item: Item, kind: &Type, zone: &str) -> Result<ScalarValue, SqlError> {
    match item {
        Item::Null => Ok(ScalarValue::Null),
        Item::Text(text) => from_text(&text, kind, zone),
        Item::Array(items) => {
            let items = items.into_iter().map(|item| from_item(item, kind, zone));
            list(items.collect::<Result<_, _>>()?, kind)
        }
    }
}

/// A list of values of a type, or of lists of them.
fn list(items: Vec<ScalarValue>, item: &Type) -> Result<ScalarValue, SqlError> {
    let known = items.iter().find(|value| !value.is_null());
    let data_type = match (known, arrow_type(item)) {
        (Some(value @ ScalarValue::List(_)), _) => value.data_type(),
        (_, Some(data_type)) => data_type,
        (Some(value), None) => value.data_type(),
        (None, None) => DataType::Utf8,
    };
    let items = items.into_iter().map(|value| value.cast_to(&data_type));
    let items = items.collect::<Result<Vec<_>, _>>();
    let items = items.map_err(|error| SqlError::new("22P02", error.strip_backtrace()))?;
    let array = ScalarValue::new_list(&items, &data_type, true);
    Ok(ScalarValue::List(array))
}

/// `123.45` with as many digits as it has; `None` if that are too many, or it is no decimal.
fn decimal(text: &str) -> Option<ScalarValue> {
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    if text.is_empty() || !text.chars().all(plain) {
        return text.parse::<f64>().ok().map(ScalarValue::from);
    }
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let scale = text
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let precision = u8::try_from(digits.max(1)).ok()?;
    let scale = i8::try_from(scale).ok()?;
    let wanted = match digits {
        digits if digits <= DIGITS_128 => DataType::Decimal128(precision, scale),
        digits if digits <= DIGITS_256 => DataType::Decimal256(precision, scale),
        _ => return None,
    };
    let value = ScalarValue::from(text.trim_start_matches('+'))
        .cast_to(&wanted)
        .ok()?;
    (!value.is_null()).then_some(value)
}

/// `\x6869` or plain text with `\\` and `\123`.
fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            return None;
        }
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        return digits.chunks(2).map(byte).collect();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                after
            }
            (b'\\', [a, b, c, after @ ..]) => {
                let octal = std::str::from_utf8(&[*a, *b, *c]).ok().map(str::to_owned)?;
                bytes.push(u8::from_str_radix(&octal, 8).ok()?);
                after
            }
            (b'\\', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                after
            }
        };
    }
    Some(bytes)
}

/// How long an array is in each dimension, and its elements.
#[expect(clippy::type_complexity, reason = "two lists, one of which has gaps")]
fn binary_items(bytes: &[u8]) -> Option<(Vec<usize>, Vec<Option<&[u8]>>)> {
    let word = |at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(i32::from_be_bytes(bytes))
    };
    let dimensions = usize::try_from(word(0)?).ok()?;
    if dimensions > MOST_DIMENSIONS {
        return None;
    }
    // Dimensions, whether there are NULLs, and the type come first; each dimension has a length and a bound.
    let mut at = 12;
    let mut lengths = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        lengths.push(usize::try_from(word(at)?).ok()?);
        at += 8;
    }
    let mut items = Vec::new();
    while at < bytes.len() {
        let length = word(at)?;
        at += 4;
        match usize::try_from(length) {
            Err(_) => items.push(None),
            Ok(length) => {
                items.push(Some(bytes.get(at..at.checked_add(length)?)?));
                at += length;
            }
        }
    }
    let expected = match dimensions {
        0 => Some(0),
        _ => lengths
            .iter()
            .try_fold(1, |all: usize, one| all.checked_mul(*one)),
    };
    (expected == Some(items.len())).then_some((lengths, items))
}

/// As PostgreSQL has them.
const MOST_DIMENSIONS: usize = 6;

/// Texts as values of a column, for COPY; the number of the first that is none.
pub(crate) fn column(
    texts: &[Option<String>],
    data_type: &DataType,
) -> Result<ArrayRef, (usize, SqlError)> {
    let kind = PgType::of_type(data_type).kind;
    let zone = zone_of(data_type);
    let internal = |error: datafusion::common::DataFusionError| {
        (0, SqlError::new("XX000", error.strip_backtrace()))
    };
    let mut values = Vec::with_capacity(texts.len());
    for (row, text) in texts.iter().enumerate() {
        let value = match text {
            None => ScalarValue::try_from(data_type).map_err(internal)?,
            Some(text) => {
                let bad = || (row, malformed(text, &kind));
                let value = from_text(text, &kind, zone).map_err(|error| (row, error))?;
                let value = value.cast_to(data_type).map_err(|_| bad())?;
                if value.is_null() {
                    return Err(bad());
                }
                value
            }
        };
        values.push(value);
    }
    match values.is_empty() {
        true => Ok(datafusion::arrow::array::new_empty_array(data_type)),
        false => ScalarValue::iter_to_array(values).map_err(internal),
    }
}

/// The zone that instants of a type are shown in.
fn zone_of(data_type: &DataType) -> &str {
    match data_type {
        DataType::Timestamp(_, Some(zone)) => zone,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            zone_of(item.data_type())
        }
        _ => "UTC",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_their_types() {
        let read = |text: &str, kind: &Type| from_text(text, kind, "UTC").unwrap().to_string();
        assert_eq!(read("42", &Type::INT4), "42");
        assert_eq!(read("t", &Type::BOOL), "true");
        assert_eq!(read("2020-02-29", &Type::DATE), "2020-02-29");
        assert_eq!(
            from_text("1.50", &Type::NUMERIC, "UTC")
                .unwrap()
                .data_type(),
            DataType::Decimal128(3, 2)
        );
        assert_eq!(
            from_text("\\x6869", &Type::BYTEA, "UTC").unwrap(),
            ScalarValue::Binary(Some(b"hi".to_vec()))
        );
        for (text, kind) in [
            ("x", Type::INT4),
            ("2020-02-30", Type::DATE),
            ("\\xZZ", Type::BYTEA),
            ("{1", Type::INT4_ARRAY),
        ] {
            assert_eq!(
                from_text(text, &kind, "UTC").unwrap_err().code,
                "22P02",
                "{text}"
            );
        }
    }

    #[test]
    fn arrays_have_quotes_nulls_and_dimensions() {
        let read = |text: &str, kind: &Type| from_text(text, kind, "UTC").unwrap().to_string();
        let texts = r#"{a,NULL,"b, \"c\"",""}"#;
        assert_eq!(read(texts, &Type::TEXT_ARRAY), r#"[a, , b, "c", ]"#);
        assert_eq!(read("{}", &Type::INT4_ARRAY), "[]");
        assert_eq!(
            read("{{1,2},{3,NULL}}", &Type::INT4_ARRAY),
            "[[1, 2], [3, ]]"
        );
        let words = |words: &[i32]| {
            words
                .iter()
                .flat_map(|w| w.to_be_bytes())
                .collect::<Vec<_>>()
        };
        // Two dimensions, two by one.
        let bytes = words(&[2, 0, 23, 2, 1, 1, 1, 4, 7, 4, 8]);
        let read = from_binary(&bytes, &Type::INT4_ARRAY).unwrap();
        assert_eq!(read.to_string(), "[[7], [8]]");
        let too_few = words(&[2, 0, 23, 2, 1, 1, 1, 4, 7]);
        assert!(from_binary(&too_few, &Type::INT4_ARRAY).is_err());
    }

    #[test]
    fn a_time_without_zone_is_of_the_session() {
        let read = |text: &str, kind: &Type| from_text(text, kind, "Asia/Tokyo").unwrap();
        let zone = Some("Asia/Tokyo".into());
        for text in ["1970-01-01 09:00:01", "1970-01-01 00:00:01Z"] {
            let expected = ScalarValue::TimestampMicrosecond(Some(1_000_000), zone.clone());
            assert_eq!(read(text, &Type::TIMESTAMPTZ), expected);
        }
        let local = ScalarValue::TimestampMicrosecond(Some(1_000_000), None);
        assert_eq!(read("1970-01-01 00:00:01+02", &Type::TIMESTAMP), local);
    }

    #[test]
    fn bytes_of_the_wrong_length_are_refused() {
        for kind in [
            Type::INT4,
            Type::BOOL,
            Type::TIMESTAMP,
            Type::NUMERIC,
            Type::INT4_ARRAY,
            Type::UUID,
        ] {
            assert_eq!(
                from_binary(&[1, 2, 3], &kind).unwrap_err().code,
                "22P03",
                "{kind}"
            );
        }
    }
}
