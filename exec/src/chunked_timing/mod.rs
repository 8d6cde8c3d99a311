//! Timing single records without timing single records.
//!
//! Reading the clock for every row costs more than most expressions. So rows are evaluated in
//! chunks of about [`CHUNK_NS`], a chunk's time is apportioned evenly, and only where a chunk
//! takes far longer than its peers are the rows found that did it: by evaluating parts of the
//! chunk again. A row is blamed only after it was slow twice, and with the smaller of its
//! times, so that a thread that lost its processor for a moment blames nobody.
//!
//! Evaluating again is for the time alone. A function that then fails, as one that reads from
//! elsewhere may, is not evaluated again any more, and its rows keep the times of the first
//! evaluation. One that remembers what it has computed is fast then: what it took longer the first
//! time than any machine stalls remains the chunk's, whose rows share it.
//!
//! Finding a row takes about as long again as it took the first time. Where a whole class of rows is slow,
//! there is no time for that: chunks become as small as the mean row is worth it, down to single rows. Rows
//! with values far longer than the others' are timed by themselves as soon as the mean row is worth it.
//!
//! There is no clock in here: the caller evaluates rows and says how long that took (where it can,
//! without what [`crate::preemption`] knows to be nobody's), so tests can play any machine.

mod median;
mod search;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use datafusion::common::Result;
use skewer_profiling::Method;

use self::median::RunningMedian;
use self::search::usual_of;
use crate::long_values::LongRow;

/// A chunk's target. Two clock readings (50 ns) are lost in it; it is as long as it may be that a record
/// that takes [`SUSPICIOUS_NS`] longer than the others makes it [`SUSPICIOUS_FACTOR`] times as long.
pub const CHUNK_NS: f64 = 50_000.0;

/// The target of a chunk whose rows all stem from one record, such as the elements of a list: its time is
/// the record's, whichever of them it went into. Cut smaller, it would leave a remainder of most batches,
/// and what is above costs by the batch. It is as long as it may be that a stall of a millisecond makes it
/// [`SUSPICIOUS_FACTOR`] times as long.
const CHUNK_OF_ONE_RECORD_NS: f64 = 10.0 * CHUNK_NS;

/// A chunk is suspicious if it took this much longer than its rows usually do …
pub(crate) const SUSPICIOUS_NS: f64 = 100_000.0;

/// … and this many times as long.
pub(crate) const SUSPICIOUS_FACTOR: f64 = 3.0;

/// From this excess on, confirming a chunk by evaluating it again would cost more than looking
/// at its rows one by one until the culprit is met.
const SEARCH_AT_ONCE_NS: f64 = 10_000_000.0;

/// A stall of the machine's is shorter than this, even on a busy one: a row that took longer need
/// not be confirmed, which would take as long again.
pub(crate) const LONGEST_STALL_NS: f64 = 50_000_000.0;

/// Evaluating again may take this share of the time spent so far …
pub(crate) const REPLAY_SHARE: f64 = 0.05;

/// … plus the excess at hand and this much.
const REPLAY_FLOOR_NS: f64 = 20_000_000.0;

/// A row is the longest so far if it took this many times as long as the longest before; in rows
/// sorted by their cost many would be without.
const LONGER: f64 = 1.1;

/// What evaluating costs whatever the number of rows, as the compilation of a pattern, is at most one part
/// in so many of a chunk, which is longer for that …
const FIXED_SHARE: f64 = 10.0;

/// … and one time as much as another but for this share of it.
const VAGUE_SHARE: f64 = 0.25;

/// Chunks are not longer than this for that, and it is known from so many evaluations of no rows.
const LONGEST_CHUNK_NS: f64 = 100.0 * CHUNK_NS;
const OF_NO_ROWS: usize = 3;

/// What an evaluation takes beside its rows and what is fixed, about, in ns: slicing the batch, calling the
/// expressions, reading clocks.
const PER_EVALUATION_NS: f64 = 1_000.0;

/// Smaller chunks than [`CHUNK_NS`], and rows that are timed by themselves since they are longer, may cost
/// this share of the time of the mean row.
const FINE_SHARE: f64 = 0.08;

