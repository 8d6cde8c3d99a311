//! What changed from one query to another: `EXPLAIN PROFILE DIFF a, b`.

mod alignment;

use self::alignment::{aligned, are_the_same};
use crate::error::Error;
use crate::plan::{Operator, Plan};
use crate::source::{ProfileSource, Row, Section, Statements, rows};
use crate::summary::QuerySummary;

/// Nanoseconds (or rows) in both queries; `None` where only the other has it.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// In the first query.
    pub before: Option<i64>,
    /// In the second query.
    pub after: Option<i64>,
}

impl Change {
    fn from_columns(row: &Row<'_>, before: &str, after: &str) -> Self {
        Self {
            before: row.integer(before),
            after: row.integer(after),
        }
    }

    /// By how much it grew.
    pub fn delta(self) -> i64 {
        self.after.unwrap_or(0) - self.before.unwrap_or(0)
    }

    /// The second over the first, where both are known and the first is not 0.
    pub fn ratio(self) -> Option<f64> {
        match (self.before, self.after) {
            (Some(before), Some(after)) if before > 0 => Some(after as f64 / before as f64),
            _ => None,
        }
    }
}

/// A task of both queries, or of one.
#[derive(Debug, Clone)]
pub struct TaskChange {
    /// The fragment that it runs.
    pub fragment_id: i64,
    /// The worker that runs it.
    pub worker_id: i64,
    /// Its partition of the fragment.
    pub partition: i64,
    /// Nanoseconds that its operators worked.
    pub busy: Change,
    /// Rows that it returned.
    pub rows: Change,
}

/// A record of both queries, or of one.
#[derive(Debug, Clone)]
pub struct RecordChange {
    /// The table as the log names it.
    pub table: String,
    /// The row id.
    pub row_id: i64,
    /// Nanoseconds that expressions took for it.
    pub self_ns: Change,
}

/// An operator of both plans, or of one.
#[derive(Debug, Clone)]
pub struct OperatorPair {
    /// In the first plan.
    pub before: Option<Operator>,
    /// In the second plan.
    pub after: Option<Operator>,
}

impl OperatorPair {
    /// How a number of the operator changed.
    pub fn change(&self, of: fn(&Operator) -> i64) -> Change {
        Change {
            before: self.before.as_ref().map(of),
            after: self.after.as_ref().map(of),
        }
    }

