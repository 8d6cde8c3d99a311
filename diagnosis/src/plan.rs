//! The operators of the plan and what each did.

use std::collections::BTreeMap;

use skewer_profiling::OperatorKind;

use crate::error::Error;
use crate::operator_text::{Description, describe};
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use crate::text::shortened;

/// An operator of the plan and what it did, over all its partitions.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Its number in the plan; parents have smaller numbers than their inputs.
    pub operator_id: i64,
    /// The operator that reads its rows; internal operators in between are passed over.
    pub parent_operator_id: Option<i64>,
    /// Its name in DataFusion's plan.
    pub name: String,
    /// What it does.
    pub kind: OperatorKind,
    /// What it does, in the words of SQL.
    pub description: Description,
    /// The table that it scans, as the log names it.
    pub table: Option<String>,
    /// Columns of row groups that it found in the cache.
    pub cache_hits: i64,
    /// Columns of row groups that it decoded, if it reads a table through the cache.
    pub cache_misses: i64,
    /// Partitions that it ran in.
    pub partitions: i64,
    /// Rows that it read.
    pub rows_in: i64,
    /// Rows that it returned.
    pub rows_out: i64,
    /// Rows that the planner expected it to return.
    pub estimated_rows: Option<i64>,
    /// Nanoseconds that it worked, without its inputs.
    pub self_ns: i64,
    /// Share of all operators' self time, 0 to 1.
    pub share: f64,
    /// Nanoseconds that its partitions waited for input, in sum.
    pub input_wait_ns: i64,
    /// The most memory that it reserved, in bytes.
    pub peak_memory_bytes: i64,
    /// Bytes that it wrote to temporary files.
    pub spilled_bytes: i64,
    /// Most rows that a partition returned over the mean.
    pub row_skew: Option<f64>,
    /// Longest self time of a partition over the mean.
    pub time_skew: Option<f64>,
}

/// Skew below this is the ordinary unevenness of batches.
const NOTABLE_SKEW: f64 = 1.2;

/// The skew of an operator with less of all self time than this is noise.
const NOTABLE_SHARE: f64 = 0.05;

impl Operator {
    /// The skew in time, if it is worth a reader's attention.
    pub fn notable_skew(&self) -> Option<f64> {
        self.time_skew.filter(|skew| {
            self.partitions > 1 && *skew >= NOTABLE_SKEW && self.share >= NOTABLE_SHARE
        })
    }

    /// The share of the columns and row groups of its table that it found in the cache, if any.
    pub fn cached_share(&self) -> Option<f64> {
        let all = self.cache_hits + self.cache_misses;
        (self.cache_hits > 0).then(|| self.cache_hits as f64 / all as f64)
    }

    /// Nanoseconds that a partition waited for input, on average.
    pub fn wait_ns(&self) -> i64 {
        self.input_wait_ns / self.partitions.max(1)
    }

    /// Its number and description, cut to `width` columns: `operator 7, Evaluate: upper(key)`.
    pub fn reference(&self, width: usize) -> String {
        let what = shortened(&self.description.line(), width);
        format!("operator {}, {what}", self.operator_id)
    }

    /// Whether its input comes from other tasks, so that it can wait for it.
    pub fn is_exchange(&self) -> bool {
        self.kind == OperatorKind::Exchange
    }
}

/// The operators of a query, parents before children. Internal operators are left out.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The operators; empty at level `off`.
    pub operators: Vec<Operator>,
}

impl Plan {
    /// Reads it from schema `sys`.
    ///
    /// # Errors
    /// If `sys` cannot be read.
    pub async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
    ) -> Result<Self, Error> {
        let query_id = summary.query_id.to_string();
        let section = "The plan";
        let sql = include_str!("sql/plan.sql").replace("$query_id", &query_id);
        let answer = statements.query(section, sql).await?;
        let mut tables: BTreeMap<i64, (String, i64, i64)> = BTreeMap::new();
        let sql = include_str!("sql/scanned_tables.sql").replace("$query_id", &query_id);
        let scanned = statements.query(section, sql).await?;
        tables.extend(rows(&scanned).filter_map(|row| {
            let found = (row.sum("cache_hits"), row.sum("cache_misses"));
            let table = row.text("table_name")?;
            Some((row.integer("operator_id")?, (table, found.0, found.1)))
        }));
        let internal = rows(&answer).filter(|row| row.flag("is_internal"));
        let internal = internal.filter_map(|row| {
            Some((
                row.integer("operator_id")?,
                row.integer("parent_operator_id"),
            ))
        });
        let internal: BTreeMap<i64, Option<i64>> = internal.collect();
        let shown = rows(&answer).filter(|row| !row.flag("is_internal"));
        let operators = shown.map(|row| {
            let operator_id = row.sum("operator_id");
            let name = row.text("name").unwrap_or_default();
            let details = row.text("details").unwrap_or_default();
            let kind = row.text("kind");
            let scanned = tables.remove(&operator_id);
            let (table, cache_hits, cache_misses) = scanned
                .map_or((None, 0, 0), |(table, hits, misses)| {
                    (Some(table), hits, misses)
                });
            Operator {
                operator_id,
                parent_operator_id: shown_above(row.integer("parent_operator_id"), &internal),
                description: describe(&name, &details, table.as_deref()),
                name,
                kind: kind
                    .and_then(|kind| OperatorKind::from_name(&kind))
                    .unwrap_or(OperatorKind::Other),
                table,
                cache_hits,
                cache_misses,
                partitions: row.sum("partitions"),
                rows_in: row.sum("rows_in"),
                rows_out: row.sum("rows_out"),
                estimated_rows: row.integer("estimated_rows"),
                self_ns: row.sum("self_ns"),
                share: row.float("share").unwrap_or(0.0),
                input_wait_ns: row.sum("input_wait_ns"),
                peak_memory_bytes: row.sum("peak_memory_bytes"),
                spilled_bytes: row.sum("spilled_bytes"),
                row_skew: row.float("row_skew"),
                time_skew: row.float("time_skew"),
            }
        });
        Ok(Self {
            operators: operators.collect(),
        })
    }

    /// The operator of an id.
    pub fn operator(&self, operator_id: i64) -> Option<&Operator> {
        let mut operators = self.operators.iter();
        operators.find(|operator| operator.operator_id == operator_id)
    }

    /// The operators that move rows between tasks.
    pub fn exchanges(&self) -> impl Iterator<Item = &Operator> {
        let operators = self.operators.iter();
        operators.filter(|operator| operator.is_exchange())
    }

    /// The operators that `parent` reads from; the roots for `None`.
    pub fn inputs(&self, parent: Option<i64>) -> impl Iterator<Item = &Operator> {
        let operators = self.operators.iter();
        operators.filter(move |operator| operator.parent_operator_id == parent)
    }
}

/// The nearest operator above that is shown. `internal` has the internal operators and their parents.
fn shown_above(parent: Option<i64>, internal: &BTreeMap<i64, Option<i64>>) -> Option<i64> {
    let mut above = parent;
    while let Some(next) = above.and_then(|parent| internal.get(&parent)) {
        above = *next;
    }
    above
}
