//! The query itself: how it ended, how long it took, how much of it was recorded.

use skewer_profiling::LineageMode;
use skewer_sql::Statement;

use crate::error::Error;
use crate::quarantine::TableQuarantine;
use crate::source::{Statements, rows};
use crate::units::{count, percent};
use crate::unknown_query::unknown_query;

/// A caveat tells that recording took at least this share of the operators' time.
const NOTABLE_RECORDING: f64 = 0.1;

/// The query's row in `sys.queries`, and how much was recorded.
#[derive(Debug, Clone, Default)]
pub struct QuerySummary {
    /// The id in `sys.queries`.
    pub query_id: i64,
    /// The statement's text.
    pub sql: String,
    /// `finished`, `failed` or `cancelled`.
    pub status: String,
    /// Why it failed.
    pub error: Option<String>,
    /// The profile level: `off`, `counters`, `calls` or `records`.
    pub level: String,
    /// How level `records` kept lineage: `log` or `piggyback`.
    pub lineage: Option<String>,
    /// Share of input records that were traced, 0 to 1.
    pub sample_rate: f64,
    /// Nanoseconds from text to plan.
    pub planning_ns: i64,
    /// Nanoseconds that the plan ran.
    pub execution_ns: i64,
    /// Rows that the query returned.
    pub rows_returned: Option<i64>,
    /// Self time of all operators in all tasks, in nanoseconds.
    pub busy_ns: i64,
    /// Nanoseconds in which processors worked on the tasks; `None` where that was not recorded.
    pub cpu_ns: Option<i64>,
    /// Nanoseconds in which tasks could have run but had no processor.
    pub runqueue_ns: i64,
    /// The part of `busy_ns` that recording took.
    pub recording_ns: i64,
    /// Events that the profiler dropped since its memory was full.
    pub events_dropped: i64,
    /// Optimizations that level `records` disabled in this plan.
    pub disabled_optimizations: Option<String>,
    /// Numbers of the workers whose events are lost, separated by commas.
    pub lost_workers: Option<String>,
    /// Cores of this machine; `None` if other machines took part.
    pub cores: Option<usize>,
    /// The directory that the query was imported from.
    pub imported_from: Option<String>,
    /// Tables, as the log names them, that another table of the same name has replaced since.
    pub replaced_tables: Vec<String>,
    /// The quarantines that left rows out of the query.
    pub quarantines: Vec<TableQuarantine>,
    /// What else limits the numbers of this run, one sentence each.
    pub run_caveats: Vec<String>,
}

impl QuerySummary {
    /// Reads it from schema `sys`.
    ///
    /// # Errors
    /// If there is no such query, or `sys` cannot be read.
    pub async fn read(statements: &mut Statements<'_>, query_id: i64) -> Result<Self, Error> {
        let sql = include_str!("sql/summary.sql").replace("$query_id", &query_id.to_string());
        let answer = statements.query("The query", sql).await?;
        let Some(row) = rows(&answer).next() else {
            return Err(unknown_query(statements.source(), query_id).await);
        };
        let imported_from = row.text("imported_from");
        let replaced_tables = match (&imported_from, row.text("tables_read")) {
            (None, Some(read)) => statements.source().replaced_tables(&read),
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
            cpu_ns: row.integer("cpu_ns"),
            runqueue_ns: row.sum("runqueue_ns"),
            recording_ns: row.sum("recording_ns"),
            events_dropped: row.sum("events_dropped"),
            disabled_optimizations: row.text("given_up"),
            lost_workers: row.text("lost_workers"),
            cores: (imported_from.is_none() && row.sum("workers_elsewhere") == 0)
                .then(|| std::thread::available_parallelism().map_or(1, usize::from)),
            imported_from,
            replaced_tables,
            quarantines: row
                .text("quarantines")
                .map(|text| TableQuarantine::parse(&text))
                .unwrap_or_default(),
            run_caveats: Vec::new(),
        })
    }

    /// Whether another table has replaced `table`, as the log names it, since the query read it.
    /// Its row ids then belong to other rows.
    pub fn is_replaced(&self, table: &str) -> bool {
        self.replaced_tables
            .iter()
            .any(|replaced| replaced == table)
    }

    /// Whether the statement is a query: running it again changes nothing.
    pub fn is_query(&self) -> bool {
        matches!(skewer_sql::parse(&self.sql), Ok(Statement::Query(_)))
    }

    /// Nanoseconds of planning and execution.
    pub fn query_ns(&self) -> i64 {
        self.planning_ns + self.execution_ns
    }

    /// Whether record-level events were recorded.
    pub fn has_records(&self) -> bool {
        self.level == "records"
    }

    /// Whether lineage and latencies of records were logged.
    pub fn has_log(&self) -> bool {
        self.has_records() && !self.has_carried()
    }

    /// Whether records carried their latencies (piggyback) instead of having them logged.
    pub fn has_carried(&self) -> bool {
        self.lineage.as_deref() == Some(LineageMode::Piggyback.name())
    }

    /// What limits the numbers of the profile, one sentence each.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.status != "finished" {
            let error = match &self.error {
                Some(error) => format!(": {error}"),
                None => String::new(),
            };
            caveats.push(format!(
                "The query {}; the profile shows what ran before that{error}",
                match self.status.as_str() {
                    "failed" => "failed",
                    _ => "was cancelled",
                }
            ));
        }
        if self.has_records() && self.sample_rate < 1.0 {
            caveats.push(format!(
                "Only {} of the input records were traced, chosen by a hash of their row ids.",
                percent(self.sample_rate)
            ));
        }
        if self.events_dropped > 0 && self.has_carried() {
            caveats.push(format!(
                "{} dropped: the profiler keeps the 4,096 sources with the greatest impact, as far as \
                 its memory goes.",
                match self.events_dropped {
                    1 => "1 event was".to_owned(),
                    more => format!("{} events were", count(more)),
                }
            ));
        } else if self.events_dropped > 0 {
            caveats.push(format!(
                "{} dropped since the profiler's memory was full: numbers are lower bounds.",
                match self.events_dropped {
                    1 => "1 event was".to_owned(),
                    more => format!("{} events were", count(more)),
                }
            ));
        }
        let recording = self.recording_ns as f64 / self.busy_ns.max(1) as f64;
        if self.has_log() && recording >= NOTABLE_RECORDING {
            caveats.push(format!(
                "Recording took {} of operator time; what-if estimates exclude it.",
                percent(recording.min(1.0))
            ));
        }
        if let Some(shortcuts) = &self.disabled_optimizations {
            caveats.push(format!(
                "Level records disables {shortcuts}, since it must see every row: the query is faster \
                 at lower levels."
            ));
        }
        if let Some(lost) = &self.lost_workers {
            caveats.push(match lost.contains(',') {
                false => format!("Worker {lost} is lost: its records are missing."),
                true => format!("Workers {lost} are lost: their records are missing."),
            });
        }
        if let Some(directory) = &self.imported_from {
            caveats.push(format!(
                "The query was imported from '{directory}': its tables are not in this database."
            ));
        }
        caveats.extend(self.run_caveats.iter().cloned());
        caveats
    }
}
