//! Which base records are traced, and how that share falls when tracing costs too much, or when
//! grouping would have nearly every group traced.
//!
//! A record is traced if a number made of its row id, [`number_of`], is below a threshold: the choice
//! depends on the id alone, so every run and every worker traces the same records, and the records of
//! a lower rate are among those of a higher one. That is why the rate may fall while a query runs: in
//! the end, what the last threshold admits has been traced from the first row on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::internal_err;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use thread_local::ThreadLocal;

use crate::ids::follow_each_other;

/// A number that says nothing of the one it is made of: the finalizer of SplitMix64 (Steele, Lea and
/// Flood, OOPSLA 2014).
pub fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// So many row ids share a random number: a word of a bitmap.
const BLOCK_BITS: u32 = 6;
const BLOCK: i64 = 1 << BLOCK_BITS;
/// Where the place in a block is in a number: in its highest bits.
const PLACE_SHIFT: u32 = u64::BITS - BLOCK_BITS;
/// Row ids that follow each other are this far apart among the places of their block …
const STRIDE: u64 = 37;
/// … and places that follow each other this far among its row ids: modulo 64 their product is 1.
const INVERSE: u64 = 45;

/// The number by which the record of row `id` is chosen.
///
/// Each block of 64 ids has a random number and spreads its ids evenly over all numbers from there on:
/// of each block the share of the rate is traced, rounded up or down at random (systematic sampling in
/// strata; Cochran, *Sampling Techniques*, chapter 8). So a whole block is decided at once.
pub fn number_of(id: i64) -> u64 {
    let place = ((id & (BLOCK - 1)) as u64).wrapping_mul(STRIDE);
    mixed((id >> BLOCK_BITS) as u64).wrapping_add(place << PLACE_SHIFT)
}

/// Spending below this is not compared with a budget: planning has taken longer.
const WORTH_CHECKING: Duration = Duration::from_micros(50);

/// `is_sampled(row id, rate) → boolean`: whether a rate admits a record. What the profiler finds
/// under a rate that fell while the query ran is compared by that.
pub fn is_sampled() -> ScalarUDF {
    let arguments = vec![DataType::Int64, DataType::Float64];
    let evaluate = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let [ids, rates] = arrays.as_slice() else {
            return internal_err!("is_sampled takes two arguments");
        };
        let (ids, rates) = (
            ids.as_primitive::<Int64Type>(),
            rates.as_primitive::<Float64Type>(),
        );
        let traced = ids.iter().zip(rates);
        let traced = traced.map(|(id, rate)| Some(Choice::of_rate(rate?).traces(id?)));
        let traced: ArrayRef = Arc::new(traced.collect::<BooleanArray>());
        Ok(ColumnarValue::Array(traced))
    };
    create_udf(
        "is_sampled",
        arguments,
        DataType::Boolean,
        Volatility::Immutable,
        Arc::new(evaluate),
    )
}

/// Chooses the base records of a query that are traced.
///
/// With a budget, each thread compares what it has spent on recording with the time since the rate
/// was last halved (or the query began), and if it is more than the budget's share, halves the rate.
/// So no thread is slowed down by much more than that share, whatever the other threads do; and what
/// a higher rate has cost is not held against a lower one.
#[derive(Debug)]
pub struct Sampling {
    /// The share of base records that is traced now, as the bits of a float.
    rate: AtomicU64,
    /// The share of the query's time that recording may take.
    budget: Option<f64>,
    started: Instant,
    /// When the rate was last halved, in nanoseconds since then.
    halved_at: AtomicU64,
    /// Each written by its thread alone.
    windows: ThreadLocal<Window>,
}

/// What a thread has spent on recording at the present rate.
#[derive(Debug)]
struct Window {
    /// The rate, as the bits of a float.
    rate: AtomicU64,
    /// When it began, in nanoseconds since the query began.
    began: AtomicU64,
    /// Nanoseconds spent since.
    spent: AtomicU64,
}

