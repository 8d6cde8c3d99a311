//! Texts as times.

use std::borrow::Cow;

use chrono::DateTime;
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::{UTC, instant, per_second, zone};

/// The scalar function `read_time(text, zone TEXT)`: the time that a text names, as PostgreSQL reads it.
///
/// * As `TIMESTAMP WITH TIME ZONE`: a text without zone is a local time of `zone`, which is constant.
/// * As `TIMESTAMP`: the local time of the text; a zone in it is read over.
///
/// # Errors
/// When it runs: for a text that is no time, and one beyond those of the type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ReadTime {
    signature: Signature,
    times: DataType,
}

impl ReadTime {
    /// The function that gives times of a type, which is a timestamp of any unit.
    pub fn new(times: DataType) -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
            times,
        }
    }
}

impl Default for ReadTime {
    fn default() -> Self {
        Self::new(DataType::Timestamp(TimeUnit::Nanosecond, None))
    }
}

impl ScalarUDFImpl for ReadTime {
    fn name(&self) -> &'static str {
        "read_time"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.times.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, name] = take_function_args(self.name(), &args.args)?;
        let ColumnarValue::Scalar(name) = name else {
            return exec_err!("read_time() takes a constant zone");
        };
        let times = args.return_field.data_type();
        let DataType::Timestamp(unit, label) = times else {
            return exec_err!("read_time() gives {times}");
        };
        let zone = match label {
            Some(_) => Some(zone(name.try_as_str().flatten().unwrap_or(UTC))?),
            None => None,
        };
        let is_scalar = matches!(texts, ColumnarValue::Scalar(_));
        let texts = texts.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let texts = cast(&texts, &DataType::Utf8View)?;
        let texts = texts.as_string_view().iter();
        let read = |text| read_in_zone(text, zone.as_ref(), *unit);
        let read: Int64Array = texts
            .map(|text| text.map(read).transpose())
            .collect::<Result<_, ArrowError>>()?;
        let read = cast(&read, times)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&read, 0)?),
            false => ColumnarValue::Array(read),
        })
    }
}

/// The time that a text names, in `unit` since 1970: an instant, in which a text without zone is a local time
/// of `zone`, or without `zone` the local time of the text.
///
/// # Errors
/// For a text that is no time, one beyond the numbers that there are, and a zone that there is not.
pub fn read_time(text: &str, zone_name: Option<&str>, unit: TimeUnit) -> Result<i64> {
    let zone = zone_name.map(zone).transpose()?;
    Ok(read_in_zone(text, zone.as_ref(), unit)?)
}

fn read_in_zone(text: &str, zone: Option<&Tz>, unit: TimeUnit) -> Result<i64, ArrowError> {
    let text = text.trim();
    let utc: Tz = UTC.parse()?;
    let Some(zone) = zone else {
        return number(parsed(without_zone(text), &utc)?, text, unit);
    };
    match parsed(text, zone) {
        Ok(time) => number(time, text, unit),
        // It may be a local time that the zone skips or repeats.
        Err(error) => {
            let Ok(local) = parsed(text, &utc) else {
                return Err(error);
            };
            let found = instant(zone, number(local, text, unit)?, per_second(unit));
            found.ok_or_else(|| out_of_range(text))
        }
    }
}

fn parsed(text: &str, zone: &Tz) -> Result<DateTime<Tz>, ArrowError> {
    string_to_datetime(zone, &with_seconds(text))
}

/// `2024-07-01 12:00+02` → `2024-07-01 12:00:00+02`, which Arrow reads.
fn with_seconds(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let has_minutes = bytes.get(13) == Some(&b':') && bytes.len() >= 16 && text.is_ascii();
    let ends = !matches!(bytes.get(16), Some(b':' | b'0'..=b'9'));
    match has_minutes && ends {
        true => Cow::Owned(format!("{}:00{}", &text[..16], &text[16..])),
        false => Cow::Borrowed(text),
    }
}

/// `2024-07-01 12:00:00 Europe/Oslo` → `2024-07-01 12:00:00`.
fn without_zone(text: &str) -> &str {
    let Some((date, clock)) = text.split_at_checked(11) else {
        return text;
    };
    let of_zone = |c: char| c.is_ascii_alphabetic() || matches!(c, '+' | '-');
    match clock.find(of_zone) {
        Some(zone) => text[..date.len() + zone].trim_end(),
        None => text,
    }
}

fn number(time: DateTime<Tz>, text: &str, unit: TimeUnit) -> Result<i64, ArrowError> {
    let number = match unit {
        TimeUnit::Second => Some(time.timestamp()),
        TimeUnit::Millisecond => Some(time.timestamp_millis()),
        TimeUnit::Microsecond => Some(time.timestamp_micros()),
        TimeUnit::Nanosecond => time.timestamp_nanos_opt(),
    };
    number.ok_or_else(|| out_of_range(text))
}

fn out_of_range(text: &str) -> ArrowError {
    ArrowError::ParseError(format!(
        "Error parsing timestamp from '{text}': it is out of range"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        for (text, zone, expected) in [
            ("2024-07-01 12:00", None, "2024-07-01T12:00:00Z"),
            ("2024-07-01 12:00:00+02", None, "2024-07-01T12:00:00Z"),
            (" 2024-07-01T12:00:00.5Z ", None, "2024-07-01T12:00:00.5Z"),
            ("2024-07-01 12:00 Europe/Oslo", None, "2024-07-01T12:00:00Z"),
            ("2024-07-01", None, "2024-07-01T00:00:00Z"),
            ("2024-07-01", Some("Asia/Tokyo"), "2024-06-30T15:00:00Z"),
            (
                "2024-07-01 12:00+02",
                Some("Asia/Tokyo"),
                "2024-07-01T10:00:00Z",
            ),
            (
                "2024-11-03 01:30",
                Some("America/New_York"),
                "2024-11-03T06:30:00Z",
            ),
        ] {
            let expected = DateTime::parse_from_rfc3339(expected).unwrap();
            let read = read_time(text, zone, TimeUnit::Millisecond).unwrap();
            assert_eq!(read, expected.timestamp_millis(), "{text}");
        }
        for text in ["", "12:00", "2024-13-01", "2024-07-01 12", "3000-01-01"] {
            assert!(
                read_time(text, Some("UTC"), TimeUnit::Nanosecond).is_err(),
                "{text}"
            );
        }
    }
}
