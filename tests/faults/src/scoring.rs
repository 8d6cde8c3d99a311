//! Counts and their intervals. No clock and no database: the tests assert numbers.

use std::collections::BTreeMap;

/// The quantile of the normal distribution for 95 % on two sides.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's interval at 95 % of a share: `hits` of `trials`. Nothing is known of no trials.
///
/// `trials` may be a fraction, as that of F1 is.
pub fn wilson(hits: f64, trials: f64) -> (f64, f64) {
    if trials <= 0.0 {
        return (0.0, 1.0);
    }
    let share = hits / trials;
    let square = Z * Z;
    let scale = 1.0 + square / trials;
    let center = (share + square / (2.0 * trials)) / scale;
    let variance = share * (1.0 - share) / trials + square / (4.0 * trials * trials);
    let half = Z * variance.sqrt() / scale;
    ((center - half).max(0.0), (center + half).min(1.0))
}

/// The median; the mean of the two in the middle if there are two. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// What a fault cost, by runs with it and without it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truth {
    /// Median of the runs with the fault.
    pub with_ns: f64,
    /// Median of the runs without it.
    pub without_ns: f64,
    /// Whether the fault made nearly each pair of runs slower: else the difference may be an accident.
    pub is_sure: bool,
}

impl Truth {
    /// Runs with and without the fault, in pairs; `None` if one of the sides has none.
    pub fn of(with: &[f64], without: &[f64]) -> Option<Truth> {
        let slower = Share::where_true(with.iter().zip(without), |(with, without)| with > without);
        Some(Truth {
            with_ns: median(with)?,
            without_ns: median(without)?,
            is_sure: slower.value()? >= SURE_FROM,
        })
    }

    /// The difference of the medians.
    pub fn cost_ns(&self) -> f64 {
        self.with_ns - self.without_ns
    }

    /// The cost as a share of the time with the fault.
    pub fn share(&self) -> f64 {
        self.cost_ns() / self.with_ns.max(1.0)
    }

    /// Whether the fault cost so little that the case counts as clean.
    pub fn is_clean(&self) -> bool {
        self.share() < CLEAN_BELOW
    }

    /// Whether the fault cost enough for the share of right first diagnoses that is promised.
    pub fn is_large(&self) -> bool {
        self.share() >= LARGE_FROM
    }
}

/// A fault is sure to cost something if it makes this share of the pairs slower.
pub const SURE_FROM: f64 = 0.8;

/// A case whose fault costs a smaller share counts as clean.
pub const CLEAN_BELOW: f64 = 0.05;

/// A case whose fault costs at least this share must be found.
pub const LARGE_FROM: f64 = 0.2;

/// How far an estimate is off: 2 for twice or half the truth. Infinite for an estimate of nothing.
pub fn ratio(estimate: f64, truth: f64) -> f64 {
    if estimate <= 0.0 || truth <= 0.0 {
        return f64::INFINITY;
    }
    (estimate / truth).max(truth / estimate)
}

/// Right, wrong and missing findings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Findings that are right.
    pub hits: usize,
    /// Findings that are wrong.
    pub false_alarms: usize,
    /// Faults without a right finding.
    pub misses: usize,
}

impl Tally {
    /// Share of right ones among findings.
    pub fn precision(&self) -> Share {
        Share::of(self.hits as f64, (self.hits + self.false_alarms) as f64)
    }

    /// Share of faults found.
    pub fn recall(&self) -> Share {
        Share::of(self.hits as f64, (self.hits + self.misses) as f64)
    }

    /// The harmonic mean of both: hits ÷ (hits + half of all mistakes). Its interval is Wilson's of
    /// this fraction.
    pub fn f1(&self) -> Share {
        let mistakes = (self.false_alarms + self.misses) as f64;
        Share::of(self.hits as f64, self.hits as f64 + mistakes / 2.0)
    }
}

/// A share with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// How often.
    pub hits: f64,
    /// Out of how many.
    pub trials: f64,
}

impl Share {
    /// `hits` of `trials`.
    pub fn of(hits: f64, trials: f64) -> Share {
        Share { hits, trials }
    }

    /// Counts the elements for which a condition holds.
    pub fn where_true<T>(items: impl IntoIterator<Item = T>, holds: impl Fn(&T) -> bool) -> Share {
        let (mut hits, mut trials) = (0_usize, 0_usize);
        for item in items {
            trials += 1;
            hits += usize::from(holds(&item));
        }
        Share::of(hits as f64, trials as f64)
    }

    /// The share itself; `None` of nothing.
    pub fn value(&self) -> Option<f64> {
        (self.trials > 0.0).then(|| self.hits / self.trials)
    }

    /// Wilson's interval at 95 %.
    pub fn interval(&self) -> (f64, f64) {
        wilson(self.hits, self.trials)
    }
}

/// How often each fault (row) was named as each rule (column).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Confusion {
    counts: BTreeMap<(String, String), usize>,
}

impl Confusion {
    /// Counts one case.
    pub fn add(&mut self, injected: &str, named: &str) {
        let key = (injected.to_owned(), named.to_owned());
        *self.counts.entry(key).or_default() += 1;
    }

    /// How often `injected` was named `named`.
    pub fn count(&self, injected: &str, named: &str) -> usize {
        let key = (injected.to_owned(), named.to_owned());
        self.counts.get(&key).copied().unwrap_or_default()
    }

    /// All faults, sorted.
    pub fn rows(&self) -> Vec<&str> {
        let mut rows: Vec<&str> = self.counts.keys().map(|(row, _)| row.as_str()).collect();
        rows.dedup();
        rows
    }

    /// All rules, sorted.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = self
            .counts
            .keys()
            .map(|(_, named)| named.as_str())
            .collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}