impl Sampling {
    /// Traces a share of `rate` of all records, 0 to 1; less if recording takes more than a share
    /// of `budget` of the time that passes from now on.
    pub fn new(rate: f64, budget: Option<f64>) -> Self {
        Self {
            rate: AtomicU64::new(rate.to_bits()),
            budget,
            started: Instant::now(),
            halved_at: AtomicU64::new(0),
            windows: ThreadLocal::new(),
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

    /// Whether the rate may fall where grouping has nearly every group traced: with a budget, what
    /// that costs is measured.
    pub fn falls_with_groups(&self) -> bool {
        self.budget.is_none()
    }

    /// What `choice` admits is too much: from now on, a quarter of it is traced. Where the rate has
    /// fallen since, it stays as it is.
    pub fn fall_from(&self, choice: Choice) {
        let (rate, order) = (self.rate.load(Ordering::Relaxed), Ordering::Relaxed);
        if Choice::of_rate(f64::from_bits(rate)) == choice {
            let quarter = (f64::from_bits(rate) / 4.0).to_bits();
            // If another thread was faster, it has fallen.
            let _ = self.rate.compare_exchange(rate, quarter, order, order);
        }
    }

    /// This thread has spent `time` on recording.
    pub(crate) fn spend(&self, time: Duration) {
        if self.budget.is_some() {
            self.spend_at(nanos(self.started.elapsed()), nanos(time));
        }
    }

    /// The same, `now` nanoseconds after the query began.
    fn spend_at(&self, now: u64, time: u64) {
        let Some(budget) = self.budget else { return };
        let rate = self.rate.load(Ordering::Relaxed);
        let window = self.windows.get_or(|| Window {
            rate: AtomicU64::new(rate),
            began: AtomicU64::new(self.halved_at.load(Ordering::Relaxed)),
            spent: AtomicU64::new(0),
        });
        if window.rate.swap(rate, Ordering::Relaxed) != rate {
            // Another thread has halved it: this may have been spent at the rate before.
            window.began.store(now, Ordering::Relaxed);
            window.spent.store(0, Ordering::Relaxed);
            return;
        }
        let spent = window.spent.load(Ordering::Relaxed) + time;
        window.spent.store(spent, Ordering::Relaxed);
        let passed = now.saturating_sub(window.began.load(Ordering::Relaxed));
        if spent > nanos(WORTH_CHECKING) && spent as f64 > budget * passed as f64 {
            let half = (f64::from_bits(rate) / 2.0).to_bits();
            // If another thread was faster, it has halved this very rate.
            let order = Ordering::Relaxed;
            if self.rate.compare_exchange(rate, half, order, order).is_ok() {
                self.halved_at.store(now, order);
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Which records are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        self.is_all() || self.admits(number_of(id))
    }

    /// Whether a record is traced whose number is `number`.
    pub fn admits(self, number: u64) -> bool {
        number < self.threshold
    }

    /// Which of `ids` are traced. Quick where they follow each other, as in a table's segments.
    pub fn traced(self, ids: &[i64]) -> BooleanBuffer {
        let word = |ids: &[i64]| {
            let first = ids[0];
            match follow_each_other(first, ids) {
                true => self.traced_from(first),
                false => ids
                    .iter()
                    .rfold(0, |word, id| word << 1 | u64::from(self.traces(*id))),
            }
        };
        match ids.first() {
            Some(first) if self.is_all() || follow_each_other(*first, ids) => {
                self.traced_of_range(*first, ids.len())
            }
            _ => {
                let words: Vec<u64> = ids.chunks(BLOCK as usize).map(word).collect();
                BooleanBuffer::new(words.into(), 0, ids.len())
            }
        }
    }

    /// Which of `records` records are traced whose ids follow each other from `first` on.
    pub fn traced_of_range(self, first: i64, records: usize) -> BooleanBuffer {
        if self.is_all() {
            return BooleanBuffer::new_set(records);
        }
        let (block, passed) = (first >> BLOCK_BITS, (first & (BLOCK - 1)) as usize);
        let blocks = (passed + records).div_ceil(BLOCK as usize) as i64;
        let words = (0..blocks).map(|next| self.traced_in(block.wrapping_add(next)));
        BooleanBuffer::new(words.collect::<Vec<u64>>().into(), passed, records)
    }

    /// Which of the 64 records from `first` on are traced, the first in the lowest bit.
    fn traced_from(self, first: i64) -> u64 {
        let (block, passed) = (first >> BLOCK_BITS, first & (BLOCK - 1));
        let word = self.traced_in(block) >> passed;
        match passed {
            0 => word,
            _ => word | self.traced_in(block.wrapping_add(1)) << (BLOCK - passed),
        }
    }

    /// Which records of a block are traced.
    fn traced_in(self, block: i64) -> u64 {
        let below = |number: u64| number & ((1 << PLACE_SHIFT) - 1);
        let number = mixed(block as u64);
        let first = number >> PLACE_SHIFT;
        let rest = u64::from(below(number) < below(self.threshold));
        let traced = (self.threshold >> PLACE_SHIFT) + rest;
        (0..traced).fold(0, |word, place: u64| {
            let id = place.wrapping_sub(first).wrapping_mul(INVERSE);
            word | 1 << (id % BLOCK as u64)
        })
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
    fn many_records_are_chosen_as_each_of_them() {
        let runs =
            [-130, -64, -1, 0, 1, 63, 64, 1_000, i64::MAX - 200].map(|first| first..first + 150);
        let mut several: Vec<Vec<i64>> = runs.map(Iterator::collect).into();
        several.push((0..1_000).map(|id| id * 7919 % 1_013).collect());
        several.push((0..100).chain(101..300).collect());
        several.push(vec![]);
        for rate in [0.0, 1e-9, 0.001, 0.015, 0.016, 0.3, 0.99, 1.0] {
            let choice = Choice::of_rate(rate);
            for ids in &several {
                let each: Vec<bool> = ids.iter().map(|id| choice.traces(*id)).collect();
                let traced: Vec<bool> = choice.traced(ids).iter().collect();
                assert_eq!(traced, each, "{rate} of {ids:?}");
            }
            for first in [-70, 0, 1, 64, i64::MAX - 149] {
                let each: Vec<bool> = (0..150).map(|next| choice.traces(first + next)).collect();
                let traced: Vec<bool> = choice.traced_of_range(first, 150).iter().collect();
                assert_eq!(traced, each, "{rate} from {first} on");
            }
            assert_eq!(choice.traced_of_range(7, 0).len(), 0);
        }
    }

    #[test]
    fn records_at_any_distance_are_traced_as_often() {
        let choice = Choice::of_rate(0.01);
        for distance in [2, 7, 10, 64, 100, 1_000, 4_096] {
            let traced = (0..50_000).filter(|row| choice.traces(row * distance));
            let share = traced.count() as f64 / 50_000.0;
            assert!((share - 0.01).abs() < 0.003, "{distance}: {share}");
        }
    }

    #[test]
    fn the_rate_falls_until_recording_takes_no_more_than_its_budget() {
        const BATCH: u64 = 1_000_000;
        // Of each batch's time, recording takes a fixed part and one that follows the rate.
        let settled = |fixed: f64, of_rate: f64| {
            let sampling = Sampling::new(1.0, Some(0.05));
            assert!(!sampling.is_complete());
            for batch in 1..=1_000 {
                let share = fixed + of_rate * sampling.rate();
                sampling.spend_at(batch * BATCH, (share * BATCH as f64) as u64);
            }
            sampling.rate()
        };
        assert_eq!(settled(0.0, 0.04), 1.0);
        // The least rate that is needed, and not one below it.
        assert_eq!(settled(0.0, 0.39), 0.125);
        assert_eq!(settled(0.01, 0.3), 0.125);
        assert!(settled(0.2, 0.3) < 1e-12, "nothing would be little enough");
    }

    #[test]
    fn a_thread_that_comes_late_has_no_share_of_what_passed_before() {
        let sampling = Sampling::new(1.0, Some(0.01));
        sampling.spend_at(1_000_000, 1_000_000);
        assert_eq!(sampling.rate(), 0.5);
        let late = || sampling.spend_at(1_100_000, 100_000);
        std::thread::scope(|scope| scope.spawn(late).join()).unwrap();
        assert_eq!(sampling.rate(), 0.25);
    }

    #[test]
    fn many_threads_that_overspend_at_once_halve_the_rate_once() {
        let sampling = Sampling::new(1.0, Some(0.01));
        let all = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    sampling.spend_at(10, 0);
                    all.wait();
                    sampling.spend_at(1_000_000, 1_000_000);
                });
            }
        });
        assert_eq!(sampling.rate(), 0.5);
    }

    #[test]
    fn threads_that_find_the_same_choice_too_much_let_it_fall_once() {
        let sampling = Sampling::new(0.4, None);
        let choice = sampling.choice();
        sampling.fall_from(choice);
        sampling.fall_from(choice);
        assert_eq!(sampling.rate(), 0.1);
        assert_eq!(sampling.choice(), Choice::of_rate(0.1));
    }

    #[test]
    fn without_a_budget_the_rate_stays() {
        let sampling = Sampling::new(0.25, None);
        sampling.spend(Duration::from_secs(3600));
        assert!((sampling.rate() - 0.25).abs() < 1e-9);
        assert!(Sampling::new(1.0, None).is_complete());
    }
}
