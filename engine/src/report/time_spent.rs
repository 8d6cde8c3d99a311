//! Where the time went, in sentences.

use super::answer::{Inquiry, rows};
use super::details::table_name;
use super::header::Header;
use super::layout::item;
use super::plan_tree::{Operator, Plan};
use super::units::{bytes, count, counted, duration, percent, times};
use crate::error::Error;

/// Operators that are named, and the least share of all self time for that.
const NAMED_OPERATORS: usize = 3;
const NAMED_SHARE: f64 = 0.05;

/// Tasks are uneven if the longest works so many times the mean, and if even work would save at
/// least this share of the query's time and this many nanoseconds.
const UNEVEN: f64 = 1.5;
const UNEVEN_SHARE: f64 = 0.1;
const UNEVEN_NS: i64 = 1_000_000;

/// Waiting is named from this share of the query's time.
const WAITING_SHARE: f64 = 0.3;

/// Planning is named from this share of the query's time and this many nanoseconds.
const PLANNING_SHARE: f64 = 0.25;
const PLANNING_NS: i64 = 10_000_000;

/// A result row is worth naming if its latency is at least this share of the query's time.
const NOTABLE_LATENCY: f64 = 0.05;

/// A result row has a hot key if its shuffle latency is so many times the mean of all result rows.
const HOT_KEY: f64 = 1.5;

/// Operators may seem to work for so many times what the cores can do, by the error of the clocks.
const CLOCKS_DIFFER: f64 = 1.05;

/// Columns that an operator's description may take within a sentence.
const OPERATOR_WIDTH: usize = 60;

/// The result row with the highest total latency.
#[derive(Debug, Clone)]
pub(super) struct SlowestRow {
    pub(super) output_row: i64,
    pub(super) total_ns: i64,
    pub(super) computation_ns: i64,
    pub(super) shuffle_ns: i64,
    pub(super) remediated_ns: i64,
    /// Mean shuffle latency of all result rows.
    pub(super) mean_shuffle_ns: i64,
    pub(super) source: Option<(String, i64)>,
    /// Input records that it was made from, and input records that were traced; asked only
    /// where shuffle latency dominates.
    pub(super) records: Option<(i64, i64)>,
}

/// The fragment whose tasks are least even.
#[derive(Debug, Clone)]
pub(super) struct UnevenTasks {
    pub(super) fragment_id: i64,
    pub(super) tasks: i64,
    pub(super) max_ns: i64,
    pub(super) mean_ns: i64,
    pub(super) imbalance: f64,
    pub(super) wasted_ns: i64,
    pub(super) straggler: Option<Straggler>,
}

/// A partition of an operator that worked longer than the others.
#[derive(Debug, Clone)]
pub(super) struct Straggler {
    pub(super) operator_id: i64,
    pub(super) partition: i64,
    pub(super) self_ns: i64,
    pub(super) rows_in: i64,
    /// Means of the other partitions.
    pub(super) others_ns: i64,
    pub(super) others_rows: i64,
}

/// What a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Operators,
    Latency,
    Waiting,
    UnevenTasks,
    Spilling,
    Planning,
    /// A rule of `sys.diagnoses`.
    Diagnosed(Rule),
}

/// A rule of `sys.diagnoses` that nothing else in a report goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    DataSkew,
    HotJoinKey,
    WrongEstimate,
}

impl Rule {
    fn of(name: &str) -> Option<Self> {
        let rules = [Self::DataSkew, Self::HotJoinKey, Self::WrongEstimate];
        rules.into_iter().find(|rule| rule.name() == name)
    }

    /// Its name in `sys.diagnoses`.
    fn name(self) -> &'static str {
        match self {
            Self::DataSkew => "data skew",
            Self::HotJoinKey => "hot join key",
            Self::WrongEstimate => "wrong estimate",
        }
    }

    /// How a sentence about it begins.
    fn begins(self) -> &'static str {
        match self {
            Self::DataSkew => "Data skew",
            Self::HotJoinKey => "Hot join key",
            Self::WrongEstimate => "Wrong estimate",
        }
    }
}

impl Subject {
    /// Its name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Operators => "operators",
            Self::Latency => "latency",
            Self::Waiting => "waiting",
            Self::UnevenTasks => "uneven tasks",
            Self::Spilling => "spilling",
            Self::Planning => "planning",
            Self::Diagnosed(rule) => rule.name(),
        }
    }
}

/// Where the time of a query went.
#[derive(Debug, Clone, Default)]
pub(super) struct TimeSpent {
    pub(super) slowest: Option<SlowestRow>,
    pub(super) uneven: Option<UnevenTasks>,
    pub(super) sentences: Vec<(Subject, String)>,
    /// Statements that show what some of the sentences say.
    pub(super) evidence: Vec<String>,
}

