//! The query itself: how it ended, how long it took, how much of it was recorded.

use skewer_profiling::LineageMode;
use skewer_sql::Statement;

use super::answer::{Inquiry, rows};
use super::layout::{WIDTH, shortened};
use super::units::{count, counted, duration, percent};
use super::unknown::unknown_query;
use crate::error::Error;
use crate::tables_read::TablesRead;

/// That recording took this share of the operators' time is said.
const NOTABLE_RECORDING: f64 = 0.1;

/// The query's row in `sys.queries`, and what was recorded of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Header {
    pub(super) query_id: i64,
    pub(super) sql: String,
    pub(super) status: String,
    pub(super) error: Option<String>,
    pub(super) level: String,
    /// How level `records` kept what it learned.
    pub(super) lineage: Option<String>,
    pub(super) sample_rate: f64,
    pub(super) planning_ns: i64,
    pub(super) execution_ns: i64,
    pub(super) rows_returned: Option<i64>,
    /// Time of all operators in all tasks.
    pub(super) busy_ns: i64,
    /// Of it, what recording took.
    pub(super) recording_ns: i64,
    pub(super) events_dropped: i64,
    /// Shortcuts of the planner that its plan lacks since it was recorded.
    pub(super) given_up: Option<String>,
    /// Numbers of the workers whose events cannot be had.
    pub(super) lost_workers: Option<String>,
    /// The cores that it had at most; `None` if it ran on other machines as well, or on another.
    pub(super) cores: Option<usize>,
    /// The directory that the query was imported from.
    pub(super) imported_from: Option<String>,
    /// Tables that it read, as in the log, in whose place is another by now.
    pub(super) replaced_tables: Vec<String>,
    /// What else limits the numbers, one sentence each.
    pub(super) circumstances: Vec<String>,
}

impl Header {
    /// Reads it from schema `sys`.
    ///
    /// # Errors
    /// If there is no such query, or `sys` cannot be read.
    pub(super) async fn read(inquiry: &mut Inquiry<'_>, query_id: i64) -> Result<Self, Error> {
        let sql = include_str!("sql/header.sql").replace("$query_id", &query_id.to_string());
        let answer = inquiry.ask("The query", sql).await?;
        let Some(row) = rows(&answer).next() else {
            return Err(unknown_query(inquiry.source(), query_id).await);
        };
        let imported_from = row.text("imported_from");
        let replaced_tables = match (&imported_from, row.text("tables_read")) {
            (None, Some(read)) => inquiry.source().replaced(&TablesRead::parse(&read)),
            _ => Vec::new(),
        };
        Ok(Self {
            query_id,
            sql: row.text("sql").unwrap_or_default(),
            status: row.text("status").unwrap_or_default(),
            error: row.text("error"),
            level: row.text("profile_level").unwrap_or_default(),
            lineage: row.text("lineage"),
            sample_rate: row.float("sample_rate").unwrap_or(1.0),
            planning_ns: row.sum("planning_ns"),
            execution_ns: row.sum("execution_ns"),
            rows_returned: row.integer("rows_returned"),
            busy_ns: row.sum("busy_ns"),
            recording_ns: row.sum("recording_ns"),
            events_dropped: row.sum("events_dropped"),
            given_up: row.text("given_up"),
            lost_workers: row.text("lost_workers"),
            cores: (imported_from.is_none() && row.sum("workers_elsewhere") == 0)
                .then(|| std::thread::available_parallelism().map_or(1, usize::from)),
            imported_from,
            replaced_tables,
            circumstances: Vec::new(),
        })
    }

    /// Whether a table, as in the log, is not the one any more that the query read, and its rows have
    /// nothing to do with those of the same ids.
    pub(super) fn is_replaced(&self, table: &str) -> bool {
        self.replaced_tables
            .iter()
            .any(|replaced| replaced == table)
    }

    /// All of these.
    pub(super) fn replaced_tables(&self) -> &[String] {
        &self.replaced_tables
    }

