//! Rows with values at the ends of their types.

use rand::RngExt;
use rand::seq::IndexedRandom;
use skewer::Session;

use crate::cases::Random;

/// Of `a`, a BIGINT.
const LARGE: &[Option<i64>] = &[
    None,
    Some(0),
    Some(1),
    Some(-1),
    Some(5),
    Some(-7),
    Some(1 << 53),
    Some(-(1 << 53) - 1),
    Some(i64::MAX - 1),
    Some(i64::MIN + 1),
    Some(i64::MAX),
    Some(i64::MIN),
];

/// How many of `LARGE` are far from the ends.
const ORDINARY: usize = 8;

/// Of `b`, an INTEGER.
const SMALL: &[Option<i32>] = &[
    None,
    Some(0),
    Some(1),
    Some(-1),
    Some(3),
    Some(i32::MAX),
    Some(i32::MIN),
];

/// Of `f`, a DOUBLE: sums of those that are finite are exact in any order.
const FLOATS: &[Option<f64>] = &[
    None,
    Some(0.0),
    Some(1.5),
    Some(-2.25),
    Some(1024.0),
    Some(f64::NAN),
    Some(f64::INFINITY),
    Some(f64::NEG_INFINITY),
];

/// Of `s`, a VARCHAR.
const TEXTS: &[Option<&str>] = &[
    None,
    Some(""),
    Some(" "),
    Some("B"),
    Some("a"),
    Some("a much longer text than fits in twelve bytes"),
    Some("zz"),
    Some("ä"),
];

/// Of `d`, a DATE, ascending.
const DATES: &[Option<&str>] = &[
    None,
    Some("0001-01-01"),
    Some("1969-12-31"),
    Some("1970-01-01"),
    Some("2024-02-29"),
    Some("9999-12-31"),
];

/// Of `ts`, a TIMESTAMP, and of `tz`, a TIMESTAMP WITH TIME ZONE, in seconds since 1970: both are near
/// midnight in zones that there are.
const SECONDS: &[Option<i64>] = &[
    None,
    Some(0),
    Some(-1),
    Some(1_710_053_999),
    Some(1_710_054_000),
    Some(1_709_164_800 + 19_800),
    Some(1_709_164_800 - 19_800),
    Some(1_709_164_800 - 32_400),
    Some(1_709_164_800 + 25_200),
    Some(4_102_444_799),
];

/// A row of table `v`.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: i64,
    pub k: Option<i64>,
    pub a: Option<i64>,
    pub b: Option<i32>,
    pub f: Option<f64>,
    pub s: Option<&'static str>,
    pub d: Option<&'static str>,
    pub ts: Option<i64>,
    pub tz: Option<i64>,
}

/// The rows of table `v`, segment by segment.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    segments: Vec<Vec<Row>>,
}

impl Rows {
    /// Some segments of some rows. Half of the tables have no numbers at the ends.
    pub fn generate(random: &mut Random) -> Self {
        let large = match random.random_range(0..2) {
            0 => &LARGE[..ORDINARY],
            _ => LARGE,
        };
        let small = match random.random_range(0..2) {
            0 => &SMALL[..5],
            _ => SMALL,
        };
        let mut id = 0;
        let segments = (0..random.random_range(1..6)).map(|_| {
            let rows = (0..random.random_range(1..7)).map(|_| {
                id += 1;
                Row {
                    id,
                    k: (random.random_range(0..5) > 0).then(|| random.random_range(0..3)),
                    a: *large.choose(random).expect("a value"),
                    b: *small.choose(random).expect("a value"),
                    f: *FLOATS.choose(random).expect("a value"),
                    s: *TEXTS.choose(random).expect("a value"),
                    d: *DATES.choose(random).expect("a value"),
                    ts: *SECONDS.choose(random).expect("a value"),
                    tz: *SECONDS.choose(random).expect("a value"),
                }
            });
            rows.collect()
        });
        Self {
            segments: segments.collect(),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Row> {
        self.segments.iter().flatten()
    }

    /// Makes table `v` of them: each segment is inserted by itself.
    pub async fn create(&self, session: &Session) {
        let create = "CREATE OR REPLACE TABLE v (id BIGINT, k BIGINT, a BIGINT, b INTEGER, f DOUBLE, \
                      s VARCHAR, d DATE, ts TIMESTAMP, tz TIMESTAMP WITH TIME ZONE)";
        session.sql("SET timezone = 'UTC'").await.unwrap();
        session.sql(create).await.unwrap();
        for segment in &self.segments {
            let rows: Vec<String> = segment.iter().map(Row::literal).collect();
            let insert = format!("INSERT INTO v VALUES {}", rows.join(", "));
            session.sql(&insert).await.unwrap();
        }
    }
}

impl Row {
    fn literal(&self) -> String {
        let or_null = |literal: Option<String>| literal.unwrap_or_else(|| "NULL".to_owned());
        let time = |seconds: i64, zone: &str| format!("'{}{zone}'", time(seconds));
        let values = [
            Some(self.id.to_string()),
            self.k.map(|k| k.to_string()),
            self.a.map(|a| a.to_string()),
            self.b.map(|b| b.to_string()),
            self.f.map(|f| format!("CAST('{f}' AS DOUBLE)")),
            self.s.map(|s| format!("'{s}'")),
            self.d.map(|d| format!("DATE '{d}'")),
            self.ts.map(|ts| time(ts, "")),
            self.tz.map(|tz| time(tz, "Z")),
        ];
        let values: Vec<String> = values.into_iter().map(or_null).collect();
        format!("({})", values.join(", "))
    }
}

/// Seconds since 1970 as a time in UTC. (Howard Hinnant, *chrono-compatible low-level date algorithms*.)
pub fn time(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = year + era * 400 + next;
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[test]
fn times_are_those_of_the_calendar() {
    assert_eq!(time(0), "1970-01-01 00:00:00");
    assert_eq!(time(-1), "1969-12-31 23:59:59");
    assert_eq!(time(1_709_164_800), "2024-02-29 00:00:00");
    assert_eq!(time(4_102_444_799), "2099-12-31 23:59:59");
}
