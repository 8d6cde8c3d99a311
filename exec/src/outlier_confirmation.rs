//! Rows whose functions timed them one by one, and that took suspiciously long.

use crate::chunked_timing::{LONGEST_STALL_NS, REPLAY_SHARE, SUSPICIOUS_FACTOR, SUSPICIOUS_NS};

/// Rows that were timed one by one and took far longer than the median are timed `again`, the longest
/// first, and keep the smaller time: a thread that lost its processor for a moment must not blame the
/// row that it was at. Returns the nanoseconds that proved to be nobody's.
///
/// That a row was stalled costs next to nothing to find out, that it was not costs what it takes: so
/// it ends when rows that really are slow, beside the longest of them, have taken [`REPLAY_SHARE`] of
/// the batch's time. Rows of
/// [`LONGEST_STALL_NS`] and more are asked only if the thread is known to have lost its processor for
/// about as long, `lost_ns`. Of a row that cannot be timed again, `again` says infinity.
pub fn confirm_slow_rows(
    times: &mut [f64],
    lost_ns: f64,
    again: &mut dyn FnMut(usize) -> f64,
) -> f64 {
    if !times.iter().any(|ns| *ns > SUSPICIOUS_NS) {
        return 0.0;
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
    let (mut stalls, mut wasted, mut longest) = (0.0, 0.0, 0.0_f64);
    for row in rows {
        let least = again(row).min(times[row]);
        stalls += times[row] - least;
        times[row] = least;
        wasted += least.min(longest);
        longest = longest.max(least);
        if wasted > REPLAY_SHARE * total {
            break;
        }
    }
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Confirms rows that really take `costs`; gives the stalls, and the rows that were asked.
    fn confirmed(times: &mut [f64], costs: &[f64], lost_ns: f64) -> (f64, Vec<usize>) {
        let mut asked = Vec::new();
        let mut again = |row: usize| {
            asked.push(row);
            costs[row]
        };
        let stalls = confirm_slow_rows(times, lost_ns, &mut again);
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
    fn stalls_shorter_than_the_row_that_is_slow_blame_nobody() {
        let costs: Vec<f64> = (0..8_000)
            .map(|row| if row == 70 { 40e6 } else { 100.0 })
            .collect();
        let mut times = costs.clone();
        times[4_000] += 10e6;
        times[4_001] += 2e6;
        let (_, asked) = confirmed(&mut times, &costs, 0.0);
        assert_eq!(asked, [70, 4_000, 4_001]);
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
}
