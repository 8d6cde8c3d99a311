//! Rows that the query was run without, and how long it takes with them.

use serde_json::{Value, json};

use super::Circumstances;
use super::answer::{Inquiry, rows};
use super::base_record::table_sql;
use super::details::table_name;
use super::header::Header;
use super::layout::item;
use super::units::{NO_DIFFERENCE, count, counted, duration, percent, times};
use crate::error::Error;

const SECTION: &str = "Left out";

/// The rows of a table that fulfil a predicate.
#[derive(Debug, Clone)]
struct Rows {
    table: String,
    predicate: String,
    /// Rows that fulfil it and all rows; `None` if the table cannot be read.
    matched: Option<(i64, i64)>,
}

impl Rows {
    fn are_none(&self) -> bool {
        matches!(self.matched, Some((0, _)))
    }
}

/// What was left out, and the query that ran with it.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOutRows {
    rows: Vec<Rows>,
    with: Option<Header>,
}

impl LeftOutRows {
    /// Counts the rows, and reads how long the query took with them.
    ///
    /// # Errors
    /// If schema `sys` cannot be read.
    pub(super) async fn read(
        inquiry: &mut Inquiry<'_>,
        circumstances: &Circumstances,
    ) -> Result<Self, Error> {
        let mut found = Self::default();
        for left_out in &circumstances.left_out {
            let sql = format!(
                "SELECT count(*) AS all_rows, count(*) FILTER (WHERE {}) AS matched FROM {}",
                left_out.predicate,
                table_sql(&left_out.table)
            );
            let answer = inquiry.ask_if_possible(SECTION, sql).await;
            let matched = answer.as_ref().and_then(|answer| {
                let row = rows(answer).next()?;
                Some((row.sum("matched"), row.sum("all_rows")))
            });
            found.rows.push(Rows {
                table: left_out.table.clone(),
                predicate: left_out.predicate.clone(),
                matched,
            });
        }
        if let Some(with) = circumstances.with {
            found.with = Some(Header::read(inquiry, with).await?);
        }
        Ok(found)
    }

    /// The section as text; nothing if nothing was left out.
    pub(super) fn lines(&self, header: &Header) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![SECTION.to_owned()];
        for left_out in &self.rows {
            let table = table_name(&left_out.table);
            let rows = match left_out.matched {
                Some((matched, all)) => format!(
                    "{} of {} of {table} ({})",
                    counted(matched, "row"),
                    count(all),
                    percent(matched as f64 / all.max(1) as f64)
                ),
                None => format!("rows of {table}"),
            };
            lines.extend(item("◇", &format!("{}: {rows}.", left_out.predicate)));
        }
        lines.extend(
            self.comparison(header)
                .into_iter()
                .flat_map(|sentence| item("◇", &sentence)),
        );
        lines
    }

    /// The time without the rows beside the time with them.
    fn comparison(&self, header: &Header) -> Option<String> {
        let with = self.with.as_ref()?;
        let (own, other) = (header.query_ns(), with.query_ns());
        let factor = other as f64 / own.max(1) as f64;
        let nothing = self.rows.iter().all(Rows::are_none);
        let verdict = match factor {
            // Two runs of one query differ, too.
            _ if nothing => "no row was left out, so the difference is chance".to_owned(),
            _ if factor >= NO_DIFFERENCE => format!("{} as fast", times(factor)),
            _ if factor * NO_DIFFERENCE <= 1.0 => "slower".to_owned(),
            _ => "no difference".to_owned(),
        };
        let mut sentence = format!(
            "The query took {} without, and {} with them (query {}): {verdict}.",
            duration(own),
            duration(other),
            with.query_id
        );
        if with.level != header.level {
            sentence.push_str(&format!(
                " Query {} was recorded at level {}, this one at level {}, which costs time of \
                 its own.",
                with.query_id, with.level, header.level
            ));
        }
        if with.status != "finished" {
            sentence.push_str(&format!(
                " Query {} did not end: {}.",
                with.query_id, with.status
            ));
        }
        Some(sentence)
    }

    /// The section for a program; `null` if nothing was left out.
    pub(super) fn json(&self, header: &Header) -> Value {
        if self.rows.is_empty() {
            return Value::Null;
        }
        let rows = self.rows.iter().map(|left_out| {
            json!({
                "table": left_out.table,
                "predicate": left_out.predicate,
                "rows": left_out.matched.map(|(matched, _)| matched),
                "table_rows": left_out.matched.map(|(_, all)| all),
            })
        });
        json!({
            "rows": rows.collect::<Vec<_>>(),
            "query_ns": header.query_ns(),
            "with_query_id": self.with.as_ref().map(|with| with.query_id),
            "with_query_ns": self.with.as_ref().map(Header::query_ns),
        })
    }
}
