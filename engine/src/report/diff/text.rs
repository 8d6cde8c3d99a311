//! The comparison as text.

use super::super::details::table_name;
use super::super::header::Header;
use super::super::layout::{WIDTH, item, left, right, shortened};
use super::super::units::{NO_DIFFERENCE, count, duration, times};
use super::{Change, Diff, Record, Task};

/// A task or record is named if its time changed by this share of the longer query's time and by
/// this many nanoseconds.
const NOTABLE_SHARE: f64 = 0.01;
const NOTABLE_NS: i64 = 1_000_000;

/// Of tasks and of records so many are named.
const NAMED: usize = 5;

impl Change {
    fn is_notable(self, longer_ns: i64) -> bool {
        let delta = self.delta().abs();
        delta >= NOTABLE_NS && delta as f64 >= NOTABLE_SHARE * longer_ns as f64
    }

    /// 29.4 s → 1.11 s
    fn durations(self) -> String {
        let one = |ns: Option<i64>| ns.map_or("–".to_owned(), duration);
        format!("{} → {}", one(self.before), one(self.after))
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

impl Diff {
    /// Head, operators, tasks and records, a line each.
    pub(super) fn text(&self) -> Vec<String> {
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
}
