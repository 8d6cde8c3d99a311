//! Which types texts of a CSV file fit.

use datafusion::arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit};

/// The kinds of values that a column has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kinds(u16);

const BOOLEAN: u16 = 1;
const INTEGER: u16 = 1 << 1;
const FRACTION: u16 = 1 << 2;
const DATE: u16 = 1 << 3;
const SECONDS: u16 = 1 << 4;
const MILLISECONDS: u16 = 1 << 5;
const MICROSECONDS: u16 = 1 << 6;
const NANOSECONDS: u16 = 1 << 7;
/// A time that nanoseconds since 1970 cannot count to in 64 bits.
const FAR: u16 = 1 << 8;
const TEXT: u16 = 1 << 9;

/// A date before or after those that nanoseconds count to.
const FAR_DATE: u16 = DATE | FAR;
const TIMES: u16 = DATE | SECONDS | MILLISECONDS | MICROSECONDS | NANOSECONDS;

impl Kinds {
    /// Takes a value into account; the empty field is NULL.
    pub(crate) fn add(&mut self, value: &[u8]) {
        if self.0 & TEXT == 0 && !value.is_empty() {
            self.0 |= kind(value);
        }
    }

    /// Takes the values of another part of the column into account.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The type that all values can be read as; text if there are none.
    pub(crate) fn data_type(self) -> DataType {
        let has = |kinds: u16| self.0 & kinds != 0;
        match self.0 {
            BOOLEAN => DataType::Boolean,
            INTEGER => DataType::Int64,
            kinds if kinds & !(INTEGER | FRACTION) == 0 && kinds != 0 => DataType::Float64,
            DATE | FAR_DATE => DataType::Date32,
            kinds if kinds & !(TIMES | FAR) == 0 && kinds != 0 => {
                let unit = match () {
                    () if has(NANOSECONDS) && has(FAR) => return DataType::Utf8,
                    () if has(NANOSECONDS) => TimeUnit::Nanosecond,
                    () if has(MICROSECONDS) => TimeUnit::Microsecond,
                    () if has(MILLISECONDS) => TimeUnit::Millisecond,
                    () => TimeUnit::Second,
                };
                DataType::Timestamp(unit, None)
            }
            _ => DataType::Utf8,
        }
    }
}

/// The kind of one value. A value is of a kind only if the reader can parse it.
fn kind(value: &[u8]) -> u16 {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    if digits.iter().all(u8::is_ascii_digit) && !digits.is_empty() {
        // 18 digits fit in 64 bits.
        let fits =
            digits.len() <= 18 || text(value).is_some_and(|text| text.parse::<i64>().is_ok());
        return if fits { INTEGER } else { TEXT };
    }
    if is_fraction(digits) || matches!(value, b"NaN" | b"nan" | b"inf" | b"-inf") {
        return FRACTION;
    }
    if value.eq_ignore_ascii_case(b"true") || value.eq_ignore_ascii_case(b"false") {
        return BOOLEAN;
    }
    if value.len() >= 10 && value[4] == b'-' && value[7] == b'-' {
        return text(value).map_or(TEXT, time);
    }
    TEXT
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

/// `1.5`, `.5`, `1.`, `1e9`, `1.5e-9`
fn is_fraction(digits: &[u8]) -> bool {
    let count = |bytes: &[u8]| bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = count(digits);
    let mut rest = &digits[whole..];
    let mut part = 0;
    if let Some(after) = rest.strip_prefix(b".") {
        part = count(after);
        rest = &after[part..];
    } else if !rest.first().is_some_and(|b| matches!(b, b'e' | b'E')) {
        return false;
    }
    if whole + part == 0 {
        return false;
    }
    match rest {
        [] => true,
        [b'e' | b'E', exponent @ ..] => {
            let exponent = match exponent {
                [b'+' | b'-', digits @ ..] => digits,
                digits => digits,
            };
            !exponent.is_empty() && count(exponent) == exponent.len()
        }
        _ => false,
    }
}

/// The kind of a text that begins as a date.
fn time(value: &str) -> u16 {
    if value.len() == 10 {
        return match Date32Type::parse(value) {
            Some(_) if value.bytes().filter(u8::is_ascii_digit).count() == 8 => match &value[..4] {
                year if ("1678".."2262").contains(&year) => DATE,
                _ => FAR_DATE,
            },
            _ => TEXT,
        };
    }
    let bytes = value.as_bytes();
    let has_seconds = bytes.len() >= 19
        && matches!(bytes[10], b'T' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':';
    if !has_seconds || !value.is_char_boundary(19) {
        return TEXT;
    }
    let Ok(time) = string_to_datetime(&chrono::Utc, value) else {
        return TEXT;
    };
    let far = match time.timestamp_nanos_opt() {
        Some(_) => 0,
        None => FAR,
    };
    let fraction = match &bytes[19..] {
        [b'.', rest @ ..] => rest.iter().take_while(|b| b.is_ascii_digit()).count(),
        _ => 0,
    };
    far | match fraction {
        0 => SECONDS,
        1..=3 => MILLISECONDS,
        4..=6 => MICROSECONDS,
        7..=9 => NANOSECONDS,
        _ => TEXT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(values: &[&str]) -> DataType {
        let mut kinds = Kinds::default();
        for value in values {
            kinds.add(value.as_bytes());
        }
        kinds.data_type()
    }

    #[test]
    fn a_column_has_the_narrowest_type_of_all_its_values() {
        let seconds = DataType::Timestamp(TimeUnit::Second, None);
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        for (values, expected) in [
            (&["1", "-2", ""][..], DataType::Int64),
            (&["1", "0.5"], DataType::Float64),
            (&["1e9", ".5", "1.", "-inf", "NaN"], DataType::Float64),
            (&["9223372036854775807"], DataType::Int64),
            (&["9223372036854775808"], DataType::Utf8),
            (&["1", "N1-5"], DataType::Utf8),
            (&["1", "true"], DataType::Utf8),
            (&["True", "false"], DataType::Boolean),
            (&["", ""], DataType::Utf8),
            (&["2024-02-29"], DataType::Date32),
            (&["1024-02-29"], DataType::Date32),
            (&["2023-02-29"], DataType::Utf8),
            (
                &["1024-02-29", "2024-02-29 01:02:03.1234567"],
                DataType::Utf8,
            ),
            (&["2024-02-29", "2024-02-29T01:02:03"], seconds.clone()),
            (&["2024-02-29 01:02:03+02:00"], seconds),
            (&["2024-02-29 01:02:03.123456789"], nanoseconds),
            (
                &["2024-02-29 01:02:03.1234567", "1024-02-29 00:00:00"],
                DataType::Utf8,
            ),
            (&["2024-02-29 25:02:03"], DataType::Utf8),
            (&["2024-02-29 or so"], DataType::Utf8),
            (&["-", "."], DataType::Utf8),
            (&["1-2"], DataType::Utf8),
            (&["e5"], DataType::Utf8),
        ] {
            assert_eq!(type_of(values), expected, "{values:?}");
        }
    }
}
