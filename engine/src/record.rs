//! A statement's row in `sys.queries`, from its arrival to its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use datafusion::physical_plan::ExecutionPlan;
use skewer_cluster::{Workers, is_exchange_between_workers};
use skewer_diagnosis::TableQuarantine;
use skewer_profiling::{Level, QueryRow, Recorder, RecorderLimits, SysTables, nanos_since_epoch};
use skewer_sql::TraceParent;
use skewer_storage::TableMeta;

use crate::ended_queries::{EndedQuery, Followers};
use crate::error::Error;
use crate::progress::ProgressHandle;
use crate::query_totals::{QueryTotals, Total};
use crate::remedies::{Run, Trial};
use crate::settings::ProfileSettings;
use crate::tables_read::TablesRead;
use skewer_optimizer::join_order::KnownRows;
use skewer_optimizer::join_order::plan_relations::{PlanRelations, RowsReturned};
use skewer_profiling::budget::{Budgets, Choice};

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Finished,
    Failed,
    Cancelled,
}

impl Status {
    /// All of them, in order.
    pub(crate) const ALL: [Status; 3] = [Self::Finished, Self::Failed, Self::Cancelled];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Operators that were stopped early write their totals when their tasks have ended: a statement
/// that ends waits for them at most this long.
const STRAGGLERS: Duration = Duration::from_millis(20);

/// The same for a statement that was cancelled: nobody waits for it, and a task notices only
/// between two batches.
const CANCELLED_STRAGGLERS: Duration = Duration::from_millis(150);

/// A statement that is recorded. Dropping it before it has finished records it as cancelled, as
/// soon as its tasks have ended.
#[derive(Debug)]
pub(crate) struct StatementRecord {
    recorder: Arc<Recorder>,
    /// `None` for statements that leave no row in `sys.queries`.
    sys: Option<Arc<SysTables>>,
    /// The other workers that run tasks of the statement; those in processes of their own have to
    /// be told when it ends.
    workers: Vec<i64>,
    last_query_id: Arc<AtomicI64>,
    /// Held by what the database waits for when it closes.
    _running: Arc<()>,
    progress: ProgressHandle,
    sql: String,
    /// When it arrived.
    started_at: SystemTime,
    /// When it was admitted.
    started: Instant,
    /// How long it waited for that.
    queued: Duration,
    /// When its first rows were ready for the reader.
    first_row: Option<SystemTime>,
    /// The user of its session.
    user: String,
    /// The span of the caller that it belongs to.
    trace_parent: Option<TraceParent>,
    /// The totals that the statement is added to when it ends.
    totals: Option<Arc<QueryTotals>>,
    /// Whoever is told that it has ended.
    followers: Option<Arc<Followers>>,
    /// What learns what the statement took, and under which fingerprint.
    charged_to: Option<(Arc<Budgets>, String)>,
    /// The trial of remedies that it is a part of.
    trial: Option<Trial>,
    /// The relations that its operators return, and what remembers how many rows they have.
    counted: Option<(Arc<PlanRelations>, Arc<KnownRows>)>,
    planned: Option<Instant>,
    rows: i64,
    /// What `sys.queries` says of the tables that it reads.
    tables_read: Option<String>,
    /// What `sys.queries` says of the quarantines that it leaves rows out by.
    quarantines: Option<String>,
    /// When it had returned everything, before workers were told.
    ended: Option<Instant>,
    /// When it was dropped without having finished.
    cancelled: Option<Instant>,
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
        running: Arc<()>,
        progress: ProgressHandle,
    ) -> Self {
        let limits = RecorderLimits {
            time_share: settings.budget,
            spill_bytes: settings.spill_bytes,
            ..RecorderLimits::default()
        };
        let recorder = Recorder::new(query_id, settings.level, settings.sample_rate, limits);
        recorder.set_lineage_mode(settings.lineage);
        recorder.spill_to(&sys);
        let mut record = Self::with_recorder(recorder);
        record.sys = Some(sys);
        record.last_query_id = last_query_id;
        record._running = running;
        record.progress = progress;
        sql.clone_into(&mut record.sql);
        record
    }

