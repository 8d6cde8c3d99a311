//! Where the time went, in sentences, each from an answer of schema `sys`.

mod slowest_row;
mod uneven_tasks;

use crate::error::Error;
use crate::plan::{Operator, Plan};
use crate::source::Statements;
use crate::summary::QuerySummary;
use crate::units::{bytes, duration, percent};
pub use slowest_row::SlowestRow;
pub use uneven_tasks::{Straggler, UnevenTasks};

/// Operators that are named, and the least share of all self time for that.
const NAMED_OPERATORS: usize = 3;
const NAMED_SHARE: f64 = 0.05;

/// Waiting is named from this share of the query's time.
const WAITING_SHARE: f64 = 0.3;

/// Planning is named from this share of the query's time and this many nanoseconds.
const PLANNING_SHARE: f64 = 0.25;
const PLANNING_NS: i64 = 10_000_000;

/// Operators may seem to work for so many times what the cores can do, by the error of the clocks.
const CLOCKS_DIFFER: f64 = 1.05;

/// Columns that an operator's description may take within a sentence.
const OPERATOR_WIDTH: usize = 60;

/// What a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Operators with the most self time, and cores in use.
    Operators,
    /// The slowest result row.
    Latency,
    /// Operators that wait for rows of other tasks.
    Waiting,
    /// Tasks that do not share the work evenly.
    UnevenTasks,
    /// Temporary files.
    Spilling,
    /// Planning before the query ran.
    Planning,
}

impl Subject {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operators => "operators",
            Self::Latency => "latency",
            Self::Waiting => "waiting",
            Self::UnevenTasks => "uneven tasks",
            Self::Spilling => "spilling",
            Self::Planning => "planning",
        }
    }
}

/// A conclusion about where time went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// What it is about.
    pub subject: Subject,
    /// The conclusion.
    pub text: String,
}

/// Where the time of a query went.
#[derive(Debug, Clone, Default)]
pub struct TimeSpent {
    /// The slowest result row; only from a log of records.
    pub slowest: Option<SlowestRow>,
    /// The fragment whose tasks are least even.
    pub uneven: Option<UnevenTasks>,
    /// The conclusions, in the order in which a reader needs them.
    pub sentences: Vec<Sentence>,
}

impl TimeSpent {
    /// Reads it from schema `sys`.
    ///
    /// # Errors
    /// If `sys` cannot be read.
    pub async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let mut spent = Self::default();
        if plan.operators.is_empty() {
            return Ok(spent);
        }
        spent.uneven = UnevenTasks::read(statements, summary).await?;
        if summary.has_log() {
            spent.slowest = SlowestRow::read(statements, summary).await?;
        }
        spent.add_operators(summary, plan);
        let latency = spent.slowest.as_ref();
        let latency = latency.and_then(|slowest| slowest.sentence(summary));
        spent.extend(Subject::Latency, latency);
        spent.add_waiting(summary, plan);
        // Self times contain waits for a processor: where these are known, `sys.straggler_tasks` judges.
        let uneven = spent.uneven.as_ref().filter(|_| summary.cpu_ns.is_none());
        let uneven = uneven.and_then(|uneven| uneven.sentence(summary, plan));
        spent.extend(Subject::UnevenTasks, uneven);
        spent.add_spilling(plan);
        spent.add_planning(summary);
        Ok(spent)
    }

    fn add(&mut self, subject: Subject, text: String) {
        // A text that was cut off needs no comma or full stop after it.
        let text = text.replace("…,", "…").replace("….", "…");
        self.sentences.push(Sentence { subject, text });
    }

    fn extend(&mut self, subject: Subject, text: Option<String>) {
        if let Some(text) = text {
            self.add(subject, text);
        }
    }

    fn add_operators(&mut self, summary: &QuerySummary, plan: &Plan) {
        let mut operators: Vec<&Operator> = plan.operators.iter().collect();
        operators.sort_by_key(|operator| std::cmp::Reverse(operator.self_ns));
        operators.retain(|operator| operator.share >= NAMED_SHARE);
        for (position, operator) in operators.into_iter().take(NAMED_OPERATORS).enumerate() {
            let named = operator.reference(OPERATOR_WIDTH);
            let (time, share) = (duration(operator.self_ns), percent(operator.share));
            self.add(
                Subject::Operators,
                match position {
                    0 => format!("{time}, {share} of all self time, in {named}."),
                    _ => format!("{time}, {share}, in {named}."),
                },
            );
        }
        if summary.execution_ns > 0 && summary.busy_ns > 0 {
            self.add(Subject::Operators, cores_in_use(summary));
        }
    }

    /// Names the deepest exchange that was waited for: the operators below it set the pace.
    fn add_waiting(&mut self, summary: &QuerySummary, plan: &Plan) {
        let least = (WAITING_SHARE * summary.query_ns() as f64) as i64;
        let waiting = plan
            .exchanges()
            .filter(|operator| operator.wait_ns() > least)
            .max_by_key(|operator| operator.operator_id);
        if let Some(exchange) = waiting {
            self.add(
                Subject::Waiting,
                format!(
                    "O{}, waited {} for rows ({} of the query's time): the operators below it are the \
                     bottleneck.",
                    exchange.reference(OPERATOR_WIDTH).trim_start_matches('o'),
                    duration(exchange.wait_ns()),
                    percent(exchange.wait_ns() as f64 / summary.query_ns().max(1) as f64)
                ),
            );
        }
    }

    fn add_spilling(&mut self, plan: &Plan) {
        for operator in plan.operators.iter().filter(|o| o.spilled_bytes > 0) {
            self.add(
                Subject::Spilling,
                format!(
                    "Spilling: {} to temporary files by {}; a higher memory limit would avoid this.",
                    bytes(operator.spilled_bytes),
                    operator.reference(OPERATOR_WIDTH)
                ),
            );
        }
    }

    fn add_planning(&mut self, summary: &QuerySummary) {
        let share = summary.planning_ns as f64 / summary.query_ns().max(1) as f64;
        if share >= PLANNING_SHARE && summary.planning_ns >= PLANNING_NS {
            self.add(
                Subject::Planning,
                format!(
                    "Planning took {}, {} of the query's time.",
                    duration(summary.planning_ns),
                    percent(share)
                ),
            );
        }
    }
}

