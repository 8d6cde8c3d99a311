//! Timing single records without timing single records.
//!
//! Reading the clock for every row costs more than most expressions. So rows are evaluated in
//! chunks of about [`CHUNK_NS`], a chunk's time is apportioned evenly, and only where a chunk
//! takes far longer than its peers are the rows found that did it: by evaluating parts of the
//! chunk again. A row is blamed only after it was slow twice, and with the smaller of its
//! times, so that a thread that lost its processor for a moment blames nobody.
//!
//! There is no clock in here: the caller evaluates rows and says how long that took (where it can,
//! without what [`crate::preemption`] knows to be nobody's), so tests can play any machine.

use std::ops::Range;

use datafusion::common::Result;
use skewer_profiling::Method;

/// A chunk's target. Two clock readings (50 ns) are lost in it; a record that takes
/// [`SUSPICIOUS_NS`] stands out of it.
pub const CHUNK_NS: f64 = 30_000.0;

/// A chunk is suspicious if it took this much longer than its rows usually do …
const SUSPICIOUS_NS: f64 = 100_000.0;

/// … and this many times as long.
const SUSPICIOUS_FACTOR: f64 = 3.0;

/// From this excess on, confirming a chunk by evaluating it again would cost more than looking
/// at its rows one by one until the culprit is met.
const SEARCH_AT_ONCE_NS: f64 = 10_000_000.0;

/// A stall of the machine's is shorter than this, even on a busy one: a row that took longer need
/// not be confirmed, which would take as long again.
const LONGEST_STALL_NS: f64 = 50_000_000.0;

/// Parts that a slow range is cut into in the search.
const PARTS: usize = 16;

/// The search ends when this share of the excess is explained.
const EXPLAINED: f64 = 0.9;

/// Evaluating again may take this share of the time spent so far …
const REPLAY_SHARE: f64 = 0.05;

/// … plus the excess at hand and this much.
const REPLAY_FLOOR_NS: f64 = 20_000_000.0;

/// A row is the longest so far if it took this many times as long as the longest before; in rows
/// sorted by their cost many would be without.
const LONGER: f64 = 1.1;

/// Rows of the first chunk, before anything is known of their cost.
const FIRST_CHUNK: usize = 64;

/// Chunks that the running median is taken over.
const WINDOW: usize = 31;

/// Consecutive rows with the same latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Number of rows.
    pub rows: usize,
    /// Picoseconds that each of them took.
    pub ps: u64,
    /// How that is known.
    pub method: Method,
}

/// Evaluates rows of a batch and returns the nanoseconds it took. `keep` tells the first
/// evaluation of rows, whose result is the batch's, from evaluations only for their time.
pub trait EvaluateRows {
    /// Evaluates `rows`.
    fn evaluate(&mut self, rows: Range<usize>, keep: bool) -> Result<f64>;
}

/// What is known of the cost of one expression's rows.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Cost per row of the latest chunks, in ns; a ring.
    recent: Vec<f64>,
    next: usize,
    median: f64,
    spent_ns: f64,
    replayed_ns: f64,
    /// Of `replayed_ns`, what has been taken by [`Pacer::take_replayed_ns`].
    accounted_ns: f64,
    /// The longest time of a row that was timed by itself.
    longest_ns: f64,
    /// Of `replayed_ns`, what it took to confirm that a row is the longest so far.
    confirmed_ns: f64,
}

