//! The input records that cost most, and whether one of them stands out.

use skewer_sql::quote::literal;

use crate::error::Error;
use crate::fan_out::{FanOut, UnattributedReason};
use crate::operator_text::table_name;
use crate::record::{record_sql, values};
use crate::source::{Row, Statements, rows};
use crate::summary::QuerySummary;
use crate::units::{count, duration, percent};
use crate::what_if::{Records, query_without};

/// The section's title.
pub const SECTION: &str = "Expensive inputs";

/// Beside anomalous records, a report names others that cost at least 1 / this of the query's time.
const NEXT_SHARE: i64 = 1000;

/// Why a record is anomalous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anomaly {
    /// The slowest result rows wait for it.
    CriticalPath,
    /// Expressions took long for it in sum.
    SelfTime,
    /// An unnest or a join made many rows of it.
    FanOut,
}

impl Anomaly {
    /// The reason with this name in `sys.anomalies`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "critical path" => Some(Self::CriticalPath),
            "self time" => Some(Self::SelfTime),
            "fan-out" => Some(Self::FanOut),
            _ => None,
        }
    }

    /// Its name in SQL and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::CriticalPath => "critical path",
            Self::SelfTime => "self time",
            Self::FanOut => "fan-out",
        }
    }
}

/// An input record and what it cost.
#[derive(Debug, Clone)]
pub struct ExpensiveInput {
    /// Its table as the log names it: `schema.table`, or the path of a file.
    pub table: String,
    /// Its row id.
    pub row_id: i64,
    /// Why it is anomalous; `None` if it is not.
    pub anomaly: Option<Anomaly>,
    /// Nanoseconds that a result row waited for it.
    pub impact_ns: i64,
    /// Highest total latency of the result rows whose most expensive record it is, in nanoseconds;
    /// `None` if there are none.
    pub total_ns: Option<i64>,
    /// The same without the record.
    pub remediated_ns: Option<i64>,
    /// Result rows that were made from it.
    pub result_rows: Option<i64>,
    /// Nanoseconds that expressions took for it, in sum.
    pub self_ns: i64,
    /// How most of `self_ns` was found; `None` without a log.
    pub method: Option<String>,
    /// By how many nanoseconds `self_ns` may be off; `None` without a log.
    pub error_ns: Option<i64>,
    /// Median self time of the table's records, where measured, in nanoseconds.
    pub median_ns: Option<i64>,
    /// What became of it, if it became many rows.
    pub fan_out: Option<FanOut>,
    /// Estimated nanoseconds of the query without it. Read only if it is anomalous.
    pub without_ns: Option<i64>,
    /// Names and values of its columns, or why they cannot be read. Read only if it is anomalous.
    pub record: Result<Vec<(String, String)>, String>,
}

impl ExpensiveInput {
    /// Reads a row of `sys.anomaly_candidates`; `None` if it names no record.
    fn read(row: &Row<'_>) -> Option<Self> {
        let anomaly = row.text("reason");
        let anomaly = anomaly.as_deref().and_then(Anomaly::from_name);
        Some(Self {
            table: row.text("table_name")?,
            row_id: row.integer("row_id")?,
            anomaly,
            impact_ns: row.sum("impact_ns"),
            total_ns: row.integer("max_total_ns"),
            remediated_ns: row.integer("max_remediated_ns"),
            // A fan-out has more result rows than the ones whose most expensive record it is.
            result_rows: row
                .integer("outputs")
                .filter(|_| anomaly != Some(Anomaly::FanOut)),
            self_ns: row.sum("self_ns"),
            method: row.text("method"),
            error_ns: row.integer("error_ns"),
            median_ns: row.integer("median_ns"),
            fan_out: FanOut::read(row),
            without_ns: None,
            record: Err("not read".to_owned()),
        })
    }

    /// Its row id and table: `row 7 of ratings`.
    pub fn reference(&self) -> String {
        format!("row {} of {}", self.row_id, table_name(&self.table))
    }

    /// The finding in one or two sentences.
    pub fn sentence(&self, summary: &QuerySummary) -> String {
        let query = duration(summary.query_ns());
        let named = self.reference();
        let named = named.strip_prefix('r').unwrap_or(&named);
        let without = self.without_ns.map(|without| {
            let without = duration(without);
            format!("without it the query takes about {without} instead of {query}.")
        });
        let became = self.fan_out.as_ref().map(|fan_out| {
            format!(
                "became {} of the {} {}rows that descend from its table, on which operators worked {}",
                count(fan_out.rows),
                count(fan_out.table_rows),
                if summary.sample_rate < 1.0 { "traced " } else { "" },
                duration(fan_out.apportioned_ns),
            )
        });
        match (self.anomaly, became) {
            (Some(Anomaly::FanOut), Some(became)) => format!(
                "R{named} {became}; {}",
                without.unwrap_or_else(|| format!("the query takes {query}."))
            ),
            (_, Some(became)) => format!(
                "{} It {became}.",
                self.latency_sentence(named, without, summary)
            ),
            (_, None) => self.latency_sentence(named, without, summary),
        }
    }

