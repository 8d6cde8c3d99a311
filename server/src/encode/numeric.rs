//! Decimals in PostgreSQL's binary format: digits of base 10,000.

use bytes::{BufMut, BytesMut};

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;

/// Appends a decimal that is written as `-123.45`.
pub(super) fn write(text: &str, out: &mut BytesMut) {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (NEGATIVE, rest),
        None => (POSITIVE, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let mut padded = "0".repeat((4 - whole.len() % 4) % 4);
    padded.push_str(whole);
    let integer_groups = padded.len() / 4;
    padded.push_str(fraction);
    padded.push_str(&"0".repeat((4 - fraction.len() % 4) % 4));
    let mut groups: Vec<i16> = padded
        .as_bytes()
        .chunks(4)
        .map(|group| {
            let digits = group.iter().map(|digit| i16::from(digit - b'0'));
            digits.fold(0, |value, digit| value * 10 + digit)
        })
        .collect();
    let mut weight = i16::try_from(integer_groups).unwrap_or(i16::MAX) - 1;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    weight -= i16::try_from(leading).unwrap_or(i16::MAX);
    if groups.is_empty() {
        weight = 0;
    }
    out.put_i16(i16::try_from(groups.len()).unwrap_or(i16::MAX));
    out.put_i16(weight);
    out.put_u16(if groups.is_empty() { POSITIVE } else { sign });
    out.put_u16(u16::try_from(fraction.len()).unwrap_or(u16::MAX));
    for group in groups {
        out.put_i16(group);
    }
}

/// Reads a decimal as `-123.45`; `None` for NaN, infinities and what is malformed.
pub(crate) fn read(bytes: &[u8]) -> Option<String> {
    let word = |n: usize| {
        Some(u16::from_be_bytes([
            *bytes.get(2 * n)?,
            *bytes.get(2 * n + 1)?,
        ]))
    };
    let count = usize::from(word(0)?);
    let weight = i32::from(word(1)?.cast_signed());
    let sign = word(2)?;
    let scale = usize::from(word(3)?);
    if bytes.len() != 8 + 2 * count || !matches!(sign, POSITIVE | NEGATIVE) {
        return None;
    }
    let group = |place: i32| -> Option<u16> {
        match usize::try_from(weight - place) {
            Ok(n) if n < count => word(4 + n),
            _ => Some(0),
        }
    };
    let mut text = String::new();
    for place in (0..=weight.max(0)).rev() {
        text.push_str(&format!("{:04}", group(place)?));
    }
    let kept = text.trim_start_matches('0');
    let mut text = if kept.is_empty() { "0" } else { kept }.to_owned();
    if scale > 0 {
        let mut fraction = String::new();
        let mut place = -1;
        while fraction.len() < scale {
            fraction.push_str(&format!("{:04}", group(place)?));
            place -= 1;
        }
        fraction.truncate(scale);
        text.push('.');
        text.push_str(&fraction);
    }
    if sign == NEGATIVE {
        text.insert(0, '-');
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_survive_the_binary_format() {
        let all = [
            "0",
            "1",
            "-1",
            "10000",
            "12345.678",
            "-0.0001",
            "0.00001234",
            "100000000",
            "99999999.9999",
            "0.10",
            "-123456789012345678901234567890.12345678",
        ];
        for text in all {
            let mut out = BytesMut::new();
            write(text, &mut out);
            assert_eq!(read(&out).as_deref(), Some(text));
        }
    }

    #[test]
    fn one_and_a_half_is_what_postgresql_sends() {
        let mut out = BytesMut::new();
        write("1.5", &mut out);
        assert_eq!(&out[..], [0, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0x13, 0x88]);
    }

    #[test]
    fn truncated_decimals_are_refused() {
        assert_eq!(read(&[0, 2, 0, 0, 0, 0, 0, 1, 0, 1]), None);
        assert_eq!(read(&[0, 0, 0, 0, 0xC0, 0, 0, 0]), None);
    }
}