impl TimeSpent {
    /// Reads it from schema `sys`.
    ///
    /// # Errors
    /// If `sys` cannot be read.
    pub(super) async fn read(
        inquiry: &mut Inquiry<'_>,
        header: &Header,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let mut spent = Self::default();
        if plan.operators.is_empty() {
            return Ok(spent);
        }
        spent.uneven = uneven_tasks(inquiry, header).await?;
        if header.has_log() {
            spent.slowest = slowest_row(inquiry, header).await?;
        }
        spent.say_operators(header, plan);
        spent.say_latency(header);
        spent.say_waiting(header, plan);
        spent.say_uneven_tasks(header, plan);
        spent.say_diagnosed(inquiry, header, plan).await?;
        spent.say_spilling(plan);
        spent.say_planning(header);
        Ok(spent)
    }

    fn say(&mut self, subject: Subject, sentence: String) {
        // What was cut off needs no comma or full stop after it.
        let sentence = sentence.replace("…,", "…").replace("….", "…");
        self.sentences.push((subject, sentence));
    }

    fn say_operators(&mut self, header: &Header, plan: &Plan) {
        let mut operators: Vec<&Operator> = plan.operators.iter().collect();
        operators.sort_by_key(|operator| std::cmp::Reverse(operator.self_ns));
        operators.retain(|operator| operator.share >= NAMED_SHARE);
        for (position, operator) in operators.into_iter().take(NAMED_OPERATORS).enumerate() {
            let named = operator.named(OPERATOR_WIDTH);
            let (time, share) = (duration(operator.self_ns), percent(operator.share));
            self.say(
                Subject::Operators,
                match position {
                    0 => format!("{time}, {share} of all self time, in {named}."),
                    _ => format!("{time}, {share}, in {named}."),
                },
            );
        }
        if header.execution_ns > 0 && header.busy_ns > 0 {
            self.say(Subject::Operators, cores_in_use(header));
        }
    }

    fn say_latency(&mut self, header: &Header) {
        let Some(slowest) = &self.slowest else {
            return;
        };
        let (row, total) = (slowest.output_row, duration(slowest.total_ns));
        let of_total = |ns: i64| {
            let share = ns as f64 / slowest.total_ns.max(1) as f64;
            format!("{} ({})", duration(ns), percent(share))
        };
        let source = slowest.source.as_ref();
        let source = source.map(|(table, id)| format!("row {id} of {}", table_name(table)));
        let sentence = if slowest.total_ns == 0 {
            return;
        } else if !slowest.is_notable(header) {
            format!(
                "No result row stands out: the slowest, result row {row}, has a latency of {total}."
            )
        } else if slowest.shuffle_dominates() {
            let mut sentence = format!(
                "Shuffle latency: {} of the {total} of result row {row}, the slowest, went into \
                 grouping its records, not into computation.",
                of_total(slowest.shuffle_ns)
            );
            if let Some((records, traced)) = slowest.records {
                let share = records as f64 / traced.max(1) as f64;
                let factor = slowest.shuffle_ns as f64 / slowest.mean_shuffle_ns.max(1) as f64;
                let hot = match factor >= HOT_KEY {
                    true => format!("It has a hot key ({} the mean): it is", times(factor)),
                    false => "It is".to_owned(),
                };
                let example = source.map(|source| format!(", {source} among them"));
                sentence.push_str(&format!(
                    " {hot} made from {} of {} input records ({}){}.",
                    count(records),
                    count(traced),
                    percent(share),
                    example.unwrap_or_default()
                ));
            }
            sentence
        } else {
            let source = source.map(|source| format!(", most of it on {source}"));
            format!(
                "Computation: {} of the {total} of result row {row}, the slowest, went into \
                 expressions{}.",
                of_total(slowest.computation_ns),
                source.unwrap_or_default()
            )
        };
        self.say(Subject::Latency, sentence);
    }

    /// Names the deepest exchange that was waited for: what is below it sets the pace.
    fn say_waiting(&mut self, header: &Header, plan: &Plan) {
        let least = (WAITING_SHARE * header.query_ns() as f64) as i64;
        let exchanges = plan
            .operators
            .iter()
            .filter(|operator| operator.is_exchange());
        let waiting = exchanges
            .filter(|operator| operator.wait_ns() > least)
            .max_by_key(|operator| operator.operator_id);
        if let Some(exchange) = waiting {
            self.say(
                Subject::Waiting,
                format!(
                    "What is above {}, waited {} for rows ({} of the query's time): the operators \
                     below set the pace.",
                    exchange.named(OPERATOR_WIDTH),
                    duration(exchange.wait_ns()),
                    percent(exchange.wait_ns() as f64 / header.query_ns().max(1) as f64)
                ),
            );
        }
    }

