//! Fan-outs: records that an unnest or a join turned into so many rows that these took much of the
//! query's time. The view `sys.anomaly_candidates` decides which records these are.
//!
//! Expressions over such a record may be fast. Its cost is a share of the time of operators that are
//! not timed record by record.

use crate::source::Row;
use crate::summary::QuerySummary;

/// What became of a record.
#[derive(Debug, Clone)]
pub struct FanOut {
    /// Rows that descend from the record.
    pub rows: i64,
    /// Rows that descend from all traced records of its table.
    pub table_rows: i64,
    /// Nanoseconds that operators spent on `rows`: a share of their time by the number of rows.
    pub apportioned_ns: i64,
}

impl FanOut {
    /// Reads a row of `sys.anomaly_candidates`; `None` if the record became few rows.
    pub(crate) fn read(row: &Row<'_>) -> Option<Self> {
        Some(Self {
            rows: row.integer("rows_made")?,
            table_rows: row.sum("table_rows"),
            apportioned_ns: row.sum("apportioned_ns"),
        })
    }
}

/// Why rows cannot be attributed to records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnattributedReason {
    /// No log was kept.
    NoLog,
    /// The rows seem to descend from records that were not traced.
    Sampled,
    /// The rows could not be counted.
    Uncounted,
    /// No edge leads to the rows: their table has no row ids, or they come from values that a
    /// correlated subquery runs over.
    NoLineage,
    /// Most rows were dropped, as by LIMIT, before lineage was kept.
    LeftOut,
}

impl UnattributedReason {
    /// The reason with this name in `sys.anomaly_candidates`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "no log" => Some(Self::NoLog),
            "sampled" => Some(Self::Sampled),
            "not counted" => Some(Self::Uncounted),
            "no lineage" => Some(Self::NoLineage),
            "left out" => Some(Self::LeftOut),
            _ => None,
        }
    }

    /// A sentence with the reason and with what to run to find out.
    pub fn sentence(self, summary: &QuerySummary) -> String {
        let runs_again = summary.imported_from.is_none() && summary.is_query();
        let why = match self {
            Self::NoLog => "there is no log; SET profile.lineage = 'log' and run it again".to_owned(),
            Self::Sampled if runs_again => format!(
                "only some records were traced; EXPLAIN PROFILE (SAMPLE 1) QUERY {} traces all",
                summary.query_id
            ),
            Self::Sampled => "only some records were traced".to_owned(),
            Self::Uncounted => "they could not be counted".to_owned(),
            Self::NoLineage => {
                "rows without ids have no lineage, nor do the values that a correlated subquery runs \
                 over"
                    .to_owned()
            }
            Self::LeftOut => {
                "most of them were dropped before lineage was kept".to_owned()
            }
        };
        format!(
            "An unnest, a join or a recursion made many rows, which took much of the time. It is \
             unknown whether most of them came from one record: {why}."
        )
    }
}
