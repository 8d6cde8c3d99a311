//! Numbers as a person reads them.

/// Times that are nearer to each other than this are the same.
pub const NO_DIFFERENCE: f64 = 1.05;

/// Nanoseconds with three digits and a unit: `431 ns`, `28.9 s`, `2 min 05 s`.
pub fn duration(nanoseconds: i64) -> String {
    let ns = nanoseconds as f64;
    match nanoseconds {
        i64::MIN..1_000 => format!("{nanoseconds} ns"),
        // A value that would be rounded up to the next unit is written in that unit.
        1_000..999_500 => format!("{} µs", three_digits(ns / 1e3)),
        999_500..999_500_000 => format!("{} ms", three_digits(ns / 1e6)),
        999_500_000..119_500_000_000 => format!("{} s", three_digits(ns / 1e9)),
        119_500_000_000..7_170_000_000_000 => {
            let seconds = (ns / 1e9).round() as i64;
            format!("{} min {:02} s", seconds / 60, seconds % 60)
        }
        _ => {
            let minutes = (ns / 60e9).round() as i64;
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        }
    }
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A count with thousands separators: `2,100,000`.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and its noun: `1 row`, `12,000 rows`.
pub fn counted(number: i64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// Bytes in binary units: `512 B`, `1.50 MiB`.
pub fn bytes(number: i64) -> String {
    let mut value = number as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match unit {
        "B" => format!("{number} B"),
        _ if value >= 999.5 => format!("{value:.0} {unit}"),
        _ => format!("{} {unit}", three_digits(value)),
    }
}

/// A share of 1 in percent: `0.3 %`, `97 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.05 {
        "< 0.1 %".to_owned()
    } else if percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// How many times as much: `1.8×`, `4,200×`.
pub fn times(factor: f64) -> String {
    if factor < 9.95 {
        format!("{factor:.1}×")
    } else {
        format!("{}×", count(factor.round() as i64))
    }
}

/// A bar that fills its share of `width` columns, in eighths; anything above 0 is visible.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share >= 0.005 {
        eighths.max(1)
    } else {
        eighths
    };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_the_unit_that_fits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (28_848_000_000, "28.8 s"),
            (119_400_000_000, "119 s"),
            (125_000_000_000, "2 min 05 s"),
            (3_599_700_000_000, "60 min 00 s"),
            (7_380_000_000_000, "2 h 03 min"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn counts_have_thousands_separators() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-12_345_678, "-12,345,678"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "row"), "1 row");
        assert_eq!(counted(0, "row"), "0 rows");
    }

    #[test]
    fn bytes_are_binary() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.50 KiB"),
            (1_048_064, "1.00 MiB"),
            (5 << 30, "5.00 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn shares_are_percent_and_bars() {
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(0.0001), "< 0.1 %");
        assert_eq!(percent(0.0995), "10 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(times(1.75), "1.8×");
        assert_eq!(times(4200.4), "4,200×");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(0.006, 8), "▏");
        assert_eq!(bar(0.0, 8), "");
    }
}
