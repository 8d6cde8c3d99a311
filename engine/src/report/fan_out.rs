//! Records that an unnest or a join made so many rows of that these took much of the query's time. No
//! expression need have taken long for one: the time is that of operators which are not timed record
//! by record.

use std::collections::{BTreeMap, HashSet};

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

/// Records that are named of each scan, where its rows arrive, at most.
const NAMED: usize = 3;

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

/// The rows that arrived of a scan at one place, by the traced records from which they descend.
#[derive(Debug, Clone, Default)]
struct Descendants {
    /// Records from which many descend, and how many edges there are to each; most first.
    many: Vec<(i64, i64)>,
    /// Edges to the other records, how many these are, and the most edges to one.
    other_edges: i64,
    others: i64,
    most_of_others: i64,
}

impl Descendants {
    /// Edges to all records.
    fn edges(&self) -> i64 {
        self.many.iter().map(|(_, edges)| edges).sum::<i64>() + self.other_edges
    }

    /// How many of the records stand out among those after them.
    fn standing_out(&self, scan: Multiplied, rate: f64) -> usize {
        let mut left = self.edges();
        let mut records = self.many.len() as i64 + self.others;
        let stands_out = |(_, edges): &&(i64, i64)| {
            let most = Most {
                edges: *edges,
                table_edges: left,
                records,
            };
            left -= edges;
            records -= 1;
            scan.stands_out(most, rate)
        };
        self.many.iter().take_while(stands_out).count()
    }

    /// Edges to all records if those that were not traced have as many as those that were, but for the first
    /// `standing_out`.
    fn likely_edges(&self, standing_out: usize, rate: f64) -> f64 {
        let edges = self.many[..standing_out].iter().map(|(_, edges)| edges);
        let edges: i64 = edges.sum();
        edges as f64 + (self.edges() - edges) as f64 / rate
    }

    /// The same if no record but the first is one of its own kind.
    fn likely_edges_but_for_the_first(&self, rate: f64) -> f64 {
        let first = self.many.first();
        let first = first.map_or(self.most_of_others, |(_, edges)| *edges);
        first as f64 + (self.edges() - first) as f64 / rate
    }
}

/// The record from which most of the rows descend, of some.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// Edges to it, and to all of them.
    edges: i64,
    table_edges: i64,
    /// How many records have any.
    records: i64,
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

    /// How many rows have to descend from a record so that they took so much time.
    fn many(self, least_ns: i64) -> i64 {
        let share = least_ns as f64 / self.busy_ns.max(1) as f64;
        (share * self.arriving as f64) as i64
    }

    /// What became of the records that stand out, the first of them.
    fn fan_outs(self, table: &str, of: &Descendants, rate: f64) -> Vec<FanOut> {
        let standing_out = of.standing_out(self, rate);
        let likely = of.likely_edges(standing_out, rate);
        let all = likely.max(self.arriving as f64).max(1.0);
        // A frame of a window, or a set of ROLLUP, has edges of its own to a row. Of how many there are of
        // records that were not traced little is known.
        let least = if rate < 1.0 { 1.5 } else { 1.0 };
        let edges_a_row =
            Some(likely / self.arriving.max(1) as f64).filter(|edges| *edges >= least);
        let rows = |edges: i64| (edges as f64 / edges_a_row.unwrap_or(1.0)).round() as i64;
        let first = of.many.iter().take(standing_out.min(NAMED));
        let fan_outs = first.map(|(row_id, edges)| FanOut {
            table: table.to_owned(),
            row_id: *row_id,
            rows: rows(*edges),
            table_rows: rows(of.edges()),
            apportioned_ns: (*edges as f64 / all * self.busy_ns as f64) as i64,
        });
        fan_outs.collect()
    }

    /// Why it is not known which records most of the rows descend from, if it is not.
    fn untold(self, of: Option<&Descendants>, rate: f64) -> Option<Untold> {
        let left_out = (self.arriving < self.rows / LEFT_OUT).then_some(Untold::LeftOut);
        let Some(of) = of else {
            // Of rows without lineage few leave an aggregate, too; of those left the records may not be traced.
            let is_likely = self.arriving == 0 || rate < 1.0;
            return left_out.filter(|_| is_likely).or(Some(Untold::NoLineage));
        };
        if left_out.is_some() {
            return left_out;
        }
        let known = of.likely_edges_but_for_the_first(rate);
        (rate < 1.0 && 2.0 * known < self.arriving as f64).then_some(Untold::Sampled)
    }
}