    fn say_uneven_tasks(&mut self, header: &Header, plan: &Plan) {
        let Some(uneven) = self.uneven.clone().filter(|uneven| {
            uneven.imbalance >= UNEVEN
                && uneven.wasted_ns >= UNEVEN_NS
                && uneven.wasted_ns as f64 >= UNEVEN_SHARE * header.query_ns() as f64
        }) else {
            return;
        };
        let mut sentence = format!(
            "Uneven tasks: the longest of {} in fragment {} worked {}, {} the mean of {}; even work \
             would save {}.",
            uneven.tasks,
            uneven.fragment_id,
            duration(uneven.max_ns),
            times(uneven.imbalance),
            duration(uneven.mean_ns),
            duration(uneven.wasted_ns)
        );
        if let Some(straggler) = &uneven.straggler {
            let operator = plan.operator(straggler.operator_id).map_or_else(
                || format!("operator {}", straggler.operator_id),
                |operator| operator.named(OPERATOR_WIDTH),
            );
            sentence.push_str(&format!(
                " Partition {} of {operator}, took {} for {}; the others {} for {}.",
                straggler.partition,
                duration(straggler.self_ns),
                counted(straggler.rows_in, "row"),
                duration(straggler.others_ns),
                count(straggler.others_rows),
            ));
        }
        self.say(Subject::UnevenTasks, sentence);
    }

    /// What is conspicuous about exchanges and joins.
    async fn say_diagnosed(
        &mut self,
        inquiry: &mut Inquiry<'_>,
        header: &Header,
        plan: &Plan,
    ) -> Result<(), Error> {
        let query_id = header.query_id.to_string();
        let sql = include_str!("sql/diagnosed.sql").replace("$query_id", &query_id);
        let section = "Where the time went: skew and estimates";
        let answer = inquiry.ask(section, sql).await?;
        for row in rows(&answer) {
            let rule = row.text("rule").as_deref().and_then(Rule::of);
            let (Some(rule), Some(subject), Some(advice)) =
                (rule, row.text("subject"), row.text("advice"))
            else {
                continue;
            };
            let (begins, subject) = (rule.begins(), as_in_the_plan(&subject, plan));
            let sentence = format!("{begins}: {subject}. {}", with_counted_rows(&advice));
            self.say(Subject::Diagnosed(rule), sentence);
            if self.evidence.is_empty() {
                let evidence = row.text("evidence_sql");
                self.evidence.extend(evidence.map(|sql| format!("{sql};")));
            }
        }
        Ok(())
    }

    fn say_spilling(&mut self, plan: &Plan) {
        for operator in plan.operators.iter().filter(|o| o.spilled_bytes > 0) {
            self.say(
                Subject::Spilling,
                format!(
                    "Spilling: {} to temporary files by {}; more memory would keep it in memory.",
                    bytes(operator.spilled_bytes),
                    operator.named(OPERATOR_WIDTH)
                ),
            );
        }
    }

    fn say_planning(&mut self, header: &Header) {
        let share = header.planning_ns as f64 / header.query_ns().max(1) as f64;
        if share >= PLANNING_SHARE && header.planning_ns >= PLANNING_NS {
            self.say(
                Subject::Planning,
                format!(
                    "Planning took {}, {} of the query's time.",
                    duration(header.planning_ns),
                    percent(share)
                ),
            );
        }
    }

    /// The section as text.
    pub(super) fn lines(&self, header: &Header) -> Vec<String> {
        let mut lines = vec!["Where the time went".to_owned()];
        if self.sentences.is_empty() {
            let nothing = match header.level.as_str() {
                "off" => "Not recorded: level off keeps no totals of operators.",
                _ => "No operator ran.",
            };
            lines.extend(item("·", nothing));
        }
        for (_, sentence) in &self.sentences {
            lines.extend(item("·", sentence));
        }
        lines
    }
}

