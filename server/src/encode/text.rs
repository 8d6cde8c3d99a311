//! Values as text, as PostgreSQL writes them.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;

use super::{Column, Format, Writer};

/// Writes the values of a canonical array.
pub(super) fn writer(array: &ArrayRef) -> Result<Writer, ArrowError> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().clone();
            Box::new(move |row, out| out.put_u8(if values.value(row) { b't' } else { b'f' }))
        }
        DataType::Int16 => {
            let values = array.as_primitive::<Int16Type>().clone();
            Box::new(move |row, out| push(out, values.value(row)))
        }
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>().clone();
            Box::new(move |row, out| push(out, values.value(row)))
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>().clone();
            Box::new(move |row, out| push(out, values.value(row)))
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().clone();
            Box::new(move |row, out| {
                let value = values.value(row);
                push(out, float(f64::from(value), &format!("{value:e}"), 6));
            })
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().clone();
            Box::new(move |row, out| {
                let value = values.value(row);
                push(out, float(value, &format!("{value:e}"), 15));
            })
        }
        DataType::Decimal128(..) => {
            let values = array.as_primitive::<Decimal128Type>().clone();
            Box::new(move |row, out| push(out, values.value_as_string(row)))
        }
        DataType::Decimal256(..) => {
            let values = array.as_primitive::<Decimal256Type>().clone();
            Box::new(move |row, out| push(out, values.value_as_string(row)))
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>().clone();
            Box::new(move |row, out| out.put_slice(values.value(row).as_bytes()))
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>().clone();
            Box::new(move |row, out| {
                out.put_slice(b"\\x");
                for byte in values.value(row) {
                    push(out, format_args!("{byte:02x}"));
                }
            })
        }
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row, out| push(out, date(values.value(row))))
        }
        DataType::Time64(_) => {
            let values = array.as_primitive::<Time64MicrosecondType>().clone();
            Box::new(move |row, out| push(out, time(values.value(row))))
        }
        DataType::Timestamp(_, zone) => {
            let values = array.as_primitive::<TimestampMicrosecondType>().clone();
            let zone: Option<Tz> = zone.as_deref().map(str::parse).transpose()?;
            Box::new(move |row, out| push(out, timestamp(values.value(row), zone.as_ref())))
        }
        DataType::Interval(_) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row, out| push(out, interval(values.value(row))))
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>().clone();
            let values = Column::new(lists.values(), Format::Text)?;
            Box::new(move |row, out| {
                let offsets = lists.value_offsets();
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                write_list(&values, range, out);
            })
        }
        other => {
            return Err(ArrowError::NotYetImplemented(format!("{other} as text")));
        }
    })
}

fn push(out: &mut BytesMut, value: impl std::fmt::Display) {
    // Memory takes whatever is written to it.
    let _ = write!(out, "{value}");
}

/// `{1,NULL,"with, comma"}`.
fn write_list(values: &Column, range: std::ops::Range<usize>, out: &mut BytesMut) {
    out.put_u8(b'{');
    let mut element = BytesMut::new();
    for (n, row) in range.enumerate() {
        if n > 0 {
            out.put_u8(b',');
        }
        element.clear();
        if !values.write(row, &mut element) {
            out.put_slice(b"NULL");
            continue;
        }
        let plain = |byte: &u8| {
            !matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') && !byte.is_ascii_whitespace()
        };
        let is_plain = !element.is_empty()
            && element.iter().all(plain)
            && !element.eq_ignore_ascii_case(b"null");
        if is_plain {
            out.put_slice(&element);
            continue;
        }
        out.put_u8(b'"');
        for byte in &element {
            if matches!(byte, b'"' | b'\\') {
                out.put_u8(b'\\');
            }
            out.put_u8(*byte);
        }
        out.put_u8(b'"');
    }
    out.put_u8(b'}');
}

/// The shortest digits that mean the value; with an exponent from 10^`digits` on and below 10^−4.
/// `scientific` is the value as Rust writes it with an exponent.
fn float(value: f64, scientific: &str, digits: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let whole = usize::try_from(exponent + 1).unwrap_or(0);
    match exponent {
        ..0 => {
            let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
            format!("{sign}0.{zeros}{digits}")
        }
        _ if digits.len() <= whole => {
            let zeros = "0".repeat(whole - digits.len());
            format!("{sign}{digits}{zeros}")
        }
        _ => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
    }
}

fn date(days: i32) -> String {
    // Days from the year 1 to 1970.
    match days
        .checked_add(719_163)
        .and_then(NaiveDate::from_num_days_from_ce_opt)
    {
        Some(date) => {
            let (year, era) = year(date.year());
            format!("{year:04}-{:02}-{:02}{era}", date.month(), date.day())
        }
        None if days > 0 => "infinity".to_owned(),
        None => "-infinity".to_owned(),
    }
}