/// Chunks become smaller if chunks that were slow, but could not be searched for want of time, have this
/// share of the time spent.
const UNSEARCHED_SHARE: f64 = 0.02;

/// The first chunk is one row, and each of the next ones at most this many times the one before.
const GROWTH: usize = 4;

/// A row's time is explained by its length if it took no more than this many times what rows of such a
/// length usually take.
const EXPLAINED_FACTOR: f64 = 1.5;

/// … which is known from so many rows on.
const KNOWN: usize = 3;

/// Consecutive rows with the same latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Number of rows.
    pub rows: usize,
    /// Picoseconds that each of them took.
    pub ps: u64,
    /// By how many picoseconds that may be off.
    pub error_ps: u64,
    /// How that is known.
    pub method: Method,
}

/// Evaluates rows of a batch and returns the nanoseconds it took. `keep` tells the first
/// evaluation of rows, whose result is the batch's, from evaluations only for their time.
pub trait EvaluateRows {
    /// Evaluates `rows`.
    fn evaluate(&mut self, rows: Range<usize>, keep: bool) -> Result<f64>;

    /// Evaluates no rows, and returns the nanoseconds that took. `None` where functions are not to be asked
    /// for nothing.
    fn evaluate_none(&mut self) -> Option<f64> {
        None
    }

    /// Evaluates a row again, only for its time. `None` if that takes longer than `patience`: it is
    /// left to itself, and its time is not asked for.
    fn evaluate_within(&mut self, row: usize, patience: Duration) -> Result<Option<f64>>;

    /// How much of the last evaluation's time may be nobody's, in ns.
    fn doubtful_ns(&self) -> f64;

    /// The length of the row's long values, by which its time may go; 0 if it has none.
    fn long_values(&self, row: usize) -> usize;

    /// The end of the rows from `row` on, at most `limit`, that stem from the same records as it.
    fn end_of_record(&self, row: usize, limit: usize) -> usize {
        limit.min(row + 1)
    }
}

/// What is known of the cost of one expression's rows.
#[derive(Debug, Default)]
pub struct ChunkTimer {
    /// Cost per row of the latest chunks, in ns.
    per_row: RunningMedian,
    /// Cost by the length of the latest rows with long values that were timed by themselves, in ns.
    per_length: RunningMedian,
    spent_ns: f64,
    /// Rows that have been evaluated, for `spent_ns`.
    rows: f64,
    /// Of `spent_ns`, what slow chunks took that there was no time to search, or slow rows that smaller
    /// chunks have shown.
    unsearched_ns: f64,
    replayed_ns: f64,
    /// Of `replayed_ns` and `repeated_ns`, what has been taken by [`ChunkTimer::take_replayed_ns`].
    accounted_ns: f64,
    /// The longest time of a row that was timed by itself.
    longest_ns: f64,
    /// Of `replayed_ns`, what it took to confirm that a row is the longest so far.
    confirmed_ns: f64,
    /// Evaluating rows again has failed, which the first time had not.
    fails_again: bool,
    /// What an evaluation takes beside its rows, in ns: it is no row's. `None` as long as nobody has asked.
    fixed_ns: Option<f64>,
    /// That of all evaluations but the first of each batch, which there would be without the pacer, too.
    repeated_ns: f64,
}

