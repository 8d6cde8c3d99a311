//! Quarantines: the ones that left rows out of the query, and one that is worth creating.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::excluded_rows::ExcludedRows;
use crate::expensive_inputs::{ExpensiveInput, ExpensiveInputs};
use crate::operator_text::table_name;
use crate::predicates::Predicates;
use crate::record::table_sql;
use crate::source::Statements;
use crate::summary::QuerySummary;
use crate::units::{NO_DIFFERENCE, duration};
use crate::what_if::{Records, query_without};

/// The section's title.
pub const SECTION: &str = "Quarantine";

/// A quarantine is proposed if it saves so many nanoseconds of the query …
const LEAST_SAVED_NS: i64 = 1_000_000;

/// … and 1 / this of its time.
const LEAST_SAVED_SHARE: i64 = 20;

/// A predicate is proposed if at most 1 / this of the table's rows fulfil it, or a single one: what most queries are to go without
/// must be an exception. A half of a table also takes long where another program had the processor meanwhile.
const MOST_ROWS_SHARE: i64 = 10;

/// A quarantine of a table, as `sys.queries` keeps it of a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableQuarantine {
    /// The table as the log names it: `schema.table`.
    pub table: String,
    /// Its name.
    pub name: String,
    /// SQL over the table's columns, without qualifiers. Rows for which it is true are left out.
    pub predicate: String,
}

impl TableQuarantine {
    /// The quarantines that the text of `sys.queries.quarantines` names.
    pub fn parse(text: &str) -> Vec<Self> {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The text of `sys.queries.quarantines`; `None` without quarantines.
    pub fn text(quarantines: &[Self]) -> Option<String> {
        match quarantines.is_empty() {
            true => None,
            false => serde_json::to_string(quarantines).ok(),
        }
    }
}

/// The query's time without the rows of a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// Nanoseconds of the query without the rows.
    pub without_ns: i64,
    /// Nanoseconds of the query with them.
    pub with_ns: i64,
    /// The query that ran with them, if both times were measured; `None` for an estimate.
    pub measured_against: Option<i64>,
}

impl Gain {
    /// Whether it is worth a quarantine.
    fn is_notable(self) -> bool {
        let saved = self.with_ns - self.without_ns;
        saved >= LEAST_SAVED_NS && saved >= self.with_ns / LEAST_SAVED_SHARE
    }
}

/// A quarantine that keeps the expensive rows of a table out of queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineProposal {
    /// The table as the log names it.
    pub table: String,
    /// Which of its rows.
    pub predicate: String,
    /// Its name, if the table has a quarantine with this predicate already.
    pub existing: Option<String>,
    /// Statements that leave the rows out of later queries of the session. Each runs as it stands.
    pub statements: Vec<String>,
    /// The statement that drops the quarantine; `None` if it exists already.
    pub undo: Option<String>,
    /// What the query gains.
    pub gain: Gain,
}

impl QuarantineProposal {
    /// Proposes a quarantine: of the rows that `WITHOUT` left out, if the query was faster without
    /// them; else of the best predicate; else of the records that stand out.
    ///
    /// # Errors
    /// If schema `sys` cannot be read.
    pub(crate) async fn read(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
        excluded: &ExcludedRows,
        inputs: &ExpensiveInputs,
        predicates: &Predicates,
    ) -> Result<Option<Self>, Error> {
        if summary.imported_from.is_some() {
            return Ok(None);
        }
        let measured = measured(summary, excluded);
        if let Some((table, predicate, gain)) = measured
            && let Some(proposal) = Self::of_rows(statements, summary, table, predicate, gain)
        {
            return Ok(Some(proposal));
        }
        if !summary.is_query() {
            return Ok(None);
        }
        let exceptions = predicates.found.iter();
        let exceptions =
            exceptions.filter(|found| found.matched <= (found.table_rows / MOST_ROWS_SHARE).max(1));
        for found in exceptions {
            let Some(without_ns) = found.without_ns else {
                continue;
            };
            let gain = estimated(summary, without_ns);
            let proposal = Self::of_rows(statements, summary, &found.table, &found.predicate, gain);
            if proposal.is_some() {
                return Ok(proposal);
            }
        }
        let is_there = |input: &&ExpensiveInput| input.record.is_ok();
        let Some(first) = inputs.anomalous().find(is_there) else {
            return Ok(None);
        };
        let alike = inputs.anomalous().filter(is_there);
        let alike = alike.filter(|input| input.table == first.table);
        let row_ids: Vec<i64> = alike.map(|input| input.row_id).collect();
        let (predicate, without_ns) = match row_ids.as_slice() {
            [only] => (format!("_row_id = {only}"), first.without_ns),
            several => {
                let records = Records::Several(several);
                let without = query_without(statements, SECTION, summary, &first.table, records);
                (
                    records.predicate(),
                    without.await?.map(|without| without.ns),
                )
            }
        };
        Ok(without_ns.and_then(|without_ns| {
            let gain = estimated(summary, without_ns);
            Self::of_rows(statements, summary, &first.table, &predicate, gain)
        }))
    }