impl Pacer {
    /// Evaluates all of `0..rows` once, in order, and says what each row took.
    ///
    /// `alone` lists rows, ascending, that are timed by themselves (those with far more bytes
    /// than the others). Rows are evaluated again only if `replayable`; otherwise the rows of a
    /// slow chunk share its time.
    pub fn time(
        &mut self,
        rows: usize,
        alone: &[usize],
        replayable: bool,
        evaluator: &mut dyn EvaluateRows,
    ) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        let mut alone = alone.iter().copied().peekable();
        let mut start = 0;
        while start < rows {
            if alone.next_if_eq(&start).is_some() {
                self.time_row(start, replayable, evaluator, &mut runs)?;
                start += 1;
                continue;
            }
            let limit = alone.peek().copied().unwrap_or(rows);
            let end = limit.min(start + self.chunk_rows());
            self.time_chunk(start..end, replayable, evaluator, &mut runs)?;
            start = end;
        }
        Ok(runs)
    }

    /// Nanoseconds spent on evaluating rows again since the last call.
    pub fn take_replayed_ns(&mut self) -> f64 {
        let since = self.replayed_ns - self.accounted_ns;
        self.accounted_ns = self.replayed_ns;
        since
    }

    fn chunk_rows(&self) -> usize {
        if self.recent.is_empty() {
            FIRST_CHUNK
        } else {
            ((CHUNK_NS / self.median.max(0.01)) as usize).max(1)
        }
    }

    fn time_chunk(
        &mut self,
        chunk: Range<usize>,
        replayable: bool,
        evaluator: &mut dyn EvaluateRows,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let rows = chunk.len();
        if rows == 1 {
            let ns = self.time_row(chunk.start, replayable, evaluator, runs)?;
            self.learn(ns);
            return Ok(());
        }
        let ns = evaluator.evaluate(chunk.clone(), true)?;
        self.spent_ns += ns;
        let suspicious = if self.recent.is_empty() {
            ns > SUSPICIOUS_NS + CHUNK_NS
        } else {
            self.is_suspicious(ns, rows)
        };
        let mut ns = ns;
        if suspicious && replayable && self.may_replay(ns) {
            let (found, again) = self.search(chunk.clone(), ns, evaluator)?;
            if !found.is_empty() {
                self.share(chunk, ns, &found, runs);
                return Ok(());
            }
            // It was not slow again: a stall of the machine, or a function that remembers its
            // results. Nobody can be blamed for the difference.
            ns = again;
        }
        if !suspicious || self.recent.is_empty() {
            self.learn(ns / rows as f64);
        }
        push(runs, rows, ns / rows as f64, Method::Apportioned);
        Ok(())
    }

    /// One row needs no search, but the first time may be a stall of the machine's.
    ///
    /// Where rows differ by nature, too many are far above the median to confirm them all. But the
    /// row that is blamed in the end is the longest, and few rows are the longest so far: of n in
    /// any order, ln n in the mean.
    fn time_row(
        &mut self,
        row: usize,
        replayable: bool,
        evaluator: &mut dyn EvaluateRows,
        runs: &mut Vec<Run>,
    ) -> Result<f64> {
        let row = row..row + 1;
        let mut ns = evaluator.evaluate(row.clone(), true)?;
        self.spent_ns += ns;
        let mut method = Method::Measured;
        if replayable && ns > SUSPICIOUS_NS {
            let longest = ns > LONGER * self.longest_ns
                && ns < LONGEST_STALL_NS
                && within_replay_share(self.confirmed_ns, self.spent_ns, 0.0);
            // Few rows take so long that one of them may be beside the longest without being it.
            let excess = if ns < SEARCH_AT_ONCE_NS { 0.0 } else { ns };
            let suspicious = !self.recent.is_empty()
                && self.is_suspicious(ns, 1)
                && ns < LONGEST_STALL_NS
                && self.may_replay(excess);
            if longest || suspicious {
                let again = self.replay(row, evaluator)?;
                if longest {
                    self.confirmed_ns += again;
                }
                ns = ns.min(again);
                method = Method::Replayed;
            }
        }
        self.longest_ns = self.longest_ns.max(ns);
        push(runs, 1, ns, method);
        Ok(ns)
    }

    fn is_suspicious(&self, ns: f64, rows: usize) -> bool {
        let expected = self.median * rows as f64;
        ns - expected > SUSPICIOUS_NS && ns > SUSPICIOUS_FACTOR * expected
    }

    fn may_replay(&self, excess: f64) -> bool {
        let searching = self.replayed_ns - self.confirmed_ns;
        within_replay_share(searching, self.spent_ns, excess)
    }

    fn replay(&mut self, rows: Range<usize>, evaluator: &mut dyn EvaluateRows) -> Result<f64> {
        let ns = evaluator.evaluate(rows, false)?;
        self.replayed_ns += ns;
        Ok(ns)
    }

    /// Finds the rows that made `range` slow: (row, ns), ascending; and, if there are none, the
    /// nanoseconds that the range took when it was evaluated again.
    fn search(
        &mut self,
        range: Range<usize>,
        ns: f64,
        evaluator: &mut dyn EvaluateRows,
    ) -> Result<(Vec<(usize, f64)>, f64)> {
        let mut found = Vec::new();
        let best;
        let excess = (ns - self.median * range.len() as f64).max(0.0);
        if excess >= SEARCH_AT_ONCE_NS {
            let mut explained = 0.0;
            let mut total = 0.0;
            for row in range {
                let mut again = self.replay(row..row + 1, evaluator)?;
                if again > SUSPICIOUS_NS && again < LONGEST_STALL_NS {
                    again = again.min(self.replay(row..row + 1, evaluator)?);
                }
                total += again;
                if again > SUSPICIOUS_NS && again > self.median * SUSPICIOUS_FACTOR {
                    let ns = again.min(ns);
                    found.push((row, ns));
                    explained += ns;
                }
                if explained >= EXPLAINED * excess {
                    break;
                }
            }
            best = total.min(ns);
        } else {
            best = self.replay(range.clone(), evaluator)?.min(ns);
            if self.is_suspicious(best, range.len()) {
                self.descend(range, best, evaluator, &mut found)?;
            }
        }
        Ok((found, best))
    }

    /// Cuts a range that was slow twice into parts, and follows the slow ones.
    fn descend(
        &mut self,
        range: Range<usize>,
        ns: f64,
        evaluator: &mut dyn EvaluateRows,
        found: &mut Vec<(usize, f64)>,
    ) -> Result<()> {
        if range.len() == 1 {
            found.push((range.start, ns));
            return Ok(());
        }
        let excess = ns - self.median * range.len() as f64;
        let mut explained = 0.0;
        let step = range.len().div_ceil(PARTS);
        let mut start = range.start;
        while start < range.end && explained < EXPLAINED * excess {
            let part = start..range.end.min(start + step);
            start = part.end;
            let mut took = self.replay(part.clone(), evaluator)?;
            // Parts share the range's excess: what is a fifth of it may still be suspicious.
            let slow = |ns: f64, median: f64| ns - median * part.len() as f64 > SUSPICIOUS_NS / 2.0;
            if slow(took, self.median) {
                took = took.min(self.replay(part.clone(), evaluator)?);
            }
            if slow(took, self.median) {
                explained += took - self.median * part.len() as f64;
                self.descend(part, took, evaluator, found)?;
            }
        }
        Ok(())
    }

    /// Gives the found rows of a chunk their times and the others what remains.
    fn share(&mut self, chunk: Range<usize>, ns: f64, found: &[(usize, f64)], runs: &mut Vec<Run>) {
        let others = chunk.len() - found.len();
        let blamed: f64 = found.iter().map(|(_, ns)| ns).sum();
        let rest = (ns - blamed).max(0.0);
        // What is left unexplained of a confirmed chunk is a stall: nobody's.
        let usual = if self.recent.is_empty() {
            rest
        } else {
            rest.min(self.median * others as f64 * SUSPICIOUS_FACTOR)
        };
        let each = if others == 0 {
            0.0
        } else {
            usual / others as f64
        };
        let mut start = chunk.start;
        for &(row, ns) in found {
            push(runs, row - start, each, Method::Apportioned);
            push(runs, 1, ns, Method::Replayed);
            start = row + 1;
        }
        push(runs, chunk.end - start, each, Method::Apportioned);
        if others > 0 {
            self.learn(each);
        }
    }

    fn learn(&mut self, ns_per_row: f64) {
        if self.recent.len() < WINDOW {
            self.recent.push(ns_per_row);
        } else {
            self.recent[self.next] = ns_per_row;
            self.next = (self.next + 1) % WINDOW;
        }
        let mut sorted: Vec<f64> = self.recent.clone();
        let middle = sorted.len() / 2;
        self.median = *sorted.select_nth_unstable_by(middle, f64::total_cmp).1;
    }
}

