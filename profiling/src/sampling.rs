//! Which base records are traced, and how that share falls when tracing costs too much.
//!
//! A record is traced if the hash of its row id is below a threshold: the choice depends on the id
//! alone, so every run and every worker traces the same records, and the records of a lower rate
//! are among those of a higher one. That is why the rate may fall while a query runs: in the end,
//! what the last threshold admits has been traced from the first row on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thread_local::ThreadLocal;

/// A number for a row id that says nothing of it: the finalizer of SplitMix64 (Steele, Lea and
/// Flood, OOPSLA 2014). It is asked for every row, where a hasher's set-up would be most of the cost.
fn mixed(id: i64) -> u64 {
    let mut bits = (id as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Spending below this is not compared with a budget: planning has taken longer.
const WORTH_CHECKING: Duration = Duration::from_micros(50);

/// Chooses the base records of a query that are traced.
///
/// With a budget, each thread compares what it has spent on recording with the time since the query
/// began, and if it is more than the budget's share, halves the rate. So no thread is slowed down by
/// much more than that share, whatever the other threads do.
#[derive(Debug)]
pub struct Sampling {
    /// The share of base records that is traced now, as the bits of a float.
    rate: AtomicU64,
    /// The share of the query's time that recording may take.
    budget: Option<f64>,
    started: Instant,
    /// Nanoseconds that each thread has spent on recording.
    spent: ThreadLocal<AtomicU64>,
}

impl Sampling {
    /// Traces a share of `rate` of all records, 0 to 1; less if recording takes more than a share
    /// of `budget` of the time that passes from now on.
    pub fn new(rate: f64, budget: Option<f64>) -> Self {
        Self {
            rate: AtomicU64::new(rate.to_bits()),
            budget,
            started: Instant::now(),
            spent: ThreadLocal::new(),
        }
    }

    /// The share of base records that is traced now, 0 to 1.
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Whether every record is traced and always will be.
    pub fn is_complete(&self) -> bool {
        self.budget.is_none() && self.choice().is_all()
    }

    /// Chooses among records with what is known now.
    pub fn choice(&self) -> Choice {
        Choice::of_rate(self.rate())
    }

    /// This thread has spent `time` on recording.
    pub(crate) fn spend(&self, time: Duration) {
        let Some(budget) = self.budget else { return };
        let spent = self.spent.get_or_default();
        // Only this thread writes it.
        let total = spent.load(Ordering::Relaxed) + nanos(time);
        spent.store(total, Ordering::Relaxed);
        if total > nanos(WORTH_CHECKING)
            && total as f64 > budget * self.started.elapsed().as_nanos() as f64
        {
            // Two threads may halve the same rate at once: one of them will find that out again.
            let half = self.rate() / 2.0;
            self.rate.store(half.to_bits(), Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Which records are traced.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    threshold: u64,
}

impl Choice {
    /// Traces a share of `rate` of all records, 0 to 1.
    pub fn of_rate(rate: f64) -> Self {
        Self {
            // The greatest value stands for all records: the cast saturates.
            threshold: (rate * u64::MAX as f64) as u64,
        }
    }

    /// Whether no record is traced.
    pub fn is_none(self) -> bool {
        self.threshold == 0
    }

    /// Whether every record is traced.
    pub fn is_all(self) -> bool {
        self.threshold == u64::MAX
    }

    /// Whether record `id` is traced.
    pub fn traces(self, id: i64) -> bool {
        self.is_all() || mixed(id) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_a_larger_sample_contains_the_smaller() {
        for rate in [0.0, 0.001, 0.1, 0.5, 1.0] {
            let choice = Choice::of_rate(rate);
            let traced = (0..100_000).filter(|id| choice.traces(*id)).count() as f64;
            assert!(
                (traced / 100_000.0 - rate).abs() < 0.005,
                "{rate}: {traced}"
            );
        }
        let (small, large) = (Choice::of_rate(0.1), Choice::of_rate(0.2));
        assert!((0..10_000).all(|id| !small.traces(id) || large.traces(id)));
        assert!((0..10_000).all(|id| Choice::of_rate(1.0).traces(id)));
    }

    #[test]
    fn the_rate_falls_when_recording_takes_more_than_its_budget() {
        let sampling = Sampling::new(1.0, Some(0.01));
        assert!(!sampling.is_complete());
        assert_eq!(sampling.rate(), 1.0);
        sampling.spend(Duration::from_nanos(100));
        assert_eq!(sampling.rate(), 1.0, "that is nothing");
        // More than the query has taken until now, and so more than its hundredth.
        for halved in 1..=4 {
            sampling.spend(Duration::from_secs(3600));
            assert!((sampling.rate() - 0.5_f64.powi(halved)).abs() < 1e-9);
        }
        for _ in 0..64 {
            sampling.spend(Duration::from_secs(3600));
        }
        assert!(sampling.choice().is_none());
    }

    #[test]
    fn without_a_budget_the_rate_stays() {
        let sampling = Sampling::new(0.25, None);
        sampling.spend(Duration::from_secs(3600));
        assert!((sampling.rate() - 0.25).abs() < 1e-9);
        assert!(Sampling::new(1.0, None).is_complete());
    }
}
