//! What runs of statements took with remedies and without.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use super::candidates::Candidate;

/// Statements that are remembered; whichever was not run for longest is forgotten first.
const STATEMENTS: usize = 1024;

/// Runs of each kind that are remembered.
const RUNS: usize = 5;

/// Runs of each kind after which their medians decide.
const ENOUGH: usize = 3;

/// One run of so many goes without remedies that are kept.
const WITHOUT: u64 = 8;

/// Runs with remedies may take this share of what runs without them take.
const SAVES: f64 = 0.95;

/// Of shorter runs the log is not looked at: that takes some 30 ms, and remedies have to save 10 ms.
const SHORTEST: Duration = Duration::from_millis(50);

/// The log is looked at again, of changed tables, when the statement has run for so long since it was.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What a database knows of statements that may have remedies, by fingerprint.
#[derive(Debug, Default)]
pub(crate) struct RemedyBook(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    by_statement: HashMap<String, Page>,
    runs: u64,
}

/// What is known of a statement.
#[derive(Debug, Default)]
struct Page {
    last_run: u64,
    candidates: Vec<Candidate>,
    /// The last run without remedies that has ended.
    plain: Option<Run>,
    /// The tables that runs read whose log has been looked at.
    looked_at: Option<Option<String>>,
    /// How long runs have taken since.
    ran_since: Duration,
    with: VecDeque<Duration>,
    without: VecDeque<Duration>,
    /// Runs since the remedies are kept.
    kept_runs: u64,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) query_id: i64,
    pub(crate) time: Duration,
    /// What `sys.queries` says of the tables that it read.
    pub(crate) tables: Option<String>,
}

/// What the next run of a statement does.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// The log of this run has not been looked at.
    LookAt(i64),
    /// There is nothing to try.
    Nothing,
    /// There is, and this run does it or not.
    Try(Judged),
}

/// Remedies of a statement, and what is known of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judged {
    pub(super) candidates: Vec<Candidate>,
    /// Whether the next run has them.
    pub(super) applies: bool,
    /// By how many nanoseconds runs with them took less, by medians.
    pub(super) measured_ns: Option<i64>,
    /// Pairs of runs so far: one with remedies, and one without.
    pub(super) pairs: usize,
    pub(super) verdict: Verdict,
}

impl Judged {
    /// Remedies that the next run has, whatever they save.
    pub(super) fn untried(candidates: Vec<Candidate>) -> Self {
        Self {
            candidates,
            applies: true,
            measured_ns: None,
            pairs: 0,
            verdict: Verdict::Trial,
        }
    }
}

/// Whether remedies are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Trial,
    Kept,
    TakenBack,
}

impl Verdict {
    /// Its name in `sys.remedy_runs`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Trial => "trial",
            Self::Kept => "kept",
            Self::TakenBack => "taken back",
        }
    }
}

impl RemedyBook {
    /// What the next run of a statement does. It counts as begun, unless a log is to be looked at first. Where runs
    /// have a `deadline` that only those with remedies meet, none goes without to compare.
    pub(super) fn next(&self, statement: &str, deadline: Option<Duration>) -> Next {
        let mut pages = self.0.lock();
        let page = pages.page(statement);
        // Keys that were heavy may be so no more.
        if (page.candidates.is_empty() || page.are_taken_back())
            && let Some(query_id) = page.worth_a_look()
        {
            return Next::LookAt(query_id);
        }
        match page.candidates.is_empty() {
            true => Next::Nothing,
            false => Next::Try(page.judge(deadline)),
        }
    }

    /// A look at the log has found these. If they are others than before, their trial begins.
    pub(super) fn found(&self, statement: &str, candidates: Vec<Candidate>) {
        let mut pages = self.0.lock();
        let page = pages.page(statement);
        let mut both = page.candidates.iter().zip(&candidates);
        let are_alike = page.candidates.len() == candidates.len()
            && both.all(|(before, now)| before.is_alike(now));
        if are_alike {
            return;
        }
        page.candidates = candidates;
        page.kept_runs = 0;
        page.with.clear();
        page.without.clear();
        page.without.extend(page.plain.iter().map(|run| run.time));
    }

    /// A run has ended that had remedies or had none.
    pub(crate) fn ran(&self, statement: &str, run: Run, had_remedies: bool) {
        let mut pages = self.0.lock();
        let page = pages.page(statement);
        page.ran_since += run.time;
        let times = match had_remedies {
            true => &mut page.with,
            false => &mut page.without,
        };
        times.push_back(run.time);
        if times.len() > RUNS {
            times.pop_front();
        }
        if !had_remedies {
            page.plain = Some(run);
        }
    }
}

