//! EXPLAIN PROFILE DIFF a, b: what changed from one query to another.

use datafusion::arrow::array::RecordBatch;
use serde_json::{Value, json};
use skewer_sql::ProfileFormat;

use super::answer::{Ask, Asked, Inquiry, Row, rows};
use super::details::table_name;
use super::header::Header;
use super::layout::{WIDTH, item, left, right, shortened};
use super::plan_tree::{Operator, Plan};
use super::units::{NO_DIFFERENCE, count, duration, times};
use super::{COLUMN, Options, as_sql};
use crate::error::Error;
use crate::session::Session;
use crate::statements::text_batch;

/// Changes when a field changes its meaning or is removed; new fields do not change it.
const FORMAT_VERSION: i64 = 1;

/// A task or record is named if its time changed by this share of the longer query's time and by
/// this many nanoseconds.
const NOTABLE_SHARE: f64 = 0.01;
const NOTABLE_NS: i64 = 1_000_000;

/// Of tasks and of records so many are named.
const NAMED: usize = 5;

/// Compares two queries that have ended: one column, one row for each line.
///
/// # Errors
/// If schema `sys` does not know one of them, or cannot be read.
pub(crate) async fn explain_diff(
    session: &Session,
    before: i64,
    after: i64,
    options: Options,
) -> Result<RecordBatch, Error> {
    let diff = Diff::read(session, before, after).await?;
    let lines = match options.format {
        _ if options.as_sql => as_sql::lines(&diff.asked),
        ProfileFormat::Text => diff.text(),
        ProfileFormat::Json => {
            let text = format!("{:#}", diff.json());
            text.lines().map(str::to_owned).collect()
        }
        ProfileFormat::Graphviz => {
            return Err(Error::Unsupported(
                "EXPLAIN PROFILE (FORMAT graphviz) DIFF; text and json".to_owned(),
            ));
        }
    };
    let lines = lines.into_iter().map(|line| vec![Some(line)]);
    text_batch(&[COLUMN], lines.collect())
}

/// Nanoseconds (or rows) in both queries; `None` where only the other has it.
#[derive(Debug, Clone, Copy)]
struct Change {
    before: Option<i64>,
    after: Option<i64>,
}

impl Change {
    fn of(row: &Row<'_>, before: &str, after: &str) -> Self {
        Self {
            before: row.integer(before),
            after: row.integer(after),
        }
    }

    fn delta(self) -> i64 {
        self.after.unwrap_or(0) - self.before.unwrap_or(0)
    }

    /// How many times as long, or as short, if that is a difference.
    fn ratio(self) -> Option<f64> {
        match (self.before, self.after) {
            (Some(before), Some(after)) if before > 0 => Some(after as f64 / before as f64),
            _ => None,
        }
    }

    fn is_notable(self, longer_ns: i64) -> bool {
        let delta = self.delta().abs();
        delta >= NOTABLE_NS && delta as f64 >= NOTABLE_SHARE * longer_ns as f64
    }

    /// 29.4 s → 1.11 s
    fn durations(self) -> String {
        let one = |ns: Option<i64>| ns.map_or("–".to_owned(), duration);
        format!("{} → {}", one(self.before), one(self.after))
    }

    fn json(self) -> Value {
        json!({"before": self.before, "after": self.after, "ratio": self.ratio()})
    }
}

/// `3.2×` where it became longer, `÷ 26` where shorter.
fn factor(ratio: Option<f64>) -> String {
    match ratio {
        None => String::new(),
        Some(ratio) if ratio >= NO_DIFFERENCE => times(ratio),
        Some(ratio) if ratio > 0.0 && ratio * NO_DIFFERENCE <= 1.0 => {
            format!("÷ {}", times(1.0 / ratio).trim_end_matches('×'))
        }
        Some(0.0) => "gone".to_owned(),
        Some(_) => "=".to_owned(),
    }
}

/// A task of both queries, or of one.
#[derive(Debug)]
struct Task {
    fragment_id: i64,
    worker_id: i64,
    partition: i64,
    busy: Change,
    rows: Change,
}

