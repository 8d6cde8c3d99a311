//! Expensive records whose tables or rows are gone.

use skewer_sql::quote::literal;

use super::{MeasuredTable, RULE, SECTION};
use crate::error::Error;
use crate::record::table_sql;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;

/// The first of the [`measured_tables`](super::measured_tables) that cannot be read any more.
pub(super) async fn unreadable<'a>(
    statements: &mut Statements<'_>,
    tables: &'a [MeasuredTable],
) -> Option<&'a str> {
    for table in tables {
        let sql = format!("SELECT * FROM {} LIMIT 0", table_sql(&table.name));
        if statements.try_query(SECTION, sql).await.is_none() {
            return Some(&table.name);
        }
    }
    None
}

/// Expensive records whose rows are no longer in their table.
pub(super) struct MissingRows<'a> {
    /// As the log names it.
    pub(super) table: &'a str,
    pub(super) records: i64,
    /// Share of the time of the table's records.
    pub(super) time_share: f64,
}

/// The missing rows of the first of the [`measured_tables`](super::measured_tables) that has any which took much time.
pub(super) async fn missing_rows<'a>(
    statements: &mut Statements<'_>,
    summary: &QuerySummary,
    tables: &'a [MeasuredTable],
) -> Result<Option<MissingRows<'a>>, Error> {
    let all_ns: i64 = tables.iter().map(|table| table.total_ns).sum();
    for table in tables {
        if summary.is_replaced(&table.name) {
            continue;
        }
        let sql = include_str!("../sql/blame_gone.sql")
            .replace("$query_id", &summary.query_id.to_string())
            .replace("$table_name", &literal(&table.name))
            .replace("$table", &table_sql(&table.name))
            .replace("$measured_ns", &all_ns.to_string())
            .replace("$rule", RULE.trim_end());
        let Some(answer) = statements.try_query(SECTION, sql).await else {
            continue;
        };
        if let Some(row) = rows(&answer).next() {
            return Ok(Some(MissingRows {
                table: &table.name,
                records: row.sum("records"),
                time_share: table.share(row.sum("ns")),
            }));
        }
    }
    Ok(None)
}
