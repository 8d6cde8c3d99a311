//! A statement's row in `sys.queries`, from its arrival to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skewer_profiling::{Level, QueryRow, Recorder, RecorderLimits, SysTables};

use crate::error::Error;
use crate::settings::ProfileSettings;

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Finished,
    Failed,
    Cancelled,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Operators that were stopped early write their totals when their tasks have ended: they are
/// waited for at most this long.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// A statement that is recorded. Dropping it before it has finished records it as cancelled.
#[derive(Debug)]
pub(crate) struct StatementRecord {
    recorder: Arc<Recorder>,
    /// `None` for statements that leave no row in `sys.queries`.
    sys: Option<Arc<SysTables>>,
    last_query_id: Arc<AtomicI64>,
    sql: String,
    started_at: SystemTime,
    started: Instant,
    planned: Option<Instant>,
    rows: i64,
    done: bool,
}

impl StatementRecord {
    /// A statement that has just arrived.
    pub(crate) fn start(
        query_id: i64,
        sql: &str,
        settings: ProfileSettings,
        sys: Arc<SysTables>,
        last_query_id: Arc<AtomicI64>,
    ) -> Self {
        Self {
            recorder: Recorder::new(
                query_id,
                settings.level,
                settings.sample_rate,
                RecorderLimits::default(),
            ),
            sys: Some(sys),
            last_query_id,
            sql: sql.to_owned(),
            started_at: SystemTime::now(),
            started: Instant::now(),
            planned: None,
            rows: 0,
            done: false,
        }
    }

    /// A statement that leaves no trace: it asks about others, or only sets something.
    pub(crate) fn untraced() -> Self {
        Self {
            recorder: Recorder::new(0, Level::Off, 1.0, RecorderLimits::default()),
            sys: None,
            last_query_id: Arc::default(),
            sql: String::new(),
            started_at: SystemTime::now(),
            started: Instant::now(),
            planned: None,
            rows: 0,
            done: false,
        }
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// The id under which schema `sys` will know the statement.
    pub(crate) fn traced_id(&self) -> Option<i64> {
        self.sys.as_ref().map(|_| self.recorder.query_id())
    }

    /// Planning ends and execution begins.
    pub(crate) fn planned(&mut self) {
        self.planned.get_or_insert_with(Instant::now);
    }

    /// Counts rows that were returned or changed.
    pub(crate) fn add_rows(&mut self, rows: u64) {
        self.rows = self.rows.saturating_add_unsigned(rows);
    }

    /// The statement ended as `outcome` says. Its stream and plan must have been dropped.
    pub(crate) async fn finish(mut self, outcome: Result<(), &Error>) {
        if self.recorder.level() > Level::Off {
            let deadline = Instant::now() + STRAGGLERS;
            while Arc::strong_count(&self.recorder) > 1 && Instant::now() < deadline {
                tokio::task::yield_now().await;
            }
        }
        match outcome {
            Ok(()) => self.end(Status::Finished, None),
            Err(Error::Cancelled) => self.end(Status::Cancelled, None),
            Err(error) => self.end(Status::Failed, Some(error.to_string())),
        }
    }

    fn end(&mut self, status: Status, error: Option<String>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let Some(sys) = &self.sys else {
            return;
        };
        let now = Instant::now();
        let planned = self.planned.unwrap_or(now);
        sys.finish(
            &self.recorder,
            QueryRow {
                sql: self.sql.clone(),
                fingerprint: skewer_sql::fingerprint(&self.sql),
                status: status.name().to_owned(),
                error,
                started_at: nanos_since_epoch(self.started_at),
                ended_at: Some(nanos_since_epoch(SystemTime::now())),
                planning_ns: Some(nanos(planned - self.started)),
                execution_ns: Some(nanos(now - planned)),
                rows_returned: Some(self.rows),
            },
        );
        self.last_query_id
            .store(self.recorder.query_id(), Ordering::Release);
    }
}

impl Drop for StatementRecord {
    fn drop(&mut self) {
        self.end(Status::Cancelled, None);
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn nanos_since_epoch(time: SystemTime) -> i64 {
    nanos(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}