/// A record of both queries, or of one.
#[derive(Debug)]
struct Record {
    table: String,
    row_id: i64,
    self_ns: Change,
}

/// An operator of both plans, or of one.
#[derive(Debug)]
struct Pair {
    before: Option<Operator>,
    after: Option<Operator>,
}

impl Pair {
    fn change(&self, of: fn(&Operator) -> i64) -> Change {
        Change {
            before: self.before.as_ref().map(of),
            after: self.after.as_ref().map(of),
        }
    }

    fn either(&self) -> Option<&Operator> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// What changed from one query to another.
#[derive(Debug)]
struct Diff {
    before: Header,
    after: Header,
    same_plan: bool,
    /// Of the plan before, and after, if one was recorded.
    fingerprints: [Option<String>; 2],
    /// Parents before children.
    operators: Vec<Pair>,
    workers: Vec<(i64, Change)>,
    /// By how much they changed.
    tasks: Vec<Task>,
    /// By how much they changed; `None` if one of the queries has no records.
    records: Option<Vec<Record>>,
    asked: Vec<Asked>,
}

impl Diff {
    async fn read(source: &dyn Ask, before: i64, after: i64) -> Result<Self, Error> {
        let mut inquiry = Inquiry::new(source);
        let before = Header::read(&mut inquiry, before).await?;
        let after = Header::read(&mut inquiry, after).await?;
        let plans = (
            Plan::read(&mut inquiry, &before).await?,
            Plan::read(&mut inquiry, &after).await?,
        );
        let of_both = |sql: &str| {
            sql.replace("$before", &before.query_id.to_string())
                .replace("$after", &after.query_id.to_string())
        };
        let sql = of_both(include_str!("sql/plan_fingerprints.sql"));
        let answer = inquiry.ask("The plans", sql).await?;
        let fingerprints = [&before, &after].map(|header| {
            let mut known = rows(&answer);
            let own = known.find(|row| row.integer("query_id") == Some(header.query_id));
            own?.text("plan_fingerprint")
        });
        let answer = inquiry
            .ask("Workers", of_both(include_str!("sql/diff_workers.sql")))
            .await?;
        let workers = rows(&answer)
            .map(|row| {
                (
                    row.sum("worker_id"),
                    Change::of(&row, "before_ns", "after_ns"),
                )
            })
            .collect();
        let answer = inquiry
            .ask("Tasks", of_both(include_str!("sql/diff_tasks.sql")))
            .await?;
        let tasks = rows(&answer)
            .map(|row| Task {
                fragment_id: row.sum("fragment_id"),
                worker_id: row.sum("worker_id"),
                partition: row.sum("partition"),
                busy: Change::of(&row, "before_ns", "after_ns"),
                rows: Change::of(&row, "before_rows", "after_rows"),
            })
            .collect();
        let mut records = None;
        if before.has_log() && after.has_log() {
            let sql = of_both(include_str!("sql/diff_records.sql"));
            let answer = inquiry.ask("Records", sql).await?;
            let found = rows(&answer).filter_map(|row| {
                Some(Record {
                    table: row.text("table_name")?,
                    row_id: row.integer("row_id")?,
                    self_ns: Change::of(&row, "before_ns", "after_ns"),
                })
            });
            records = Some(found.collect());
        }
        let operators = aligned(&plans.0.operators, &plans.1.operators);
        Ok(Self {
            fingerprints,
            same_plan: are_the_same(&plans.0.operators, &plans.1.operators),
            asked: inquiry.asked(),
            before,
            after,
            operators,
            workers,
            tasks,
            records,
        })
    }

    /// The queries of which no operators were recorded, as of those at level off.
    fn without_plan(&self) -> Vec<i64> {
        let has_none = |of: fn(&Pair) -> &Option<Operator>| {
            self.operators.iter().all(|pair| of(pair).is_none())
        };
        let before = has_none(|pair| &pair.before).then_some(self.before.query_id);
        let after = has_none(|pair| &pair.after).then_some(self.after.query_id);
        before.into_iter().chain(after).collect()
    }

