//! Records that an unnest or a join made so many rows of that these took much of the query's time. No
//! expression need have taken long for one: the time is that of operators which are not timed record
//! by record.

use std::collections::{HashMap, HashSet};

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

/// What is known of the rows of a scan from where they are multiplied.
#[derive(Debug, Clone, Copy)]
struct Multiplied {
    /// The most that an operator returned.
    rows: i64,
    /// What operators there took for them.
    busy_ns: i64,
}

impl Multiplied {
    /// A record that so many of all edges are to, of those that were traced.
    fn fan_out(self, table: String, row_id: i64, (own, all): (i64, i64), rate: f64) -> FanOut {
        // Those that were not traced count as the others that were.
        let untraced = (all - own) as f64 / rate;
        let share = own as f64 / (own as f64 + untraced).max(1.0);
        // A frame of a window, or a set of ROLLUP, has edges of its own to a row.
        let edges_a_row = (all as f64 / self.rows.max(1) as f64).max(1.0);
        let rows = |edges: i64| (edges as f64 / edges_a_row).round() as i64;
        FanOut {
            table,
            row_id,
            rows: rows(own),
            table_rows: rows(all),
            apportioned_ns: (share * self.busy_ns as f64) as i64,
        }
    }
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
    let scans = rows(&answer).map(|row| {
        let multiplied = Multiplied {
            rows: row.sum("rows"),
            busy_ns: row.sum("busy_ns"),
        };
        (row.sum("scan_id"), multiplied)
    });
    let worth_it = |(_, scan): &(i64, Multiplied)| scan.busy_ns >= least_ns;
    let scans: HashMap<i64, Multiplied> = scans.filter(worth_it).collect();
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
        let Some(scan) = scans.get(&row.sum("scan_id")) else {
            continue;
        };
        let edges = (row.sum("rows"), row.sum("table_rows"));
        let fan_out = scan.fan_out(table, row_id, edges, rate);
        if fan_out.apportioned_ns >= least_ns {
            found.push(fan_out);
        }
    }
    found.sort_by_key(|fan_out| std::cmp::Reverse(fan_out.apportioned_ns));
    // Of a record that two scans read, the dearer one.
    let mut known = HashSet::new();
    found.retain(|fan_out| known.insert((fan_out.table.clone(), fan_out.row_id)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::Multiplied;

    #[test]
    fn rows_are_no_more_than_there_were_and_untraced_ones_took_their_time() {
        let scan = Multiplied {
            rows: 1_000,
            busy_ns: 9_000,
        };
        let of = |edges, rate| {
            let fan_out = scan.fan_out("t".to_owned(), 7, edges, rate);
            (fan_out.rows, fan_out.table_rows, fan_out.apportioned_ns)
        };
        assert_eq!(of((900, 1_000), 1.0), (900, 1_000, 8_100));
        // Three edges to each row, as of frames.
        assert_eq!(of((2_700, 3_000), 1.0), (900, 1_000, 8_100));
        // A tenth of the others is traced: 50 of 500.
        assert_eq!(of((500, 550), 0.1), (500, 550, 4_500));
        assert_eq!(of((0, 0), 0.5), (0, 0, 0));
    }
}