/// What is said of the rows that an unnest or a join made.
#[derive(Debug, Clone, Default)]
pub(super) struct FanOuts {
    /// The records that stand out, the dearest first: at most three of those that arrive at one place.
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
    /// There is not one edge to them: their table has no row ids, or they are rows of values that a subquery is
    /// asked for.
    NoLineage,
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
    let rate = header.sample_rate;
    let traced = match rate < 1.0 {
        true => format!("is_sampled(row_id, CAST({rate} AS DOUBLE))"),
        false => "true".to_owned(),
    };
    let ids: Vec<String> = scans.keys().map(i64::to_string).collect();
    let many = scans.iter().map(|(id, scan)| {
        let many = scan.many(least_ns).max(1);
        format!("WHEN {id} THEN {many}")
    });
    let sql = include_str!("sql/most_multiplied.sql")
        .replace("$query_id", &query_id)
        .replace("$scans", &ids.join(", "))
        .replace("$many", &many.collect::<Vec<_>>().join(" "))
        .replace("$traced", &traced);
    // A log of many millions of records may not fit into the memory that there is.
    let Some(answer) = inquiry.ask_if_possible(section, sql).await else {
        return Ok(nothing_since(Untold::Uncounted));
    };
    let mut arrived: BTreeMap<(i64, Option<i64>, String), Descendants> = BTreeMap::new();
    for row in rows(&answer) {
        let Some(table) = row.text("table_name") else {
            continue;
        };
        let place = (row.sum("scan_id"), row.integer("consumer_id"), table);
        let of = arrived.entry(place).or_default();
        match row.integer("row_id") {
            Some(row_id) => of.many.push((row_id, row.sum("rows"))),
            None => {
                of.other_edges = row.sum("rows");
                of.others = row.sum("records");
                of.most_of_others = row.sum("most");
            }
        }
    }
    let mut found: Vec<FanOut> = Vec::new();
    let mut told: HashSet<i64> = HashSet::new();
    for ((scan_id, _, table), of) in &arrived {
        let fan_outs = scans[scan_id].fan_outs(table, of, rate).into_iter();
        for fan_out in fan_outs.filter(|fan_out| fan_out.apportioned_ns >= least_ns) {
            found.push(fan_out);
            told.insert(*scan_id);
        }
    }
    found.sort_by_key(|fan_out| std::cmp::Reverse(fan_out.apportioned_ns));
    // Of a record that two scans read, the dearer one.
    let mut known = HashSet::new();
    found.retain(|fan_out| known.insert((fan_out.table.clone(), fan_out.row_id)));
    let mut others = scans.iter().filter(|(id, _)| !told.contains(*id));
    let arrived_of = |scan_id| {
        let places = arrived.iter().filter(|((id, _, _), _)| *id == scan_id);
        places.map(|(_, of)| of).max_by_key(|of| of.edges())
    };
    let untold = match header.is_whole() {
        true => others.find_map(|(id, scan)| scan.untold(arrived_of(*id), rate)),
        false => None,
    };
    Ok(FanOuts { found, untold })
}

#[cfg(test)]
mod tests {
    use super::{Descendants, Most, Multiplied, Untold};

    const SCAN: Multiplied = Multiplied {
        rows: 2_000,
        arriving: 1_000,
        busy_ns: 9_000,
    };

    /// Records with so many edges, and so many others with so many edges together.
    fn descendants(many: &[i64], others: i64, other_edges: i64) -> Descendants {
        Descendants {
            many: (7..).zip(many.iter().copied()).collect(),
            other_edges,
            others,
            most_of_others: 1,
        }
    }