impl ChunkTimer {
    /// Evaluates all of `0..rows` once, in order, and says what each row took. Fails if that fails.
    ///
    /// `alone` lists rows, ascending, that are timed by themselves (those with far more bytes
    /// than the others): always if they are long, else if the mean row is worth it. Rows are evaluated
    /// again only if `replayable`; otherwise the rows of a slow chunk share its time.
    pub fn time(
        &mut self,
        rows: usize,
        alone: &[LongRow],
        replayable: bool,
        evaluator: &mut dyn EvaluateRows,
    ) -> Result<Vec<Run>> {
        if replayable && rows > 0 {
            self.know_fixed(evaluator);
        }
        let mut runs = Vec::new();
        let share = alone.len() as f64 / rows.max(1) as f64;
        let mut alone = alone.iter().copied().peekable();
        let mut start = 0;
        let mut evaluations: usize = 0;
        while start < rows {
            // Those that a chunk has taken in when the mean row was not worth it.
            while alone.next_if(|long| long.row < start).is_some() {}
            let all = self.is_worth(share);
            while alone
                .next_if(|long| !long.is_long && !all && long.row == start)
                .is_some()
            {}
            if alone.next_if(|long| long.row == start).is_some() {
                self.time_row(start, replayable, evaluator, &mut runs)?;
                start += 1;
                evaluations += 1;
                continue;
            }
            let mut ahead = alone.clone();
            let limit = ahead.find(|long| long.is_long || all);
            let limit = limit.map_or(rows, |long| long.row);
            let limit_of_one = limit.min(start + self.chunk_rows(CHUNK_OF_ONE_RECORD_NS));
            let end_of_one = evaluator.end_of_record(start, limit_of_one);
            let full = self.chunk_rows(CHUNK_NS).min(self.fine_rows());
            let end = limit.min(start + full);
            let (end, is_one) = (end.max(end_of_one), end_of_one >= end);
            self.time_chunk(start..end, is_one, replayable, evaluator, &mut runs)?;
            start = end;
            evaluations += 1;
        }
        self.repeated_ns += self.fixed_ns() * evaluations.saturating_sub(1) as f64;
        Ok(runs)
    }

    /// Learns what an evaluation takes beside its rows. The first times may be slower than the others.
    fn know_fixed(&mut self, evaluator: &mut dyn EvaluateRows) {
        if self.fixed_ns.is_some() {
            return;
        }
        let mut least: Option<f64> = None;
        for _ in 0..OF_NO_ROWS {
            let Some(ns) = evaluator.evaluate_none() else {
                break;
            };
            self.repeated_ns += ns;
            least = Some(least.map_or(ns, |least| least.min(ns)));
        }
        self.fixed_ns = Some(least.unwrap_or(0.0));
    }

    fn fixed_ns(&self) -> f64 {
        self.fixed_ns.unwrap_or(0.0)
    }

    /// What its rows took of an evaluation. What is fixed cannot be more than all of it.
    fn of_rows(&mut self, ns: f64) -> f64 {
        let fixed_ns = self.fixed_ns().min(ns);
        self.fixed_ns = self.fixed_ns.map(|_| fixed_ns);
        ns - fixed_ns
    }

    /// By how much that may be off.
    fn vague_ns(&self) -> f64 {
        VAGUE_SHARE * self.fixed_ns()
    }

    /// From how much longer on rows are conspicuous.
    fn suspicious_ns(&self) -> f64 {
        SUSPICIOUS_NS + self.vague_ns()
    }

    /// Nanoseconds spent on evaluating rows again, and on evaluating batches in many parts, since the last
    /// call.
    pub fn take_replayed_ns(&mut self) -> f64 {
        let all = self.replayed_ns + self.repeated_ns;
        let since = all - self.accounted_ns;
        self.accounted_ns = all;
        since
    }

    /// What the mean row took, in ns.
    fn mean_ns(&self) -> f64 {
        self.spent_ns / self.rows.max(1.0)
    }

    /// Whether the mean row is worth to evaluate a `share` of all rows by themselves.
    fn is_worth(&self, share: f64) -> bool {
        share * (PER_EVALUATION_NS + self.fixed_ns()) <= FINE_SHARE * self.mean_ns()
    }

    /// At most so many rows are a chunk, since there is no time to search slow ones.
    fn fine_rows(&self) -> usize {
        if self.unsearched_ns <= UNSEARCHED_SHARE * self.spent_ns {
            return usize::MAX;
        }
        let worth_ns = FINE_SHARE * self.mean_ns();
        ((PER_EVALUATION_NS + self.fixed_ns()) / worth_ns.max(0.01)).ceil() as usize
    }

