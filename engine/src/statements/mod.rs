//! The life of a statement, one file per kind.
//!
//! 1. [`Session::sql`] hands the text to the database's threads: `execute`.
//! 2. `skewer_sql::parse` makes a [`Statement`] of it, or an error with a caret.
//! 3. `Context::begin` takes a snapshot (`catalog::StatementCatalog`), a `query_id` and a recorder
//!    at the session's level.
//! 4. For a query, `StatementCatalog::plan` makes row ids visible where they are named and lets
//!    DataFusion resolve names and types; `Context::stream` optimises the logical plan and hands
//!    it to `planning::plan_query`, which makes operators that record.
//! 5. The operators run while `QueryStream` is read. Statements that write read the stream
//!    themselves, write segments, and publish them in one transaction.
//! 6. At the end, however it comes, `StatementRecord` hands what was recorded to schema `sys`.
//!
//! [`Session::sql`]: crate::Session::sql

pub(crate) mod alter_table;
pub(crate) mod append;
pub(crate) mod copy_from;
pub(crate) mod copy_to;
pub(crate) mod create_external_table;
pub(crate) mod create_table;
pub(crate) mod create_view;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod drop;
pub(crate) mod explain;
pub(crate) mod explain_profile;
pub(crate) mod export_profile;
pub(crate) mod insert;
pub(crate) mod on_workers;
pub(crate) mod parameters;
pub(crate) mod prepare;
pub(crate) mod rebalance;
pub(crate) mod rewrite;
pub(crate) mod schema;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod show_profile;
pub(crate) mod trace_events;
pub(crate) mod truncate;
pub(crate) mod update;
pub(crate) mod without;
pub(crate) mod write;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream, execute_stream};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use skewer_cluster::{CollectMetrics, Workers};
use skewer_optimizer::scalar_subquery::optimize_with_joins;
use skewer_profiling::Level;
use skewer_sql::Statement;
use skewer_storage::{Snapshot, Storage, Transaction};

use crate::catalog::StatementCatalog;
use crate::cluster::missing;
use crate::error::Error;
use crate::planning;
use crate::progress::ProgressHandle;
use crate::query_stream::QueryStream;
use crate::record::{StatementRecord, crosses_workers};
use crate::report;
use crate::session::Session;
use crate::settings::ProfileSettings;
use crate::turns::{Listed, Turn};

/// What a statement works with.
pub(crate) struct Context {
    pub(crate) session: Session,
    pub(crate) catalog: Arc<StatementCatalog>,
    pub(crate) record: StatementRecord,
    pub(crate) progress: ProgressHandle,
    /// Held as long as it runs, by statements that run queries.
    pub(crate) turn: Option<Turn>,
    /// The query, if it may be run once more when it loses a worker.
    pub(crate) again: Option<LogicalPlan>,
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

/// Runs one statement of a session.
pub(crate) async fn execute(session: &Session, sql: &str) -> Result<QueryStream, Error> {
    let statement = skewer_sql::parse(sql)?;
    execute_parsed(session, sql, statement).await
}

pub(crate) async fn execute_parsed(
    session: &Session,
    sql: &str,
    statement: Statement,
) -> Result<QueryStream, Error> {
    let statement = prepare::resolve(session, statement)?;
    match statement {
        Statement::ExplainProfile(explain) => {
            return Box::pin(explain_profile::execute(session, explain)).await;
        }
        Statement::ShowProfile {
            query_id,
            format,
            as_sql,
        } => {
            let options = report::Options { format, as_sql };
            return Box::pin(show_profile::execute(session, query_id, options)).await;
        }
        Statement::ExportProfile {
            query_id,
            path,
            format,
        } => {
            let export = export_profile::export(session, query_id, &path, format);
            return Box::pin(export).await;
        }
        Statement::ImportProfile { path } => {
            return Box::pin(export_profile::import(session, &path)).await;
        }
        _ => {}
    }
    let catalog = session.catalog();
    let tracing = tracing_of(session, &catalog, &statement);
    let context = Context::begin(session, catalog, sql, tracing);
    let (context, outcome) = run(context, statement).await?;
    Box::pin(context.answer(outcome)).await
}

/// Runs a statement; if it fails it is recorded as failed.
pub(crate) async fn run(
    mut context: Context,
    statement: Statement,
) -> Result<(Context, Outcome), Error> {
    if runs_queries(&statement) {
        context.take_turn().await;
    }
    // On the heap: the caller's thread, which passes the future on, may have a small stack.
    match Box::pin(dispatch(&mut context, statement)).await {
        Ok(outcome) => Ok((context, outcome)),
        Err(error) => Err(context.fail(error).await),
    }
}

/// Whether a statement takes a turn, if it leaves a trace.
fn runs_queries(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_)
            | Statement::Explain(_)
            | Statement::CreateTable(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::CopyFrom(_)
            | Statement::CopyTo(_)
    )
}

