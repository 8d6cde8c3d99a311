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
//! There is no clock in here: the caller evaluates rows and says how long that took (where it can,
//! without what [`crate::preemption`] knows to be nobody's), so tests can play any machine.

use std::ops::Range;
use std::time::Duration;

use datafusion::common::Result;
use skewer_profiling::Method;

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

/// From this excess on, nobody waits until the culprit has been evaluated again …
const TOO_LONG_TO_WAIT_NS: f64 = 10.0 * LONGEST_STALL_NS;

/// … but for so long for each row: the one that is not done by then is the culprit, if none of the
/// others is.
const PATIENCE: Duration = Duration::from_nanos(2 * LONGEST_STALL_NS as u64);

/// Parts that a slow range is cut into in the search.
const PARTS: usize = 16;

/// The search ends when this share of the excess is explained.
const EXPLAINED: f64 = 0.9;

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

/// The first chunk is one row, and each of the next ones at most this many times the one before.
const GROWTH: usize = 4;

/// A row's time is explained by its length if it took no more than this many times what rows of such a
/// length usually take.
const EXPLAINED_FACTOR: f64 = 1.5;

/// … which is known from so many rows on.
const KNOWN: usize = 3;

/// Observations that a running median is taken over.
const WINDOW: usize = 31;

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

/// A row that was found to be slow.
#[derive(Debug, Clone, Copy)]
struct Found {
    row: usize,
    /// The shortest of its evaluations.
    ns: f64,
    /// How much longer the second shortest was.
    error_ns: f64,
}

/// What evaluating a row again has given.
#[derive(Debug, Clone, Copy)]
enum Replayed {
    /// Nanoseconds.
    Took(f64),
    /// It is left to itself.
    NotYet,
}

/// What is known of the cost of one expression's rows.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Cost per row of the latest chunks, in ns.
    per_row: RunningMedian,
    /// Cost by the length of the latest rows with long values that were timed by themselves, in ns.
    per_length: RunningMedian,
    spent_ns: f64,
    replayed_ns: f64,
    /// Of `replayed_ns` and `repeated_ns`, what has been taken by [`Pacer::take_replayed_ns`].
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

/// The median of the latest observations.
#[derive(Debug, Default)]
struct RunningMedian {
    /// A ring.
    recent: Vec<f64>,
    next: usize,
    /// The same in order.
    sorted: Vec<f64>,
    median: f64,
}

impl RunningMedian {
    fn observe(&mut self, value: f64) {
        if self.recent.len() < WINDOW {
            self.recent.push(value);
        } else {
            let oldest = std::mem::replace(&mut self.recent[self.next], value);
            self.next = (self.next + 1) % WINDOW;
            let place = self.place(oldest);
            self.sorted.remove(place);
        }
        let place = self.place(value);
        self.sorted.insert(place, value);
        self.median = self.sorted[self.sorted.len() / 2];
    }

    /// Before how many of them there is none so great.
    fn place(&self, value: f64) -> usize {
        let less = |known: &f64| known.total_cmp(&value).is_lt();
        self.sorted.partition_point(less)
    }
}

impl Pacer {
    /// Evaluates all of `0..rows` once, in order, and says what each row took. Fails if that fails.
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
        if replayable && rows > 0 {
            self.know_fixed(evaluator);
        }
        let mut runs = Vec::new();
        let mut alone = alone.iter().copied().peekable();
        let mut start = 0;
        let mut evaluations: usize = 0;
        while start < rows {
            if alone.next_if_eq(&start).is_some() {
                self.time_row(start, replayable, evaluator, &mut runs)?;
                start += 1;
                evaluations += 1;
                continue;
            }
            let limit = alone.peek().copied().unwrap_or(rows);
            let limit_of_one = limit.min(start + self.chunk_rows(CHUNK_OF_ONE_RECORD_NS));
            let end_of_one = evaluator.end_of_record(start, limit_of_one);
            let end = limit.min(start + self.chunk_rows(CHUNK_NS));
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

    /// How many rows take about `ns`.
    fn chunk_rows(&self, ns: f64) -> usize {
        // As long as little is known of their cost, few rows are risked: each may take seconds.
        let known = GROWTH.saturating_pow(self.per_row.recent.len() as u32);
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
            self.per_row.observe(ns);
            return Ok(());
        }
        let gross = evaluator.evaluate(chunk.clone(), true)?;
        let mut ns = self.of_rows(gross);
        let doubtful_ns = evaluator.doubtful_ns() + self.vague_ns();
        let mut of_one = (error_of_one(ns, doubtful_ns), Method::Measured);
        self.spent_ns += ns;
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
        let mut method = Method::Measured;
        if replayable && ns > self.suspicious_ns() {
            let longest = ns > LONGER * self.longest_ns
                && ns < LONGEST_STALL_NS
                && !self.is_explained_by(length, ns, LONGER)
                && within_replay_share(self.confirmed_ns, self.spent_ns, 0.0);
            let suspicious = !self.per_row.recent.is_empty()
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
        self.per_length.recent.len() >= KNOWN && ns <= factor * expected
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

    /// Evaluates rows again; `None` if they fail now, or others did.
    fn replay(&mut self, rows: Range<usize>, evaluator: &mut dyn EvaluateRows) -> Option<f64> {
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

    /// As [`Pacer::replay`] of one row, but waits no longer than [`PATIENCE`].
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
    fn search(
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
    fn share(&mut self, chunk: Range<usize>, ns: f64, found: &[Found], runs: &mut Vec<Run>) {
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
fn usual_of(rows: usize, ns: f64, found: &[Found]) -> f64 {
    let others = rows - found.len();
    if found.len() > others {
        return ns / rows as f64;
    }
    let blamed: f64 = found.iter().map(|found| found.ns).sum();
    (ns - blamed).max(0.0) / others as f64
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::common::exec_err;

    use super::*;

    #[test]
    fn the_median_is_that_of_the_latest() {
        let mut median = RunningMedian::default();
        // Some are equal.
        let values: Vec<f64> = (0..200_u32).map(|n| f64::from(n * n % 53)).collect();
        for (count, value) in (1..).zip(&values) {
            median.observe(*value);
            let mut latest = values[count.max(WINDOW) - WINDOW..count].to_vec();
            latest.sort_by(f64::total_cmp);
            assert_eq!(median.median, latest[latest.len() / 2]);
        }
    }

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
        Pacer::default().time(rows, &[], true, machine).unwrap()
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
    fn where_rows_differ_by_nature_no_stall_is_anyone_s_however_many_there_are() {
        // Lines of exponential length, as movies have ratings, in no order: 0.1 ms in the mean. One
        // takes a little longer than the stalls, so none of these makes a row the longest.
        let cost = |row: usize| match row {
            150 => 5.2e6,
            _ => -100e3 * (1.0 - ((row * 619) % 2_103) as f64 / 2_103.0).ln(),
        };
        for alone in [vec![], (0..2_103).step_by(7).collect()] {
            let mut machine = Machine::new((0..2_103).map(cost).collect());
            machine.stalls = (200..4_000).step_by(80).map(|at| (at, 5e6)).collect();
            let runs = Pacer::default()
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
            let runs = Pacer::default()
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
        let runs = Pacer::default()
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
}