impl Pages {
    fn page(&mut self, statement: &str) -> &mut Page {
        self.runs += 1;
        let now = self.runs;
        if !self.by_statement.contains_key(statement) && self.by_statement.len() >= STATEMENTS {
            let oldest = self
                .by_statement
                .iter()
                .min_by_key(|(_, page)| page.last_run);
            if let Some(oldest) = oldest.map(|(statement, _)| statement.clone()) {
                self.by_statement.remove(&oldest);
            }
        }
        let page = self.by_statement.entry(statement.to_owned()).or_default();
        page.last_run = now;
        page
    }
}

impl Page {
    /// The run whose log is to be looked at, if one is. It counts as looked at.
    fn worth_a_look(&mut self) -> Option<i64> {
        let plain = self.plain.as_ref().filter(|plain| plain.time >= SHORTEST)?;
        if let Some(looked_at) = &self.looked_at
            && (*looked_at == plain.tables || self.ran_since < LOOK_AGAIN)
        {
            return None;
        }
        self.looked_at = Some(plain.tables.clone());
        self.ran_since = Duration::ZERO;
        Some(plain.query_id)
    }

    /// Whether runs have shown that the remedies save too little.
    fn are_taken_back(&self) -> bool {
        let has_enough = self.with.len().min(self.without.len()) >= ENOUGH;
        let medians = median(&self.with).zip(median(&self.without));
        has_enough && medians.is_some_and(|(with, without)| !saves(with, without))
    }

    fn judge(&mut self, deadline: Option<Duration>) -> Judged {
        let (with, without) = (self.with.len(), self.without.len());
        let medians = median(&self.with).zip(median(&self.without));
        let measured_ns = medians.map(|(with, without)| nanos(without) - nanos(with));
        let (verdict, applies) = match medians {
            Some((with_ns, without_ns))
                if deadline.is_some_and(|most| with_ns <= most && without_ns > most) =>
            {
                (Verdict::Kept, true)
            }
            Some((with_ns, without_ns)) if with.min(without) >= ENOUGH => {
                if saves(with_ns, without_ns) {
                    self.kept_runs += 1;
                    (Verdict::Kept, !self.kept_runs.is_multiple_of(WITHOUT))
                } else {
                    (Verdict::TakenBack, false)
                }
            }
            _ => (Verdict::Trial, with < without),
        };
        Judged {
            candidates: self.candidates.clone(),
            applies,
            measured_ns,
            pairs: with.min(without),
            verdict,
        }
    }
}

/// Whether runs with remedies take so much less than runs without that remedies are kept.
fn saves(with: Duration, without: Duration) -> bool {
    with.as_secs_f64() <= SAVES * without.as_secs_f64()
}