    /// What expressions over the record took.
    fn latency_sentence(
        &self,
        named: &str,
        without: Option<String>,
        summary: &QuerySummary,
    ) -> String {
        let Some(without) = without else {
            return format!(
                "R{named} kept a result row waiting for {}, of {} that the query takes.",
                duration(self.impact_ns),
                duration(summary.query_ns()),
            );
        };
        match self.anomaly {
            Some(Anomaly::SelfTime) => format!(
                "R{named} took {} of work in total, {} of all; {without}",
                duration(self.self_ns),
                percent(self.self_ns as f64 / summary.busy_ns.max(1) as f64)
            ),
            _ => {
                // A result row waits for the slowest of the tuples that it is made of; what was done
                // for all that the record became adds up.
                let in_sum = match self.self_ns > 2 * self.impact_ns {
                    true => format!(", and took {} of work in total", duration(self.self_ns)),
                    false => String::new(),
                };
                format!(
                    "R{named} kept a result row waiting for {}{in_sum}; {without}",
                    duration(self.impact_ns)
                )
            }
        }
    }
}

/// The records that cost most.
#[derive(Debug, Clone, Default)]
pub struct ExpensiveInputs {
    /// Anomalous records first, fan-outs last among them; then ordinary ones by impact.
    pub inputs: Vec<ExpensiveInput>,
    /// Whether no input of the result has row ids.
    pub without_ids: bool,
    /// Why rows that an unnest or a join made, and that took much time, cannot be attributed to
    /// records.
    pub unattributed: Option<UnattributedReason>,
}

impl ExpensiveInputs {
    /// Reads them from schema `sys`, and the records themselves from their tables.
    ///
    /// # Errors
    /// If `sys` cannot be read. A record that cannot be fetched is not an error.
    pub async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
    ) -> Result<Self, Error> {
        let mut found = Self::default();
        if !summary.has_records() {
            return Ok(found);
        }
        let query_id = summary.query_id.to_string();
        let sql = include_str!("sql/expensive_inputs.sql").replace("$query_id", &query_id);
        statements
            .keep_view(SECTION, "anomaly_candidates", summary.query_id)
            .await?;
        let answer = statements.query(SECTION, sql).await?;
        for row in rows(&answer) {
            let unknown = row.text("unknown");
            let unknown = unknown.as_deref().and_then(UnattributedReason::from_name);
            found.unattributed = found.unattributed.or(unknown);
            found.inputs.extend(ExpensiveInput::read(&row));
        }
        found
            .inputs
            .retain(|input| input.anomaly.is_some() || input.impact_ns > 0);
        let has_rows = summary.status == "finished" && summary.rows_returned > Some(0);
        if found.inputs.is_empty() && has_rows && summary.has_log() && summary.sample_rate >= 1.0 {
            let sql = include_str!("sql/has_records.sql").replace("$query_id", &query_id);
            let answer = statements.query(SECTION, sql).await?;
            found.without_ids = rows(&answer).next().is_none();
        }
        for input in &mut found.inputs {
            if input.anomaly.is_some() {
                input.load_details(statements, summary).await?;
            }
        }
        found.put_worst_fan_out_first();
        Ok(found)
    }

    /// Puts the fan-out first without which the query is the shortest. The rows of a join descend
    /// from records on both sides, so the number of rows does not tell which record is the cause.
    fn put_worst_fan_out_first(&mut self) {
        let is_fan_out = |input: &ExpensiveInput| input.anomaly == Some(Anomaly::FanOut);
        let start = self.inputs.iter().position(is_fan_out).unwrap_or_default();
        let end = start
            + self.inputs[start..]
                .iter()
                .take_while(|input| is_fan_out(input))
                .count();
        let left = |input: &ExpensiveInput| (input.without_ns.unwrap_or(i64::MAX), input.row_id);
        self.inputs[start..end].sort_by_key(left);
    }

    /// The records that stand out.
    pub fn anomalous(&self) -> impl Iterator<Item = &ExpensiveInput> {
        self.inputs.iter().filter(|input| input.anomaly.is_some())
    }

    /// The ordinary records with an impact, by descending impact.
    pub fn ordinary(&self) -> impl Iterator<Item = &ExpensiveInput> {
        let inputs = self.inputs.iter();
        inputs.filter(|input| input.anomaly.is_none() && input.impact_ns > 0)
    }

    /// Ordinary records that a report names beside anomalous ones.
    pub fn notable_ordinary(
        &self,
        summary: &QuerySummary,
    ) -> impl Iterator<Item = &ExpensiveInput> {
        let least = summary.query_ns() / NEXT_SHARE;
        self.ordinary()
            .filter(move |input| input.impact_ns >= least)
    }

    /// Why nothing is shown, if no record stands out.
    pub fn verdict(&self, summary: &QuerySummary) -> Option<String> {
        if !summary.has_records() {
            return Some(format!(
                "Not recorded: level {} keeps no latencies of records; EXPLAIN PROFILE (LEVEL \
                 records) names them.",
                summary.level
            ));
        }
        if self.anomalous().next().is_some() {
            return None;
        }
        let traced = if summary.sample_rate < 1.0 {
            "traced "
        } else {
            ""
        };
        Some(match self.ordinary().next() {
            Some(first) => format!(
                "No {traced}input record stands out: the most expensive, {}, adds {} ({}) to the query.",
                first.reference(),
                duration(first.impact_ns),
                percent(first.impact_ns as f64 / summary.query_ns().max(1) as f64)
            ),
            None if self.without_ids => {
                "No input record can be named: nothing that the result was \
                 made of has row ids. Rows of tables and Parquet files have; those of CSV and JSON \
                 files, VALUES and table functions have none."
                    .to_owned()
            }
            None => {
                format!(
                    "No {traced}input record stands out: no result row waits for one record alone."
                )
            }
        })
    }

    /// Tells that rows of an unnest or a join cannot be attributed to records, and how to find out.
    pub fn unattributed_sentence(&self, summary: &QuerySummary) -> Option<String> {
        Some(self.unattributed?.sentence(summary))
    }
}

