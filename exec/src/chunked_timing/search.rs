//! Which rows of a slow chunk made it slow: parts of it are evaluated again.

use std::ops::Range;
use std::time::Duration;

use skewer_profiling::Method;

use super::{
    ChunkTimer, EvaluateRows, LONGEST_STALL_NS, Run, SEARCH_AT_ONCE_NS, SUSPICIOUS_FACTOR, push,
    shortest,
};

/// From this excess on, nobody waits until the culprit has been evaluated again …
const TOO_LONG_TO_WAIT_NS: f64 = 10.0 * LONGEST_STALL_NS;

/// … but for so long for each row: the one that is not done by then is the culprit, if none of the
/// others is.
const PATIENCE: Duration = Duration::from_nanos(2 * LONGEST_STALL_NS as u64);

/// Parts that a slow range is cut into in the search.
const PARTS: usize = 16;

/// The search ends when this share of the excess is explained.
const EXPLAINED: f64 = 0.9;

/// A row that was found to be slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) row: usize,
    /// The shortest of its evaluations.
    pub(super) ns: f64,
    /// How much longer the second shortest was.
    pub(super) error_ns: f64,
}

/// What evaluating a row again has given.
#[derive(Debug, Clone, Copy)]
enum Replayed {
    /// Nanoseconds.
    Took(f64),
    /// It is left to itself.
    NotYet,
}

impl ChunkTimer {
    /// Evaluates rows again; `None` if they fail now, or others did.
    pub(super) fn replay(
        &mut self,
        rows: Range<usize>,
        evaluator: &mut dyn EvaluateRows,
    ) -> Option<f64> {
        if self.fails_again {
            return None;
        }
        let Ok(ns) = evaluator.evaluate(rows, false) else {
            self.fails_again = true;
            return None;
        };
        self.replayed_ns += ns;
        Some(self.of_rows(ns))
    }

    /// As [`ChunkTimer::replay`] of one row, but waits no longer than [`PATIENCE`].
    fn replay_within_patience(
        &mut self,
        row: usize,
        evaluator: &mut dyn EvaluateRows,
    ) -> Option<Replayed> {
        if self.fails_again {
            return None;
        }
        let Ok(outcome) = evaluator.evaluate_within(row, PATIENCE) else {
            self.fails_again = true;
            return None;
        };
        self.replayed_ns += outcome.unwrap_or(PATIENCE.as_nanos() as f64);
        Some(match outcome {
            Some(ns) => Replayed::Took(self.of_rows(ns)),
            None => Replayed::NotYet,
        })
    }

    /// Finds the rows that made `range` slow, ascending; and, if there are none, the nanoseconds
    /// that the range took when it was evaluated again. `None` if it cannot be.
    pub(super) fn search(
        &mut self,
        range: Range<usize>,
        ns: f64,
        evaluator: &mut dyn EvaluateRows,
    ) -> Option<(Vec<Found>, f64)> {
        let mut found = Vec::new();
        let best;
        let others = self.per_row.median * (range.len() - 1) as f64;
        let excess = (ns - self.per_row.median * range.len() as f64).max(0.0);
        // One by one, rows that are evaluated for nothing would take longer than the excess.
        let at_once = excess >= range.len() as f64 * self.fixed_ns();
        if excess >= SEARCH_AT_ONCE_NS && at_once {
            let mut explained = 0.0;
            let mut total = 0.0;
            let mut not_done = None;
            for row in range {
                let mut again = if excess >= TOO_LONG_TO_WAIT_NS && not_done.is_none() {
                    match self.replay_within_patience(row, evaluator)? {
                        Replayed::Took(again) => again,
                        Replayed::NotYet => {
                            not_done = Some(row);
                            continue;
                        }
                    }
                } else {
                    self.replay(row..row + 1, evaluator)?
                };
                // In the chunk it took what the chunk took without the others, about.
                let mut error_ns = (ns - others - again).abs();
                // The one that is not done may have made this one wait, by a lock that both take.
                let may_be_nobodys = again < LONGEST_STALL_NS || not_done.is_some();
                if again > self.suspicious_ns() && may_be_nobodys {
                    let third = self.replay(row..row + 1, evaluator)?;
                    (again, error_ns) = shortest(again, f64::INFINITY, third);
                }
                total += again;
                if again > self.suspicious_ns() && again > self.per_row.median * SUSPICIOUS_FACTOR {
                    let ns = again.min(ns);
                    found.push(Found { row, ns, error_ns });
                    explained += ns;
                }
                if not_done.is_none() && explained >= EXPLAINED * excess {
                    break;
                }
            }
            // What the chunk took without the others, which may have taken longer one time than another.
            let rest = ns - total;
            if let Some(row) = not_done
                && rest >= PATIENCE.as_nanos() as f64
            {
                let place = found.partition_point(|found| found.row < row);
                let error_ns = total.max(LONGEST_STALL_NS);
                let culprit = Found {
                    row,
                    ns: rest,
                    error_ns,
                };
                found.insert(place, culprit);
                total = ns;
            }
            best = total.min(ns);
        } else {
            let (least, error_ns) =
                shortest(ns, f64::INFINITY, self.replay(range.clone(), evaluator)?);
            best = least;
            if self.is_suspicious(best, range.len()) {
                self.descend(range, (best, error_ns), evaluator, &mut found)?;
            }
        }
        Some((found, best))
    }