fn median(times: &VecDeque<Duration>) -> Option<Duration> {
    let mut times: Vec<_> = times.iter().copied().collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use skewer_optimizer::remedies::{HeavyKey, Remedy};

    use super::*;

    fn candidate() -> Candidate {
        Candidate {
            remedy: Remedy::Map,
            exchange: 0,
            subject: "heavy keys".to_owned(),
            because: "a test says so".to_owned(),
            evidence_query_id: 1,
            predicted_ns: 50_000_000,
            rows: 100.0,
            keys: Vec::new(),
        }
    }

    /// Runs a statement `runs` times, which takes so many milliseconds with remedies and without; gives which
    /// runs had them.
    fn run(book: &RemedyBook, runs: i64, with: u64, without: u64) -> Vec<bool> {
        run_within(book, runs, with, without, None)
    }

    fn run_within(
        book: &RemedyBook,
        runs: i64,
        with: u64,
        without: u64,
        deadline: Option<Duration>,
    ) -> Vec<bool> {
        let mut had = Vec::new();
        for query_id in 0..runs {
            let applies = match book.next("s", deadline) {
                Next::LookAt(_) => {
                    book.found("s", vec![candidate()]);
                    match book.next("s", deadline) {
                        Next::Try(judged) => judged.applies,
                        other => panic!("{other:?}"),
                    }
                }
                Next::Nothing => false,
                Next::Try(judged) => judged.applies,
            };
            let time = Duration::from_millis(if applies { with } else { without });
            let tables = None;
            book.ran(
                "s",
                Run {
                    query_id,
                    time,
                    tables,
                },
                applies,
            );
            had.push(applies);
        }
        had
    }

    #[test]
    fn remedies_that_save_time_are_tried_in_pairs_and_then_kept() {
        let had = run(&RemedyBook::default(), 22, 100, 200);
        let pairs = [false, true, false, true, false, true];
        assert_eq!(had[..6], pairs);
        let without: Vec<_> = (6..22).filter(|run| !had[*run]).collect();
        assert_eq!(without, [13, 21]);
    }

    #[test]
    fn no_run_goes_without_remedies_that_a_deadline_needs() {
        let deadline = Some(Duration::from_millis(150));
        let had = run_within(&RemedyBook::default(), 22, 100, 200, deadline);
        let without: Vec<_> = (0..22).filter(|run| !had[*run]).collect();
        assert_eq!(without, [0]);
        for met_by_all_or_none in [50, 250] {
            let deadline = Some(Duration::from_millis(met_by_all_or_none));
            let had = run_within(&RemedyBook::default(), 22, 100, 200, deadline);
            assert_eq!(had, run(&RemedyBook::default(), 22, 100, 200));
        }
    }

    #[test]
    fn remedies_that_save_little_are_taken_back() {
        let book = RemedyBook::default();
        let had = run(&book, 20, 196, 200);
        assert!(!had[6..].contains(&true), "{had:?}");
        let Next::Try(judged) = book.next("s", None) else {
            panic!("there was something to try");
        };
        assert_eq!(judged.verdict, Verdict::TakenBack);
        assert_eq!(judged.measured_ns, Some(4_000_000));
    }

    #[test]
    fn keys_that_are_heavy_no_more_make_way_for_others() {
        let book = RemedyBook::default();
        let of_key = |hash| {
            let key = HeavyKey {
                hash,
                rows: 90.0,
                has_null: false,
            };
            Candidate {
                keys: vec![key],
                ..candidate()
            }
        };
        // The key that is heavy changes after ten runs, and remedies for the other one save nothing.
        let (mut tried, mut looks) = (0, 0);
        let mut had = Vec::new();
        for query_id in 0..60 {
            let heavy = u64::from(query_id >= 10);
            let mut next = book.next("s", None);
            if next == Next::LookAt(query_id - 1) {
                looks += 1;
                tried = heavy;
                book.found("s", vec![of_key(heavy)]);
                next = book.next("s", None);
            }
            let applies = matches!(next, Next::Try(judged) if judged.applies);
            let helps = applies && tried == heavy;
            let run = Run {
                query_id,
                time: Duration::from_millis(if helps { 400 } else { 800 }),
                tables: Some(format!("t at {query_id}")),
            };
            book.ran("s", run, applies);
            had.push(applies && tried == heavy);
        }
        assert_eq!(looks, 2);
        assert!(had[6..9].iter().all(|had| *had), "{had:?}");
        let late = had[40..].iter().filter(|had| **had).count();
        assert!(late >= 17, "{had:?}");
    }

    #[test]
    fn a_log_is_looked_at_once_for_each_state_of_the_tables() {
        let book = RemedyBook::default();
        let ran = |query_id, tables: &str| Run {
            query_id,
            time: Duration::from_secs(3),
            tables: Some(tables.to_owned()),
        };
        assert_eq!(book.next("s", None), Next::Nothing);
        book.ran("s", ran(1, "t at 1"), false);
        assert_eq!(book.next("s", None), Next::LookAt(1));
        book.ran("s", ran(2, "t at 1"), false);
        assert_eq!(book.next("s", None), Next::Nothing);
        book.ran("s", ran(3, "t at 2"), false);
        assert_eq!(book.next("s", None), Next::LookAt(3));
        let short = |query_id, tables: &str| Run {
            time: Duration::from_millis(60),
            ..ran(query_id, tables)
        };
        book.ran("s", short(4, "t at 3"), false);
        assert_eq!(book.next("s", None), Next::Nothing, "too soon");
        for run in 5..50 {
            book.ran("s", short(run, "t at 3"), false);
        }
        assert_eq!(book.next("s", None), Next::LookAt(49));
        book.ran(
            "q",
            Run {
                time: Duration::from_millis(1),
                ..ran(50, "t at 3")
            },
            false,
        );
        assert_eq!(book.next("q", None), Next::Nothing, "too short");
    }
}
