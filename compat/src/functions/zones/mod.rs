//! Instants and what the clocks of a time zone show.
//!
//! * [`Timezone`]: the function `timezone(zone, time)`, which is `time AT TIME ZONE zone`
//! * [`AddInterval`]: instants some months, days and hours later
//! * [`ReadTime`]: texts as instants and as local times; [`ShowTime`]: these as texts
//!
//! Arrow's casts refuse local times that a zone skips or repeats, and from an instant to a local time they
//! give the time of UTC (apache/datafusion issues 13212, 25095 and 25166). These functions follow PostgreSQL:
//! a skipped time is read with the offset before the change, a repeated one with the offset after it.

mod add_interval;
mod read_time;
mod show_time;
mod timezone;

use chrono::{DateTime, MappedLocalTime, Offset, TimeDelta, TimeZone};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::TimeUnit;
use datafusion::common::{Result, exec_datafusion_err};

pub use add_interval::AddInterval;
pub use read_time::{ReadTime, read_time};
pub use show_time::ShowTime;
pub use timezone::Timezone;

/// The zone of sessions that have set none.
pub const UTC: &str = "+00:00";

/// No zone skips more than a day: Samoa left out 30 December 2011.
const LONGEST_SKIP: i64 = 25;

/// The zone that a name or an offset stands for.
fn zone(name: &str) -> Result<Tz> {
    let parsed = name.parse().ok();
    let parsed = parsed.or_else(|| canonical(name)?.parse().ok());
    parsed.ok_or_else(|| {
        exec_datafusion_err!(
            "there is no time zone {name:?}: write one as 'Europe/Oslo', 'UTC' or '+02:00'"
        )
    })
}

/// The name of a zone as it is spelled, however it is written: `america/new_york`, `utc`; `None` if there is no
/// such zone.
pub fn canonical(name: &str) -> Option<String> {
    let mut begins = true;
    let capitalized: String = name
        .chars()
        .map(|c| {
            let begun = std::mem::replace(&mut begins, !c.is_ascii_alphanumeric());
            match begun {
                true => c.to_ascii_uppercase(),
                false => c.to_ascii_lowercase(),
            }
        })
        .collect();
    let spelled = [name.to_owned(), name.to_ascii_uppercase(), capitalized];
    let mut known = spelled
        .into_iter()
        .filter(|name| name.parse::<Tz>().is_ok());
    known.next()
}

/// How many of `unit` a second has.
fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// What the clocks of `zone` show at an instant, both in units of which a second has `per_second`; `None`
/// beyond the years that there are.
fn local_time(zone: &Tz, instant: i64, per_second: i64) -> Option<i64> {
    let utc = DateTime::from_timestamp(instant.div_euclid(per_second), 0)?.naive_utc();
    let offset = zone.offset_from_utc_datetime(&utc).fix();
    instant.checked_add(i64::from(offset.local_minus_utc()) * per_second)
}

/// The instant at which the clocks of `zone` show a local time, both in units of which a second has
/// `per_second`; `None` beyond the years that there are.
fn instant(zone: &Tz, local: i64, per_second: i64) -> Option<i64> {
    let time = DateTime::from_timestamp(local.div_euclid(per_second), 0)?.naive_utc();
    let offset_of = |time| match zone.offset_from_local_datetime(&time) {
        MappedLocalTime::Single(offset) => Some(offset),
        MappedLocalTime::Ambiguous(_, after) => Some(after),
        MappedLocalTime::None => None,
    };
    let before = (1..=LONGEST_SKIP).map(|hours| time - TimeDelta::hours(hours));
    let offset = std::iter::once(time).chain(before).find_map(offset_of)?;
    local.checked_sub(i64::from(offset.fix().local_minus_utc()) * per_second)
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDateTime;

    use super::*;

    fn seconds(text: &str) -> i64 {
        let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
        time.and_utc().timestamp()
    }

    #[test]
    fn skipped_and_repeated_times_are_read_as_postgresql_reads_them() {
        for (name, local, utc) in [
            ("America/New_York", "2024-07-01 12:00", "2024-07-01 16:00"),
            ("America/New_York", "2024-03-10 02:30", "2024-03-10 07:30"),
            ("America/New_York", "2024-11-03 01:30", "2024-11-03 06:30"),
            ("Europe/Dublin", "2024-03-31 01:30", "2024-03-31 01:30"),
            ("Europe/Dublin", "2024-10-27 01:30", "2024-10-27 01:30"),
            ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 22:00"),
            ("Asia/Kathmandu", "1969-12-31 23:59", "1969-12-31 18:29"),
            ("-03:30", "2024-01-01 00:00", "2024-01-01 03:30"),
        ] {
            let zone = zone(name).unwrap();
            for unit in [TimeUnit::Second, TimeUnit::Nanosecond] {
                let scale = per_second(unit);
                let found = instant(&zone, seconds(local) * scale, scale).unwrap();
                assert_eq!(found, seconds(utc) * scale, "{name} {local}");
            }
        }
    }

    #[test]
    fn clocks_show_the_time_of_their_zone() {
        let zone = zone("America/New_York").unwrap();
        let local = |utc: &str| local_time(&zone, seconds(utc), 1).unwrap();
        assert_eq!(local("2024-03-10 06:59"), seconds("2024-03-10 01:59"));
        assert_eq!(local("2024-03-10 07:00"), seconds("2024-03-10 03:00"));
        assert_eq!(local_time(&zone, -1, 1_000), Some(-18_000_001));
        assert_eq!(local_time(&zone, i64::MIN, 1_000_000_000), None);
    }

    #[test]
    fn names_are_known_however_they_are_written() {
        for (written, spelled) in [
            ("utc", "UTC"),
            ("america/NEW_york", "America/New_York"),
            ("Europe/Oslo", "Europe/Oslo"),
            ("-03:30", "-03:30"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(spelled));
        }
        assert_eq!(canonical("Mars/Olympus"), None);
    }

    #[test]
    fn an_unknown_zone_is_named() {
        let error = zone("Mars/Olympus").unwrap_err();
        assert!(error.to_string().contains("Mars/Olympus"), "{error}");
    }
}
