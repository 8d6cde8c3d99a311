//! Records that an unnest or a join made so many rows of that these took much of the query's time. No
//! expression need have taken long for one: the time is that of operators which are not timed record
//! by record. Which ones they are, `sys.anomaly_candidates` decides.

use super::answer::Row;
use super::header::Header;

/// What became of a record.
#[derive(Debug, Clone)]
pub(super) struct FanOut {
    /// Rows that descend from it, and from all records of its table that were traced.
    pub(super) rows: i64,
    pub(super) table_rows: i64,
    /// What operators that are not timed record by record spent on these rows.
    pub(super) apportioned_ns: i64,
}

impl FanOut {
    /// What a row of `sys.anomaly_candidates` says of it; `None` if the record became few rows.
    pub(super) fn read(row: &Row<'_>) -> Option<Self> {
        Some(Self {
            rows: row.integer("rows_made")?,
            table_rows: row.sum("table_rows"),
            apportioned_ns: row.sum("apportioned_ns"),
        })
    }
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

impl Untold {
    /// By its name in `sys.anomaly_candidates`.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "no log" => Some(Self::NoLog),
            "sampled" => Some(Self::Sampled),
            "not counted" => Some(Self::Uncounted),
            "no lineage" => Some(Self::NoLineage),
            "left out" => Some(Self::LeftOut),
            _ => None,
        }
    }

    /// The reason in a sentence, and how to find out.
    pub(super) fn sentence(self, header: &Header) -> String {
        let runs_again = header.imported_from.is_none() && header.is_query();
        let why = match self {
            Self::NoLog => "only a log tells: profile.lineage = 'log'".to_owned(),
            Self::Sampled if runs_again => format!(
                "is not known, since only some records were traced: EXPLAIN PROFILE (SAMPLE 1) QUERY {}",
                header.query_id
            ),
            Self::Sampled => "is not known, since only some records were traced".to_owned(),
            Self::Uncounted => "is not known: they could not be counted".to_owned(),
            Self::NoLineage => {
                "is not known: no lineage is kept of rows without ids, nor of the values \
                 that a subquery is asked for"
                    .to_owned()
            }
            Self::LeftOut => {
                "is not known: most were left out before lineage was kept of them".to_owned()
            }
        };
        format!(
            "Whether one record became most of the rows that an unnest or a join made, which took much of \
             the time, {why}."
        )
    }
}