impl ExpensiveInput {
    /// Reads the estimate without the record, the record itself, and the number of its result rows
    /// where that is unknown.
    async fn load_details(
        &mut self,
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
    ) -> Result<(), Error> {
        let affected = include_str!("sql/affected_rows.sql")
            .replace("$query_id", &summary.query_id.to_string())
            .replace("$row_id", &self.row_id.to_string())
            .replace("$table_name", &literal(&self.table));
        if summary.has_log() {
            let records = Records::One(self.row_id);
            let without = query_without(statements, SECTION, summary, &self.table, records).await?;
            self.without_ns = without.map(|without| without.ns);
        }
        if self.result_rows.is_none() {
            let answer = statements.query(SECTION, affected).await?;
            self.result_rows = rows(&answer).next().map(|row| row.sum("result_rows"));
        }
        if summary.imported_from.is_some() {
            self.record = Err("its table is not here".to_owned());
            return Ok(());
        }
        if summary.is_replaced(&self.table) {
            self.record = Err("its table has been replaced by another".to_owned());
            return Ok(());
        }
        let sql = record_sql(&self.table, self.row_id);
        self.record = match statements.query(SECTION, sql).await {
            Ok(answer) => values(&answer).ok_or_else(|| {
                "it is no longer in its table: deleted since, or truncated".to_owned()
            }),
            Err(error) => Err(format!("it cannot be read: {error}")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_records_the_one_comes_first_without_which_less_is_left() {
        let input = |row_id, anomaly, without_ns| ExpensiveInput {
            row_id,
            anomaly,
            without_ns,
            table: "main.t".to_owned(),
            impact_ns: 0,
            total_ns: None,
            remediated_ns: None,
            result_rows: None,
            self_ns: 0,
            method: None,
            error_ns: None,
            median_ns: None,
            fan_out: None,
            record: Err("not read".to_owned()),
        };
        let fan_out = Some(Anomaly::FanOut);
        let mut found = ExpensiveInputs {
            inputs: vec![
                input(1, Some(Anomaly::CriticalPath), Some(9)),
                input(2, fan_out, None),
                input(3, fan_out, Some(8)),
                input(4, fan_out, Some(5)),
                input(5, None, None),
            ],
            ..ExpensiveInputs::default()
        };
        found.put_worst_fan_out_first();
        let ids: Vec<_> = found.inputs.iter().map(|input| input.row_id).collect();
        assert_eq!(ids, [1, 4, 3, 2, 5]);
        let mut none = ExpensiveInputs::default();
        none.put_worst_fan_out_first();
        assert!(none.inputs.is_empty());
    }
}
