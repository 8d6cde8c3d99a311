//! The pacer on machines that do as they are told.

use std::collections::HashMap;

use datafusion::common::exec_err;

use super::*;

/// Rows with known costs, and a machine that stalls in given evaluations.
struct Machine {
    costs: Vec<f64>,
    stalls: Vec<(usize, f64)>,
    evaluations: usize,
    kept: Vec<usize>,
    replayed: Vec<usize>,
    /// What evaluating rows again does.
    again: Again,
    /// How long rows that are evaluated again have been waited for.
    waited_ns: f64,
    /// Which evaluation was the first of a row by itself that was evaluated again.
    searched_at: HashMap<usize, usize>,
    /// Rows that stem from one record each.
    rows_of_record: usize,
    /// Of the rows' long values; none if it is empty.
    lengths: Vec<usize>,
    /// What each evaluation takes beside its rows.
    fixed_ns: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Again {
    TakesAsLong,
    /// It is remembered.
    TakesNothing,
    Fails,
}

impl Machine {
    fn new(costs: Vec<f64>) -> Self {
        Self {
            replayed: vec![0; costs.len()],
            costs,
            stalls: Vec::new(),
            evaluations: 0,
            kept: Vec::new(),
            again: Again::TakesAsLong,
            waited_ns: 0.0,
            searched_at: HashMap::new(),
            rows_of_record: 1,
            lengths: Vec::new(),
            fixed_ns: 0.0,
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
            if rows.len() == 1 {
                let evaluation = self.evaluations;
                self.searched_at.entry(rows.start).or_insert(evaluation);
            }
            match self.again {
                Again::TakesAsLong => {}
                Again::TakesNothing => return Ok(50.0),
                Again::Fails => return exec_err!("it answers each question once"),
            }
        }
        let stall = stall.map_or(0.0, |(_, ns)| *ns);
        let ns = self.costs[rows].iter().sum::<f64>() + 50.0 + self.fixed_ns + stall;
        if !keep {
            self.waited_ns += ns;
        }
        Ok(ns)
    }

    fn evaluate_none(&mut self) -> Option<f64> {
        (self.fixed_ns > 0.0).then_some(self.fixed_ns)
    }

    fn evaluate_within(&mut self, row: usize, patience: Duration) -> Result<Option<f64>> {
        let ns = self.evaluate(row..row + 1, false)?;
        let too_long = ns - patience.as_nanos() as f64;
        self.waited_ns -= too_long.max(0.0);
        Ok((too_long <= 0.0).then_some(ns))
    }

    fn doubtful_ns(&self) -> f64 {
        0.0
    }

    fn long_values(&self, row: usize) -> usize {
        self.lengths.get(row).copied().unwrap_or(0)
    }

