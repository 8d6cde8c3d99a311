//! Rows that the query was run without, by `WITHOUT` or by quarantines, and how long it takes with them.

use crate::error::Error;
use crate::profile::RunContext;
use crate::quarantine::TableQuarantine;
use crate::record::table_sql;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use crate::units::{NO_DIFFERENCE, duration, times};

/// The section's title.
pub const SECTION: &str = "Left out";

/// A condition that `WITHOUT` names: rows that fulfil it are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedPredicate {
    /// The table as the log names it: `schema.table`, or the path of a file.
    pub table: String,
    /// SQL over the table's columns, without qualifiers.
    pub predicate: String,
}

/// A quarantine and how many rows it left out.
#[derive(Debug, Clone)]
pub struct QuarantinedCount {
    /// The quarantine as it was when the query ran.
    pub quarantine: TableQuarantine,
    /// Rows that are in it, and all rows; `None` if the table cannot be read.
    pub matched: Option<(i64, i64)>,
}

/// An excluded predicate and how many rows it holds for.
#[derive(Debug, Clone)]
pub struct ExcludedCount {
    /// The table and its predicate.
    pub rows: ExcludedPredicate,
    /// Rows that fulfil the predicate, and all rows; `None` if the table cannot be read.
    pub matched: Option<(i64, i64)>,
}

/// What was left out, and the query that ran with the rows of `WITHOUT`.
#[derive(Debug, Clone, Default)]
pub struct ExcludedRows {
    /// Each predicate of `WITHOUT`; empty if nothing was left out.
    pub predicates: Vec<ExcludedCount>,
    /// Each quarantine that left rows out.
    pub quarantines: Vec<QuarantinedCount>,
    /// The query with the rows of `WITHOUT`.
    pub baseline: Option<QuerySummary>,
}

/// Rows of a table that fulfil a predicate, and all rows; `None` if the table cannot be read.
async fn matching(
    statements: &mut Statements<'_>,
    table: &str,
    predicate: &str,
) -> Option<(i64, i64)> {
    let sql = format!(
        "SELECT count(*) AS all_rows, count(*) FILTER (WHERE {predicate}) AS matched FROM {}",
        table_sql(table)
    );
    let answer = statements.try_query(SECTION, sql).await?;
    let row = rows(&answer).next()?;
    Some((row.sum("matched"), row.sum("all_rows")))
}

impl ExcludedRows {
    /// Counts the rows, and reads how long the query took with them.
    ///
    /// # Errors
    /// If schema `sys` cannot be read.
    pub async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
        context: &RunContext,
    ) -> Result<Self, Error> {
        let mut found = Self::default();
        for quarantine in &summary.quarantines {
            let table = &quarantine.table;
            let is_here = summary.imported_from.is_none() && !summary.is_replaced(table);
            found.quarantines.push(QuarantinedCount {
                quarantine: quarantine.clone(),
                matched: match is_here {
                    true => matching(statements, table, &quarantine.predicate).await,
                    false => None,
                },
            });
        }
        for excluded in &context.excluded {
            let matched = matching(statements, &excluded.table, &excluded.predicate).await;
            found.predicates.push(ExcludedCount {
                rows: excluded.clone(),
                matched,
            });
        }
        if let Some(baseline) = context.baseline_query_id {
            found.baseline = Some(QuerySummary::read(statements, baseline).await?);
        }
        Ok(found)
    }

    /// A sentence that compares the time without the rows with the time with them.
    pub fn comparison(&self, summary: &QuerySummary) -> Option<String> {
        let baseline = self.baseline.as_ref()?;
        let (own, other) = (summary.query_ns(), baseline.query_ns());
        let factor = other as f64 / own.max(1) as f64;
        let nothing = self
            .predicates
            .iter()
            .all(|excluded| matches!(excluded.matched, Some((0, _))));
        let verdict = match factor {
            // Two runs of one query differ, too.
            _ if nothing => "no row was left out, so the difference is noise".to_owned(),
            _ if factor >= NO_DIFFERENCE => format!("{} as fast", times(factor)),
            _ if factor * NO_DIFFERENCE <= 1.0 => "slower".to_owned(),
            _ => "no difference".to_owned(),
        };
        let mut sentence = format!(
            "The query took {} without these rows and {} with them (query {}): {verdict}.",
            duration(own),
            duration(other),
            baseline.query_id
        );
        if baseline.level != summary.level {
            sentence.push_str(&format!(
                " Query {} was recorded at level {}, this one at level {}, which costs time of \
                 its own.",
                baseline.query_id, baseline.level, summary.level
            ));
        }
        if baseline.status != "finished" {
            sentence.push_str(&format!(
                " Query {} did not end: {}.",
                baseline.query_id, baseline.status
            ));
        }
        Some(sentence)
    }
}
