//! Times as texts.

use std::fmt::Write;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Offset, TimeDelta, TimeZone, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::{UTC, per_second, zone};

/// The scalar function `show_time(time, zone TEXT) → TEXT`: a timestamp as PostgreSQL writes it,
/// `2024-07-01 12:00:00.5`, and an instant with what the constant zone is ahead of UTC then,
/// `2024-07-01 12:00:00.5-04`. (DataFusion 55.2 writes `2024-07-01T12:00:00.500`.)
///
/// # Errors
/// When it runs: for a zone that there is not.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ShowTime {
    signature: Signature,
}

impl Default for ShowTime {
    fn default() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ShowTime {
    fn name(&self) -> &'static str {
        "show_time"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, name] = take_function_args(self.name(), &args.args)?;
        let ColumnarValue::Scalar(name) = name else {
            return exec_err!("show_time() takes a constant zone");
        };
        let DataType::Timestamp(unit, label) = times.data_type() else {
            return exec_err!("show_time() of {}", times.data_type());
        };
        let zone = match label {
            Some(_) => Some(zone(name.try_as_str().flatten().unwrap_or(UTC))?),
            None => None,
        };
        let is_scalar = matches!(times, ColumnarValue::Scalar(_));
        let numbers = cast(
            &times.to_array(if is_scalar { 1 } else { args.number_rows })?,
            &DataType::Int64,
        )?;
        let mut texts = StringBuilder::with_capacity(numbers.len(), numbers.len() * 22);
        for number in numbers.as_primitive::<Int64Type>() {
            match number.and_then(|number| shown(number, unit, zone.as_ref())) {
                Some(text) => texts.append_value(text),
                None => texts.append_null(),
            }
        }
        let texts = texts.finish();
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?),
            false => ColumnarValue::Array(Arc::new(texts)),
        })
    }
}

/// `None` beyond the years that there are.
fn shown(number: i64, unit: TimeUnit, zone: Option<&Tz>) -> Option<String> {
    let scale = per_second(unit);
    let nanos = number.rem_euclid(scale) * (1_000_000_000 / scale);
    let utc = DateTime::from_timestamp(number.div_euclid(scale), u32::try_from(nanos).ok()?)?;
    let utc = utc.naive_utc();
    let ahead = zone.map(|zone| zone.offset_from_utc_datetime(&utc).fix().local_minus_utc());
    let time = utc.checked_add_signed(TimeDelta::seconds(ahead.unwrap_or(0).into()))?;
    let (year, era) = match time.year() {
        year @ 1.. => (year, ""),
        year => (1 - year, " BC"),
    };
    let mut text = format!(
        "{year:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    if nanos > 0 {
        let fraction = format!("{nanos:09}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    if let Some(ahead) = ahead {
        let sign = if ahead < 0 { '-' } else { '+' };
        let (hours, rest) = (ahead.abs() / 3600, ahead.abs() % 3600);
        // A string takes whatever is written to it.
        let _ = write!(text, "{sign}{hours:02}");
        if rest > 0 {
            let _ = write!(text, ":{:02}", rest / 60);
        }
        if rest % 60 > 0 {
            let _ = write!(text, ":{:02}", rest % 60);
        }
    }
    text.push_str(era);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_postgresql_writes_them() {
        let show = |number, zone: Option<&str>| {
            let zone = zone.map(|zone| zone.parse().unwrap());
            shown(number, TimeUnit::Millisecond, zone.as_ref()).unwrap()
        };
        assert_eq!(show(0, None), "1970-01-01 00:00:00");
        assert_eq!(show(-1, None), "1969-12-31 23:59:59.999");
        assert_eq!(show(500, Some("UTC")), "1970-01-01 00:00:00.5+00");
        assert_eq!(show(0, Some("Asia/Kolkata")), "1970-01-01 05:30:00+05:30");
        assert_eq!(
            show(-3_000_000_000_000, Some("America/New_York")),
            "1874-12-07 13:43:58-04:56:02"
        );
        assert_eq!(show(-62_167_219_200_000, None), "0001-01-01 00:00:00 BC");
        assert_eq!(shown(i64::MAX, TimeUnit::Second, None), None);
    }
}