/// Waits of tasks for a processor are told from this share of the operators' time on.
const NOTABLE_WAIT: f64 = 0.05;

/// How many cores were in use: by the processor time of the tasks where it was recorded. Otherwise by self times.
/// A clock measures these: a task that waits for a core inside an operator seems to work. So their sum may be more
/// than all cores can do.
fn cores_in_use(summary: &QuerySummary) -> String {
    let (busy, execution) = (duration(summary.busy_ns), duration(summary.execution_ns));
    if let Some(cpu_ns) = summary.cpu_ns {
        let cores = cpu_ns as f64 / summary.execution_ns as f64;
        let mut sentence = format!(
            "Operators took {busy} in {execution} of execution, {} of it on a processor: {cores:.1} cores on \
             average.",
            duration(cpu_ns)
        );
        if summary.runqueue_ns as f64 >= NOTABLE_WAIT * summary.busy_ns as f64 {
            let waited = duration(summary.runqueue_ns);
            sentence.push_str(&format!(" They waited {waited} for a processor."));
        }
        return sentence;
    }
    let cores = summary.busy_ns as f64 / summary.execution_ns as f64;
    let most = summary.cores.map(|cores| cores as f64);
    match most {
        None => format!("Operators worked {busy} in {execution} of execution."),
        Some(most) if cores > CLOCKS_DIFFER * most => {
            let waited = summary.busy_ns - (most * summary.execution_ns as f64) as i64;
            let all = match most {
                1.0 => "the only core".to_owned(),
                _ => format!("all {most} cores"),
            };
            format!(
                "Operators took {busy} in {execution} of execution, more than {all} can work: their \
                 tasks waited for a core for {} of it or longer.",
                duration(waited)
            )
        }
        Some(most) => format!(
            "Operators worked {busy} in {execution} of execution: {:.1} cores on average.",
            cores.min(most)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::cores_in_use;
    use crate::summary::QuerySummary;

    #[test]
    fn no_more_cores_are_in_use_than_there_are() {
        let summary = |busy_ms: i64, cores| QuerySummary {
            busy_ns: busy_ms * 1_000_000,
            execution_ns: 2_000_000_000,
            cores,
            ..QuerySummary::default()
        };
        let cases = [
            (3_000, Some(2), "1.5 cores on average"),
            (4_010, Some(2), "2.0 cores on average"),
            (
                7_000,
                Some(2),
                "more than all 2 cores can work: their tasks waited for a core for 3.00 s",
            ),
            (
                3_000,
                Some(1),
                "more than the only core can work: their tasks waited for a core for 1.00 s",
            ),
            (7_000, None, "worked 7.00 s in 2.00 s of execution."),
        ];
        for (busy_ms, cores, expected) in cases {
            let sentence = cores_in_use(&summary(busy_ms, cores));
            assert!(sentence.contains(expected), "{sentence}");
        }
        let recorded = QuerySummary {
            cpu_ns: Some(2_000_000_000),
            runqueue_ns: 5_000_000_000,
            ..summary(7_000, Some(2))
        };
        let expected = "took 7.00 s in 2.00 s of execution, 2.00 s of it on a processor: 1.0 cores on average. \
                        They waited 5.00 s for a processor.";
        assert!(cores_in_use(&recorded).contains(expected));
    }
}