    fn with_recorder(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            sys: None,
            workers: Vec::new(),
            last_query_id: Arc::default(),
            _running: Arc::default(),
            progress: ProgressHandle::default(),
            sql: String::new(),
            started_at: SystemTime::now(),
            started: Instant::now(),
            queued: Duration::ZERO,
            first_row: None,
            user: String::new(),
            trace_parent: None,
            totals: None,
            followers: None,
            charged_to: None,
            trial: None,
            counted: None,
            planned: None,
            rows: 0,
            tables_read: None,
            quarantines: None,
            ended: None,
            cancelled: None,
            done: false,
        }
    }

    /// A record of the same statement under another id: it is run again as a whole.
    pub(crate) fn anew(&self, query_id: i64) -> Self {
        let recorder = &self.recorder;
        let (level, rate) = (recorder.level(), recorder.sample_rate());
        let mut anew = Self::with_recorder(Recorder::new(query_id, level, rate, recorder.limits()));
        anew.recorder.set_lineage_mode(recorder.lineage_mode());
        if let Some(sys) = &self.sys {
            anew.recorder.spill_to(sys);
        }
        anew.sys = self.sys.clone();
        anew.last_query_id = Arc::clone(&self.last_query_id);
        anew._running = Arc::clone(&self._running);
        anew.progress = self.progress.clone();
        anew.sql = self.sql.clone();
        anew.user = self.user.clone();
        anew.trace_parent = self.trace_parent;
        anew.totals = self.totals.clone();
        anew.followers = self.followers.clone();
        anew.charged_to = self.charged_to.clone();
        anew
    }

    /// A statement that leaves no trace: it asks about others, or only sets something. Its tasks
    /// are told from those of others by a number below 0.
    pub(crate) fn untraced() -> Self {
        static LAST: AtomicI64 = AtomicI64::new(0);
        let number = LAST.fetch_sub(1, Ordering::Relaxed) - 1;
        let limits = RecorderLimits::default();
        Self::with_recorder(Recorder::new(number, Level::Off, 1.0, limits))
    }

    /// The same of another text.
    pub(crate) fn with_sql(mut self, sql: &str) -> Self {
        sql.clone_into(&mut self.sql);
        self
    }

    /// The same; once it has finished, `budgets` learn what the statement of fingerprint
    /// `statement` took.
    pub(crate) fn charged_to(mut self, budgets: Arc<Budgets>, statement: String) -> Self {
        self.charged_to = Some((budgets, statement));
        self
    }

    /// The same, of a user.
    pub(crate) fn sent_by(mut self, user: String) -> Self {
        self.user = user;
        self
    }

    /// The same, of a span of a caller.
    pub(crate) fn belongs_to(mut self, parent: Option<TraceParent>) -> Self {
        self.trace_parent = parent;
        self
    }

    /// The same; `totals` count it and `followers` are told when it ends.
    pub(crate) fn counted_in(
        mut self,
        totals: Arc<QueryTotals>,
        followers: Arc<Followers>,
    ) -> Self {
        self.totals = Some(totals);
        self.followers = Some(followers);
        self
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// The statement.
    pub(crate) fn sql(&self) -> &str {
        &self.sql
    }

    /// When it arrived.
    pub(crate) fn started_at(&self) -> SystemTime {
        self.started_at
    }

    /// The id under which schema `sys` will know the statement.
    pub(crate) fn traced_id(&self) -> Option<i64> {
        self.sys.as_ref().map(|_| self.recorder.query_id())
    }

    /// Tasks of the statement run on `workers`, if `plan` is distributed.
    pub(crate) fn runs_on(&mut self, workers: &Workers, plan: &Arc<dyn ExecutionPlan>) {
        if self.recorder.level() == Level::Off || !crosses_workers(plan) {
            return;
        }
        for worker in workers.list() {
            let number = i64::from(worker.number);
            if number != self.recorder.worker_id() && !self.workers.contains(&number) {
                self.workers.push(number);
            }
        }
    }

    /// It has waited for admission until now: neither planning nor execution.
    pub(crate) fn was_admitted(&mut self) {
        let now = Instant::now();
        self.queued += now - self.started;
        self.started = now;
    }

    /// Rows are ready for the reader.
    pub(crate) fn has_rows(&mut self) {
        self.first_row.get_or_insert_with(SystemTime::now);
    }

    /// Planning ends and execution begins.
    pub(crate) fn planned(&mut self) {
        self.planned.get_or_insert_with(Instant::now);
    }

    /// The statement leaves out the rows of these quarantines.
    pub(crate) fn leaves_out(&mut self, quarantines: &[TableQuarantine]) {
        if self.sys.is_some() {
            self.quarantines = TableQuarantine::text(quarantines);
        }
    }

    /// The statement reads these tables.
    pub(crate) fn reads(&mut self, tables: &[Arc<TableMeta>]) {
        if self.sys.is_some() {
            self.tables_read = TablesRead::of_tables(tables).text();
        }
    }

    /// The operators of the statement return these relations: `known` remembers their rows when it has ended.
    pub(crate) fn counts(&mut self, relations: Arc<PlanRelations>, known: Arc<KnownRows>) {
        self.counted = Some((relations, known));
    }

    /// The statement is a part of a trial.
    pub(crate) fn tries(&mut self, trial: Trial) {
        self.trial = Some(trial);
    }

    /// Counts rows that were returned or changed.
    pub(crate) fn add_rows(&mut self, rows: u64) {
        self.rows = self.rows.saturating_add_unsigned(rows);
    }

    /// The statement ended as `outcome` says. Its stream and plan must have been dropped.
    pub(crate) async fn finish(mut self, outcome: Result<(), &Error>) {
        self.wait_for_stragglers(STRAGGLERS).await;
        self.ended = Some(Instant::now());
        self.end_on_workers().await;
        match outcome {
            Ok(()) => self.end(Status::Finished, None),
            Err(Error::Cancelled) => self.end(Status::Cancelled, None),
            Err(error) => self.end(Status::Failed, Some(error.to_string())),
        }
    }

    /// Whether operators may still have something to hand over.
    fn has_stragglers(&self) -> bool {
        self.recorder.level() > Level::Off && self.recorder.holders() > 0
    }

    async fn wait_for_stragglers(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        while self.has_stragglers() && Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
    }

    /// Has the other workers make rows of what they recorded; those that are gone are not waited
    /// for, others not for long.
    async fn end_on_workers(&mut self) {
        let workers = std::mem::take(&mut self.workers);
        if let (Some(sys), false) = (&self.sys, workers.is_empty()) {
            sys.finish_on_workers(&self.recorder, &workers).await;
        }
    }

    fn end(&mut self, status: Status, error: Option<String>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let Some(sys) = &self.sys else {
            return;
        };
        let ended = self.cancelled.or(self.ended);
        let ended = ended.unwrap_or_else(Instant::now);
        let ended_at = SystemTime::now() - ended.elapsed();
        let planned = self.planned.unwrap_or(ended);
        if let (Some((budgets, statement)), Status::Finished) = (&self.charged_to, status) {
            let ran = Choice {
                level: self.recorder.level(),
                rate: self.recorder.sample_rate(),
            };
            budgets.ran(statement, ran, ended - self.started);
        }
        if let (Some(trial), Status::Finished) = (self.trial.take(), status) {
            trial.ran(Run {
                query_id: self.recorder.query_id(),
                time: ended - planned,
                tables: self.tables_read.clone(),
            });
        }
        if let (Some((relations, known)), Status::Finished) = (self.counted.take(), status) {
            let mut rows: HashMap<i64, RowsReturned> = HashMap::new();
            for (operator_id, returned) in self.recorder.rows_returned() {
                let of_operator = rows.entry(operator_id).or_default();
                of_operator.rows += returned;
                of_operator.partitions += usize::from(returned > 0);
            }
            let names = relations.count(self.recorder.query_id(), &rows, &known);
            self.recorder
                .name_relations(|operator_id| names.get(&operator_id).cloned());
        }
        let total = Total {
            queries: 1,
            rows: self.rows,
            queued_ns: nanos(self.queued),
            planning_ns: nanos(planned - self.started),
            execution_ns: nanos(ended - planned),
        };
        sys.finish(
            &self.recorder,
            QueryRow {
                sql: self.sql.clone(),
                fingerprint: skewer_sql::fingerprint(&self.sql),
                status: status.name().to_owned(),
                error,
                started_at: nanos_since_epoch(self.started_at),
                first_row_at: self.first_row.map(nanos_since_epoch),
                ended_at: Some(nanos_since_epoch(ended_at)),
                queued_ns: Some(total.queued_ns),
                planning_ns: Some(total.planning_ns),
                execution_ns: Some(total.execution_ns),
                rows_returned: Some(self.rows),
                tables_read: self.tables_read.take(),
                quarantines: self.quarantines.take(),
                imported_from: None,
                user_name: Some(std::mem::take(&mut self.user)),
                trace_id: self.trace_parent.map(|parent| parent.trace_id()),
                parent_span_id: self.trace_parent.map(|parent| parent.span_id()),
            },
        );
        if let Some(totals) = &self.totals {
            totals.add(status, &total);
        }
        if let Some(followers) = &self.followers {
            followers.tell(EndedQuery {
                query_id: self.recorder.query_id(),
                level: self.recorder.level(),
                trace_parent: self.trace_parent,
            });
        }
        self.last_query_id
            .store(self.recorder.query_id(), Ordering::Release);
    }
}

impl Drop for StatementRecord {
    /// The operators of a statement that is cancelled run in tasks of their own, which end a
    /// little later: what they did until then is waited for in a task that takes over the record.
    fn drop(&mut self) {
        if self.done || self.sys.is_none() {
            return;
        }
        let first = self.cancelled.is_none();
        // It holds scans, and with them the recorder.
        self.progress.finish();
        self.cancelled.get_or_insert_with(Instant::now);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if first && (self.has_stragglers() || !self.workers.is_empty()) => {
                self.last_query_id
                    .store(self.recorder.query_id(), Ordering::Release);
                let mut record = std::mem::replace(self, Self::untraced());
                runtime.spawn(async move {
                    record.wait_for_stragglers(CANCELLED_STRAGGLERS).await;
                    record.end_on_workers().await;
                    record.end(Status::Cancelled, None);
                });
            }
            _ => self.end(Status::Cancelled, None),
        }
    }
}

/// Whether rows come to a plan, or to what is below it, from other workers.
pub(crate) fn crosses_workers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_exchange_between_workers(plan) || plan.children().into_iter().any(crosses_workers)
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
