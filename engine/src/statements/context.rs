//! What a statement works with, and how it ends.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::Schema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream, execute_stream};
use datafusion::sql::parser::Statement as DFStatement;
use futures::StreamExt;
use skewer_cluster::{CollectMetrics, Workers};
use skewer_compat::logical::decorrelate::{Determinism, optimize_dependent_joins};
use skewer_compat::logical::scalar_subquery::optimize_with_joins;
use skewer_compat::operators::scheduling::RunningQuery;
use skewer_exec::waits::StallGuard;
use skewer_node::check_availability;
use skewer_optimizer::join_order::CorrectedEstimate;
use skewer_optimizer::{PlanRequest, ReusablePlan};
use skewer_profiling::Level;
use skewer_storage::{Snapshot, Storage, TableMeta, Transaction};
use tokio::sync::OwnedMutexGuard;

use super::count_batch;
use crate::admission::{Admission, QueuedStatement};
use crate::cancellation::cancellation;
use crate::catalog::StatementCatalog;
use crate::catalog::planned::shown_rows;
use crate::catalog::quarantine::notice;
use crate::error::Error;
use crate::join_order::{tell_estimates, with_ordered_joins};
use crate::plan_cache::{self, Lookup, OptimizedQuery, PlanKey, PlanSettings};
use crate::planning;
use crate::progress::ProgressHandle;
use crate::query_stream::QueryStream;
use crate::record::{StatementRecord, crosses_workers};
use crate::remedies::Trial;
use crate::session::Session;
use crate::settings::ProfileSettings;
use crate::trace_parent::trace_parent;
use skewer_compat::logical::constant_folding as folding;
use skewer_compat::session_zone::zone_of;

/// What a statement works with.
pub(crate) struct Context {
    pub(crate) session: Session,
    pub(crate) catalog: Arc<StatementCatalog>,
    pub(crate) record: StatementRecord,
    pub(crate) progress: ProgressHandle,
    /// How its tasks share the processors, and whether it has been cancelled.
    pub(crate) running: Arc<RunningQuery>,
    /// Held as long as it runs, by statements that run queries.
    pub(crate) admission: Option<Admission>,
    /// The query, if it may be run once more when it loses a worker.
    pub(crate) again: Option<LogicalPlan>,
    /// What the session says of its result.
    pub(crate) notices: Vec<String>,
    /// Estimates of the plan that earlier queries corrected.
    pub(crate) corrected: Vec<CorrectedEstimate>,
}

/// What came of a statement.
pub(crate) enum Outcome {
    /// A query that has been planned.
    Rows(SendableRecordBatchStream),
    /// A result that is there already.
    Batch(RecordBatch),
    /// So many rows were changed.
    Count(u64),
    /// It is done, and there is nothing to say.
    Done,
}

/// Whether and how a statement is recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Tracing {
    /// With these settings.
    At(ProfileSettings),
    /// With as much as may take this share of the statement's time, and at most these settings.
    Within(f64, ProfileSettings),
    /// It leaves no row in `sys.queries`.
    None,
}

impl Context {
    /// What a statement works with that begins now.
    pub(crate) fn begin(
        session: &Session,
        catalog: Arc<StatementCatalog>,
        sql: &str,
        tracing: Tracing,
    ) -> Self {
        let database = session.database_inner();
        let progress = session.begin_progress();
        let start = |settings| {
            StatementRecord::start(
                database.storage.next_query_id(),
                sql,
                settings,
                Arc::clone(&database.sys),
                Arc::clone(&session.inner().last_query_id),
                Arc::clone(&database.running),
                progress.clone(),
            )
            .sent_by(session.user())
            .belongs_to(trace_parent(session))
            .counted_in(
                Arc::clone(&database.totals),
                Arc::clone(&database.followers),
            )
        };
        let record = match tracing {
            Tracing::At(settings) => start(settings),
            Tracing::Within(budget, settings) => {
                let statement = skewer_sql::fingerprint(sql);
                let budgets = Arc::clone(&database.budgets);
                let choice = budgets.choose(&statement, budget, settings.sample_rate);
                let settings = ProfileSettings {
                    level: choice.level,
                    sample_rate: choice.rate,
                    ..settings
                };
                start(settings).charged_to(budgets, statement)
            }
            Tracing::None => StatementRecord::untraced().with_sql(sql),
        };
        Self {
            session: session.clone(),
            catalog,
            record,
            progress,
            running: database.scheduler.query(cancellation()),
            admission: None,
            again: None,
            notices: Vec::new(),
            corrected: Vec::new(),
        }
    }