    fn end_of_record(&self, row: usize, limit: usize) -> usize {
        limit.min((row / self.rows_of_record + 1) * self.rows_of_record)
    }
}

fn latencies(runs: &[Run]) -> Vec<f64> {
    runs.iter()
        .flat_map(|run| std::iter::repeat_n(run.ps as f64 / 1000.0, run.rows))
        .collect()
}

fn time(machine: &mut Machine) -> Vec<Run> {
    let rows = machine.costs.len();
    ChunkTimer::default()
        .time(rows, &[], true, machine)
        .unwrap()
}

#[test]
fn every_row_is_evaluated_once_in_order_and_has_a_latency() {
    let mut machine = Machine::new(vec![12.5; 10_000]);
    let runs = time(&mut machine);
    assert_eq!(machine.kept, (0..10_000).collect::<Vec<_>>());
    let latencies = latencies(&runs);
    assert_eq!(latencies.len(), 10_000);
    // Two readings of the clock are in the time of each chunk; the first ones have few rows.
    assert!(latencies[..1].iter().all(|ns| (12.0..63.0).contains(ns)));
    assert!(latencies[21..].iter().all(|ns| (12.0..14.0).contains(ns)));
}

#[test]
fn what_an_evaluation_takes_whatever_the_rows_is_no_row_s() {
    let mut machine = Machine::new(vec![100.0; 20_000]);
    machine.fixed_ns = 120_000.0;
    machine.costs[15_000] = 5e6;
    let runs = time(&mut machine);
    assert_eq!(machine.kept, (0..20_000).collect::<Vec<_>>());
    // Alone, each row would take a thousand times as long.
    assert!(machine.evaluations < 300, "{}", machine.evaluations);
    let latencies = latencies(&runs);
    let slow = latencies[15_000];
    assert!((slow - 5e6).abs() < 1e4, "{slow}");
    let others = latencies
        .iter()
        .enumerate()
        .filter(|(row, _)| *row > 100 && *row != 15_000);
    for (row, ns) in others {
        assert!((50.0..200.0).contains(ns), "row {row}: {ns}");
    }
}

#[test]
fn many_rows_of_one_record_are_evaluated_at_once_and_what_they_took_is_the_record_s() {
    for rows_of_record in [1, 7, 4_000, 40_000] {
        let mut machine = Machine::new(vec![50.0; 40_000]);
        machine.rows_of_record = rows_of_record;
        let runs = time(&mut machine);
        assert_eq!(machine.kept, (0..40_000).collect::<Vec<_>>());
        let longest = runs.iter().max_by_key(|run| run.rows).unwrap();
        let (rows, method) = match rows_of_record {
            4_000 => (4_000, Method::Measured),
            // No longer than half a millisecond, so that a stall of one makes it suspicious.
            40_000 => (10_000, Method::Measured),
            _ => (1_000, Method::Apportioned),
        };
        assert!((longest.rows as i64 - rows).abs() < 100, "{longest:?}");
        assert_eq!(longest.method, method);
    }
}

#[test]
fn a_stall_among_many_rows_of_one_record_is_not_theirs() {
    let mut machine = Machine::new(vec![50.0; 40_000]);
    machine.rows_of_record = 4_000;
    machine.stalls = vec![(12, 5e6)];
    let runs = time(&mut machine);
    let latencies = latencies(&runs);
    assert!(latencies.iter().skip(100).all(|ns| *ns < 60.0));
    let replayed: Vec<&Run> = runs
        .iter()
        .filter(|run| run.method == Method::Replayed)
        .collect();
    let [stalled] = replayed.as_slice() else {
        panic!("{replayed:?}");
    };
    let error_ns = stalled.error_ps as f64 * stalled.rows as f64 / 1e3;
    assert!((error_ns / 5e6 - 1.0).abs() < 0.01, "{error_ns}");
}

#[test]
fn a_slow_row_among_many_of_its_record_is_found() {
    for delay in [1e6, 9e6, 50e6, 1e10] {
        for row in [0, 5_000, 9_999] {
            let mut costs = vec![50.0; 10_000];
            costs[row] = delay;
            let mut machine = Machine::new(costs);
            machine.rows_of_record = 2_500;
            let latencies = latencies(&time(&mut machine));
            let found = (latencies[row] / delay - 1.0).abs() < 0.01;
            assert!(found, "delay {delay} in {row} seen as {}", latencies[row]);
        }
    }
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
fn what_a_record_really_took_is_within_the_error_of_what_is_said() {
    for (delay, stall) in [
        (300e3, 0.0),
        (1e6, 150e3),
        (2e6, 5e6),
        (20e6, 1e6),
        (1e9, 30e6),
    ] {
        for row in [0, 3, 700, 9_999] {
            for at in [1, 40, 42, 44] {
                let mut costs = vec![20.0; 10_000];
                costs[row] = delay;
                let mut machine = Machine::new(costs.clone());
                machine.stalls = vec![(at, stall)];
                let mut costs = costs.iter();
                for run in time(&mut machine) {
                    let (said, error) = (run.ps as f64 / 1e3, run.error_ps as f64 / 1e3);
                    for cost in costs.by_ref().take(run.rows) {
                        // The clock is read for the evaluation, not by the row.
                        let off = (cost - said).abs() - 51.0;
                        assert!(
                            off <= error,
                            "{cost} seen as {said} ± {error}: {delay} in row {row}, {stall} at {at}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_that_takes_seconds_is_not_waited_for_again() {
    let mut costs = vec![20.0; 10_000];
    costs[7_000] = 5e9;
    let mut machine = Machine::new(costs);
    let runs = time(&mut machine);
    assert!(machine.replayed[7_000] <= 1);
    assert!(machine.waited_ns < 0.2e9, "{}", machine.waited_ns);
    assert!((latencies(&runs)[7_000] / 5e9 - 1.0).abs() < 0.001);
}

#[test]
fn several_rows_of_a_chunk_that_take_seconds_are_told_from_each_other() {
    let slow = [(7_000, 5e9), (7_003, 2e9), (7_004, 20e6)];
    let mut costs = vec![20.0; 10_000];
    slow.iter().for_each(|(row, ns)| costs[*row] = *ns);
    let mut machine = Machine::new(costs);
    let runs = time(&mut machine);
    let latencies = latencies(&runs);
    for (row, ns) in slow {
        assert!((latencies[row] / ns - 1.0).abs() < 0.01, "{row}");
    }
    // Which of two it was nobody knows before one has been waited for, twice.
    assert!(machine.waited_ns < 4.3e9, "{}", machine.waited_ns);
    assert_eq!(latencies.iter().filter(|ns| **ns > 50e3).count(), 3);
}

#[test]
fn a_row_that_is_not_done_in_time_is_not_blamed_where_another_was_slow() {
    let mut costs = vec![20.0; 10_000];
    costs[7_003] = 2e9;
    // Rows are searched in order: one before it stalls for longer than they are waited for.
    let mut first = Machine::new(costs.clone());
    time(&mut first);
    let mut machine = Machine::new(costs);
    machine.stalls = vec![(first.searched_at[&7_001], 150e6)];
    let latencies = latencies(&time(&mut machine));
    assert!(latencies[7_001] < 50e3, "{}", latencies[7_001]);
    assert!((latencies[7_003] / 2e9 - 1.0).abs() < 0.01);
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
    let runs = ChunkTimer::default()
        .time(1_000, &[LongRow::long(500)], true, &mut machine)
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
        for alone in [vec![], (0..4_000).step_by(8).map(LongRow::long).collect()] {
            let mut machine = Machine::new((0..4_000).map(cost).collect());
            machine.stalls = vec![(at, stall)];
            let runs = ChunkTimer::default()
                .time(4_000, &alone, true, &mut machine)
                .unwrap();
            let latencies = latencies(&runs);
            let longest = (0..4_000).max_by(|a, b| latencies[*a].total_cmp(&latencies[*b]));
            assert_eq!(longest, Some(3_000), "stall {stall} in evaluation {at}");
        }
    }
}

#[test]
fn where_rows_differ_by_nature_no_stall_is_anyone_s_however_many_there_are() {
    // Lines of exponential length, as movies have ratings, in no order: 0.1 ms in the mean. One
    // takes a little longer than the stalls, so none of these makes a row the longest.
    let cost = |row: usize| match row {
        150 => 5.2e6,
        _ => -100e3 * (1.0 - ((row * 619) % 2_103) as f64 / 2_103.0).ln(),
    };
    for alone in [vec![], (0..2_103).step_by(7).map(LongRow::long).collect()] {
        let mut machine = Machine::new((0..2_103).map(cost).collect());
        machine.stalls = (200..4_000).step_by(80).map(|at| (at, 5e6)).collect();
        let runs = ChunkTimer::default()
            .time(2_103, &alone, true, &mut machine)
            .unwrap();
        let latencies = latencies(&runs);
        let slow: Vec<usize> = (0..2_103).filter(|row| latencies[*row] > 2e6).collect();
        assert_eq!(slow, [150]);
        let again = |row: usize| machine.replayed[row] as f64 * machine.costs[row];
        let again: f64 = (0..2_103).map(again).sum();
        let once: f64 = machine.costs.iter().sum();
        let allowed = 2.0 * REPLAY_SHARE * once + REPLAY_FLOOR_NS;
        assert!(again < allowed, "{again} of {once}");
    }
}

#[test]
fn where_the_time_goes_by_the_length_only_what_took_longer_is_evaluated_again() {
    // Lines of exponential length, as movies have ratings, in no order: 0.1 ms in the mean.
    let exponential = |row: usize| -(1.0 - ((row * 619) % 2_103) as f64 / 2_103.0).ln();
    let lengths = (0..2_103).map(|row| (50e3 * exponential(row)) as usize);
    let lengths: Vec<usize> = lengths.collect();
    // By a fifth more or less.
    let varies = |row: usize| 1.6 + 0.8 * ((row * 31) % 100) as f64 / 100.0;
    let costs = (0..2_103).map(|row| lengths[row] as f64 * varies(row));
    let mut costs: Vec<f64> = costs.collect();
    // One takes long for its length.
    costs[150] = 5.2e6;
    // Stalls that make no row the longest, and such that do.
    for stall in [4e6, 8e6] {
        let mut machine = Machine::new(costs.clone());
        machine.lengths.clone_from(&lengths);
        machine.stalls = (200..2_200).step_by(80).map(|at| (at, stall)).collect();
        let runs = ChunkTimer::default()
            .time(2_103, &[], true, &mut machine)
            .unwrap();
        let latencies = latencies(&runs);
        let slow: Vec<usize> = (0..2_103).filter(|row| latencies[*row] > 2e6).collect();
        assert_eq!(slow, [150], "stalls of {stall}");
        // The stalled ones, and one or two that were the longest.
        let again: usize = machine.replayed.iter().sum();
        assert!(again < 58, "{again} evaluations of rows were repeated");
    }
}

#[test]
fn memory_that_is_touched_for_the_first_time_makes_no_row_the_longest() {
    // What is kept is always written to new memory, and so is what is dropped right after it.
    let cost = |row: usize| if row == 1_000 { 1_200e3 } else { 80e3 };
    for first in [1, 400, 2_100, 3_900] {
        let mut machine = Machine::new((0..4_000).map(cost).collect());
        machine.stalls = vec![(first, 5e6), (first + 1, 5e6)];
        let latencies = latencies(&time(&mut machine));
        let slow: Vec<usize> = (0..4_000).filter(|row| latencies[*row] > 1e6).collect();
        assert_eq!(slow, [1_000], "evaluations {first} and {}", first + 1);
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

#[test]
fn what_fails_when_it_is_evaluated_again_is_not_asked_again_and_keeps_its_time() {
    for (delay, row) in [(300e3, 0), (300e3, 700), (5e6, 700), (1e9, 0), (1e9, 700)] {
        let mut costs = vec![20.0; 10_000];
        costs[row] = delay;
        let total: f64 = costs.iter().sum();
        let mut machine = Machine::new(costs);
        machine.again = Again::Fails;
        let runs = time(&mut machine);
        assert_eq!(machine.kept.len(), 10_000);
        assert!(machine.replayed.iter().sum::<usize>() <= 10_000);
        let latencies = latencies(&runs);
        let said: f64 = latencies.iter().sum();
        assert!((said / total - 1.0).abs() < 0.5, "{said} of {total}");
        let longest = latencies.iter().copied().fold(0.0, f64::max);
        assert_eq!(latencies[row], longest, "{delay} in row {row}");
        // Nobody knows better than by as much as the rows of a chunk share.
        assert!(runs.iter().all(|run| run.error_ps < (delay * 2e3) as u64));
    }
}

#[test]
fn a_first_call_that_took_longer_than_any_stall_remains_its_chunk_s_though_the_next_are_fast() {
    for row in [0, 3, 700, 9_999] {
        let mut costs = vec![20.0; 10_000];
        costs[row] = 2e9;
        let mut machine = Machine::new(costs);
        machine.again = Again::TakesNothing;
        let runs = time(&mut machine);
        let total: f64 = latencies(&runs).iter().sum();
        assert!((total / 2e9 - 1.0).abs() < 0.01, "{total}");
        let mut at = 0;
        let slow = runs.iter().find(|run| {
            at += run.rows;
            at > row
        });
        let slow = slow.unwrap();
        let cost = slow.ps as f64 / 1e3 + slow.error_ps as f64 / 1e3;
        assert!(cost > 1.99e9, "{slow:?}");
    }
}

#[test]
fn what_may_not_be_replayed_is_apportioned() {
    let mut costs = vec![20.0; 1_000];
    costs[500] = 1e9;
    let mut machine = Machine::new(costs);
    let runs = ChunkTimer::default()
        .time(1_000, &[], false, &mut machine)
        .unwrap();
    assert!(machine.replayed.iter().all(|times| *times == 0));
    let alone = |run: &Run| run.method == Method::Measured && run.rows == 1;
    assert!(alone(&runs[0]));
    assert!(
        runs[1..]
            .iter()
            .all(|run| run.method == Method::Apportioned)
    );
    let total: f64 = latencies(&runs).iter().sum();
    assert!((total / 1e9 - 1.0).abs() < 0.01);
}

#[test]
fn what_is_fixed_makes_no_chunk_longer_than_a_limit_and_repeating_it_is_accounted() {
    let mut machine = Machine::new(vec![1_000.0; 40_000]);
    machine.fixed_ns = 20e6;
    let rows = machine.costs.len();
    let mut timer = ChunkTimer::default();
    let runs = timer.time(rows, &[], true, &mut machine).unwrap();
    let longest = runs.iter().map(|run| run.rows).max().unwrap();
    let limit = (LONGEST_CHUNK_NS / 1_000.0) as usize;
    assert!(
        (limit * 9 / 10..=limit * 11 / 10).contains(&longest),
        "{longest}"
    );
    // Each evaluation but one that there would have been anyway, and three of no rows.
    let repeated = (machine.evaluations - 1 + OF_NO_ROWS) as f64 * machine.fixed_ns;
    let taken = timer.take_replayed_ns();
    assert!(
        (taken / repeated - 1.0).abs() < 0.01,
        "{taken} of {repeated}"
    );
    assert_eq!(timer.take_replayed_ns(), 0.0);
}

/// A class of rows, every `period` th, that are slower than the others by far.
fn class(rows: usize, period: usize, slow: f64, others: f64) -> Vec<f64> {
    let cost = |row: usize| match row % period {
        0 => slow,
        _ => others,
    };
    (0..rows).map(cost).collect()
}

/// What the slow rows and the others took in the mean.
fn means(latencies: &[f64], period: usize) -> (f64, f64) {
    let mean = |is_slow: bool| {
        let rows = (0..latencies.len()).filter(|row| row.is_multiple_of(period) == is_slow);
        let rows: Vec<f64> = rows.map(|row| latencies[row]).collect();
        rows.iter().sum::<f64>() / rows.len() as f64
    };
    (mean(true), mean(false))
}

#[test]
fn a_class_of_slow_rows_that_cannot_all_be_searched_has_its_time() {
    // There are so many that to find each of them again would take as long as the query.
    for (period, slow, others) in [(60, 3e6, 6_000.0), (600, 3e6, 10_000.0), (20, 400e3, 500.0)] {
        let mut machine = Machine::new(class(60_000, period, slow, others));
        let latencies = latencies(&time(&mut machine));
        let once: f64 = machine.costs.iter().sum();
        let (of_slow, of_others) = means(&latencies, period);
        assert!(
            (of_slow / slow - 1.0).abs() < 0.15,
            "one in {period}: {of_slow} of {slow}, others {of_others}"
        );
        assert!(of_slow > 100.0 * of_others, "{of_slow}, {of_others}");
        let again = machine.waited_ns;
        assert!(again < 0.1 * once + REPLAY_FLOOR_NS, "{again} of {once}");
        // A chunk of a few rows is worth it; a row by itself would not be.
        let allowed = FINE_SHARE * once / PER_EVALUATION_NS + once / CHUNK_NS + 2_000.0;
        let evaluations = machine.evaluations as f64;
        assert!(evaluations < allowed, "{evaluations}, not {allowed}");
    }
}

#[test]
fn a_class_of_long_rows_has_its_time_whatever_the_others_take() {
    // The mean row is too cheap for small chunks.
    let (period, slow, others) = (600, 1e6, 300.0);
    let mut machine = Machine::new(class(300_000, period, slow, others));
    let alone: Vec<LongRow> = (0..300_000)
        .step_by(period)
        .map(|row| LongRow {
            row,
            is_long: false,
        })
        .collect();
    let runs = ChunkTimer::default().time(300_000, &alone, true, &mut machine);
    let latencies = latencies(&runs.unwrap());
    assert_eq!(machine.kept, (0..300_000).collect::<Vec<_>>());
    let (of_slow, of_others) = means(&latencies, period);
    assert!((of_slow / slow - 1.0).abs() < 0.05, "{of_slow}");
    assert!(of_slow > 100.0 * of_others, "{of_slow}, {of_others}");
}

#[test]
fn rows_that_are_longer_but_cost_as_little_are_not_timed_by_themselves() {
    let mut machine = Machine::new(vec![20.0; 100_000]);
    let alone: Vec<LongRow> = (0..100_000)
        .step_by(10)
        .map(|row| LongRow {
            row,
            is_long: false,
        })
        .collect();
    let runs = ChunkTimer::default().time(100_000, &alone, true, &mut machine);
    assert_eq!(latencies(&runs.unwrap()).len(), 100_000);
    assert!(machine.evaluations < 200, "{}", machine.evaluations);
}