    /// How many rows take about `ns`.
    fn chunk_rows(&self, ns: f64) -> usize {
        // As long as little is known of their cost, few rows are risked: each may take seconds.
        let known = GROWTH.saturating_pow(self.per_row.len() as u32);
        let ns = ns.max((FIXED_SHARE * self.fixed_ns()).min(LONGEST_CHUNK_NS));
        let full = (ns / self.per_row.median.max(0.01)) as usize;
        full.clamp(1, known)
    }

    /// `is_one`: all rows of the chunk stem from the same records.
    fn time_chunk(
        &mut self,
        chunk: Range<usize>,
        is_one: bool,
        replayable: bool,
        evaluator: &mut dyn EvaluateRows,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let rows = chunk.len();
        if rows == 1 {
            let ns = self.time_row(chunk.start, replayable, evaluator, runs)?;
            // In a larger chunk it would have had to be searched.
            if self.per_row.len() > 0 && self.is_suspicious(ns, 1) {
                self.unsearched_ns += ns;
            }
            self.per_row.observe(ns);
            return Ok(());
        }
        let gross = evaluator.evaluate(chunk.clone(), true)?;
        let mut ns = self.of_rows(gross);
        let doubtful_ns = evaluator.doubtful_ns() + self.vague_ns();
        let mut of_one = (error_of_one(ns, doubtful_ns), Method::Measured);
        self.spent_ns += ns;
        self.rows += rows as f64;
        let suspicious = self.is_suspicious(ns, rows);
        if suspicious && replayable && self.may_replay(ns) {
            match self.search(chunk.clone(), ns, evaluator) {
                Some((found, again)) if !found.is_empty() => {
                    self.share(chunk, ns, &found, runs);
                    self.per_row.observe(usual_of(rows, again, &found));
                    return Ok(());
                }
                // It was not slow again: a stall of the machine, or a function that remembers its
                // results. Nobody can be blamed for the difference.
                Some((_, again)) if ns - again < LONGEST_STALL_NS => {
                    if again < ns {
                        of_one = (ns - again, Method::Replayed);
                    }
                    ns = again;
                }
                // It remembers, or does not let itself be asked again.
                Some(_) | None => {}
            }
        } else if suspicious && !is_one {
            self.unsearched_ns += ns;
        }
        let each = ns / rows as f64;
        self.per_row.observe(each);
        let (error_ns, method) = match is_one {
            true => (of_one.0 / rows as f64, of_one.1),
            false => (ns - each, Method::Apportioned),
        };
        push(runs, rows, each, error_ns, method);
        Ok(())
    }

    /// One row needs no search, but the first time may be a stall of the machine's.
    ///
    /// Where rows differ by nature, too many are far above the median to confirm them all. But the
    /// row that is blamed in the end is the longest, and few rows are the longest so far: of n in
    /// any order, ln n in the mean.
    ///
    /// Those are evaluated twice more, unless their length explains their time. The values of the first
    /// evaluation are kept, so the second may be the first to touch other memory, which the system has to
    /// supply just then, or the host of a virtual machine, which may take milliseconds. Its values are
    /// dropped, and the third has their memory.
    fn time_row(
        &mut self,
        row: usize,
        replayable: bool,
        evaluator: &mut dyn EvaluateRows,
        runs: &mut Vec<Run>,
    ) -> Result<f64> {
        let length = match replayable {
            true => evaluator.long_values(row),
            false => 0,
        };
        let row = row..row + 1;
        let gross = evaluator.evaluate(row.clone(), true)?;
        let mut ns = self.of_rows(gross);
        let mut error_ns = error_of_one(ns, evaluator.doubtful_ns() + self.vague_ns());
        self.spent_ns += ns;
        self.rows += 1.0;
        let mut method = Method::Measured;
        if replayable && ns > self.suspicious_ns() {
            let longest = ns > LONGER * self.longest_ns
                && ns < LONGEST_STALL_NS
                && !self.is_explained_by(length, ns, LONGER)
                && within_replay_share(self.confirmed_ns, self.spent_ns, 0.0);
            let suspicious = self.per_row.len() > 0
                && self.is_suspicious(ns, 1)
                && !self.is_explained_by(length, ns, EXPLAINED_FACTOR)
                && ns < LONGEST_STALL_NS
                && self.is_worth_confirming(ns);
            if longest || suspicious {
                let times = if longest { 2 } else { 1 };
                for time in 0..times {
                    let Some(again) = self.replay(row.clone(), evaluator) else {
                        break;
                    };
                    method = Method::Replayed;
                    let known = if time == 0 { f64::INFINITY } else { error_ns };
                    (ns, error_ns) = shortest(ns, known, again);
                    if longest {
                        self.confirmed_ns += again;
                    }
                    if ns <= LONGER * self.longest_ns {
                        break;
                    }
                }
            }
        }
        self.longest_ns = self.longest_ns.max(ns);
        if length > 0 {
            self.per_length.observe(ns / length as f64);
        }
        push(runs, 1, ns, error_ns, method);
        Ok(ns)
    }