    /// Waits until the statement may run queries; then looks at the database as it is.
    pub(crate) async fn admit(&mut self) {
        let Some(query_id) = self.record.traced_id() else {
            return;
        };
        let statement = QueuedStatement {
            query_id,
            sql: self.record.sql().to_owned(),
            since: self.record.started_at(),
            progress: self.progress.clone(),
            cancellation: self.running.cancellation().clone(),
            recorder: Arc::downgrade(self.record.recorder()),
        };
        let admission = self
            .session
            .database_inner()
            .admission
            .admit(statement)
            .await;
        if admission.has_waited {
            self.record.was_admitted();
            self.catalog = self.session.catalog();
        }
        self.admission = Some(admission);
    }

    /// The turn of a statement that appends to a stream: rows that are committed later must have higher ids. Other
    /// tables need none.
    pub(crate) async fn turn_to_append(&self, table: &TableMeta) -> Option<OwnedMutexGuard<()>> {
        self.catalog.snapshot().stream(table.id)?;
        let writers = &self.session.database_inner().writers;
        Some(writers.take(table.id).await)
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.catalog.storage()
    }

    pub(super) async fn query(&mut self, statement: DFStatement) -> Result<Outcome, Error> {
        let plan = self.catalog.plan(statement).await?;
        let database = Arc::clone(self.session.database_inner());
        let stream = match self.stream(&plan).await {
            // As it read the ends of segments: tables are named where there is no other way.
            Err(Error::WorkerLost { name, tables, .. }) if tables.is_empty() => {
                database.settled(&name).await;
                self.stream(&plan).await?
            }
            started => started?,
        };
        self.keep_snapshot();
        self.again = database.is_master().then_some(plan);
        Ok(Outcome::Rows(stream))
    }

    /// What the query reads can be read again by `EXPLAIN PROFILE QUERY n`.
    pub(crate) fn keep_snapshot(&self) {
        if let Some(query_id) = self.record.traced_id()
            && !self.catalog.touched().tables.is_empty()
        {
            let database = self.session.database_inner();
            let now = database.storage.snapshot();
            let seen = self.catalog.snapshot();
            database.snapshots.keep(query_id, seen, &now);
        }
    }

    /// Optimises a plan, makes operators of it and starts them.
    pub(crate) async fn stream(
        &mut self,
        plan: &LogicalPlan,
    ) -> Result<SendableRecordBatchStream, Error> {
        self.stream_in_partitions(plan, None).await
    }

    /// The same with a number of partitions other than the session's, without workers.
    pub(crate) async fn stream_in_partitions(
        &mut self,
        plan: &LogicalPlan,
        partitions: Option<usize>,
    ) -> Result<SendableRecordBatchStream, Error> {
        let mut state = self.catalog.planning_state();
        let workers = match partitions {
            Some(partitions) => {
                state.config_mut().options_mut().execution.target_partitions = partitions;
                None
            }
            // The master has a part of schema `sys`.
            None => self.workers(skewer_profiling::reads_sys(plan)),
        };
        self.start(plan, state, workers).await
    }

    /// Plans `plan` in `state`, for workers if there are any, and starts its operators.
    pub(crate) async fn start(
        &mut self,
        plan: &LogicalPlan,
        mut state: SessionState,
        workers: Option<Workers>,
    ) -> Result<SendableRecordBatchStream, Error> {
        if let Some(workers) = &workers {
            if matches!(plan, LogicalPlan::Analyze(_)) {
                state.config_mut().set_extension(Arc::new(CollectMetrics));
            }
            state = self.on_workers(workers, state)?;
        }
        let query = self.optimized(plan, &mut state, workers.is_some()).await?;
        let operators_are_kept = query.operators.as_ref().is_some_and(ReusablePlan::is_kept);
        if !operators_are_kept {
            tell_estimates(&query, &mut state);
        }
        self.corrected.clone_from(&query.corrected);
        let database = self.session.database_inner();
        check_availability(&query.plan, self.catalog.snapshot(), |worker| {
            database.lost(worker)
        })?;
        let touched = self.catalog.touched();
        self.record.reads(&touched.tables);
        self.record.leaves_out(&touched.quarantines);
        let notices = touched.quarantines.iter().map(notice);
        self.notices = notices.collect();
        let trial = self.begin_trial().await?;
        let remedies = trial.as_ref().and_then(Trial::remedies);
        let relations = query.relations.as_ref();
        let relations = relations.map(|relations| Arc::new(relations.of_another_run()));
        let request = PlanRequest {
            distribution: None,
            remedies: remedies.as_ref(),
            relations: relations.as_ref(),
            reusable: query.operators.as_ref(),
        };
        let (recorder, waits) = (self.record.recorder(), self.progress.operators());
        let running = &self.running;
        let plan = &query.plan;
        let operators =
            planning::plan_query(plan, &state, recorder, running, waits, request).await?;
        if let Some(mut trial) = trial {
            trial.planned(recorder);
            self.record.tries(trial);
        }
        if let Some(relations) = relations {
            let known = Arc::clone(&self.session.database_inner().known_rows);
            self.record.counts(relations, known);
        }
        if let Some(workers) = &workers {
            self.runs_on(workers, &operators);
        }
        self.progress.watch(&operators);
        self.record.planned();
        let rows = self.execute(operators, &state)?;
        Ok(shown_rows(rows, zone_of(state.config_options())))
    }

