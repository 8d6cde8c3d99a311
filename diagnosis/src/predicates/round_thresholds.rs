//! Numbers and times that a person would choose to draw a line at.

use datafusion::arrow::temporal_conversions::{date32_to_datetime, timestamp_us_to_datetime};

/// Significant digits that a 64-bit floating-point number has at most.
const DIGITS: i32 = 17;

/// Microseconds of what a time is rounded to: years are left to days.
const STEPS: [i64; 8] = [
    30 * 86_400_000_000,
    86_400_000_000,
    3_600_000_000,
    60_000_000,
    1_000_000,
    100_000,
    1_000,
    1,
];

/// The roundest number `n` with `from <= n < to`, or, if not `above`, `from < n <= to`. Of equally
/// round ones that next to the records that are singled out: the largest, or the smallest.
pub(super) fn round(from: f64, to: f64, above: bool) -> f64 {
    if !above {
        return -round(-to, -from, true);
    }
    if from < 0.0 && to > 0.0 {
        return 0.0;
    }
    let fits = |n: f64| n >= from && n < to;
    for mantissas in [&[1.0][..], &[1.0, 2.0, 5.0]] {
        if let Some(best) = best_of(to, mantissas).filter(|n| fits(*n)) {
            return best;
        }
    }
    for digits in 1..=DIGITS {
        let candidate = with_digits(to, digits);
        if fits(candidate) {
            return candidate;
        }
    }
    from
}

/// The largest number below `to` that is a power of ten times one of the mantissas.
fn best_of(to: f64, mantissas: &[f64]) -> Option<f64> {
    let magnitude = to.abs().log10();
    if !magnitude.is_finite() {
        return None;
    }
    let exponents = (magnitude.floor() as i32 - 1)..=(magnitude.ceil() as i32 + 1);
    let candidates = exponents.flat_map(|exponent| {
        mantissas
            .iter()
            .map(move |mantissa| power(*mantissa, exponent))
    });
    let signed = candidates.map(|n| if to > 0.0 { n } else { -n });
    signed.filter(|n| *n < to).max_by(f64::total_cmp)
}

/// Exact for what decimal notation is exact for.
fn power(mantissa: f64, exponent: i32) -> f64 {
    match exponent {
        0.. => mantissa * 10_f64.powi(exponent),
        _ => mantissa / 10_f64.powi(-exponent),
    }
}

/// The largest number below `to` with so many significant digits.
fn with_digits(to: f64, digits: i32) -> f64 {
    if to == 0.0 {
        return f64::NEG_INFINITY;
    }
    let exponent = to.abs().log10().floor() as i32 - digits + 1;
    let steps = match exponent {
        0.. => to / 10_f64.powi(exponent),
        _ => to * 10_f64.powi(-exponent),
    };
    let below = if steps.fract() == 0.0 {
        steps - 1.0
    } else {
        steps.floor()
    };
    power(below, exponent)
}

/// The same for whole numbers.
pub(super) fn whole(from: f64, to: f64, above: bool) -> i64 {
    let rounded = round(from, to, above);
    match rounded.fract() == 0.0 {
        true => rounded as i64,
        false if above => from as i64,
        false => to as i64,
    }
}

/// The same for days since 1970.
pub(super) fn day(from: f64, to: f64, above: bool) -> i64 {
    match above {
        true => to.ceil() as i64 - 1,
        false => from.floor() as i64 + 1,
    }
}

/// The same for microseconds since 1970, which are rounded to days, hours, minutes …
pub(super) fn time(from: f64, to: f64, above: bool) -> i64 {
    let (from, to) = (from as i64, to as i64);
    for step in STEPS {
        let candidate = match above {
            true => (to - 1).div_euclid(step) * step,
            false => (from.div_euclid(step) + 1) * step,
        };
        let fits = match above {
            true => candidate >= from && candidate < to,
            false => candidate > from && candidate <= to,
        };
        if fits {
            return candidate;
        }
    }
    if above { from } else { to }
}

/// A number as a literal: digits, without an exponent where it is not needed.
pub(super) fn number(number: f64) -> String {
    if number.abs() < 1e15 && (number == 0.0 || number.abs() >= 1e-6) {
        return format!("{number}");
    }
    format!("{number:e}")
}

/// Days since 1970 as a literal.
pub(super) fn date(day: i64) -> String {
    let day = i32::try_from(day).ok().and_then(date32_to_datetime);
    match day {
        Some(day) => format!("DATE '{}'", day.format("%Y-%m-%d")),
        None => "NULL".to_owned(),
    }
}

/// Microseconds since 1970 as a literal.
pub(super) fn timestamp(microseconds: i64, utc: bool) -> String {
    let Some(time) = timestamp_us_to_datetime(microseconds) else {
        return "NULL".to_owned();
    };
    let text = time.format("%Y-%m-%d %H:%M:%S%.f");
    let zone = if utc { "+00:00" } else { "" };
    format!("TIMESTAMP '{text}{zone}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_at_round_numbers() {
        for (from, to, above, expected) in [
            (300.0, 1_500_000.0, true, 1_000_000.0),
            (300.0, 1_000_000.0, true, 100_000.0),
            (41.0, 42.0, true, 41.0),
            (212.0, 260.0, true, 250.0),
            (150.0, 450.0, true, 200.0),
            (-5.0, 7.0, true, 0.0),
            (-1_500_000.0, -300.0, true, -1000.0),
            (0.0012, 0.04, true, 0.01),
            (3.0, 9.0, false, 5.0),
            (0.0, 1.0, true, 0.1),
            (99.0, 101.0, true, 100.0),
        ] {
            assert_eq!(round(from, to, above), expected, "{from} to {to}, {above}");
        }
        assert_eq!(whole(0.0, 1.0, true), 0);
        assert_eq!(whole(7.0, 8.0, false), 8);
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(1e21), "1e21");
    }

    #[test]
    fn any_line_is_between_its_neighbours() {
        let values = [
            -1e9, -77.7, -1.0, -1e-9, 0.0, 1e-7, 0.5, 3.0, 12_345.678, 1e15,
        ];
        for (index, from) in values.iter().enumerate() {
            for to in &values[index + 1..] {
                let above = round(*from, *to, true);
                assert!(above >= *from && above < *to, "{from} <= {above} < {to}");
                let below = round(*from, *to, false);
                assert!(below > *from && below <= *to, "{from} < {below} <= {to}");
            }
        }
    }

    #[test]
    fn times_are_rounded_to_what_people_say() {
        let second = 1e6;
        let at = |hour: f64| (19_723.0 * 24.0 + hour) * 3600.0 * second;
        let line = |from, to, above| timestamp(time(at(from), at(to), above), false);
        assert_eq!(line(-5.0, 13.5, true), "TIMESTAMP '2024-01-01 00:00:00'");
        assert_eq!(line(11.2, 13.5, true), "TIMESTAMP '2024-01-01 13:00:00'");
        assert_eq!(line(11.2, 13.5, false), "TIMESTAMP '2024-01-01 12:00:00'");
        assert_eq!(date(day(19_722.0, 19_724.0, true)), "DATE '2024-01-01'");
    }
}