    /// Cuts a range that was slow twice into parts, and follows the slow ones. Of the range is known
    /// the shorter of its times and how much longer the other was.
    fn descend(
        &mut self,
        range: Range<usize>,
        (ns, error_ns): (f64, f64),
        evaluator: &mut dyn EvaluateRows,
        found: &mut Vec<Found>,
    ) -> Option<()> {
        if range.len() == 1 {
            let row = range.start;
            found.push(Found { row, ns, error_ns });
            return Some(());
        }
        let excess = ns - self.per_row.median * range.len() as f64;
        let mut explained = 0.0;
        let step = range.len().div_ceil(PARTS);
        let mut start = range.start;
        while start < range.end && explained < EXPLAINED * excess {
            let part = start..range.end.min(start + step);
            start = part.end;
            let (mut took, mut error_ns) = (self.replay(part.clone(), evaluator)?, f64::INFINITY);
            // Parts share the range's excess: what is a fifth of it may still be suspicious.
            let least = self.suspicious_ns() / 2.0;
            let slow = |ns: f64, median: f64| ns - median * part.len() as f64 > least;
            if slow(took, self.per_row.median) {
                let again = self.replay(part.clone(), evaluator)?;
                (took, error_ns) = shortest(took, error_ns, again);
            }
            if slow(took, self.per_row.median) {
                explained += took - self.per_row.median * part.len() as f64;
                self.descend(part, (took, error_ns), evaluator, found)?;
            }
        }
        Some(())
    }

    /// Gives the found rows of a chunk their times and the others what remains.
    pub(super) fn share(
        &mut self,
        chunk: Range<usize>,
        ns: f64,
        found: &[Found],
        runs: &mut Vec<Run>,
    ) {
        let others = chunk.len() - found.len();
        let blamed: f64 = found.iter().map(|found| found.ns).sum();
        let rest = (ns - blamed).max(0.0);
        // What is left unexplained of a confirmed chunk is a stall: nobody's. No stall is so long; but the
        // rows that were found may take longer one time than another.
        let varies: f64 = found.iter().map(|found| found.error_ns).sum();
        let usual = match rest < LONGEST_STALL_NS + varies {
            true => rest.min(self.per_row.median * others as f64 * SUSPICIOUS_FACTOR),
            false => rest,
        };
        let each = if others == 0 {
            0.0
        } else {
            usual / others as f64
        };
        let mut start = chunk.start;
        for &Found { row, ns, error_ns } in found {
            push(runs, row - start, each, rest - each, Method::Apportioned);
            push(runs, 1, ns, error_ns, Method::Replayed);
            start = row + 1;
        }
        let remaining = chunk.end - start;
        push(runs, remaining, each, rest - each, Method::Apportioned);
    }
}

/// What a row of a chunk usually costs that took `ns` when it was searched: where few were found,
/// those left; where most were, any.
pub(super) fn usual_of(rows: usize, ns: f64, found: &[Found]) -> f64 {
    let others = rows - found.len();
    if found.len() > others {
        return ns / rows as f64;
    }
    let blamed: f64 = found.iter().map(|found| found.ns).sum();
    (ns - blamed).max(0.0) / others as f64
}