    /// Optimizes `plan` in `state`, unless the plan of an earlier run is kept that would be the same.
    async fn optimized(
        &self,
        plan: &LogicalPlan,
        state: &mut SessionState,
        on_workers: bool,
    ) -> Result<Arc<OptimizedQuery>, Error> {
        let order = *self.session.inner().join_order.lock();
        let heeds_feedback = *self.session.inner().cardinality_feedback.lock();
        let database = self.session.database_inner();
        // Workers cannot evaluate a subquery first, and its rows are in the lineage.
        let with_joins = on_workers || self.record.recorder().level() == Level::Records;
        let may_be_kept = !with_joins
            && *self.session.inner().plan_cache.lock()
            && self.session.inner().read_only.is_none()
            && self.record.sql().len() <= plan_cache::LONGEST_TEXT;
        let key = match may_be_kept {
            true => {
                let options = &self.session.inner().options_hash;
                let settings = PlanSettings {
                    options: options.of_options(state.config().options()),
                    join_order: order,
                    heeds_feedback,
                };
                PlanKey::of_query(plan, settings)?
            }
            false => None,
        };
        let mut keeps = false;
        if let Some(key) = &key {
            match database.plans.get(key, &database.known_rows) {
                Lookup::Kept(query) => return Ok(query),
                Lookup::CameBefore => keeps = true,
                Lookup::New => {}
            }
        }
        // Statements that end meanwhile add rows to schema sys.
        let determinism = Determinism {
            reads_changing_tables: &skewer_profiling::reads_sys,
        };
        let optimized = folding::optimized(plan, || {
            optimize_dependent_joins(plan, state, on_workers, determinism, |plan, state| {
                match with_joins {
                    true => optimize_with_joins(plan, state),
                    false => state.optimize(plan),
                }
            })
        })??;
        let known = heeds_feedback.then_some(database.known_rows.as_ref());
        let traces = self.record.recorder().level() == Level::Records;
        let query = with_ordered_joins(optimized, state, order, known, traces).await;
        let Some(key) = key.filter(|_| keeps) else {
            return Ok(Arc::new(query));
        };
        let query = Arc::new(query.with_place_for_operators());
        let now = || database.storage.snapshot();
        database.plans.keep(key, Arc::clone(&query), now);
        Ok(query)
    }

    /// Decides whether the statement has remedies, if it is one that may.
    async fn begin_trial(&self) -> Result<Option<Trial>, Error> {
        let mode = *self.session.inner().remedies.lock();
        let may = mode.changes_plans()
            && self.record.traced_id().is_some()
            && self.record.recorder().level() > Level::Off;
        if !may {
            return Ok(None);
        }
        let book = &self.session.database_inner().remedies;
        // It runs queries of its own, which have no remedies.
        let trial = Box::pin(Trial::begin(&self.session, book, self.record.sql(), mode));
        trial.await.map(Some)
    }

    /// Starts operators. Their rows fail if the statement does not go on.
    pub(super) fn execute(
        &self,
        operators: Arc<dyn ExecutionPlan>,
        state: &SessionState,
    ) -> Result<SendableRecordBatchStream, Error> {
        let timeout = *self.session.inner().stall_timeout.lock();
        let is_master = self.session.database_inner().is_master();
        // What operators in other processes do is not known here.
        let elsewhere = is_master && crosses_workers(&operators);
        let rows = execute_stream(operators, state.task_ctx())?;
        if timeout.is_zero() || elsewhere {
            return Ok(rows);
        }
        let waits = Arc::clone(self.progress.operators());
        Ok(Box::pin(StallGuard::new(rows, waits, timeout)))
    }