    fn whole(&self) -> Change {
        Change {
            before: Some(self.before.query_ns()),
            after: Some(self.after.query_ns()),
        }
    }

    fn longer_ns(&self) -> i64 {
        self.before.query_ns().max(self.after.query_ns())
    }

    /// What limits the comparison, one sentence each.
    fn reservations(&self) -> Vec<String> {
        let mut reservations = Vec::new();
        let without_plan = self.without_plan();
        if !without_plan.is_empty() {
            let ids: Vec<String> = without_plan.iter().map(i64::to_string).collect();
            let queries = if ids.len() == 1 { "query" } else { "queries" };
            reservations.push(format!(
                "No plan was recorded of {queries} {}: there is nothing to compare operators with.",
                ids.join(" and ")
            ));
        } else if !self.same_plan {
            reservations.push(
                "The plans differ: operators are compared by what they are and their order, tasks \
                 by their numbers."
                    .to_owned(),
            );
        }
        if self.before.level != self.after.level {
            reservations.push(format!(
                "Query {} was recorded at level {}, query {} at level {}: recording itself takes \
                 time, and records are compared only if both have them.",
                self.before.query_id, self.before.level, self.after.query_id, self.after.level
            ));
        }
        for header in [&self.before, &self.after] {
            let own = header.reservations();
            reservations.extend(
                own.into_iter()
                    .map(|text| format!("Query {}: {text}", header.query_id)),
            );
        }
        reservations
    }

    fn text(&self) -> Vec<String> {
        let mut sections = vec![self.head()];
        if self.without_plan().is_empty() {
            sections.push(self.operator_lines());
            sections.push(self.task_lines());
        }
        sections.push(self.record_lines());
        sections.retain(|section| !section.is_empty());
        sections.join(&String::new())
    }

    fn head(&self) -> Vec<String> {
        let plan = match self.same_plan {
            _ if !self.without_plan().is_empty() => "no plan to compare".to_owned(),
            true => format!("the same plan{}", self.short_fingerprints()),
            false => format!("different plans{}", self.short_fingerprints()),
        };
        let change = match factor(self.whole().ratio()).as_str() {
            "" | "=" => "no difference".to_owned(),
            factor => factor.to_owned(),
        };
        let mut lines = vec![format!(
            "Query {} → query {} · {} ({change}) · {plan}",
            self.before.query_id,
            self.after.query_id,
            self.whole().durations(),
        )];
        let sql = |header: &Header| header.sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let (one, other) = (sql(&self.before), sql(&self.after));
        match one == other {
            true => lines.push(format!("  {}", shortened(&one, WIDTH - 2))),
            false => {
                for (header, sql) in [(&self.before, one), (&self.after, other)] {
                    let start = format!("  {}: ", header.query_id);
                    let room = WIDTH - start.len();
                    lines.push(format!("{start}{}", shortened(&sql, room)));
                }
            }
        }
        for reservation in self.reservations() {
            lines.extend(item("!", &reservation));
        }
        lines
    }

    /// As much of the fingerprints as tells plans apart for a reader, after a space.
    fn short_fingerprints(&self) -> String {
        let [before, after] = self.fingerprints.each_ref().map(|fingerprint| {
            let text = fingerprint.as_deref().unwrap_or_default();
            text.get(..8).unwrap_or(text)
        });
        match (before == after, before.is_empty() || after.is_empty()) {
            (_, true) => String::new(),
            (true, false) => format!(" {before}"),
            (false, false) => format!(" {before}, {after}"),
        }
    }