fn within_replay_share(replayed_ns: f64, spent_ns: f64, excess: f64) -> bool {
    replayed_ns < REPLAY_SHARE * spent_ns + excess + REPLAY_FLOOR_NS
}

/// Rows that were timed one by one and took far longer than the median are timed `again`, the longest
/// first, and keep the smaller time: a thread that lost its processor for a moment must not blame the
/// row that it was at. Returns the nanoseconds that proved to be nobody's.
///
/// That a row was stalled costs next to nothing to find out, that it was not costs what it takes: so
/// it ends when rows that really are slow have taken [`REPLAY_SHARE`] of the batch's time. Rows of
/// [`LONGEST_STALL_NS`] and more are asked only if the thread is known to have lost its processor for
/// about as long, `lost_ns`.
///
/// # Errors
/// Those of `again`.
pub fn confirm_slow_rows(
    times: &mut [f64],
    lost_ns: f64,
    again: &mut dyn FnMut(usize) -> Result<f64>,
) -> Result<f64> {
    if !times.iter().any(|ns| *ns > SUSPICIOUS_NS) {
        return Ok(0.0);
    }
    let mut sorted = times.to_vec();
    let middle = sorted.len() / 2;
    let median = *sorted.select_nth_unstable_by(middle, f64::total_cmp).1;
    let slow = |ns: f64| {
        ns - median > SUSPICIOUS_NS
            && ns > SUSPICIOUS_FACTOR * median
            && (ns < LONGEST_STALL_NS || lost_ns > ns / 2.0)
    };
    let mut rows: Vec<usize> = (0..times.len()).filter(|row| slow(times[*row])).collect();
    rows.sort_by(|a, b| times[*b].total_cmp(&times[*a]));
    let total: f64 = times.iter().sum();
    let (mut stalls, mut wasted) = (0.0, 0.0);
    for row in rows {
        let least = again(row)?.min(times[row]);
        stalls += times[row] - least;
        times[row] = least;
        wasted += least;
        if wasted > REPLAY_SHARE * total {
            break;
        }
    }
    Ok(stalls)
}

