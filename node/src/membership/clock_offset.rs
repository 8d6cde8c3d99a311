//! How far a worker's clock is off.
//!
//! The master asks a worker for the time and notes when it asked and when the answer came. The
//! worker has read its clock in between: taken for the middle, that is wrong by at most half of
//! the round trip. Of several readings the one with the shortest round trip says most, but the
//! older it is, the further the clocks may have drifted apart since.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many readings are kept.
const READINGS: usize = 16;

/// How fast two clocks drift apart at most: quartz is good to some 50 in a million, each.
const DRIFT_PER_SECOND: Duration = Duration::from_micros(100);

/// What a clock is ahead of the master's, and by how much that may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockEstimate {
    /// Nanoseconds.
    pub offset_ns: i64,
    /// Nanoseconds.
    pub error_ns: i64,
}

/// The last readings of a clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClockReadings {
    readings: VecDeque<(Instant, ClockEstimate)>,
}

impl ClockReadings {
    /// A question was asked when the master's clock stood at `asked_ns`, its answer `theirs_ns`
    /// came after `round_trip`, at `now`.
    pub(crate) fn add(
        &mut self,
        asked_ns: i64,
        theirs_ns: i64,
        round_trip: Duration,
        now: Instant,
    ) {
        let half = nanos(round_trip) / 2;
        let estimate = ClockEstimate {
            offset_ns: theirs_ns - asked_ns.saturating_add(half),
            error_ns: half + 1,
        };
        if self.readings.len() == READINGS {
            self.readings.pop_front();
        }
        self.readings.push_back((now, estimate));
    }

    /// The estimate with the smallest error at `now`; `None` before the first reading.
    pub(crate) fn estimate(&self, now: Instant) -> Option<ClockEstimate> {
        let aged = self.readings.iter().map(|(read, estimate)| {
            let age = now.saturating_duration_since(*read);
            let drift = nanos(DRIFT_PER_SECOND.mul_f64(age.as_secs_f64()));
            ClockEstimate {
                error_ns: estimate.error_ns.saturating_add(drift),
                ..*estimate
            }
        });
        aged.min_by_key(|estimate| estimate.error_ns)
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a clock that is ahead by `ahead` answers after the way there took `there`.
    fn answer(asked: i64, there: Duration, ahead: i64) -> i64 {
        asked + nanos(there) + ahead
    }

    #[test]
    fn the_true_offset_is_within_the_error_however_the_round_trip_is_divided() {
        let ms = Duration::from_millis;
        for (there, back) in [(0, 40), (40, 0), (20, 20), (39, 1)] {
            let mut readings = ClockReadings::default();
            let now = Instant::now();
            let theirs = answer(1_000, ms(there), 7_777);
            readings.add(1_000, theirs, ms(there + back), now);
            let estimate = readings.estimate(now).unwrap();
            let wrong = (estimate.offset_ns - 7_777).abs();
            assert!(wrong <= estimate.error_ns, "{there} {back}: {estimate:?}");
        }
    }

    #[test]
    fn the_shortest_round_trip_counts_until_it_is_too_old() {
        let ms = Duration::from_millis;
        let mut readings = ClockReadings::default();
        assert_eq!(readings.estimate(Instant::now()), None);
        let start = Instant::now();
        readings.add(0, answer(0, ms(1), 100), ms(2), start);
        for _ in 0..READINGS / 2 {
            readings.add(0, answer(0, ms(30), -500), ms(40), start);
        }
        assert_eq!(readings.estimate(start).unwrap().offset_ns, 100);
        let later = start + Duration::from_secs(600);
        readings.add(0, answer(0, ms(20), 400), ms(40), later);
        let estimate = readings.estimate(later).unwrap();
        assert_eq!(estimate.offset_ns, 400);
        assert!(estimate.error_ns >= nanos(ms(20)));
    }
}