    /// The workers that a statement is distributed over, if it is; this process among them if it
    /// has a part in it `here`, as statements have that write.
    pub(crate) fn workers(&self, here: bool) -> Option<Workers> {
        let database = self.session.database_inner();
        database.workers_of(self.catalog.snapshot(), here)
    }

    /// Tasks of the statement run on `workers`, if `plan` is distributed.
    pub(crate) fn runs_on(&mut self, workers: &Workers, plan: &Arc<dyn ExecutionPlan>) {
        self.record.runs_on(workers, plan);
        if crosses_workers(plan) {
            let query_id = self.record.recorder().query_id();
            let database = self.session.database_inner();
            self.progress.ask(database.tasks_read(workers, query_id));
        }
    }

    /// `state` as the session of a query for workers.
    pub(crate) fn on_workers(
        &self,
        workers: &Workers,
        state: SessionState,
    ) -> Result<SessionState, Error> {
        let store = self.storage().object_store_url();
        let recorder = self.record.recorder();
        let database = self.session.database_inner();
        let (place, sys) = (&database.place, &database.sys);
        let progress = &self.progress;
        Ok(planning::on_workers(
            workers,
            state,
            place,
            sys,
            store,
            recorder,
            progress,
            &self.running,
        )?)
    }

    /// Ends the statement with an error; gives what is to be said of it.
    pub(crate) async fn fail(self, error: Error) -> Error {
        let error = match self.running.cancellation().is_cancelled() {
            true => Error::Cancelled,
            false => self.catalog.diagnose(error).await,
        };
        self.progress.finish();
        self.record.finish(Err(&error)).await;
        error
    }

    /// Ends a statement that changed rows, with their number.
    pub(crate) async fn end(mut self, outcome: Result<u64, Error>) -> Result<u64, Error> {
        match outcome {
            Ok(rows) => {
                self.progress.finish();
                self.record.add_rows(rows);
                self.record.finish(Ok(())).await;
                Ok(rows)
            }
            Err(error) => Err(self.fail(error).await),
        }
    }

    /// Publishes what a transaction holds.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Arc<Snapshot>, Error> {
        // A commit syncs the catalog: it must not hold up a thread that runs queries. Once begun
        // it goes through, even if the statement is cancelled meanwhile.
        let database = self.session.database_inner();
        let (snapshots, plans) = (Arc::clone(&database.snapshots), Arc::clone(&database.plans));
        let commit = move || {
            let now = transaction.commit()?;
            snapshots.trim(&now);
            plans.drop_outdated(&now);
            Ok(now)
        };
        tokio::task::spawn_blocking(commit)
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
    }

    /// Gives the outcome to the reader; the record ends with it.
    pub(super) async fn answer(mut self, outcome: Outcome) -> Result<QueryStream, Error> {
        let query_id = self.record.traced_id();
        let batch = match outcome {
            Outcome::Rows(stream) => {
                return Ok(QueryStream::run(stream, self));
            }
            Outcome::Batch(batch) => {
                self.record.add_rows(batch.num_rows() as u64);
                batch
            }
            Outcome::Count(count) => {
                self.record.add_rows(count);
                count_batch(count)?
            }
            Outcome::Done => {
                let none = RecordBatchOptions::new().with_row_count(Some(0));
                RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &none)?
            }
        };
        self.progress.finish();
        self.record.finish(Ok(())).await;
        Ok(QueryStream::ready(batch, query_id).with_notices(self.notices))
    }

    /// Reads the outcome to its end and throws it away; gives the number of rows.
    pub(crate) async fn drain(mut self, outcome: Outcome) -> Result<u64, Error> {
        let result = match outcome {
            Outcome::Rows(mut stream) => {
                let mut rows = 0;
                loop {
                    match stream.next().await {
                        Some(Ok(batch)) => {
                            rows += batch.num_rows() as u64;
                            if rows > 0 {
                                self.record.has_rows();
                            }
                            self.progress.add_rows(batch.num_rows() as u64);
                        }
                        Some(Err(error)) => break Err(self.catalog.diagnose(error.into()).await),
                        None => break Ok(rows),
                    }
                }
            }
            Outcome::Batch(batch) => Ok(batch.num_rows() as u64),
            Outcome::Count(count) => Ok(count),
            Outcome::Done => Ok(0),
        };
        self.progress.finish();
        if let Ok(rows) = &result {
            self.record.add_rows(*rows);
        }
        self.record.finish(result.as_ref().map(|_| ())).await;
        result
    }
}