    #[test]
    fn rows_are_no_more_than_there_were_and_untraced_ones_took_their_time() {
        let of = |many: &[i64], other_edges, rate| {
            let of = descendants(many, 49, other_edges);
            let fan_outs = SCAN.fan_outs("t", &of, rate).into_iter();
            let found = fan_outs.map(|it| (it.row_id, it.rows, it.table_rows, it.apportioned_ns));
            found.collect::<Vec<_>>()
        };
        assert_eq!(of(&[900], 80, 1.0), [(7, 900, 980, 8_100)]);
        // Three edges to each row, as of frames.
        assert_eq!(of(&[2_760], 240, 1.0), [(7, 920, 1_000, 8_280)]);
        // A tenth of the others is traced: 50 of 500.
        assert_eq!(of(&[500], 50, 0.1), [(7, 500, 550, 4_500)]);
        // The other rows are there, whoever made them.
        assert_eq!(of(&[200], 0, 0.1), [(7, 200, 200, 1_800)]);
        // Those that stand out are not many more because they were traced.
        assert_eq!(
            of(&[400, 300, 250], 5, 0.1),
            [
                (7, 400, 955, 3_600),
                (8, 300, 955, 2_700),
                (9, 250, 955, 2_250)
            ]
        );
        // Of others that were not traced there seem to be a few too many.
        assert_eq!(of(&[900], 11, 0.1), [(7, 900, 911, 8_019)]);
        assert_eq!(of(&[], 0, 0.5), []);
    }

    #[test]
    fn a_record_stands_out_among_the_others() {
        let is = |edges, table_edges, records, rate| {
            let most = Most {
                edges,
                table_edges,
                records,
            };
            SCAN.stands_out(most, rate)
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
    fn records_stand_out_among_those_after_them() {
        let count = |many: &[i64], others, other_edges| {
            descendants(many, others, other_edges).standing_out(SCAN, 1.0)
        };
        assert_eq!(count(&[500, 400, 20], 97, 97), 3);
        assert_eq!(count(&[500, 400, 9], 97, 97), 2);
        // Half of the table each: neither.
        assert_eq!(count(&[500, 500], 0, 0), 0);
        // Five of a hundred alike.
        assert_eq!(count(&[200; 5], 95, 95), 5);
        assert_eq!(count(&[], 95, 95), 0);
    }

    #[test]
    fn many_are_as_many_as_took_the_least_time() {
        assert_eq!(SCAN.many(900), 100);
        assert_eq!(SCAN.many(0), 0);
    }

    #[test]
    fn rows_are_missing_that_were_left_out_or_descend_from_records_that_were_not_traced() {
        let untold = |many: &[i64], others, other_edges, rate| {
            SCAN.untold(Some(&descendants(many, others, other_edges)), rate)
        };
        assert_eq!(SCAN.untold(None, 1.0), Some(Untold::NoLineage));
        assert_eq!(untold(&[10], 0, 0, 1.0), None);
        assert_eq!(untold(&[499], 0, 0, 0.1), Some(Untold::Sampled));
        assert_eq!(untold(&[500], 0, 0, 0.1), None);
        // 4 rows of one, and 490 or 500 of the others.
        assert_eq!(untold(&[4], 19, 49, 0.1), Some(Untold::Sampled));
        assert_eq!(untold(&[4], 19, 50, 0.1), None);
        let few = |arriving| Multiplied { arriving, ..SCAN };
        let ten = descendants(&[10], 0, 0);
        assert_eq!(few(199).untold(Some(&ten), 1.0), Some(Untold::LeftOut));
        assert_eq!(few(200).untold(Some(&ten), 1.0), None);
        // An aggregate made few of them, of which there is no lineage.
        assert_eq!(few(199).untold(None, 1.0), Some(Untold::NoLineage));
        assert_eq!(few(0).untold(None, 1.0), Some(Untold::LeftOut));
        assert_eq!(few(199).untold(None, 0.1), Some(Untold::LeftOut));
    }
}