    fn is_suspicious(&self, ns: f64, rows: usize) -> bool {
        let expected = self.per_row.median * rows as f64;
        ns - expected > self.suspicious_ns() && ns > SUSPICIOUS_FACTOR * expected
    }

    /// Whether `ns` is at most `factor` times what a row with long values of such a length usually takes.
    /// Where the time goes by the length, a long row need not be evaluated again to know that it was no
    /// stall.
    fn is_explained_by(&self, length: usize, ns: f64, factor: f64) -> bool {
        let expected = self.per_length.median * length as f64;
        self.per_length.len() >= KNOWN && ns <= factor * expected
    }

    fn may_replay(&self, excess: f64) -> bool {
        within_replay_share(self.searched_ns(), self.spent_ns, excess)
    }

    /// Whether a row that took far longer than the median is evaluated again. Where rows differ by
    /// nature there are many, and those that took little longer would use up the allowance before one
    /// comes that was stalled for long: the more of it is used, the longer a row must have taken. To
    /// find out that a row was stalled costs next to nothing.
    fn is_worth_confirming(&self, ns: f64) -> bool {
        let over = self.searched_ns() - REPLAY_SHARE * self.spent_ns;
        let used = (over / REPLAY_FLOOR_NS).clamp(0.0, 1.0);
        ns > SUSPICIOUS_NS * (LONGEST_STALL_NS / SUSPICIOUS_NS).powf(used)
            // Few rows take so long that one of them may be beside the longest without being it.
            || (ns >= SEARCH_AT_ONCE_NS && self.may_replay(ns))
    }

    /// What evaluating again has taken without the confirmation of the longest rows, in ns.
    fn searched_ns(&self) -> f64 {
        self.replayed_ns - self.confirmed_ns
    }
}

fn within_replay_share(replayed_ns: f64, spent_ns: f64, excess: f64) -> bool {
    replayed_ns < REPLAY_SHARE * spent_ns + excess + REPLAY_FLOOR_NS
}

/// By how much a row's time may be off that was evaluated once, of which `doubtful_ns` may be nobody's.
/// Of a row that took so long that nobody asks whether the machine stalled, it may be a stall, too.
pub(crate) fn error_of_one(ns: f64, doubtful_ns: f64) -> f64 {
    if ns < LONGEST_STALL_NS {
        doubtful_ns
    } else {
        doubtful_ns.max(LONGEST_STALL_NS)
    }
}

/// The shorter one of the `shortest` so far and of `another` time, and by how much the second
/// shortest is longer, which is `error_ns` before.
fn shortest(shortest: f64, error_ns: f64, another: f64) -> (f64, f64) {
    if another < shortest {
        (another, shortest - another)
    } else {
        (shortest, error_ns.min(another - shortest))
    }
}

fn push(runs: &mut Vec<Run>, rows: usize, ns: f64, error_ns: f64, method: Method) {
    if rows > 0 {
        let [ps, error_ps] = [ns, error_ns].map(|ns| (ns * 1000.0) as u64);
        runs.push(Run {
            rows,
            ps,
            error_ps,
            method,
        });
    }
}
