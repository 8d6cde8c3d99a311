//! Records that an unnest or a join made so many rows of that these took much of the query's time. No
//! expression need have taken long for one: the time is that of operators which are not timed record
//! by record.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::answer::{Inquiry, rows};
use super::header::Header;
use crate::error::Error;

/// A record stands out if its rows took at least one part in so many of the query's time, and of all
/// operators' self time …
const NOTABLE_PART: i64 = 20;

/// … and so many nanoseconds.
const NOTABLE_NS: i64 = 1_000_000;

/// Rows are left out, as by LIMIT, if fewer than one in so many arrive where lineage is kept.
const LEFT_OUT: i64 = 10;

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
    /// Those that arrived where lineage is kept.
    arriving: i64,
    /// What operators there took for them.
    busy_ns: i64,
}

/// The record from which most of the rows descend that arrived, of those that were traced.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// Edges to it, and to all records of its table.
    edges: i64,
    table_edges: i64,
    /// How many records have any.
    records: i64,
}

impl Most {
    /// Edges to all records if those that were not traced have as many as the others that were.
    fn likely_edges(self, rate: f64) -> f64 {
        self.edges as f64 + (self.table_edges - self.edges) as f64 / rate
    }
}

impl Multiplied {
    /// Whether that record is one of its own kind.
    fn stands_out(self, most: Most, rate: f64) -> bool {
        match most.records {
            // Of the others is known only that theirs is the rest of the rows.
            1 => rate < 1.0 && most.edges < self.arriving && 2 * most.edges >= self.arriving,
            records => most.edges * (records - 1) >= 10 * (most.table_edges - most.edges),
        }
    }

    /// What became of it.
    fn fan_out(self, table: String, row_id: i64, most: Most, rate: f64) -> FanOut {
        let edges = most.likely_edges(rate).max(self.arriving as f64).max(1.0);
        // A frame of a window, or a set of ROLLUP, has edges of its own to a row.
        let edges_a_row = most.likely_edges(rate) / self.arriving.max(1) as f64;
        let rows = |edges: i64| (edges as f64 / edges_a_row.max(1.0)).round() as i64;
        FanOut {
            table,
            row_id,
            rows: rows(most.edges),
            table_rows: rows(most.table_edges),
            apportioned_ns: (most.edges as f64 / edges * self.busy_ns as f64) as i64,
        }
    }

    /// Why it is not known which records most of the rows descend from, if it is not. Without an edge, records
    /// may have no ids.
    fn untold(self, most: Option<Most>, rate: f64) -> Option<Untold> {
        if self.arriving < self.rows / LEFT_OUT {
            return Some(Untold::LeftOut);
        }
        let known = most?.likely_edges(rate);
        (rate < 1.0 && 2.0 * known < self.arriving as f64).then_some(Untold::Sampled)
    }
}

/// What is said of the rows that an unnest or a join made.
#[derive(Debug, Clone, Default)]
pub(super) struct FanOuts {
    /// The records that stand out, the dearest first: at most one of each scan.
    pub(super) found: Vec<FanOut>,
    /// Why it is not known of other rows, which took much time, too, whose they are.
    pub(super) untold: Option<Untold>,
}

/// Why it is not known which records rows descend from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untold {
    /// No log was kept.
    NoLog,
    /// Of records that were not traced, it seems.
    Sampled,
    /// They could not be counted.
    Uncounted,
    /// Most of them were left out, as by LIMIT, before lineage was kept.
    LeftOut,
}

