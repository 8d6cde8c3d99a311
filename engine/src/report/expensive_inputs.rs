//! The input records that cost most, and whether one of them stands out.

use super::answer::{Inquiry, Row, rows};
use super::base_record;
use super::details::table_name;
use super::fan_out::{FanOut, Untold};
use super::header::Header;
use super::layout::{WIDTH, item, left};
use super::units::{count, counted, duration, percent, times};
use super::without::{Records, query_without};
use crate::error::Error;

const SECTION: &str = "Expensive inputs";

/// Beside anomalous records, others are named that cost at least 1 / this of the query's time.
const NEXT_SHARE: i64 = 1000;

/// Why a record is anomalous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anomaly {
    /// The slowest result rows wait for it.
    CriticalPath,
    /// Expressions took long for it in sum.
    SelfTime,
    /// An unnest or a join made many rows of it.
    FanOut,
}

impl Anomaly {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "critical path" => Some(Self::CriticalPath),
            "self time" => Some(Self::SelfTime),
            "fan-out" => Some(Self::FanOut),
            _ => None,
        }
    }

    /// Its name in SQL and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CriticalPath => "critical path",
            Self::SelfTime => "self time",
            Self::FanOut => "fan-out",
        }
    }
}

/// An input record and what it cost.
#[derive(Debug, Clone)]
pub(super) struct ExpensiveInput {
    pub(super) table: String,
    pub(super) row_id: i64,
    pub(super) anomaly: Option<Anomaly>,
    pub(super) impact_ns: i64,
    /// Highest total latency of the result rows that it is the source of, and what that would be
    /// without it; `None` if it is the source of none.
    pub(super) total_ns: Option<i64>,
    pub(super) remediated_ns: Option<i64>,
    pub(super) result_rows: Option<i64>,
    pub(super) self_ns: i64,
    /// How most of `self_ns` was found, and by how much it may be off; `None` if the log does not
    /// say.
    pub(super) method: Option<String>,
    pub(super) error_ns: Option<i64>,
    /// Median self time of the table's records, where measured.
    pub(super) median_ns: Option<i64>,
    /// What became of it, if many rows did.
    pub(super) fan_out: Option<FanOut>,
    /// About what the query would take without it; asked only if it is anomalous.
    pub(super) without_ns: Option<i64>,
    /// Names and values of its columns; asked only if it is anomalous.
    pub(super) record: Result<Vec<(String, String)>, String>,
}

