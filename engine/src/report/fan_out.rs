//! Records that an unnest or a join made so many rows of that these took much of the query's time. No
//! expression need have taken long for one: the time is that of operators which are not timed record
//! by record.

use std::collections::HashMap;

use super::answer::{Inquiry, rows};
use super::header::Header;
use crate::error::Error;

/// A record stands out if its rows took at least one part in so many of the query's time, and of all
/// operators' self time …
const NOTABLE_PART: i64 = 20;

/// … and so many nanoseconds.
const NOTABLE_NS: i64 = 1_000_000;

/// What became of a record.
#[derive(Debug, Clone)]
pub(super) struct FanOut {
    pub(super) table: String,
    pub(super) row_id: i64,
    /// Rows that descend from it, and from all records of its table that were traced.
    pub(super) rows: i64,
    pub(super) table_rows: i64,
    /// What operators that are not timed record by record spent on these rows.
    pub(super) apportioned_ns: i64,
}

/// The records that stand out, the dearest first: at most one of each scan.
///
/// # Errors
/// If schema `sys` cannot be read.
pub(super) async fn found(
    inquiry: &mut Inquiry<'_>,
    section: &'static str,
    header: &Header,
) -> Result<Vec<FanOut>, Error> {
    if !header.has_log() {
        return Ok(Vec::new());
    }
    let query_id = header.query_id.to_string();
    let parts = [header.query_ns(), header.busy_ns].map(|ns| ns / NOTABLE_PART);
    let least_ns = parts.into_iter().fold(NOTABLE_NS, i64::max);
    let sql = include_str!("sql/multiplied_rows.sql").replace("$query_id", &query_id);
    let answer = inquiry.ask(section, sql).await?;
    let scans = rows(&answer).map(|row| (row.sum("scan_id"), row.sum("busy_ns")));
    let scans: HashMap<i64, i64> = scans.filter(|(_, busy_ns)| *busy_ns >= least_ns).collect();
    if scans.is_empty() {
        return Ok(Vec::new());
    }
    let mut ids: Vec<i64> = scans.keys().copied().collect();
    ids.sort_unstable();
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    let rate = header.sample_rate;
    let traced = match rate < 1.0 {
        true => format!("is_sampled(row_id, CAST({rate} AS DOUBLE))"),
        false => "true".to_owned(),
    };
    let sql = include_str!("sql/most_multiplied.sql")
        .replace("$query_id", &query_id)
        .replace("$scans", &ids.join(", "))
        .replace("$traced", &traced);
    // A log of many millions of records may not fit into the memory that there is.
    let Some(most) = inquiry.ask_if_possible(section, sql).await else {
        return Ok(Vec::new());
    };
    let mut found: Vec<FanOut> = Vec::new();
    for row in rows(&most) {
        let (Some(table), Some(row_id)) = (row.text("table_name"), row.integer("row_id")) else {
            continue;
        };
        let (own, all) = (row.sum("rows"), row.sum("table_rows"));
        let busy_ns = scans.get(&row.sum("scan_id")).copied().unwrap_or(0);
        let apportioned_ns = busy_ns as f64 * rate * own as f64 / all.max(1) as f64;
        let fan_out = FanOut {
            table,
            row_id,
            rows: own,
            table_rows: all,
            apportioned_ns: apportioned_ns as i64,
        };
        let is_known = |known: &FanOut| (&known.table, known.row_id) == (&fan_out.table, row_id);
        if fan_out.apportioned_ns >= least_ns && !found.iter().any(is_known) {
            found.push(fan_out);
        }
    }
    found.sort_by_key(|fan_out| std::cmp::Reverse(fan_out.apportioned_ns));
    Ok(found)
}
