//! Times in the zone of the session.

use rand::RngExt;
use rand::seq::IndexedRandom;

use super::values::{Row, Rows, time};
use crate::cases::Random;

/// Zones that are the same all year, and how many seconds they are ahead of UTC.
const ZONES: &[(&str, i64)] = &[
    ("UTC", 0),
    ("+05:30", 19_800),
    ("Asia/Kolkata", 19_800),
    ("Asia/Tokyo", 32_400),
    ("America/Phoenix", -25_200),
];

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// What a query asks; each comes to one number.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// Rows whose time without a zone is less than, or equal to, that with one.
    Compared(&'static str),
    /// Rows whose instant is that of a literal without a zone.
    IsLocal(i64),
    /// Rows whose instant is not before one that is said with a zone.
    NotBefore(i64),
    /// The sum of the hours that clocks show.
    Hours,
    /// On how many days instants are.
    Days,
    /// Rows whose instant is on the day of their time without a zone.
    SameDay,
    /// The sum of the seconds between a time and an instant.
    Between,
}

/// A query about times.
#[derive(Debug)]
pub struct Query {
    zone: (&'static str, i64),
    asked: Asked,
}

impl Query {
    pub fn generate(random: &mut Random) -> Self {
        let seconds = [0, 1_710_054_000, 1_709_164_800, 1_709_164_800 + 19_800];
        let second = *seconds.choose(random).expect("a second");
        Self {
            zone: *ZONES.choose(random).expect("a zone"),
            asked: match random.random_range(0..8) {
                0 => Asked::Compared("<"),
                1 => Asked::Compared("="),
                2 => Asked::IsLocal(second),
                3 => Asked::NotBefore(second),
                4 => Asked::Hours,
                5 => Asked::Days,
                6 => Asked::SameDay,
                _ => Asked::Between,
            },
        }
    }

    pub fn set_zone(&self) -> String {
        format!("SET timezone = '{}'", self.zone.0)
    }

    pub fn sql(&self) -> String {
        let asked = match self.asked {
            Asked::Compared(operator) => format!("count(*) FROM v WHERE ts {operator} tz"),
            Asked::IsLocal(second) => format!("count(*) FROM v WHERE tz = '{}'", time(second)),
            Asked::NotBefore(second) => format!(
                "count(*) FROM v WHERE tz >= TIMESTAMP WITH TIME ZONE '{}+00:00'",
                time(second)
            ),
            Asked::Hours => "CAST(sum(extract(hour FROM tz)) AS BIGINT) FROM v".to_owned(),
            Asked::Days => "count(DISTINCT CAST(tz AS DATE)) FROM v".to_owned(),
            Asked::SameDay => "count(*) FROM v \
                               WHERE date_trunc('day', ts) = date_trunc('day', CAST(tz AS TIMESTAMP))"
                .to_owned(),
            Asked::Between => "CAST(sum(extract(epoch FROM (ts - tz))) AS BIGINT) FROM v".to_owned(),
        };
        format!("SELECT {asked}")
    }

    /// What clocks in the zone show at an instant, in seconds.
    fn local(&self, instant: i64) -> i64 {
        instant + self.zone.1
    }

    /// The instant when clocks in the zone show that.
    fn instant(&self, local: i64) -> i64 {
        local - self.zone.1
    }

    /// The number.
    pub fn evaluate(&self, rows: &Rows) -> String {
        let count = |keeps: &dyn Fn(&Row) -> Option<bool>| {
            let kept = rows.all().filter(|row| keeps(row) == Some(true));
            kept.count().to_string()
        };
        let sum = |of: &dyn Fn(&Row) -> Option<i64>| {
            let numbers: Vec<i64> = rows.all().filter_map(of).collect();
            match numbers[..] {
                [] => "NULL".to_owned(),
                _ => numbers.iter().sum::<i64>().to_string(),
            }
        };
        match self.asked {
            Asked::Compared(operator) => count(&|row| {
                let (left, right) = (self.instant(row.ts?), row.tz?);
                Some(match operator {
                    "<" => left < right,
                    _ => left == right,
                })
            }),
            Asked::IsLocal(second) => count(&|row| Some(row.tz? == self.instant(second))),
            Asked::NotBefore(second) => count(&|row| Some(row.tz? >= second)),
            Asked::Hours => sum(&|row| Some(self.local(row.tz?).rem_euclid(DAY) / HOUR)),
            Asked::Days => {
                let instants = rows.all().filter_map(|row| row.tz);
                let mut days: Vec<i64> =
                    instants.map(|tz| self.local(tz).div_euclid(DAY)).collect();
                days.sort_unstable();
                days.dedup();
                days.len().to_string()
            }
            Asked::SameDay => {
                count(&|row| Some(row.ts?.div_euclid(DAY) == self.local(row.tz?).div_euclid(DAY)))
            }
            Asked::Between => sum(&|row| Some(self.instant(row.ts?) - row.tz?)),
        }
    }
}