/// The year before 1 is 1 BC.
fn year(year: i32) -> (i32, &'static str) {
    match year {
        1.. => (year, ""),
        _ => (1 - year, " BC"),
    }
}

fn time(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    clock(
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        micros % 1_000_000,
    )
}

fn clock(hours: i64, minutes: i64, seconds: i64, micros: i64) -> String {
    let mut text = format!("{hours:02}:{minutes:02}:{seconds:02}");
    if micros > 0 {
        let fraction = format!("{micros:06}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    text
}

/// An instant as the clocks of `zone` show it then, with what they are ahead of UTC; a local time without.
fn timestamp(micros: i64, zone: Option<&Tz>) -> String {
    let Some(time) = DateTime::from_timestamp_micros(micros) else {
        return if micros > 0 { "infinity" } else { "-infinity" }.to_owned();
    };
    let utc: NaiveDateTime = time.naive_utc();
    let ahead = zone.map(|zone| zone.offset_from_utc_datetime(&utc).fix().local_minus_utc());
    let time = utc.checked_add_signed(TimeDelta::seconds(ahead.unwrap_or(0).into()));
    let (time, zone) = (time.unwrap_or(utc), ahead.map(offset).unwrap_or_default());
    let (year, era) = year(time.year());
    let clock = clock(
        time.hour().into(),
        time.minute().into(),
        time.second().into(),
        i64::from(time.nanosecond() / 1_000),
    );
    format!(
        "{year:04}-{:02}-{:02} {clock}{zone}{era}",
        time.month(),
        time.day()
    )
}

/// Seconds ahead of UTC as `+02`, `-03:30` or `-04:56:02`.
fn offset(ahead: i32) -> String {
    let sign = if ahead < 0 { '-' } else { '+' };
    let (hours, minutes, seconds) = (ahead.abs() / 3600, ahead.abs() / 60 % 60, ahead.abs() % 60);
    match (minutes, seconds) {
        (0, 0) => format!("{sign}{hours:02}"),
        (_, 0) => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// `1 year 2 mons -3 days 04:05:06.5`.
fn interval(value: IntervalMonthDayNano) -> String {
    let mut parts = Vec::new();
    let mut part = |count: i32, name: &str| {
        if count != 0 {
            parts.push(format!(
                "{count} {name}{}",
                if count == 1 { "" } else { "s" }
            ));
        }
    };
    part(value.months / 12, "year");
    part(value.months % 12, "mon");
    part(value.days, "day");
    let micros = value.nanoseconds / 1_000;
    if micros != 0 || parts.is_empty() {
        let sign = if micros < 0 { "-" } else { "" };
        parts.push(format!("{sign}{}", time(micros.abs())));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_postgresql_writes_them() {
        let double = |value: f64| float(value, &format!("{value:e}"), 15);
        let all = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (-12.5, "-12.5"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (100.0, "100"),
        ];
        for (value, text) in all {
            assert_eq!(double(value), text);
        }
        let single = |value: f32| float(f64::from(value), &format!("{value:e}"), 6);
        assert_eq!(single(0.1), "0.1");
        assert_eq!(single(1e6), "1e+06");
    }

    #[test]
    fn times_and_intervals_are_written_as_postgresql_writes_them() {
        let zoned = |micros, zone: &str| timestamp(micros, Some(&zone.parse().unwrap()));
        assert_eq!(timestamp(0, None), "1970-01-01 00:00:00");
        assert_eq!(zoned(-1, "UTC"), "1969-12-31 23:59:59.999999+00");
        assert_eq!(zoned(0, "Asia/Kolkata"), "1970-01-01 05:30:00+05:30");
        assert_eq!(zoned(0, "America/New_York"), "1969-12-31 19:00:00-05");
        assert_eq!(
            zoned(-3_000_000_000_000_000, "America/New_York"),
            "1874-12-07 13:43:58-04:56:02"
        );
        assert_eq!(timestamp(1_500_000, None), "1970-01-01 00:00:01.5");
        assert_eq!(date(-719_163), "0001-12-31 BC");
        let all = [
            (
                (14, -3, 14_706_500_000_000),
                "1 year 2 mons -3 days 04:05:06.5",
            ),
            ((0, 0, 0), "00:00:00"),
            ((0, 1, 0), "1 day"),
            ((0, 0, -1_000_000_000), "-00:00:01"),
        ];
        for ((months, days, nanos), text) in all {
            assert_eq!(
                interval(IntervalMonthDayNano::new(months, days, nanos)),
                text
            );
        }
    }
}
