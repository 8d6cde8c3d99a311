//! `profile.budget`: what profiling may cost picks how much is recorded of each query.
//!
//! Two things are measured. While a query runs, the recorder compares what its threads spend on
//! recording with the time that passes, and lowers the share of records that are traced
//! ([`Sampling`](crate::Sampling)). What it cannot see, such as reading row ids or a shortcut that
//! the planner had to give up, shows when the same statement runs with and without records: so some
//! of the first runs of a statement record no records, and what the others took against that decides
//! from then on.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::level::Level;

/// Statements that are remembered; whichever was not run for longest is forgotten first.
const STATEMENTS: usize = 1024;

/// Runs of each kind that are remembered; the fastest of them is compared, since other work of the
/// machine only ever adds time.
const RUNS: usize = 5;

/// Runs of each kind after which the comparison decides.
const ENOUGH: usize = 3;

/// One run out of so many is of the kind that the comparison decided against: data and machines
/// change.
const SECOND_LOOK: u64 = 16;

/// What the statements of a database took, with records and without.
#[derive(Debug, Default)]
pub struct Budgets(Mutex<Histories>);

#[derive(Debug, Default)]
struct Histories {
    by_fingerprint: HashMap<String, History>,
    runs: u64,
}

#[derive(Debug)]
struct History {
    last_run: u64,
    runs: u64,
    with_records: VecDeque<Duration>,
    without: VecDeque<Duration>,
    /// The share of records that was traced at the end of the last run that traced any.
    rate: f64,
}

/// How much is recorded of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// `records` or `counters`.
    pub level: Level,
    /// The share of records that is traced at first.
    pub rate: f64,
}

impl Budgets {
    /// What to record of the next run of a statement, of whose time recording may take a share of
    /// `budget`, and of whose records at most a share of `rate` is to be traced.
    pub fn choose(&self, fingerprint: &str, budget: f64, rate: f64) -> Choice {
        let mut histories = self.0.lock();
        histories.runs += 1;
        let now = histories.runs;
        if !histories.by_fingerprint.contains_key(fingerprint)
            && histories.by_fingerprint.len() >= STATEMENTS
        {
            histories.forget_one();
        }
        let history = histories.by_fingerprint.entry(fingerprint.to_owned());
        let history = history.or_insert_with(|| History {
            last_run: now,
            runs: 0,
            with_records: VecDeque::new(),
            without: VecDeque::new(),
            rate: 1.0,
        });
        history.last_run = now;
        history.runs += 1;
        Choice {
            level: match history.wants_records(budget) {
                true => Level::Records,
                false => Level::Counters,
            },
            // What was too much the last time may do this time.
            rate: rate.min(history.rate * 2.0),
        }
    }

    /// A run of a statement took `time`.
    pub fn ran(&self, fingerprint: &str, ran: Choice, time: Duration) {
        let mut histories = self.0.lock();
        let Some(history) = histories.by_fingerprint.get_mut(fingerprint) else {
            return;
        };
        let times = match ran.level {
            Level::Records => {
                // Not 0, from which it could not rise.
                history.rate = ran.rate.max(1e-6);
                &mut history.with_records
            }
            _ => &mut history.without,
        };
        times.push_back(time);
        if times.len() > RUNS {
            times.pop_front();
        }
    }
}

impl Histories {
    fn forget_one(&mut self) {
        let oldest = self
            .by_fingerprint
            .iter()
            .min_by_key(|(_, history)| history.last_run);
        if let Some(fingerprint) = oldest.map(|(fingerprint, _)| fingerprint.clone()) {
            self.by_fingerprint.remove(&fingerprint);
        }
    }
}

impl History {
    fn wants_records(&self, budget: f64) -> bool {
        let (with, without) = (&self.with_records, &self.without);
        if with.len() < ENOUGH || without.len() < ENOUGH {
            return with.len() <= without.len();
        }
        let affordable = match (with.iter().min(), without.iter().min()) {
            (Some(with), Some(without)) => {
                with.as_secs_f64() <= without.as_secs_f64() * (1.0 + budget)
            }
            _ => true,
        };
        affordable != self.runs.is_multiple_of(SECOND_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The levels of `run_length` runs of a statement that takes `extra` of its time longer with records.
    fn levels(budget: f64, extra: f64, runs: usize) -> Vec<Level> {
        let budgets = Budgets::default();
        let run = |run: usize| {
            let choice = budgets.choose("q", budget, 1.0);
            let noise = 1.0 + (run / 3 % 2) as f64 * 0.5;
            let time = match choice.level {
                Level::Records => 1.0 + extra,
                _ => 1.0,
            };
            budgets.ran("q", choice, Duration::from_secs_f64(time * noise));
            choice.level
        };
        (0..runs).map(run).collect()
    }

    #[test]
    fn records_are_recorded_where_the_budget_allows_and_looked_at_again() {
        let count = |levels: &[Level]| levels.iter().filter(|l| **l == Level::Records).count();
        let cheap = levels(0.05, 0.02, 100);
        assert_eq!(
            cheap[0],
            Level::Records,
            "the first run of a slow query counts"
        );
        assert!(count(&cheap) >= 88, "{}", count(&cheap));
        assert!(count(&cheap[10..]) < 90, "the other kind has its runs, too");
        let dear = levels(0.05, 0.3, 100);
        assert!((4..=12).contains(&count(&dear)), "{}", count(&dear));
    }

    #[test]
    fn the_rate_of_the_last_run_is_where_the_next_begins() {
        let budgets = Budgets::default();
        let first = budgets.choose("q", 0.05, 1.0);
        assert_eq!(first.rate, 1.0);
        let ended = Choice {
            rate: 0.01,
            ..first
        };
        budgets.ran("q", ended, Duration::from_secs(1));
        assert!((budgets.choose("q", 0.05, 1.0).rate - 0.02).abs() < 1e-9);
        assert!((budgets.choose("q", 0.05, 0.001).rate - 0.001).abs() < 1e-9);
        assert_eq!(budgets.choose("another", 0.05, 1.0).rate, 1.0);
    }

    #[test]
    fn the_statement_that_was_not_run_for_longest_is_forgotten() {
        let budgets = Budgets::default();
        for number in 0..=STATEMENTS {
            budgets.choose(&number.to_string(), 0.05, 1.0);
            budgets.choose("kept", 0.05, 1.0);
        }
        let histories = budgets.0.lock();
        assert_eq!(histories.by_fingerprint.len(), STATEMENTS);
        assert!(
            histories.by_fingerprint.contains_key("kept")
                && !histories.by_fingerprint.contains_key("0")
        );
    }
}
