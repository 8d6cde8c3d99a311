//! A predicate and what its rows cost.

use super::search::PredicateForm;
use crate::operator_text::table_name;
use crate::summary::QuerySummary;
use crate::units::{count, counted, duration, percent};

/// A wider predicate adds expensive rows if its further rows took this many times an even share of
/// the time.
const DEAR: f64 = 4.0;

/// A predicate over a table's columns and what its rows cost.
#[derive(Debug, Clone)]
pub struct Predicate {
    /// The table as the log names it.
    pub table: String,
    /// SQL that stands as it is in a WHERE.
    pub predicate: String,
    /// Rows of the table that fulfil it.
    pub matched: i64,
    /// All rows of the table.
    pub table_rows: i64,
    /// Share of the time of the table's records, 0 to 1.
    pub time_share: f64,
    /// Estimated nanoseconds of the query without these rows.
    pub without_ns: Option<i64>,
    /// Whether a report shows the predicate: the query is much faster without its rows.
    pub(super) saves_much: bool,
    /// The statement that runs the query without these rows; `None` if the query cannot run again.
    pub verify: Option<String>,
    pub(super) form: PredicateForm,
}

impl Predicate {
    /// Share of the table's rows, 0 to 1.
    pub fn row_share(&self) -> f64 {
        self.matched as f64 / self.table_rows.max(1) as f64
    }

    /// Share of time beyond the share that the rows would have if all cost alike.
    fn excess(&self) -> f64 {
        self.time_share - self.row_share()
    }

    /// Whether it holds for rows that took half of a narrower predicate's time or more, and else for
    /// rows that took about what any row does. (Two shares that add up to more than all of the time
    /// overlap: the excess belongs to rows that fulfil both.)
    pub(super) fn only_widens(&self, narrower: &Self) -> bool {
        let rows = self.row_share() - narrower.row_share();
        let shared = self.time_share + narrower.time_share - 1.0;
        self.table == narrower.table
            && rows > 0.0
            && shared >= narrower.time_share / 2.0
            && self.time_share - narrower.time_share < DEAR * rows
    }

    /// The order in which the report and `sys.blame` name predicates: disproportionate share of time,
    /// in steps of 2 %; then form; then fewer rows; then shorter text.
    pub(super) fn rank(&self) -> (i64, PredicateForm, i64, usize) {
        let excess = (self.excess() * 50.0).round() as i64;
        (-excess, self.form, self.matched, self.predicate.len())
    }

    /// The finding in one sentence.
    pub fn sentence(&self, summary: &QuerySummary) -> String {
        let mut sentence = format!(
            "{}: {} of {} of {} ({}), {} of the time",
            self.predicate,
            counted(self.matched, "row"),
            count(self.table_rows),
            table_name(&self.table),
            percent(self.row_share()),
            percent(self.time_share)
        );
        if let Some(without) = self.without_ns {
            sentence.push_str(&format!(
                "; without {} the query takes about {} instead of {}",
                if self.matched == 1 { "it" } else { "them" },
                duration(without),
                duration(summary.query_ns())
            ));
        }
        sentence.push('.');
        sentence
    }
}
