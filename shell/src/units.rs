//! Numbers as a person reads them.

use std::time::Duration;

/// `1234567` → `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2,103 rows`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(n))
}

/// Three significant digits: `12.3 ms`, `4.56 s`, `2 min 5 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 120.0 {
        let whole = seconds.round() as u64;
        format!("{} min {} s", whole / 60, whole % 60)
    } else if seconds >= 0.9995 {
        format!("{} s", three_digits(seconds))
    } else if seconds >= 0.000_999_5 {
        format!("{} ms", three_digits(seconds * 1e3))
    } else {
        format!("{} µs", three_digits(seconds * 1e6))
    }
}

/// `98.3 MB`, in powers of ten as disks and networks are sold.
pub fn bytes(n: u64) -> String {
    let n = n as f64;
    match n {
        n if n >= 999.5e6 => format!("{} GB", three_digits(n / 1e9)),
        n if n >= 999.5e3 => format!("{} MB", three_digits(n / 1e6)),
        n if n >= 999.5 => format!("{} kB", three_digits(n / 1e3)),
        n => format!("{n:.0} B"),
    }
}

fn three_digits(x: f64) -> String {
    match x {
        x if x >= 99.95 => format!("{x:.0}"),
        x if x >= 9.995 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(1_234_567, "row"), "1,234,567 rows");
    }

    #[test]
    fn times_and_sizes_have_three_digits() {
        assert_eq!(duration(Duration::from_nanos(1_500)), "1.50 µs");
        assert_eq!(duration(Duration::from_micros(999)), "999 µs");
        assert_eq!(duration(Duration::from_micros(12_345)), "12.3 ms");
        assert_eq!(duration(Duration::from_micros(999_900)), "1.00 s");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!(bytes(98_000_000), "98.0 MB");
        assert_eq!(bytes(12), "12 B");
    }
}