    /// `None` if the gain is small, the table can have no quarantine, or these rows are left out
    /// already.
    fn of_rows(
        statements: &Statements<'_>,
        summary: &QuerySummary,
        table: &str,
        predicate: &str,
        gain: Gain,
    ) -> Option<Self> {
        let is_left_out = summary
            .quarantines
            .iter()
            .any(|applied| applied.table == table && applied.predicate == predicate);
        if !gain.is_notable() || is_left_out || summary.is_replaced(table) {
            return None;
        }
        let others = statements.source().quarantines_of(table)?;
        let on = table_sql(table);
        let switch = "SET quarantine = 'on';".to_owned();
        let existing = others.iter().find(|other| other.predicate == predicate);
        let existing = existing.map(|other| other.name.clone());
        // The name that CREATE QUARANTINE gives by itself is free in a table without others.
        let name = format!(
            "{}_quarantine_{}",
            table.rsplit('.').next()?,
            others.len() + 1
        );
        let name = skewer_sql::quote::identifier(&name);
        let (created, undo) = match (&existing, others.is_empty()) {
            (Some(_), _) => (None, None),
            (None, true) => (
                Some(format!("CREATE QUARANTINE ON {on} WHERE ({predicate});")),
                Some(format!("DROP QUARANTINE ON {on};")),
            ),
            (None, false) => (
                Some(format!(
                    "CREATE QUARANTINE {name} ON {on} WHERE ({predicate});"
                )),
                Some(format!("DROP QUARANTINE {name} ON {on};")),
            ),
        };
        Some(Self {
            table: table.to_owned(),
            predicate: predicate.to_owned(),
            existing,
            statements: created.into_iter().chain([switch]).collect(),
            undo,
            gain,
        })
    }

    /// What the query gains, in one or two sentences.
    pub fn gain_sentence(&self) -> String {
        let Gain {
            without_ns,
            with_ns,
            measured_against,
        } = self.gain;
        let (without, with) = (duration(without_ns), duration(with_ns));
        let rows = format!(
            "Queries can leave out the rows of {} where {}: without them",
            table_name(&self.table),
            self.predicate
        );
        let mut sentence = match measured_against {
            Some(query_id) => format!(
                "{rows} this query took {without} instead of {with}, as measured against query {query_id}."
            ),
            None => format!(
                "{rows} this query takes about {without} instead of {with}. That is an estimate, which \
                 EXPLAIN PROFILE … WITHOUT measures."
            ),
        };
        if let Some(name) = &self.existing {
            sentence.push_str(&format!(" Quarantine {name} has them already."));
        }
        sentence
    }

    /// How to take it back, in one sentence.
    pub fn undo_sentence(&self) -> String {
        let show = "No row is deleted: SET quarantine = 'off' shows them again";
        match &self.undo {
            Some(undo) => format!(
                "{show}, and {} drops the quarantine.",
                undo.trim_end_matches(';')
            ),
            None => format!("{show}."),
        }
    }
}

/// The rows that `WITHOUT` left out, and what that gained, if it left out the rows of one predicate.
fn measured<'a>(
    summary: &QuerySummary,
    excluded: &'a ExcludedRows,
) -> Option<(&'a str, &'a str, Gain)> {
    let baseline = excluded.baseline.as_ref()?;
    let [only] = excluded.predicates.as_slice() else {
        return None;
    };
    let has_rows = !matches!(only.matched, Some((0, _)));
    let gain = Gain {
        without_ns: summary.query_ns(),
        with_ns: baseline.query_ns(),
        measured_against: Some(baseline.query_id),
    };
    let factor = gain.with_ns as f64 / gain.without_ns.max(1) as f64;
    let comparable = baseline.status == "finished"
        && summary.status == "finished"
        && baseline.level == summary.level;
    (comparable && has_rows && factor >= NO_DIFFERENCE).then_some((
        &*only.rows.table,
        &*only.rows.predicate,
        gain,
    ))
}

fn estimated(summary: &QuerySummary, without_ns: i64) -> Gain {
    Gain {
        without_ns,
        with_ns: summary.query_ns(),
        measured_against: None,
    }
}