    /// Whether it is a query, which changes nothing when it runs again.
    pub(super) fn is_query(&self) -> bool {
        matches!(skewer_sql::parse(&self.sql), Ok(Statement::Query(_)))
    }

    /// Planning and execution.
    pub(super) fn query_ns(&self) -> i64 {
        self.planning_ns + self.execution_ns
    }

    /// Whether record-level events were recorded.
    pub(super) fn has_records(&self) -> bool {
        self.level == "records"
    }

    /// Whether there is a log of lineage and of latencies of records.
    pub(super) fn has_log(&self) -> bool {
        self.has_records() && !self.has_carried()
    }

    /// Whether records carried their latencies instead of being logged.
    pub(super) fn has_carried(&self) -> bool {
        self.lineage.as_deref() == Some(LineageMode::Piggyback.name())
    }

    /// What limits the numbers of this report, one sentence each.
    pub(super) fn reservations(&self) -> Vec<String> {
        let mut reservations = Vec::new();
        if self.status != "finished" {
            let error = match &self.error {
                Some(error) => format!(": {error}"),
                None => String::new(),
            };
            reservations.push(format!(
                "The query {}, what follows is what it did until then{error}",
                match self.status.as_str() {
                    "failed" => "failed",
                    _ => "was cancelled",
                }
            ));
        }
        if self.has_records() && self.sample_rate < 1.0 {
            reservations.push(format!(
                "Only {} of the input records were traced, chosen by a hash of their row ids.",
                percent(self.sample_rate)
            ));
        }
        if self.events_dropped > 0 && self.has_carried() {
            reservations.push(format!(
                "{} dropped: sources of the least impact, where more than 4,096 have one, or what the \
                 profiler's memory was full for.",
                match self.events_dropped {
                    1 => "1 event was".to_owned(),
                    more => format!("{} events were", count(more)),
                }
            ));
        } else if self.events_dropped > 0 {
            reservations.push(format!(
                "{} dropped since the profiler's memory was full: numbers are lower bounds.",
                match self.events_dropped {
                    1 => "1 event was".to_owned(),
                    more => format!("{} events were", count(more)),
                }
            ));
        }
        let recording = self.recording_ns as f64 / self.busy_ns.max(1) as f64;
        if self.has_log() && recording >= NOTABLE_RECORDING {
            reservations.push(format!(
                "Recording took {} of the operators' time, which what is said of the query without a \
                 record leaves out.",
                percent(recording.min(1.0))
            ));
        }
        if let Some(shortcuts) = &self.given_up {
            reservations.push(format!(
                "To see every row, the plan gives up {shortcuts}: without level records the query is \
                 faster."
            ));
        }
        if let Some(lost) = &self.lost_workers {
            reservations.push(match lost.contains(',') {
                false => format!("Worker {lost} is lost: what it recorded is missing."),
                true => format!("Workers {lost} are lost: what they recorded is missing."),
            });
        }
        if let Some(directory) = &self.imported_from {
            reservations.push(format!(
                "It was imported from '{directory}': the tables that it read are not here."
            ));
        }
        reservations.extend(self.circumstances.iter().cloned());
        reservations
    }

    /// The header as text.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut facts = vec![
            format!("Query {}", self.query_id),
            format!(
                "{} (planning {}, execution {})",
                duration(self.query_ns()),
                duration(self.planning_ns),
                duration(self.execution_ns)
            ),
        ];
        facts.extend(self.rows_returned.map(|rows| counted(rows, "row")));
        facts.push(match self.has_carried() {
            true => format!("level {}, {}", self.level, LineageMode::Piggyback),
            false => format!("level {}", self.level),
        });
        let mut lines = vec![facts.join(" · ")];
        let sql: Vec<&str> = self.sql.split_whitespace().collect();
        lines.push(format!("  {}", shortened(&sql.join(" "), WIDTH - 2)));
        for reservation in self.reservations() {
            lines.push(format!("  ! {}", shortened(&reservation, WIDTH - 4)));
        }
        lines
    }
}