fn push(runs: &mut Vec<Run>, rows: usize, ns: f64, method: Method) {
    if rows > 0 {
        let ps = (ns * 1000.0) as u64;
        runs.push(Run { rows, ps, method });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with known costs, and a machine that stalls in given evaluations.
    struct Machine {
        costs: Vec<f64>,
        stalls: Vec<(usize, f64)>,
        evaluations: usize,
        kept: Vec<usize>,
        replayed: Vec<usize>,
    }

    impl Machine {
        fn new(costs: Vec<f64>) -> Self {
            Self {
                replayed: vec![0; costs.len()],
                costs,
                stalls: Vec::new(),
                evaluations: 0,
                kept: Vec::new(),
            }
        }
    }

    impl EvaluateRows for Machine {
        fn evaluate(&mut self, rows: Range<usize>, keep: bool) -> Result<f64> {
            self.evaluations += 1;
            let stall = self.stalls.iter().find(|(n, _)| *n == self.evaluations);
            if keep {
                self.kept.extend(rows.clone());
            } else {
                rows.clone().for_each(|row| self.replayed[row] += 1);
            }
            Ok(self.costs[rows].iter().sum::<f64>() + 50.0 + stall.map_or(0.0, |(_, ns)| *ns))
        }
    }

    fn latencies(runs: &[Run]) -> Vec<f64> {
        runs.iter()
            .flat_map(|run| std::iter::repeat_n(run.ps as f64 / 1000.0, run.rows))
            .collect()
    }

    fn time(machine: &mut Machine) -> Vec<Run> {
        let rows = machine.costs.len();
        Pacer::default().time(rows, &[], true, machine).unwrap()
    }

    #[test]
    fn every_row_is_evaluated_once_in_order_and_has_a_latency() {
        let mut machine = Machine::new(vec![12.5; 10_000]);
        let runs = time(&mut machine);
        assert_eq!(machine.kept, (0..10_000).collect::<Vec<_>>());
        let latencies = latencies(&runs);
        assert_eq!(latencies.len(), 10_000);
        assert!(latencies.iter().all(|ns| (12.0..14.0).contains(ns)));
    }

    #[test]
    fn a_slow_row_is_found_wherever_it_is() {
        for delay in [200e3, 1e6, 9e6, 50e6, 1e10] {
            for row in [0, 1, 63, 64, 5_000, 9_999] {
                let mut costs = vec![20.0; 10_000];
                costs[row] = delay;
                let mut machine = Machine::new(costs);
                let runs = time(&mut machine);
                let latencies = latencies(&runs);
                assert!(
                    (latencies[row] / delay - 1.0).abs() < 0.01,
                    "delay {delay} in row {row} seen as {}",
                    latencies[row]
                );
                let slow = latencies.iter().filter(|ns| **ns > 50_000.0).count();
                assert_eq!(slow, 1, "delay {delay} in row {row}");
            }
        }
    }

    #[test]
    fn a_row_that_takes_seconds_is_evaluated_again_at_most_once() {
        let mut costs = vec![20.0; 10_000];
        costs[7_000] = 5e9;
        let mut machine = Machine::new(costs);
        time(&mut machine);
        assert!(machine.replayed[7_000] <= 1);
    }

    #[test]
    fn a_stalled_machine_blames_nobody() {
        for stall in [150e3, 2e6, 8e6, 30e6] {
            for at in [1, 2, 5, 6] {
                let mut machine = Machine::new(vec![20.0; 10_000]);
                machine.stalls = vec![(at, stall)];
                let runs = time(&mut machine);
                assert!(
                    latencies(&runs).iter().all(|ns| *ns < 1_000.0),
                    "stall {stall} in evaluation {at}: {runs:?}"
                );
            }
        }
    }

    #[test]
    fn several_slow_rows_of_a_chunk_are_all_found() {
        let mut costs = vec![20.0; 10_000];
        for row in [4_000, 4_001, 4_700] {
            costs[row] = 600e3;
        }
        let latencies = latencies(&time(&mut Machine::new(costs)));
        let slow: Vec<usize> = (0..10_000).filter(|row| latencies[*row] > 500e3).collect();
        assert_eq!(slow, [4_000, 4_001, 4_700]);
    }

    #[test]
    fn rows_named_up_front_are_timed_alone_and_never_again() {
        let mut costs = vec![20.0; 1_000];
        costs[500] = 1e9;
        let mut machine = Machine::new(costs);
        let runs = Pacer::default()
            .time(1_000, &[500], true, &mut machine)
            .unwrap();
        assert_eq!(machine.kept, (0..1_000).collect::<Vec<_>>());
        assert_eq!(machine.replayed[500], 0);
        assert!((latencies(&runs)[500] / 1e9 - 1.0).abs() < 0.01);
    }

    #[test]
    fn rows_that_differ_by_nature_are_not_all_evaluated_again() {
        // Every eighth row takes ten times as long, and all take longer than a chunk.
        let cost = |row: usize| if row.is_multiple_of(8) { 800e3 } else { 80e3 };
        let mut machine = Machine::new((0..4_000).map(cost).collect());
        time(&mut machine);
        let again: usize = machine.replayed.iter().sum();
        // The first chunk, which is searched, and slow rows for a twentieth of the time.
        assert!(again <= 150, "{again} evaluations of rows were repeated");
    }

    #[test]
    fn where_rows_differ_by_nature_a_stall_does_not_make_one_the_longest() {
        // So many rows are far above the median that confirming them all is given up early.
        let cost = |row: usize| match row {
            3_000 => 1_500e3,
            _ if row.is_multiple_of(8) => 800e3 + row as f64,
            _ => 80e3,
        };
        for (stall, at) in [(2e6, 2_000), (2e6, 3_900), (15e6, 3_900), (40e6, 2_500)] {
            for alone in [vec![], (0..4_000).step_by(8).collect()] {
                let mut machine = Machine::new((0..4_000).map(cost).collect());
                machine.stalls = vec![(at, stall)];
                let runs = Pacer::default()
                    .time(4_000, &alone, true, &mut machine)
                    .unwrap();
                let latencies = latencies(&runs);
                let longest = (0..4_000).max_by(|a, b| latencies[*a].total_cmp(&latencies[*b]));
                assert_eq!(longest, Some(3_000), "stall {stall} in evaluation {at}");
            }
        }
    }

    #[test]
    fn a_stall_about_as_long_as_the_longest_row_is_found_out() {
        let cost = |row: usize| if row == 1_000 { 10.2e6 } else { 80e3 };
        for stall in [9.9e6, 10.3e6, 11.0e6] {
            let mut machine = Machine::new((0..4_000).map(cost).collect());
            machine.stalls = vec![(3_900, stall)];
            let latencies = latencies(&time(&mut machine));
            let slow: Vec<usize> = (0..4_000).filter(|row| latencies[*row] > 1e6).collect();
            assert_eq!(slow, [1_000], "stall {stall}");
        }
    }

    #[test]
    fn rows_that_get_longer_and_longer_are_not_all_evaluated_again() {
        let mut machine = Machine::new((0..4_000).map(|row| 80e3 + 1e3 * row as f64).collect());
        time(&mut machine);
        let again: f64 = (0..4_000)
            .map(|row| machine.replayed[row] as f64 * machine.costs[row])
            .sum();
        let once: f64 = machine.costs.iter().sum();
        assert!(again < 0.11 * once, "{again} of {once}");
    }

    /// Confirms rows that really take `costs`; gives the stalls, and the rows that were asked.
    fn confirmed(times: &mut [f64], costs: &[f64], lost_ns: f64) -> (f64, Vec<usize>) {
        let mut asked = Vec::new();
        let mut again = |row: usize| {
            asked.push(row);
            Ok(costs[row])
        };
        let stalls = confirm_slow_rows(times, lost_ns, &mut again).unwrap();
        (stalls, asked)
    }

    #[test]
    fn rows_that_may_be_stalls_are_confirmed_longest_first() {
        let costs = vec![500.0; 1_000];
        let mut times = costs.clone();
        assert_eq!(confirmed(&mut times, &costs, 0.0), (0.0, vec![]));
        times[3] = 2e6;
        times[900] = 300e3;
        times[901] = 5e9;
        let (stalls, asked) = confirmed(&mut times, &costs, 0.0);
        assert_eq!(asked, [3, 900]);
        assert!((stalls - (2e6 + 300e3 - 1e3)).abs() < 1.0);
        assert_eq!((times[3], times[900], times[901]), (500.0, 500.0, 5e9));
    }

    #[test]
    fn many_stalls_in_a_batch_blame_nobody() {
        let costs: Vec<f64> = (0..8_000)
            .map(|row| if row == 70 { 9e6 } else { 100.0 })
            .collect();
        let mut times = costs.clone();
        for row in (0..8_000).step_by(400) {
            times[row] += 30e6;
        }
        let (_, asked) = confirmed(&mut times, &costs, 0.0);
        assert_eq!(asked.len(), 21, "20 stalls and the row itself");
        assert_eq!(times, costs);
    }

    #[test]
    fn a_long_row_is_asked_again_only_if_the_processor_was_lost_for_as_long() {
        let mut costs = vec![500.0; 1_000];
        let mut times = costs.clone();
        times[7] = 80e6;
        assert!(confirmed(&mut times, &costs, 0.0).1.is_empty());
        assert_eq!(confirmed(&mut times, &costs, 79e6).1, [7]);
        assert_eq!(times, costs);
        costs[7] = 2e9;
        times[7] = 2e9;
        assert!(confirmed(&mut times, &costs, 80e6).1.is_empty());
    }

    #[test]
    fn rows_that_are_slow_by_nature_are_not_all_asked_again() {
        let costs: Vec<f64> = (0..1_000).map(|row| f64::from(row % 10) * 1e6).collect();
        let again = |row: &usize| costs[*row];
        let (stalls, asked) = confirmed(&mut costs.clone(), &costs, 0.0);
        assert_eq!(stalls, 0.0);
        let cost: f64 = asked.iter().map(again).sum();
        assert!(cost < 0.06 * costs.iter().sum::<f64>(), "{cost}");
    }

    #[test]
    fn what_may_not_be_replayed_is_apportioned() {
        let mut costs = vec![20.0; 1_000];
        costs[500] = 1e9;
        let mut machine = Machine::new(costs);
        let runs = Pacer::default()
            .time(1_000, &[], false, &mut machine)
            .unwrap();
        assert!(machine.replayed.iter().all(|times| *times == 0));
        assert!(runs.iter().all(|run| run.method == Method::Apportioned));
        let total: f64 = latencies(&runs).iter().sum();
        assert!((total / 1e9 - 1.0).abs() < 0.01);
    }
}
