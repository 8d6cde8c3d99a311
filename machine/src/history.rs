//! Readings in two resolutions: one by one for an hour, by minutes for a day.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use crate::metric::{METRICS, Metric};
use crate::readings::Readings;

/// For how long readings are kept one by one.
pub const SINGLE: Duration = Duration::from_secs(60 * 60);

/// For how long minutes are kept.
pub const MINUTES: Duration = Duration::from_secs(24 * 60 * 60);

const MINUTE: Duration = Duration::from_secs(60);

/// A metric over an interval that ends at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The end of the interval.
    pub at: SystemTime,
    /// The length of the interval.
    pub length: Duration,
    /// The metric.
    pub metric: Metric,
    /// Its mean.
    pub mean: f64,
    /// Its smallest reading.
    pub low: f64,
    /// Its largest reading.
    pub high: f64,
}

#[derive(Debug, Clone, Copy)]
struct Single {
    at: SystemTime,
    length: Duration,
    readings: Readings,
}

#[derive(Debug, Clone, Copy)]
struct Minute {
    at: SystemTime,
    sums: [Sum; METRICS],
}

#[derive(Debug, Clone, Copy)]
struct Sum {
    seconds: f64,
    weighted: f64,
    low: f64,
    high: f64,
}

impl Sum {
    const EMPTY: Self = Self {
        seconds: 0.0,
        weighted: 0.0,
        low: f64::INFINITY,
        high: f64::NEG_INFINITY,
    };

    fn add(&mut self, value: f64, length: Duration) {
        self.seconds += length.as_secs_f64();
        self.weighted += value * length.as_secs_f64();
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }
}

/// The readings of a node. About 10 MB at most: ten readings a second for an hour, of 272 bytes each.
#[derive(Debug, Default)]
pub struct History {
    single: VecDeque<Single>,
    minutes: VecDeque<Minute>,
}

impl History {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            single: VecDeque::new(),
            minutes: VecDeque::new(),
        }
    }

    /// Adds readings over the last `length`, and forgets what is too old.
    pub fn add(&mut self, at: SystemTime, length: Duration, readings: Readings) {
        self.single.push_back(Single {
            at,
            length,
            readings,
        });
        let is_old = |then: SystemTime, limit: Duration| {
            at.duration_since(then).is_ok_and(|age| age > limit)
        };
        while self
            .single
            .front()
            .is_some_and(|first| is_old(first.at, SINGLE))
        {
            self.single.pop_front();
        }
        let begins_minute = self
            .minutes
            .back()
            .is_none_or(|last| at.duration_since(last.at).map_or(true, |age| age >= MINUTE));
        if begins_minute {
            self.minutes.push_back(Minute {
                at,
                sums: [Sum::EMPTY; METRICS],
            });
        }
        if let Some(minute) = self.minutes.back_mut() {
            for (metric, value) in readings.present() {
                minute.sums[metric.index()].add(value, length);
            }
        }
        while self
            .minutes
            .front()
            .is_some_and(|first| is_old(first.at, MINUTES))
        {
            self.minutes.pop_front();
        }
    }

    /// All points, from the oldest: minutes as far as there are no single readings of them.
    pub fn points(&self) -> Vec<Point> {
        let single_since = self.single.front().map(|first| first.at);
        let is_before =
            |minute: &&Minute| single_since.is_none_or(|since| minute.at + MINUTE < since);
        let minutes = self.minutes.iter().filter(is_before).flat_map(|minute| {
            let sums = Metric::ALL.into_iter().zip(&minute.sums);
            let sums = sums.filter(|(_, sum)| sum.seconds > 0.0);
            sums.map(|(metric, sum)| Point {
                at: minute.at + MINUTE,
                length: Duration::from_secs_f64(sum.seconds),
                metric,
                mean: sum.weighted / sum.seconds,
                low: sum.low,
                high: sum.high,
            })
        });
        let single = self.single.iter().flat_map(|single| {
            single.readings.present().map(|(metric, value)| Point {
                at: single.at,
                length: single.length,
                metric,
                mean: value,
                low: value,
                high: value,
            })
        });
        minutes.chain(single).collect()
    }

    /// The newest readings.
    pub fn latest(&self) -> Option<Readings> {
        self.single.back().map(|last| last.readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_hour_only_minutes_are_left_and_after_a_day_nothing() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let second = Duration::from_secs(1);
        let mut history = History::new();
        for number in 0..7_200_u32 {
            let mut readings = Readings::default();
            readings.set(Metric::CpuShare, Some(f64::from(number % 60)));
            history.add(start + second * number, second, readings);
        }
        let points = history.points();
        let (minutes, single): (Vec<&Point>, Vec<&Point>) =
            points.iter().partition(|point| point.length > second);
        assert_eq!(single.len(), 3_601);
        assert!((58..=60).contains(&minutes.len()), "{}", minutes.len());
        assert_eq!(
            (minutes[0].low, minutes[0].mean, minutes[0].high),
            (0.0, 29.5, 59.0)
        );
        assert!(points.is_sorted_by_key(|point| point.at));
        history.add(start + MINUTES * 2, second, Readings::default());
        assert_eq!(history.points(), []);
    }
}