/// The records that stand out.
///
/// # Errors
/// If schema `sys` cannot be read.
pub(super) async fn found(
    inquiry: &mut Inquiry<'_>,
    section: &'static str,
    header: &Header,
) -> Result<FanOuts, Error> {
    let query_id = header.query_id.to_string();
    let parts = [header.query_ns(), header.busy_ns].map(|ns| ns / NOTABLE_PART);
    let least_ns = parts.into_iter().fold(NOTABLE_NS, i64::max);
    let sql = include_str!("sql/multiplied_rows.sql").replace("$query_id", &query_id);
    let answer = inquiry.ask(section, sql).await?;
    let scans = rows(&answer).map(|row| {
        let multiplied = Multiplied {
            rows: row.sum("rows"),
            arriving: row.sum("arriving"),
            busy_ns: row.sum("busy_ns"),
        };
        (row.sum("scan_id"), multiplied)
    });
    let worth_it = |(_, scan): &(i64, Multiplied)| scan.busy_ns >= least_ns;
    let scans: BTreeMap<i64, Multiplied> = scans.filter(worth_it).collect();
    if scans.is_empty() {
        return Ok(FanOuts::default());
    }
    let nothing_since = |untold| FanOuts {
        untold: Some(untold),
        ..FanOuts::default()
    };
    if !header.has_log() {
        return Ok(nothing_since(Untold::NoLog));
    }
    let ids: Vec<String> = scans.keys().map(i64::to_string).collect();
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
    let Some(answer) = inquiry.ask_if_possible(section, sql).await else {
        return Ok(nothing_since(Untold::Uncounted));
    };
    let mut found: Vec<FanOut> = Vec::new();
    let mut judged: HashMap<i64, Most> = HashMap::new();
    let mut told: HashSet<i64> = HashSet::new();
    for row in rows(&answer) {
        let (Some(table), Some(row_id)) = (row.text("table_name"), row.integer("row_id")) else {
            continue;
        };
        let scan_id = row.sum("scan_id");
        let Some(scan) = scans.get(&scan_id) else {
            continue;
        };
        let most = Most {
            edges: row.sum("rows"),
            table_edges: row.sum("table_rows"),
            records: row.sum("records"),
        };
        judged.entry(scan_id).or_insert(most);
        let fan_out = scan.fan_out(table, row_id, most, rate);
        if scan.stands_out(most, rate) && fan_out.apportioned_ns >= least_ns {
            found.push(fan_out);
            told.insert(scan_id);
        }
    }
    found.sort_by_key(|fan_out| std::cmp::Reverse(fan_out.apportioned_ns));
    // Of a record that two scans read, the dearer one.
    let mut known = HashSet::new();
    found.retain(|fan_out| known.insert((fan_out.table.clone(), fan_out.row_id)));
    let mut others = scans.iter().filter(|(id, _)| !told.contains(*id));
    let untold = match header.is_whole() {
        true => others.find_map(|(id, scan)| scan.untold(judged.get(id).copied(), rate)),
        false => None,
    };
    Ok(FanOuts { found, untold })
}

#[cfg(test)]
mod tests {
    use super::{Most, Multiplied, Untold};

    const SCAN: Multiplied = Multiplied {
        rows: 2_000,
        arriving: 1_000,
        busy_ns: 9_000,
    };

    fn most(edges: i64, table_edges: i64, records: i64) -> Most {
        Most {
            edges,
            table_edges,
            records,
        }
    }

    #[test]
    fn rows_are_no_more_than_there_were_and_untraced_ones_took_their_time() {
        let of = |edges, table_edges, rate| {
            let most = most(edges, table_edges, 50);
            let fan_out = SCAN.fan_out("t".to_owned(), 7, most, rate);
            (fan_out.rows, fan_out.table_rows, fan_out.apportioned_ns)
        };
        assert_eq!(of(900, 1_000, 1.0), (900, 1_000, 8_100));
        // Three edges to each row, as of frames.
        assert_eq!(of(2_700, 3_000, 1.0), (900, 1_000, 8_100));
        // A tenth of the others is traced: 50 of 500.
        assert_eq!(of(500, 550, 0.1), (500, 550, 4_500));
        // The other rows are there, whoever made them.
        assert_eq!(of(200, 200, 0.1), (200, 200, 1_800));
        assert_eq!(of(0, 0, 0.5), (0, 0, 0));
    }

    #[test]
    fn a_record_stands_out_among_the_others() {
        let is = |edges, table_edges, records, rate| {
            SCAN.stands_out(most(edges, table_edges, records), rate)
        };
        assert!(is(500, 1_000, 11, 1.0));
        assert!(!is(500, 1_001, 11, 1.0));
        // It alone was asked for, or traced.
        assert!(!is(1_000, 1_000, 1, 1.0));
        assert!(!is(1_000, 1_000, 1, 0.1));
        assert!(is(500, 500, 1, 0.1));
        assert!(!is(499, 499, 1, 0.1));
    }

    #[test]
    fn rows_are_missing_that_were_left_out_or_descend_from_records_that_were_not_traced() {
        let one = |edges| Some(most(edges, edges, 1));
        assert_eq!(SCAN.untold(None, 1.0), None);
        assert_eq!(SCAN.untold(one(10), 1.0), None);
        assert_eq!(SCAN.untold(one(499), 0.1), Some(Untold::Sampled));
        assert_eq!(SCAN.untold(one(500), 0.1), None);
        // 4 rows of one, and 490 or 500 of the others.
        let others = Some(most(4, 53, 20));
        assert_eq!(SCAN.untold(others, 0.1), Some(Untold::Sampled));
        assert_eq!(SCAN.untold(Some(most(4, 54, 20)), 0.1), None);
        let few = |arriving| Multiplied { arriving, ..SCAN };
        assert_eq!(few(199).untold(None, 1.0), Some(Untold::LeftOut));
        assert_eq!(few(200).untold(None, 1.0), None);
    }
}