impl ExpensiveInput {
    /// What a row of `sys.anomaly_candidates` says of a record; `None` if it names none.
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
            // Of one that is named for its rows, the result rows are more than it is the most
            // impactful source of.
            result_rows: row
                .integer("outputs")
                .filter(|_| anomaly != Some(Anomaly::FanOut)),
            self_ns: row.sum("self_ns"),
            method: row.text("method"),
            error_ns: row.integer("error_ns"),
            median_ns: row.integer("median_ns"),
            fan_out: FanOut::read(row),
            without_ns: None,
            record: Err("not asked for".to_owned()),
        })
    }

    /// row 7 of ratings
    fn named(&self) -> String {
        format!("row {} of {}", self.row_id, table_name(&self.table))
    }

    /// The finding in a sentence or two.
    pub(super) fn sentence(&self, header: &Header) -> String {
        let query = duration(header.query_ns());
        let named = self.named();
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
                if header.sample_rate < 1.0 { "traced " } else { "" },
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
                self.latency_sentence(named, without, header)
            ),
            (_, None) => self.latency_sentence(named, without, header),
        }
    }

    /// What expressions over the record took.
    fn latency_sentence(&self, named: &str, without: Option<String>, header: &Header) -> String {
        let Some(without) = without else {
            return format!(
                "R{named} kept a result row waiting for {}, of {} that the query takes.",
                duration(self.impact_ns),
                duration(header.query_ns()),
            );
        };
        match self.anomaly {
            Some(Anomaly::SelfTime) => format!(
                "R{named} took {} of work in sum, {} of all; {without}",
                duration(self.self_ns),
                percent(self.self_ns as f64 / header.busy_ns.max(1) as f64)
            ),
            _ => {
                // A result row waits for the slowest of the tuples that it is made of; what was done
                // for all that the record became adds up.
                let in_sum = match self.self_ns > 2 * self.impact_ns {
                    true => format!(", and took {} of work in sum", duration(self.self_ns)),
                    false => String::new(),
                };
                format!(
                    "R{named} kept a result row waiting for {}{in_sum}; {without}",
                    duration(self.impact_ns)
                )
            }
        }
    }

    fn lines(&self, header: &Header) -> Vec<String> {
        const LABEL: usize = 20;
        const INDENT: usize = 6;
        let mut lines = item("●", &self.sentence(header));
        let mut fact = |label: &str, text: String| {
            lines.push(format!(
                "{}{}{text}",
                " ".repeat(INDENT),
                left(label, LABEL)
            ));
        };
        let record = match &self.record {
            Ok(values) => base_record::line(values, WIDTH - INDENT - LABEL),
            Err(reason) => super::layout::shortened(&format!("({reason})"), WIDTH - INDENT - LABEL),
        };
        fact("the record", record);
        if let Some(rows) = self.result_rows {
            fact("affects", counted(rows, "result row"));
        }
        // They are of expressions, which took little where it is the fan-out.
        let latencies = self.total_ns.zip(self.remediated_ns);
        let is_slow = self.anomaly != Some(Anomaly::FanOut);
        if let Some((total, remediated)) = latencies.filter(|_| is_slow) {
            let rows = match self.result_rows {
                Some(1) => "of that row".to_owned(),
                _ => "of the slowest of these rows".to_owned(),
            };
            fact("total latency", format!("{} {rows}", duration(total)));
            fact(
                "remediated latency",
                format!("{} {rows} without the record", duration(remediated)),
            );
        }
        let median = self.median_ns.filter(|median| *median > 0).map(|median| {
            let factor = times(self.self_ns as f64 / median as f64);
            format!(", {factor} the median record's {}", duration(median))
        });
        if let Some(fan_out) = &self.fan_out {
            let time = duration(fan_out.apportioned_ns);
            fact("time in operators", format!("{time} (apportioned)"));
        }
        if header.has_log() && self.self_ns > 0 {
            let certainty = match (self.error_ns, self.method.as_deref()) {
                (Some(error), Some(method)) => format!(" ± {} ({method})", duration(error)),
                _ => String::new(),
            };
            let self_ns = duration(self.self_ns);
            let median = median.unwrap_or_default();
            fact("self time", format!("{self_ns}{certainty}{median}"));
        }
        lines
    }
}

/// The records that cost most: the anomalous ones first, of them those with a fan-out last, then by impact.
#[derive(Debug, Clone, Default)]
pub(super) struct ExpensiveInputs {
    pub(super) inputs: Vec<ExpensiveInput>,
    /// Nothing that the result was made of has an id.
    pub(super) without_ids: bool,
    /// Rows that an unnest or a join made took much time, and it is not known of which records they are.
    untold: Option<Untold>,
}

impl ExpensiveInputs {
    /// Reads them from schema `sys`, and the records themselves from their tables.
    ///
    /// # Errors
    /// If `sys` cannot be read. A record that cannot be fetched is not an error.
    pub(super) async fn read(inquiry: &mut Inquiry<'_>, header: &Header) -> Result<Self, Error> {
        let mut found = Self::default();
        if !header.has_records() {
            return Ok(found);
        }
        let query_id = header.query_id.to_string();
        let sql = include_str!("sql/expensive_inputs.sql").replace("$query_id", &query_id);
        inquiry
            .write_out(SECTION, "anomaly_candidates", header.query_id)
            .await?;
        let answer = inquiry.ask(SECTION, sql).await?;
        for row in rows(&answer) {
            let unknown = row.text("unknown");
            let unknown = unknown.as_deref().and_then(Untold::from_name);
            found.untold = found.untold.or(unknown);
            found.inputs.extend(ExpensiveInput::read(&row));
        }
        found
            .inputs
            .retain(|input| input.anomaly.is_some() || input.impact_ns > 0);
        let has_rows = header.status == "finished" && header.rows_returned > Some(0);
        if found.inputs.is_empty() && has_rows && header.has_log() && header.sample_rate >= 1.0 {
            let sql = include_str!("sql/has_records.sql").replace("$query_id", &query_id);
            let answer = inquiry.ask(SECTION, sql).await?;
            found.without_ids = rows(&answer).next().is_none();
        }
        for input in &mut found.inputs {
            if input.anomaly.is_some() {
                input.fetch(inquiry, header).await?;
            }
        }
        found.put_worst_fan_out_first();
        Ok(found)
    }

