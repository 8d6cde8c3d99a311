//! Why a query took its time: the causes that `sys.diagnoses` names first.

use crate::error::Error;
use crate::plan::Plan;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use crate::units::{bytes, count, duration};

/// The rule of `sys.diagnoses` for records of `sys.anomalies`.
pub const EXPENSIVE_INPUT: &str = "expensive input";

/// Columns that an operator's description may take within a sentence.
const OPERATOR_WIDTH: usize = 60;

/// The causes that are named, the first is the verdict. At most three; none if nothing stands out.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// In the order of `place` in `sys.diagnoses`.
    pub causes: Vec<Diagnosis>,
}

/// A row of `sys.diagnoses`.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The detector's name, as `heavy key`.
    pub rule: String,
    /// `critical`, `warning` or `info`.
    pub severity: String,
    /// The place in words, operators as the report's plan calls them.
    pub subject: String,
    /// One sentence with the cause and what it costs.
    pub cause: String,
    /// What to do.
    pub advice: String,
    /// Nanoseconds that the query would save; `None` if that cannot be told.
    pub wasted_ns: Option<i64>,
    /// SQL that shows why.
    pub evidence_sql: Option<String>,
    /// SQL that looks more closely.
    pub zoom_sql: Option<String>,
    /// Findings that follow from this one.
    pub explains: i64,
}

impl Verdict {
    /// Reads it from schema `sys`.
    ///
    /// # Errors
    /// If `sys` cannot be read.
    pub(crate) async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
        plan: &Plan,
    ) -> Result<Self, Error> {
        let query_id = summary.query_id.to_string();
        let sql = include_str!("sql/verdict.sql").replace("$query_id", &query_id);
        let answer = statements.query("Verdict", sql).await?;
        let folded: Vec<String> = rows(&answer)
            .filter_map(|row| row.text("explained_by"))
            .collect();
        let causes = rows(&answer).filter(|row| row.integer("place").is_some());
        let causes = causes.map(|row| {
            let text = |column: &str| row.text(column).unwrap_or_default();
            Diagnosis {
                explains: folded.iter().filter(|rule| **rule == text("rule")).count() as i64,
                rule: text("rule"),
                severity: text("severity"),
                subject: as_in_the_plan(&text("subject"), plan),
                cause: readable(&text("cause")),
                advice: readable(&text("advice")),
                wasted_ns: row.integer("wasted_ns"),
                evidence_sql: row.text("evidence_sql"),
                zoom_sql: row.text("zoom_sql"),
            }
        });
        Ok(Self {
            causes: causes.collect(),
        })
    }
}

impl Diagnosis {
    /// Rule, place and cause.
    pub fn sentence(&self) -> String {
        let mut rule = self.rule.chars();
        let rule: String = rule
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(rule)
            .collect();
        let place = match self.subject.as_str() {
            "" | "the query" => String::new(),
            subject => format!(", {subject}"),
        };
        format!("{rule}{place}: {}", self.cause)
    }
}

/// A subject of `sys.diagnoses`, `operator 3 RepartitionExec, partition 1`, with the operator called as
/// the report's plan calls it.
fn as_in_the_plan(subject: &str, plan: &Plan) -> String {
    let named = || {
        let (operator_id, rest) = subject.strip_prefix("operator ")?.split_once(' ')?;
        let operator = plan.operator(operator_id.parse().ok()?)?;
        let place = rest.split_once(", ").map(|(_, place)| format!(", {place}"));
        Some(operator.reference(OPERATOR_WIDTH) + &place.unwrap_or_default())
    };
    named().unwrap_or_else(|| subject.to_owned())
}

/// A sentence of `sys.diagnoses` with its counts of rows, `2111111 rows`, its sizes, `52428800 bytes`, and its times,
/// `28934 ms`, as the report writes them.
pub fn readable(text: &str) -> String {
    let counted = with_numbers(text, " rows", |number| format!("{} rows", count(number)));
    let sized = with_numbers(&counted, " bytes", bytes);
    with_numbers(&sized, " ms", |number| {
        duration(number.saturating_mul(1_000_000))
    })
}

/// `text` with each number before `unit` written by `write`, which adds the unit.
fn with_numbers(text: &str, unit: &str, write: impl Fn(i64) -> String) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some(end) = rest.find(unit) {
        let before = &rest[..end];
        let start = before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let after = &rest[end + unit.len()..];
        let is_whole =
            !after.starts_with(char::is_alphanumeric) && !before[..start].ends_with(['.', ',']);
        written.push_str(&before[..start]);
        match before[start..].parse() {
            Ok(number) if is_whole => written.push_str(&write(number)),
            _ => written.push_str(&rest[start..end + unit.len()]),
        }
        rest = after;
    }
    written + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_rows_are_grouped_times_get_their_unit_and_keys_stay() {
        let text = "Expected 2000 rows, got 799900 rows: no.";
        assert_eq!(readable(text), "Expected 2,000 rows, got 799,900 rows: no.");
        let text = "About 9 % of 2111111 rows have the key 1234567: 28934 ms of 40 ms.";
        let expected = "About 9 % of 2,111,111 rows have the key 1234567: 28.9 s of 40.0 ms.";
        assert_eq!(readable(text), expected);
        let text = "The operator wrote 52428800 bytes to temporary files.";
        let expected = "The operator wrote 50.0 MiB to temporary files.";
        assert_eq!(readable(text), expected);
        let text = "0.5 ms a row, rows of 7 msg, 1000000 ms";
        assert_eq!(readable(text), "0.5 ms a row, rows of 7 msg, 16 min 40 s");
    }

    #[test]
    fn a_sentence_begins_with_rule_and_place() {
        let diagnosis = Diagnosis {
            rule: "heavy key".to_owned(),
            severity: "warning".to_owned(),
            subject: "operator 3".to_owned(),
            cause: "Half of all rows have the key 7.".to_owned(),
            advice: String::new(),
            wasted_ns: None,
            evidence_sql: None,
            zoom_sql: None,
            explains: 0,
        };
        let expected = "Heavy key, operator 3: Half of all rows have the key 7.";
        assert_eq!(diagnosis.sentence(), expected);
    }
}
