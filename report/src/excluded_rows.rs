//! The section about rows that `WITHOUT` or quarantines left out.

use serde_json::{Value, json};
use skewer_diagnosis::operator_text::table_name;
use skewer_diagnosis::units::{count, counted, percent};
use skewer_diagnosis::{ExcludedRows, QuerySummary, excluded_rows};

use crate::document::{Document, Mark};

/// The section; empty if nothing was left out.
pub(crate) fn section(excluded: &ExcludedRows, summary: &QuerySummary) -> Document {
    if excluded.predicates.is_empty() && excluded.quarantines.is_empty() {
        return Document::default();
    }
    let mut section = Document::titled(excluded_rows::SECTION);
    for excluded in &excluded.quarantines {
        let quarantine = &excluded.quarantine;
        let rows = rows(&quarantine.table, excluded.matched);
        let item = format!(
            "Quarantine {}, {}: {rows}.",
            quarantine.name, quarantine.predicate
        );
        section.push_item(Mark::Excluded, &item);
    }
    for excluded in &excluded.predicates {
        let rows = rows(&excluded.rows.table, excluded.matched);
        let item = format!("{}: {rows}.", excluded.rows.predicate);
        section.push_item(Mark::Excluded, &item);
    }
    if let Some(comparison) = excluded.comparison(summary) {
        section.push_item(Mark::Excluded, &comparison);
    }
    section
}

/// How many rows of a table.
fn rows(table: &str, matched: Option<(i64, i64)>) -> String {
    let table = table_name(table);
    match matched {
        Some((matched, all)) => format!(
            "{} of {} of {table} ({})",
            counted(matched, "row"),
            count(all),
            percent(matched as f64 / all.max(1) as f64)
        ),
        None => format!("rows of {table}"),
    }
}

/// The quarantines for a program, without the rows of `WITHOUT`.
pub(crate) fn quarantined_json(excluded: &ExcludedRows) -> Value {
    let quarantines = excluded.quarantines.iter();
    quarantines
        .map(|excluded| {
            json!({
                "table": excluded.quarantine.table,
                "name": excluded.quarantine.name,
                "predicate": excluded.quarantine.predicate,
                "rows": excluded.matched.map(|(matched, _)| matched),
                "table_rows": excluded.matched.map(|(_, all)| all),
            })
        })
        .collect()
}

/// What `WITHOUT` left out, for a program; `null` if it left out nothing.
pub(crate) fn json(excluded: &ExcludedRows, summary: &QuerySummary) -> Value {
    if excluded.predicates.is_empty() {
        return Value::Null;
    }
    let rows = excluded.predicates.iter().map(|excluded| {
        json!({
            "table": excluded.rows.table,
            "predicate": excluded.rows.predicate,
            "rows": excluded.matched.map(|(matched, _)| matched),
            "table_rows": excluded.matched.map(|(_, all)| all),
        })
    });
    let baseline = excluded.baseline.as_ref();
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "query_ns": summary.query_ns(),
        "with_query_id": baseline.map(|baseline| baseline.query_id),
        "with_query_ns": baseline.map(QuerySummary::query_ns),
    })
}