    /// Of the records that are named for their rows alone, the first is the one without which the query is the
    /// shortest: the rows of a join are of records on both sides, and of one there may be others.
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

    /// Those that stand out.
    pub(super) fn anomalous(&self) -> impl Iterator<Item = &ExpensiveInput> {
        self.inputs.iter().filter(|input| input.anomaly.is_some())
    }

    /// The ordinary ones with an impact, by descending impact.
    fn next(&self) -> impl Iterator<Item = &ExpensiveInput> {
        let inputs = self.inputs.iter();
        inputs.filter(|input| input.anomaly.is_none() && input.impact_ns > 0)
    }

    /// Why there is nothing to show, if nothing stands out.
    pub(super) fn verdict(&self, header: &Header) -> Option<String> {
        if !header.has_records() {
            return Some(format!(
                "Not recorded: level {} keeps no latencies of records; EXPLAIN PROFILE (LEVEL \
                 records) names them.",
                header.level
            ));
        }
        if self.anomalous().next().is_some() {
            return None;
        }
        let traced = if header.sample_rate < 1.0 {
            "traced "
        } else {
            ""
        };
        Some(match self.next().next() {
            Some(first) => format!(
                "No {traced}input record stands out: the most expensive, {}, adds {} ({}) to the query.",
                first.named(),
                duration(first.impact_ns),
                percent(first.impact_ns as f64 / header.query_ns().max(1) as f64)
            ),
            None if self.without_ids => {
                "No input record can be named: nothing that the result was \
                 made of has row ids. Rows of tables and Parquet files have; those of CSV and JSON \
                 files, VALUES and table functions have none."
                    .to_owned()
            }
            None => {
                format!("No {traced}input record stands out: no result row waits for a single one.")
            }
        })
    }

    /// That it is not known of which records the rows are that an unnest or a join made, and how to find out.
    pub(super) fn rows_untold(&self, header: &Header) -> Option<String> {
        Some(self.untold?.sentence(header))
    }

    /// The section as text.
    pub(super) fn lines(&self, header: &Header) -> Vec<String> {
        let mut lines = vec![SECTION.to_owned()];
        let untold = self.rows_untold(header).map(|untold| item("·", &untold));
        if let Some(verdict) = self.verdict(header) {
            let is_known = header.has_records() && !self.without_ids;
            let mark = if is_known { "✓" } else { "·" };
            lines.extend(item(mark, &verdict));
            lines.extend(untold.into_iter().flatten());
            return lines;
        }
        for input in self.anomalous() {
            lines.extend(input.lines(header));
        }
        let least = header.query_ns() / NEXT_SHARE;
        let next: Vec<String> = self
            .next()
            .filter(|input| input.impact_ns >= least)
            .map(|input| format!("{} ({})", input.named(), duration(input.impact_ns)))
            .collect();
        if !next.is_empty() {
            lines.extend(item("·", &format!("Next by impact: {}.", next.join(", "))));
        }
        lines.extend(untold.into_iter().flatten());
        lines
    }
}

impl ExpensiveInput {
    /// Asks what the query would take without the record, for the record itself, and for the
    /// result rows made from it where that is not known.
    async fn fetch(&mut self, inquiry: &mut Inquiry<'_>, header: &Header) -> Result<(), Error> {
        let affected = include_str!("sql/affected_rows.sql")
            .replace("$query_id", &header.query_id.to_string())
            .replace("$row_id", &self.row_id.to_string())
            .replace("$table_name", &base_record::literal(&self.table));
        if header.has_log() {
            let records = Records::One(self.row_id);
            let without = query_without(inquiry, SECTION, header, &self.table, records).await?;
            self.without_ns = without.map(|without| without.ns);
        }
        if self.result_rows.is_none() {
            let answer = inquiry.ask(SECTION, affected).await?;
            self.result_rows = rows(&answer).next().map(|row| row.sum("result_rows"));
        }
        if header.imported_from.is_some() {
            self.record = Err("its table is not here".to_owned());
            return Ok(());
        }
        if header.is_replaced(&self.table) {
            self.record = Err("its table has been replaced by another".to_owned());
            return Ok(());
        }
        let sql = base_record::sql(&self.table, self.row_id);
        self.record = match inquiry.ask(SECTION, sql).await {
            Ok(answer) => base_record::values(&answer).ok_or_else(|| {
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
            record: Err("not asked for".to_owned()),
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
