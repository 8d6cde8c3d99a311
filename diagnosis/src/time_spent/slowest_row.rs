//! The result row with the highest latency, and whether computation or grouping took it.

use crate::error::Error;
use crate::operator_text::table_name;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use crate::units::{count, duration, percent, times};

/// A result row is worth naming if its latency is at least this share of the query's time.
const NOTABLE_LATENCY: f64 = 0.05;

/// A result row has a hot key if its shuffle latency is this many times the mean of all result rows.
const HOT_KEY: f64 = 1.5;

/// The result row with the highest total latency.
#[derive(Debug, Clone)]
pub struct SlowestRow {
    /// Its position in the result, from 0.
    pub output_row: i64,
    /// Its latency: computation and shuffle, in nanoseconds.
    pub total_ns: i64,
    /// Nanoseconds that expressions took for it.
    pub computation_ns: i64,
    /// Nanoseconds that grouping its records took.
    pub shuffle_ns: i64,
    /// Nanoseconds of its latency without its most expensive record.
    pub remediated_ns: i64,
    /// Mean shuffle latency of all result rows, in nanoseconds.
    pub mean_shuffle_ns: i64,
    /// Table and row id of its most expensive record.
    pub source: Option<(String, i64)>,
    /// Input records that it was made from, and input records that were traced. Read only where
    /// shuffle latency dominates.
    pub records: Option<(i64, i64)>,
}

impl SlowestRow {
    /// Reads it from schema `sys`; `None` if no result row has a latency.
    pub(crate) async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
    ) -> Result<Option<Self>, Error> {
        let query_id = summary.query_id.to_string();
        let section = "Where the time went: the slowest result row";
        let sql = include_str!("../sql/slowest_result_row.sql").replace("$query_id", &query_id);
        let answer = statements.query(section, sql).await?;
        let Some(row) = rows(&answer).next() else {
            return Ok(None);
        };
        let mut slowest = Self {
            output_row: row.sum("output_row"),
            total_ns: row.sum("total_ns"),
            computation_ns: row.sum("computation_ns"),
            shuffle_ns: row.sum("shuffle_ns"),
            remediated_ns: row.sum("remediated_ns"),
            mean_shuffle_ns: row.sum("mean_shuffle_ns"),
            source: row.text("source_table").zip(row.integer("source_row_id")),
            records: None,
        };
        if slowest.shuffle_dominates() && slowest.is_notable(summary) {
            let sql = include_str!("../sql/records_of_slowest_row.sql")
                .replace("$query_id", &query_id)
                .replace("$output_row", &slowest.output_row.to_string());
            let answer = statements.query(section, sql).await?;
            slowest.records = rows(&answer)
                .next()
                .map(|row| (row.sum("records"), row.sum("traced")));
        }
        Ok(Some(slowest))
    }

    fn is_notable(&self, summary: &QuerySummary) -> bool {
        self.total_ns as f64 >= NOTABLE_LATENCY * summary.query_ns() as f64
    }

    /// Whether bringing records together took longer than computing.
    fn shuffle_dominates(&self) -> bool {
        self.shuffle_ns > self.computation_ns
    }

    /// What took its time; `None` if it took none.
    pub(crate) fn sentence(&self, summary: &QuerySummary) -> Option<String> {
        if self.total_ns == 0 {
            return None;
        }
        let (row, total) = (self.output_row, duration(self.total_ns));
        let with_share = |ns: i64| {
            let share = ns as f64 / self.total_ns.max(1) as f64;
            format!("{} ({})", duration(ns), percent(share))
        };
        let source = self.source.as_ref();
        let source = source.map(|(table, id)| format!("row {id} of {}", table_name(table)));
        if !self.is_notable(summary) {
            return Some(format!(
                "No result row stands out: the slowest, result row {row}, has a latency of {total}."
            ));
        }
        if !self.shuffle_dominates() {
            let source = source.map(|source| format!(", most of it on {source}"));
            return Some(format!(
                "Computation: {} of the {total} of result row {row}, the slowest, went into \
                 expressions{}.",
                with_share(self.computation_ns),
                source.unwrap_or_default()
            ));
        }
        let mut sentence = format!(
            "Shuffle latency: {} of the {total} of result row {row}, the slowest, went into \
             grouping its records, not into computation.",
            with_share(self.shuffle_ns)
        );
        if let Some((records, traced)) = self.records {
            let share = records as f64 / traced.max(1) as f64;
            let factor = self.shuffle_ns as f64 / self.mean_shuffle_ns.max(1) as f64;
            let hot = if factor >= HOT_KEY {
                format!("It has a hot key ({} the mean): it is", times(factor))
            } else {
                "It is".to_owned()
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
        Some(sentence)
    }
}