    /// The operator of the second plan, or of the first where the second lacks it.
    pub fn either(&self) -> Option<&Operator> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

/// What changed from one query to another.
#[derive(Debug, Clone)]
pub struct ProfileDiff {
    /// The first query.
    pub before: QuerySummary,
    /// The second query.
    pub after: QuerySummary,
    /// Whether both ran the same plan.
    pub same_plan: bool,
    /// Fingerprints of both plans, where a plan was recorded.
    pub fingerprints: [Option<String>; 2],
    /// The operators, parents before children.
    pub operators: Vec<OperatorPair>,
    /// Nanoseconds that each worker worked, by its number.
    pub workers: Vec<(i64, Change)>,
    /// The tasks, greatest change first.
    pub tasks: Vec<TaskChange>,
    /// The records, greatest change first; `None` if one of the queries has no records.
    pub records: Option<Vec<RecordChange>>,
    /// The statements behind all this.
    pub statements: Vec<Section>,
}

impl ProfileDiff {
    /// Reads what changed from query `before` to query `after`.
    ///
    /// # Errors
    /// If schema `sys` does not have one of the queries, or cannot be read.
    pub async fn read(source: &dyn ProfileSource, before: i64, after: i64) -> Result<Self, Error> {
        let mut statements = Statements::new(source);
        let before = QuerySummary::read(&mut statements, before).await?;
        let after = QuerySummary::read(&mut statements, after).await?;
        let plans = (
            Plan::read(&mut statements, &before).await?,
            Plan::read(&mut statements, &after).await?,
        );
        let with_ids = |sql: &str| {
            sql.replace("$before", &before.query_id.to_string())
                .replace("$after", &after.query_id.to_string())
        };
        let sql = with_ids(include_str!("../sql/plan_fingerprints.sql"));
        let answer = statements.query("The plans", sql).await?;
        let fingerprints = [&before, &after].map(|summary| {
            let mut known = rows(&answer);
            let own = known.find(|row| row.integer("query_id") == Some(summary.query_id));
            own?.text("plan_fingerprint")
        });
        let answer = statements
            .query("Workers", with_ids(include_str!("../sql/diff_workers.sql")))
            .await?;
        let workers = rows(&answer)
            .map(|row| {
                (
                    row.sum("worker_id"),
                    Change::from_columns(&row, "before_ns", "after_ns"),
                )
            })
            .collect();
        let answer = statements
            .query("Tasks", with_ids(include_str!("../sql/diff_tasks.sql")))
            .await?;
        let tasks = rows(&answer)
            .map(|row| TaskChange {
                fragment_id: row.sum("fragment_id"),
                worker_id: row.sum("worker_id"),
                partition: row.sum("partition"),
                busy: Change::from_columns(&row, "before_ns", "after_ns"),
                rows: Change::from_columns(&row, "before_rows", "after_rows"),
            })
            .collect();
        let mut records = None;
        if before.has_log() && after.has_log() {
            let sql = with_ids(include_str!("../sql/diff_records.sql"));
            let answer = statements.query("Records", sql).await?;
            let found = rows(&answer).filter_map(|row| {
                Some(RecordChange {
                    table: row.text("table_name")?,
                    row_id: row.integer("row_id")?,
                    self_ns: Change::from_columns(&row, "before_ns", "after_ns"),
                })
            });
            records = Some(found.collect());
        }
        let operators = aligned(&plans.0.operators, &plans.1.operators);
        Ok(Self {
            fingerprints,
            same_plan: are_the_same(&plans.0.operators, &plans.1.operators),
            statements: statements.into_sections(),
            before,
            after,
            operators,
            workers,
            tasks,
            records,
        })
    }

    /// The queries whose operators were not recorded, as at level `off`.
    pub fn without_plan(&self) -> Vec<i64> {
        let has_none = |of: fn(&OperatorPair) -> &Option<Operator>| {
            self.operators.iter().all(|pair| of(pair).is_none())
        };
        let before = has_none(|pair| &pair.before).then_some(self.before.query_id);
        let after = has_none(|pair| &pair.after).then_some(self.after.query_id);
        before.into_iter().chain(after).collect()
    }

    /// Nanoseconds of planning and execution.
    pub fn whole(&self) -> Change {
        Change {
            before: Some(self.before.query_ns()),
            after: Some(self.after.query_ns()),
        }
    }

    /// Nanoseconds of the longer query.
    pub fn longer_ns(&self) -> i64 {
        self.before.query_ns().max(self.after.query_ns())
    }

    /// What limits the comparison, one sentence each.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        let without_plan = self.without_plan();
        if !without_plan.is_empty() {
            let ids: Vec<String> = without_plan.iter().map(i64::to_string).collect();
            let queries = if ids.len() == 1 { "query" } else { "queries" };
            caveats.push(format!(
                "No plan was recorded for {queries} {}: operators cannot be compared.",
                ids.join(" and ")
            ));
        } else if !self.same_plan {
            caveats.push(
                "The plans differ: operators are paired by name, table and order, tasks by number."
                    .to_owned(),
            );
        }
        if self.before.level != self.after.level {
            caveats.push(format!(
                "Query {} was recorded at level {}, query {} at level {}: recording itself takes \
                 time, and records are compared only if both have them.",
                self.before.query_id, self.before.level, self.after.query_id, self.after.level
            ));
        }
        for summary in [&self.before, &self.after] {
            let own = summary.caveats();
            caveats.extend(
                own.into_iter()
                    .map(|text| format!("Query {}: {text}", summary.query_id)),
            );
        }
        caveats
    }
}
