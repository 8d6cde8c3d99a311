//! EXPLAIN PROFILE DIFF a, b: what changed from one query to another.

mod alignment;
mod json;
mod text;

use datafusion::arrow::array::RecordBatch;
use skewer_sql::ProfileFormat;

use self::alignment::{aligned, are_the_same};
use super::answer::{Ask, Asked, Inquiry, Row, rows};
use super::header::Header;
use super::plan_tree::{Operator, Plan};
use super::{COLUMN, Options, as_sql};
use crate::error::Error;
use crate::session::Session;
use crate::statements::text_batch;

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
        let sql = of_both(include_str!("../sql/plan_fingerprints.sql"));
        let answer = inquiry.ask("The plans", sql).await?;
        let fingerprints = [&before, &after].map(|header| {
            let mut known = rows(&answer);
            let own = known.find(|row| row.integer("query_id") == Some(header.query_id));
            own?.text("plan_fingerprint")
        });
        let answer = inquiry
            .ask("Workers", of_both(include_str!("../sql/diff_workers.sql")))
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
            .ask("Tasks", of_both(include_str!("../sql/diff_tasks.sql")))
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
            let sql = of_both(include_str!("../sql/diff_records.sql"));
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
}