/// How many cores were in use. Self times are those of a clock: a task that waits for a core while it is
/// in an operator seems to work, so they may be more than all cores can do.
fn cores_in_use(header: &Header) -> String {
    let (busy, execution) = (duration(header.busy_ns), duration(header.execution_ns));
    let cores = header.busy_ns as f64 / header.execution_ns as f64;
    let most = header.cores.map(|cores| cores as f64);
    match most {
        None => format!("Operators worked {busy} in {execution} of execution."),
        Some(most) if cores > CLOCKS_DIFFER * most => {
            let waited = header.busy_ns - (most * header.execution_ns as f64) as i64;
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

impl SlowestRow {
    fn is_notable(&self, header: &Header) -> bool {
        self.total_ns as f64 >= NOTABLE_LATENCY * header.query_ns() as f64
    }

    /// Whether bringing records together took longer than computing.
    pub(super) fn shuffle_dominates(&self) -> bool {
        self.shuffle_ns > self.computation_ns
    }
}

/// A subject of `sys.diagnoses`, `operator 3 RepartitionExec, partition 1`, with the operator called as
/// the report's plan calls it.
fn as_in_the_plan(subject: &str, plan: &Plan) -> String {
    let named = || {
        let (operator_id, rest) = subject.strip_prefix("operator ")?.split_once(' ')?;
        let operator = plan.operator(operator_id.parse().ok()?)?;
        let place = rest.split_once(", ").map(|(_, place)| format!(", {place}"));
        Some(operator.named(OPERATOR_WIDTH) + &place.unwrap_or_default())
    };
    named().unwrap_or_else(|| subject.to_owned())
}

/// A text with its numbers of rows, `2111111 rows`, written as the report writes them.
fn with_counted_rows(text: &str) -> String {
    let mut counted = String::new();
    let mut rest = text;
    while let Some(end) = rest.find(" rows") {
        let before = &rest[..end];
        let start = before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        counted.push_str(&before[..start]);
        match before[start..].parse() {
            Ok(number) => counted.push_str(&count(number)),
            Err(_) => counted.push_str(&before[start..]),
        }
        counted.push_str(" rows");
        rest = &rest[end + " rows".len()..];
    }
    counted + rest
}

async fn slowest_row(
    inquiry: &mut Inquiry<'_>,
    header: &Header,
) -> Result<Option<SlowestRow>, Error> {
    let query_id = header.query_id.to_string();
    let section = "Where the time went: the slowest result row";
    let sql = include_str!("sql/slowest_result_row.sql").replace("$query_id", &query_id);
    let answer = inquiry.ask(section, sql).await?;
    let Some(row) = rows(&answer).next() else {
        return Ok(None);
    };
    let mut slowest = SlowestRow {
        output_row: row.sum("output_row"),
        total_ns: row.sum("total_ns"),
        computation_ns: row.sum("computation_ns"),
        shuffle_ns: row.sum("shuffle_ns"),
        remediated_ns: row.sum("remediated_ns"),
        mean_shuffle_ns: row.sum("mean_shuffle_ns"),
        source: row.text("source_table").zip(row.integer("source_row_id")),
        records: None,
    };
    if slowest.shuffle_dominates() && slowest.is_notable(header) {
        let sql = include_str!("sql/records_of_slowest_row.sql")
            .replace("$query_id", &query_id)
            .replace("$output_row", &slowest.output_row.to_string());
        let answer = inquiry.ask(section, sql).await?;
        slowest.records = rows(&answer)
            .next()
            .map(|row| (row.sum("records"), row.sum("traced")));
    }
    Ok(Some(slowest))
}

async fn uneven_tasks(
    inquiry: &mut Inquiry<'_>,
    header: &Header,
) -> Result<Option<UnevenTasks>, Error> {
    let query_id = header.query_id.to_string();
    let sql = include_str!("sql/uneven_tasks.sql").replace("$query_id", &query_id);
    let answer = inquiry
        .ask("Where the time went: how even the tasks are", sql)
        .await?;
    let uneven = rows(&answer).next().map(|row| UnevenTasks {
        fragment_id: row.sum("fragment_id"),
        tasks: row.sum("tasks"),
        max_ns: row.sum("max_ns"),
        mean_ns: row.sum("mean_ns"),
        imbalance: row.float("imbalance").unwrap_or(1.0),
        wasted_ns: row.sum("wasted_ns"),
        straggler: row.integer("operator_id").map(|operator_id| Straggler {
            operator_id,
            partition: row.sum("partition"),
            self_ns: row.sum("self_ns"),
            rows_in: row.sum("rows_in"),
            others_ns: row.sum("others_ns"),
            others_rows: row.sum("others_rows"),
        }),
    });
    Ok(uneven)
}

#[cfg(test)]
mod tests {
    use super::super::header::Header;
    use super::{cores_in_use, with_counted_rows};

    #[test]
    fn no_more_cores_are_in_use_than_there_are() {
        let header = |busy_ms: i64, cores| Header {
            busy_ns: busy_ms * 1_000_000,
            execution_ns: 2_000_000_000,
            cores,
            ..Header::default()
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
            let said = cores_in_use(&header(busy_ms, cores));
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn numbers_of_rows_are_grouped_and_keys_are_not() {
        let text = "Expected 2000 rows, got 799900 rows: no.";
        let expected = "Expected 2,000 rows, got 799,900 rows: no.";
        assert_eq!(with_counted_rows(text), expected);
        let text = "It got 90 % of 2111111 rows. About 9 % of all rows have the key 1234567.";
        let expected = "It got 90 % of 2,111,111 rows. About 9 % of all rows have the key 1234567.";
        assert_eq!(with_counted_rows(text), expected);
    }
}