async fn dispatch(context: &mut Context, statement: Statement) -> Result<Outcome, Error> {
    match statement {
        Statement::Query(query) => context.query(as_statement(query)).await,
        Statement::Explain(explain) => explain::execute(context, *explain).await,
        Statement::CreateTable(table) => create_table::execute(context, *table).await,
        Statement::CreateExternalTable(table) => {
            create_external_table::execute(context, *table).await
        }
        Statement::CreateView(view) => create_view::execute(context, *view).await,
        Statement::CreateSchema {
            name,
            if_not_exists,
        } => schema::create(context, &name, if_not_exists).await,
        Statement::Drop {
            kind,
            if_exists,
            names,
            cascade,
        } => drop::execute(context, kind, if_exists, &names, cascade).await,
        Statement::AlterTable(alter) => alter_table::execute(context, *alter).await,
        Statement::Truncate { if_exists, names } => {
            truncate::execute(context, if_exists, &names).await
        }
        Statement::Rebalance { names } => rebalance::execute(context, names).await,
        Statement::Insert(insert) => insert::execute(context, *insert).await,
        Statement::Delete(delete) => delete::execute(context, *delete).await,
        Statement::Update(update) => update::execute(context, *update).await,
        Statement::CopyFrom(copy) => copy_from::execute(context, copy).await,
        Statement::CopyTo(copy) => copy_to::execute(context, copy).await,
        Statement::Set { name, value } => set::set(&context.session, &name, &value).await,
        Statement::Reset { name } => set::reset(&context.session, name.as_deref()).await,
        Statement::Show { name } => show::setting(&context.session, name.as_deref()),
        Statement::ShowTables { schema, like } => show::tables(context, schema, like).await,
        Statement::ShowSchemas => show::schemas(context),
        Statement::ShowCreate { kind, name } => show::create(context, kind, &name).await,
        Statement::Describe(name) => describe::table(context, &name).await,
        Statement::DescribeQuery(query) => describe::query(context, query).await,
        Statement::Prepare {
            name,
            types,
            statement,
        } => prepare::prepare(&context.session, name, types, *statement),
        Statement::Deallocate { name } => prepare::deallocate(&context.session, name),
        Statement::Other(statement) => other(context, *statement).await,
        Statement::ExplainProfile(_) => Err(Error::Unsupported(
            "EXPLAIN PROFILE within another statement".to_owned(),
        )),
        Statement::Recorded { .. } => Err(Error::Unsupported(
            "QUERY n without EXPLAIN PROFILE".to_owned(),
        )),
        Statement::Diff { .. } => Err(Error::Unsupported(
            "DIFF a, b without EXPLAIN PROFILE".to_owned(),
        )),
        Statement::ShowProfile { .. } => Err(Error::Unsupported(
            "SHOW PROFILE within another statement".to_owned(),
        )),
        Statement::ExportProfile { .. } | Statement::ImportProfile { .. } => Err(
            Error::Unsupported("EXPORT PROFILE and IMPORT PROFILE".to_owned()),
        ),
        Statement::Execute { .. } => Err(Error::Unsupported(
            "EXECUTE within another statement".to_owned(),
        )),
    }
}

/// What sqlparser knows and we have nothing of our own for.
async fn other(context: &mut Context, statement: DFStatement) -> Result<Outcome, Error> {
    let DFStatement::Statement(inner) = &statement else {
        return Err(Error::Unsupported(statement.to_string()));
    };
    match &**inner {
        ast::Statement::ShowFunctions { .. } => context.query(statement).await,
        ast::Statement::StartTransaction { .. }
        | ast::Statement::Commit { .. }
        | ast::Statement::Rollback { .. } => Err(Error::Unsupported(
            "transactions of several statements; each statement is a transaction of its own"
                .to_owned(),
        )),
        other => {
            let text = other.to_string();
            let words: Vec<_> = text.split_whitespace().take(2).collect();
            Err(Error::Unsupported(format!("{} …", words.join(" "))))
        }
    }
}

