//! The comparison as text.

use skewer_diagnosis::diff::{Change, RecordChange, TaskChange};
use skewer_diagnosis::operator_text::table_name;
use skewer_diagnosis::units::{NO_DIFFERENCE, count, duration, times};
use skewer_diagnosis::{ProfileDiff, QuerySummary};

use crate::document::{Document, Line, Mark, Style};
use crate::layout::{WIDTH, left, right, shortened};

/// A task or record is named if its time changed by this share of the longer query's time and by
/// this many nanoseconds.
const NOTABLE_SHARE: f64 = 0.01;
const NOTABLE_NS: i64 = 1_000_000;

/// At most this many tasks, and this many records, are named.
const NAMED: usize = 5;

fn is_notable(change: Change, longer_ns: i64) -> bool {
    let delta = change.delta().abs();
    delta >= NOTABLE_NS && delta as f64 >= NOTABLE_SHARE * longer_ns as f64
}

/// Both times: `29.4 s → 1.11 s`.
fn durations(change: Change) -> String {
    let one = |ns: Option<i64>| ns.map_or("–".to_owned(), duration);
    format!("{} → {}", one(change.before), one(change.after))
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

/// Head, operators, tasks and records.
pub(crate) fn document(diff: &ProfileDiff) -> Document {
    let mut sections = vec![head(diff)];
    if diff.without_plan().is_empty() {
        sections.push(operators(diff));
        sections.push(tasks(diff));
    }
    sections.push(records(diff));
    Document::join_sections(sections)
}

fn head(diff: &ProfileDiff) -> Document {
    let plan = match diff.same_plan {
        _ if !diff.without_plan().is_empty() => "no plan to compare".to_owned(),
        true => format!("the same plan{}", short_fingerprints(diff)),
        false => format!("different plans{}", short_fingerprints(diff)),
    };
    let change = match factor(diff.whole().ratio()).as_str() {
        "" | "=" => "no difference".to_owned(),
        factor => factor.to_owned(),
    };
    let mut section = Document::titled(&format!(
        "Query {} → query {} · {} ({change}) · {plan}",
        diff.before.query_id,
        diff.after.query_id,
        durations(diff.whole()),
    ));
    let sql = |summary: &QuerySummary| {
        let words: Vec<&str> = summary.sql.split_whitespace().collect();
        words.join(" ")
    };
    let (one, other) = (sql(&diff.before), sql(&diff.after));
    if one == other {
        section.push_styled(format!("  {}", shortened(&one, WIDTH - 2)), Style::Plain);
    } else {
        for (summary, sql) in [(&diff.before, one), (&diff.after, other)] {
            let start = format!("  {}: ", summary.query_id);
            let room = WIDTH - start.len();
            section.push_styled(format!("{start}{}", shortened(&sql, room)), Style::Plain);
        }
    }
    for caveat in diff.caveats() {
        section.push_item(Mark::Caveat, &caveat);
    }
    section
}

/// The first characters of the fingerprints, after a space: enough to tell plans apart.
fn short_fingerprints(diff: &ProfileDiff) -> String {
    let [before, after] = diff.fingerprints.each_ref().map(|fingerprint| {
        let text = fingerprint.as_deref().unwrap_or_default();
        text.get(..8).unwrap_or(text)
    });
    match (before == after, before.is_empty() || after.is_empty()) {
        (_, true) => String::new(),
        (true, false) => format!(" {before}"),
        (false, false) => format!(" {before}, {after}"),
    }
}

fn operators(diff: &ProfileDiff) -> Document {
    const TIMES: usize = 20;
    const ROWS: usize = 23;
    const FACTOR: usize = 8;
    let room = WIDTH - TIMES - ROWS - FACTOR - 6;
    let mut section = Document::default();
    let mut heading = Line::default();
    heading.push("Operators", Style::Title);
    heading.push(
        format!(
            "{}  {}  {}  {}",
            " ".repeat(room - "Operators".len()),
            right("rows", ROWS),
            right("self", TIMES),
            right("change", FACTOR)
        ),
        Style::Dim,
    );
    section.push(heading);
    for pair in &diff.operators {
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
        let change = if is_notable(time, diff.longer_ns()) {
            factor(time.ratio())
        } else {
            String::new()
        };
        let line = format!(
            "{}  {}  {}  {}",
            left(&format!("{id} {mark}{what}"), room),
            right(&shown_rows, ROWS),
            right(&durations(time), TIMES),
            right(&change, FACTOR)
        );
        section.push_styled(line.trim_end(), Style::Plain);
    }
    section
}

fn notable_tasks(diff: &ProfileDiff) -> impl Iterator<Item = &TaskChange> {
    let tasks = diff.tasks.iter();
    tasks
        .filter(|task| is_notable(task.busy, diff.longer_ns()))
        .take(NAMED)
}

fn notable_workers(diff: &ProfileDiff) -> impl Iterator<Item = &(i64, Change)> {
    let several = diff.workers.len() > 1;
    let workers = diff.workers.iter();
    workers.filter(move |(_, busy)| several && is_notable(*busy, diff.longer_ns()))
}

fn tasks(diff: &ProfileDiff) -> Document {
    let mut section = Document::titled("Workers and tasks");
    for (worker, busy) in notable_workers(diff) {
        let text = format!(
            "Worker {worker}: {} {}",
            durations(*busy),
            factor(busy.ratio())
        );
        section.push_item(Mark::Fact, text.trim_end());
    }
    for task in notable_tasks(diff) {
        let rows = match (task.rows.before, task.rows.after) {
            (Some(before), Some(after)) if before == after => format!("{} rows", count(after)),
            (Some(before), Some(after)) => {
                format!("{} → {} rows", count(before), count(after))
            }
            (Some(_), None) => format!("only in query {}", diff.before.query_id),
            _ => format!("only in query {}", diff.after.query_id),
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
            durations(task.busy),
        );
        section.push_item(Mark::Fact, &text);
    }
    if section.lines().len() == 1 {
        section.push_item(Mark::Good, "None worked notably longer or shorter.");
    }
    section
}

fn notable_records(diff: &ProfileDiff) -> impl Iterator<Item = &RecordChange> {
    let records = diff.records.iter().flatten();
    records
        .filter(|record| is_notable(record.self_ns, diff.longer_ns()))
        .take(NAMED)
}

/// The section; empty if one of the queries has no records.
fn records(diff: &ProfileDiff) -> Document {
    if diff.records.is_none() {
        return Document::default();
    }
    let mut section = Document::titled("Records");
    for record in notable_records(diff) {
        let only = match (record.self_ns.before, record.self_ns.after) {
            (Some(_), None) => format!("; only in query {}", diff.before.query_id),
            (None, Some(_)) => format!("; only in query {}", diff.after.query_id),
            _ => String::new(),
        };
        let text = format!(
            "Row {} of {}: {}{only}",
            record.row_id,
            table_name(&record.table),
            durations(record.self_ns)
        );
        section.push_item(Mark::Fact, &text);
    }
    if section.lines().len() == 1 {
        section.push_item(Mark::Good, "None took notably more or less time.");
    }
    section
}