    fn operator_lines(&self) -> Vec<String> {
        const TIMES: usize = 20;
        const ROWS: usize = 23;
        const FACTOR: usize = 8;
        let room = WIDTH - TIMES - ROWS - FACTOR - 6;
        let mut lines = vec![format!(
            "{}  {}  {}  {}",
            left("Operators", room),
            right("rows", ROWS),
            right("self", TIMES),
            right("change", FACTOR)
        )];
        for pair in &self.operators {
            let Some(operator) = pair.either() else {
                continue;
            };
            let id = right(&operator.operator_id.to_string(), 3);
            let mark = match (&pair.before, &pair.after) {
                (Some(_), None) => "− ",
                (None, Some(_)) => "+ ",
                _ => "",
            };
            let what = shortened(
                &operator.description.line(),
                room - id.len() - 1 - mark.len(),
            );
            let rows = pair.change(|operator| operator.rows_out);
            let shown_rows = match (rows.before, rows.after) {
                (Some(before), Some(after)) if before == after => count(after),
                (before, after) => {
                    let one = |rows: Option<i64>| rows.map_or("–".to_owned(), count);
                    format!("{} → {}", one(before), one(after))
                }
            };
            let time = pair.change(|operator| operator.self_ns);
            let change = match time.is_notable(self.longer_ns()) {
                true => factor(time.ratio()),
                false => String::new(),
            };
            let line = format!(
                "{}  {}  {}  {}",
                left(&format!("{id} {mark}{what}"), room),
                right(&shown_rows, ROWS),
                right(&time.durations(), TIMES),
                right(&change, FACTOR)
            );
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    fn notable_tasks(&self) -> impl Iterator<Item = &Task> {
        let tasks = self.tasks.iter();
        tasks
            .filter(|task| task.busy.is_notable(self.longer_ns()))
            .take(NAMED)
    }

    fn notable_workers(&self) -> impl Iterator<Item = &(i64, Change)> {
        let several = self.workers.len() > 1;
        let workers = self.workers.iter();
        workers.filter(move |(_, busy)| several && busy.is_notable(self.longer_ns()))
    }

    fn task_lines(&self) -> Vec<String> {
        let mut lines = vec!["Workers and tasks".to_owned()];
        for (worker, busy) in self.notable_workers() {
            let text = format!(
                "Worker {worker}: {} {}",
                busy.durations(),
                factor(busy.ratio())
            );
            lines.extend(item("·", text.trim_end()));
        }
        for task in self.notable_tasks() {
            let rows = match (task.rows.before, task.rows.after) {
                (Some(before), Some(after)) if before == after => format!("{} rows", count(after)),
                (Some(before), Some(after)) => {
                    format!("{} → {} rows", count(before), count(after))
                }
                (Some(_), None) => format!("only in query {}", self.before.query_id),
                _ => format!("only in query {}", self.after.query_id),
            };
            let factor = factor(task.busy.ratio());
            let factor = if factor.is_empty() {
                factor
            } else {
                format!(", {factor}")
            };
            let text = format!(
                "Fragment {}, partition {} on worker {}: {}{factor}; {rows}",
                task.fragment_id,
                task.partition,
                task.worker_id,
                task.busy.durations(),
            );
            lines.extend(item("·", &text));
        }
        if lines.len() == 1 {
            lines.extend(item("✓", "None worked notably longer or shorter."));
        }
        lines
    }

    fn notable_records(&self) -> impl Iterator<Item = &Record> {
        let records = self.records.iter().flatten();
        records
            .filter(|record| record.self_ns.is_notable(self.longer_ns()))
            .take(NAMED)
    }

    fn record_lines(&self) -> Vec<String> {
        if self.records.is_none() {
            return Vec::new();
        }
        let mut lines = vec!["Records".to_owned()];
        for record in self.notable_records() {
            let only = match (record.self_ns.before, record.self_ns.after) {
                (Some(_), None) => format!("; only in query {}", self.before.query_id),
                (None, Some(_)) => format!("; only in query {}", self.after.query_id),
                _ => String::new(),
            };
            let text = format!(
                "Row {} of {}: {}{only}",
                record.row_id,
                table_name(&record.table),
                record.self_ns.durations()
            );
            lines.extend(item("·", &text));
        }
        if lines.len() == 1 {
            lines.extend(item("✓", "None took notably more or less time."));
        }
        lines
    }

    fn json(&self) -> Value {
        let query = |header: &Header, fingerprint: &Option<String>| {
            json!({
                "plan_fingerprint": fingerprint,
                "query_id": header.query_id,
                "sql": header.sql,
                "status": header.status,
                "level": header.level,
                "planning_ns": header.planning_ns,
                "execution_ns": header.execution_ns,
                "busy_ns": header.busy_ns,
                "rows_returned": header.rows_returned,
            })
        };
        let operators = self.operators.iter().filter_map(|pair| {
            let operator = pair.either()?;
            Some(json!({
                "name": operator.name,
                "description": operator.description.line(),
                "table": operator.table,
                "operator_id": {
                    "before": pair.before.as_ref().map(|operator| operator.operator_id),
                    "after": pair.after.as_ref().map(|operator| operator.operator_id),
                },
                "rows_out": pair.change(|operator| operator.rows_out).json(),
                "self_ns": pair.change(|operator| operator.self_ns).json(),
                "input_wait_ns": pair.change(|operator| operator.input_wait_ns).json(),
                "spilled_bytes": pair.change(|operator| operator.spilled_bytes).json(),
            }))
        });
        let workers = self
            .workers
            .iter()
            .map(|(worker_id, busy)| json!({"worker_id": worker_id, "busy_ns": busy.json()}));
        let tasks = self.tasks.iter().map(|task| {
            json!({
                "fragment_id": task.fragment_id,
                "worker_id": task.worker_id,
                "partition": task.partition,
                "busy_ns": task.busy.json(),
                "rows": task.rows.json(),
            })
        });
        let records = self.records.as_ref().map(|records| {
            let records = records.iter().map(|record| {
                json!({
                    "table": record.table,
                    "row_id": record.row_id,
                    "self_ns": record.self_ns.json(),
                })
            });
            records.collect::<Vec<_>>()
        });
        json!({
            "format_version": FORMAT_VERSION,
            "before": query(&self.before, &self.fingerprints[0]),
            "after": query(&self.after, &self.fingerprints[1]),
            "same_plan": self.without_plan().is_empty().then_some(self.same_plan),
            "query_ns": self.whole().json(),
            "reservations": self.reservations(),
            "operators": operators.collect::<Vec<_>>(),
            "workers": workers.collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
            "records": records,
        })
    }
}

/// Whether operators do the same. At lower levels scans do not say which table they read.
fn do_the_same(a: &Operator, b: &Operator) -> bool {
    let tables = a.table.as_ref().zip(b.table.as_ref());
    a.name == b.name && tables.is_none_or(|(a, b)| a == b)
}

/// Whether plans are the same: their operators do the same, and hang together alike.
fn are_the_same(before: &[Operator], after: &[Operator]) -> bool {
    let place = |operator: &Operator| (operator.operator_id, operator.parent_operator_id);
    before.len() == after.len()
        && (before.iter().zip(after)).all(|(a, b)| place(a) == place(b) && do_the_same(a, b))
}

/// Pairs the operators of two plans: as many as have the same name and, of scans, table, in the
/// same order (the longest common subsequence); of equal plans all.
fn aligned(before: &[Operator], after: &[Operator]) -> Vec<Pair> {
    let mut longest = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            longest[i][j] = match do_the_same(&before[i], &after[j]) {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let mut pairs = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < before.len() || j < after.len() {
        let (one, other) = (before.get(i), after.get(j));
        let both = one.zip(other).is_some_and(|(a, b)| do_the_same(a, b));
        let only_before =
            other.is_none() || (one.is_some() && longest[i + 1][j] >= longest[i][j + 1]);
        let (take_before, take_after) = match both {
            true => (true, true),
            false => (only_before, !only_before),
        };
        pairs.push(Pair {
            before: one.filter(|_| take_before).cloned(),
            after: other.filter(|_| take_after).cloned(),
        });
        i += usize::from(take_before);
        j += usize::from(take_after);
    }
    pairs
}