/// Statements about the session or the catalog, and queries that read only schema `sys`, leave no
/// trace, so that looking at the last query does not replace it.
fn tracing_of(session: &Session, catalog: &StatementCatalog, statement: &Statement) -> Tracing {
    let settings = *session.inner().profile.lock();
    match statement {
        Statement::Query(query) if catalog.reads_only_system(&as_statement(query.clone())) => {
            Tracing::None
        }
        Statement::Explain(explain) => match is_analyze(explain) {
            true => Tracing::At(ProfileSettings {
                level: Level::Off,
                ..settings
            }),
            false => Tracing::None,
        },
        Statement::Query(_) if settings.level > Level::Off => match settings.budget {
            Some(budget) => Tracing::Within(budget, settings),
            None => Tracing::At(settings),
        },
        Statement::Set { .. }
        | Statement::Reset { .. }
        | Statement::Show { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowSchemas
        | Statement::ShowCreate { .. }
        | Statement::Describe(_)
        | Statement::DescribeQuery(_)
        | Statement::Prepare { .. }
        | Statement::Deallocate { .. }
        | Statement::Other(_) => Tracing::None,
        _ => Tracing::At(settings),
    }
}

fn is_analyze(statement: &DFStatement) -> bool {
    match statement {
        DFStatement::Explain(explain) => explain.options.analyze,
        DFStatement::Statement(statement) => {
            matches!(**statement, ast::Statement::Explain { analyze: true, .. })
        }
        _ => false,
    }
}

/// A query as DataFusion's planner takes it.
pub(crate) fn as_statement(query: Box<ast::Query>) -> DFStatement {
    DFStatement::Statement(Box::new(ast::Statement::Query(query)))
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
            Tracing::None => StatementRecord::untraced(),
        };
        Self {
            session: session.clone(),
            catalog,
            record,
            progress,
            turn: None,
            again: None,
        }
    }

    /// Waits until the statement may run queries; then looks at the database as it is.
    pub(crate) async fn take_turn(&mut self) {
        let Some(query_id) = self.record.traced_id() else {
            return;
        };
        let statement = Listed {
            query_id,
            sql: self.record.sql().to_owned(),
            since: self.record.started_at(),
            progress: self.progress.clone(),
        };
        let turn = self.session.database_inner().turns.take(statement).await;
        if turn.has_waited {
            self.record.has_its_turn();
            self.catalog = self.session.catalog();
        }
        self.turn = Some(turn);
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.catalog.storage()
    }

    async fn query(&mut self, statement: DFStatement) -> Result<Outcome, Error> {
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
        let optimized = if workers.is_some() || self.record.recorder().level() == Level::Records {
            // Workers cannot evaluate a subquery first, and its rows are in the lineage.
            optimize_with_joins(plan, &mut state)?
        } else {
            state.optimize(plan)?
        };
        let database = self.session.database_inner();
        missing::check(&optimized, self.catalog.snapshot(), |worker| {
            database.lost(worker)
        })?;
        self.record.reads(&self.catalog.touched().tables);
        let operators = planning::plan_query(&optimized, &state, self.record.recorder()).await?;
        if let Some(workers) = &workers {
            self.runs_on(workers, &operators);
        }
        self.progress.watch(&operators);
        self.record.planned();
        Ok(execute_stream(operators, state.task_ctx())?)
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
            workers, state, place, sys, store, recorder, progress,
        )?)
    }

    /// Ends the statement with an error; gives what is to be said of it.
    pub(crate) async fn fail(self, error: Error) -> Error {
        let error = self.catalog.diagnose(error).await;
        self.progress.finish();
        self.record.finish(Err(&error)).await;
        error
    }

    /// Publishes what a transaction holds.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Arc<Snapshot>, Error> {
        // A commit syncs the catalog: it must not hold up a thread that runs queries. Once begun
        // it goes through, even if the statement is cancelled meanwhile.
        let snapshots = Arc::clone(&self.session.database_inner().snapshots);
        let commit = move || {
            let now = transaction.commit()?;
            snapshots.trim(&now);
            Ok(now)
        };
        tokio::task::spawn_blocking(commit)
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
    }

    /// Gives the outcome to the reader; the record ends with it.
    async fn answer(mut self, outcome: Outcome) -> Result<QueryStream, Error> {
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
        Ok(QueryStream::ready(batch, query_id))
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

/// One row that says how many rows were changed.
pub(crate) fn count_batch(count: u64) -> Result<RecordBatch, Error> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![count]));
    let schema = Schema::new(vec![Field::new("count", DataType::Int64, false)]);
    Ok(RecordBatch::try_new(Arc::new(schema), vec![column])?)
}

/// A result of text columns.
pub(crate) fn text_batch(
    columns: &[&str],
    rows: Vec<Vec<Option<String>>>,
) -> Result<RecordBatch, Error> {
    use datafusion::arrow::array::StringArray;
    let fields: Vec<_> = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, true))
        .collect();
    let arrays = (0..columns.len())
        .map(|n| {
            let values = rows.iter().map(|row| row.get(n).and_then(|v| v.as_deref()));
            Arc::new(StringArray::from_iter(values)) as ArrayRef
        })
        .collect();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new(schema, arrays)?)
}
