//! A session: settings, functions, prepared statements.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{EmptyCatalogProviderList, MemTable, SchemaProvider, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{ScalarUDF, Volatility};
use datafusion::prelude::{SessionConfig, SessionContext};
use parking_lot::Mutex;
use skewer_compat::functions::zones::UTC;
use skewer_compat::operators::memory_pool::{MemoryBudget, RaisedBy};
use skewer_compat::rules::collect_larger_build_sides;
use skewer_compat::session::repaired;
use skewer_optimizer::join_order::JoinOrder;
use skewer_sql::{ObjectKind, TraceParent};
use skewer_storage::Snapshot;

use crate::catalog::quarantine::RowsSeen;
use crate::catalog::{CATALOG, MAIN, StatementCatalog};
use crate::database::{Database, DatabaseInner};
use crate::error::Error;
use crate::functions::Functions;
use crate::last_query_id::LastQueryId;
use crate::plan_cache::OptionsHash;
use crate::profile::{blame_function, critical_path_function, what_if_function};
use crate::progress::ProgressHandle;
use crate::query_stream::QueryStream;
use crate::remedies::RemedyMode;
use crate::settings::{DEFAULT_STALL_TIMEOUT, ProfileSettings};
use crate::statements;
use crate::statements::prepare::Prepared;
use crate::trace_parent;
use skewer_compat::session_zone::zone_of;

/// The user of sessions of which no other is known.
const LOCAL_USER: &str = "local";

/// A session: settings, registered functions and prepared statements that belong together.
///
/// Cheap to clone; clones are the same session. Statements may run at the same time, in one
/// session or in several: each sees the database as it was when the statement began, and what it
/// changes appears at once and as a whole.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
/// let session = skewer::Database::in_memory()?.session();
/// session.sql("CREATE TABLE t (a INT)").await?;
/// let (one, two) = tokio::join!(
///     session.sql("INSERT INTO t VALUES (1)"),
///     session.sql("INSERT INTO t VALUES (2)"),
/// );
/// one?;
/// two?;
/// let batches = session.sql("SELECT count(*) FROM t").await?.collect().await?;
/// assert_eq!(batches[0].num_rows(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    inner: Arc<SessionInner>,
    /// What statements see, if it is not what is there when they begin.
    then: Option<Arc<Snapshot>>,
}

pub(crate) struct SessionInner {
    database: Database,
    /// DataFusion's settings and functions; its catalog stays empty.
    context: SessionContext,
    pub(crate) profile: Mutex<ProfileSettings>,
    /// After how long a query fails that does not go on; zero for never.
    pub(crate) stall_timeout: Mutex<Duration>,
    /// Which rows queries see of tables with quarantines (`quarantine`).
    pub(crate) rows_seen: Mutex<RowsSeen>,
    /// How joins of queries are put in order (`join_order`).
    pub(crate) join_order: Mutex<JoinOrder>,
    /// What is done about skew that earlier runs have shown (`remedies`).
    pub(crate) remedies: Mutex<RemedyMode>,
    /// Whether estimates heed rows that earlier queries counted (`cardinality_feedback`).
    pub(crate) cardinality_feedback: Mutex<bool>,
    /// Whether plans of earlier runs are used, and those of its queries kept (`plan_cache`).
    pub(crate) plan_cache: Mutex<bool>,
    pub(crate) options_hash: OptionsHash,
    /// Who sends the statements.
    user: Mutex<String>,
    /// The caller's span of all statements that name none themselves (`trace.parent`).
    pub(crate) trace_parent: Mutex<Option<TraceParent>>,
    /// Whether the log has said that a comment names no valid span.
    pub(crate) has_warned_of_comment: AtomicBool,
    pub(crate) prepared: Mutex<HashMap<String, Prepared>>,
    pub(crate) last_query_id: Arc<AtomicI64>,
    /// The tables of [`Session::register_table`], by name.
    pub(crate) registered: Mutex<BTreeMap<String, Arc<dyn TableProvider>>>,
    /// The schemas of [`Session::register_schema`], by name.
    pub(crate) schemas: Mutex<BTreeMap<String, Arc<dyn SchemaProvider>>>,
    /// Of the statement that began last.
    progress: Mutex<ProgressHandle>,
    /// What statements of a read-only session may take.
    pub(crate) read_only: Option<ReadOnly>,
}

/// What statements of a read-only session may take.
///
/// Such a session runs SELECT, EXPLAIN and SHOW and refuses the rest with [`Error::ReadOnlySession`]. Its
/// statements leave no row in schema `sys`, and do not wait for admission.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
/// use skewer::{Database, Error, ReadOnly};
///
/// let session = Database::in_memory()?.read_only_session(ReadOnly::default());
/// session.sql("SELECT 1").await?;
/// let refused = session.sql("CREATE TABLE t (a INT)").await;
/// assert!(matches!(refused, Err(Error::ReadOnlySession)));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOnly {
    /// A statement that takes longer ends with [`Error::TimedOut`].
    pub timeout: Duration,
    /// Bytes that operators of all its statements may hold together in this process.
    pub memory: usize,
}

/// Sorts of a read-only session that may set memory aside at once.
const SORTS: usize = 128;

impl Default for ReadOnly {
    /// Five seconds and 64 MiB.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            memory: 64 << 20,
        }
    }
}

impl std::fmt::Debug for SessionInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// A session that others keep.
#[derive(Debug)]
pub(crate) struct WeakSession(Weak<SessionInner>);

impl WeakSession {
    pub(crate) fn upgrade(&self) -> Option<Session> {
        let inner = self.0.upgrade()?;
        Some(Session { inner, then: None })
    }
}

impl Session {
    pub(crate) fn new(database: Database, read_only: Option<ReadOnly>) -> Self {
        let last_query_id = Arc::new(AtomicI64::new(0));
        let inner = database.inner();
        let mut config = SessionConfig::new()
            .with_target_partitions(inner.partitions())
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, MAIN)
            // `StatementCatalog` has its own, which copes with views that have become invalid.
            .with_information_schema(false)
            .with_extension(Arc::clone(&inner.cache));
        // A third pass changes the plan of none of the 99 queries of TPC-DS, and takes an eighth of the time of planning.
        config.options_mut().optimizer.max_passes = 2;
        // Without one, TIMESTAMP WITH TIME ZONE would silently have none.
        let execution = &mut config.options_mut().execution;
        execution.time_zone = Some(UTC.to_owned());
        // It refuses aggregates over `IS NOT TRUE`, which DataFusion 55.2 takes for never NULL in
        // logical plans only.
        execution.skip_physical_aggregate_schema_check = true;
        if let Some(ReadOnly { memory, .. }) = read_only {
            // A view of schema `sys` has dozens of sorts. Together they would set aside more than there is.
            let each = &mut execution.sort_spill_reservation_bytes;
            *each = (*each).min(memory / SORTS);
        }
        if !inner.has_workers() {
            collect_larger_build_sides(config.options_mut(), inner.partitions());
        }
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime_env(inner, read_only))
            .with_catalog_list(Arc::new(EmptyCatalogProviderList));
        let context = repaired(state);
        for function in inner.functions.iter() {
            context.register_udf(function.as_ref().clone());
        }
        inner.sys.register_functions(&context);
        context.register_udf(ScalarUDF::from(LastQueryId::new(Arc::clone(
            &last_query_id,
        ))));
        let inner = Arc::new_cyclic(|session| {
            let blame = blame_function(WeakSession(Weak::clone(session)));
            context.register_udtf("blame", Arc::new(blame));
            let what_if = what_if_function(WeakSession(Weak::clone(session)));
            context.register_udtf("what_if", Arc::new(what_if));
            let path = critical_path_function(WeakSession(Weak::clone(session)));
            context.register_udtf("critical_path", Arc::new(path));
            SessionInner {
                database,
                context,
                profile: Mutex::default(),
                stall_timeout: Mutex::new(DEFAULT_STALL_TIMEOUT),
                rows_seen: Mutex::default(),
                join_order: Mutex::default(),
                remedies: Mutex::default(),
                cardinality_feedback: Mutex::new(true),
                plan_cache: Mutex::new(true),
                options_hash: OptionsHash::default(),
                user: Mutex::new(LOCAL_USER.to_owned()),
                trace_parent: Mutex::default(),
                has_warned_of_comment: AtomicBool::new(false),
                prepared: Mutex::default(),
                last_query_id,
                registered: Mutex::default(),
                schemas: Mutex::default(),
                progress: Mutex::default(),
                read_only,
            }
        });
        Self { inner, then: None }
    }

    /// What a query of now sees.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        let then = self.then.clone();
        then.unwrap_or_else(|| self.database_inner().storage.snapshot())
    }

    /// The same session, whose queries see the tables as they were in `snapshot`.
    pub(crate) fn at_snapshot(&self, snapshot: Arc<Snapshot>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            then: Some(snapshot),
        }
    }

    /// Runs one statement.
    ///
    /// A query has been planned when this returns, and runs while its stream is read. Every other
    /// statement has been carried out: what it changed is on disk. Dropping the future before
    /// that cancels the statement, and then it has changed nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use datafusion::arrow::util::pretty::pretty_format_batches;
    ///
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t (a INT, b VARCHAR)").await?;
    /// session.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')").await?;
    /// let batches = session.sql("SELECT b FROM t WHERE a = 2").await?.collect().await?;
    /// let text = pretty_format_batches(&batches).unwrap().to_string();
    /// assert!(text.contains("two"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Whatever is wrong with the statement, or with what it reads; see [`Error`]. The session
    /// can go on after any of them.
    pub async fn sql(&self, sql: &str) -> Result<QueryStream, Error> {
        self.forget_progress();
        let session = self.clone();
        let sql = sql.to_owned();
        let read_only = self.inner.read_only;
        self.inner
            .database
            .run(async move {
                let statement = statements::execute(&session, &sql);
                let statement = trace_parent::scope(&session, &sql, statement);
                let Some(ReadOnly { timeout, .. }) = read_only else {
                    return statement.await;
                };
                let in_time = tokio::time::timeout(timeout, statement).await;
                in_time.unwrap_or(Err(Error::TimedOut(timeout)))
            })
            .await
    }

    /// Runs a script: statements separated by semicolons, one after the other, up to the first
    /// error. Gives the last result.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// let last = session
    ///     .execute_script("CREATE TABLE t AS SELECT 1 AS a; SELECT a FROM t;")
    ///     .await?;
    /// assert_eq!(last.len(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// That of the first statement that fails.
    pub async fn execute_script(&self, script: &str) -> Result<Vec<RecordBatch>, Error> {
        let mut last = Vec::new();
        for statement in skewer_sql::split(script) {
            last = self.sql(&statement.sql).await?.collect().await?;
        }
        Ok(last)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Sets who sends the session's statements: `sys.queries.user_name` has it. It gives no rights. Until then the
    /// user is `local`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// assert_eq!(session.user(), "local");
    /// session.set_user("ada");
    /// assert_eq!(session.user(), "ada");
    /// # Ok(()) }
    /// ```
    pub fn set_user(&self, user: &str) {
        user.clone_into(&mut self.inner.user.lock());
    }

    /// Who sends the session's statements.
    pub fn user(&self) -> String {
        self.inner.user.lock().clone()
    }

    /// How far the statement is that began last in this session, or nothing if another has been sent
    /// since it ended: also one that [`sql`](Self::sql) is still carrying out, as a long COPY.
    pub fn progress(&self) -> ProgressHandle {
        self.inner.progress.lock().clone()
    }

    /// The id in schema `sys` of the statement that ended last in this session, however it ended:
    /// what `last_query_id()` gives in SQL. `None` before the first.
    pub fn last_query_id(&self) -> Option<i64> {
        match self.inner.last_query_id.load(Ordering::Acquire) {
            0 => None,
            id => Some(id),
        }
    }

    /// The zone that instants are shown in, and that times without zone are of where an instant is wanted: the
    /// setting `timezone`.
    pub fn time_zone(&self) -> String {
        let config = self.inner.context.copied_config();
        zone_of(config.options()).to_owned()
    }

    /// Registers a scalar function of DataFusion's, for statements of this session.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use std::sync::Arc;
    /// use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
    /// use datafusion::arrow::datatypes::{DataType, Int64Type};
    /// use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    ///
    /// let session = skewer::Database::in_memory()?.session();
    /// session.register_udf(create_udf(
    ///     "twice",
    ///     vec![DataType::Int64],
    ///     DataType::Int64,
    ///     Volatility::Immutable,
    ///     Arc::new(|args| {
    ///         let arrays = ColumnarValue::values_to_arrays(args)?;
    ///         let twice = arrays[0].as_primitive::<Int64Type>().unary::<_, Int64Type>(|x| 2 * x);
    ///         Ok(ColumnarValue::Array(Arc::new(twice) as ArrayRef))
    ///     }),
    /// ));
    /// let batches = session.sql("SELECT twice(21)").await?.collect().await?;
    /// assert_eq!(batches[0].column(0).as_primitive::<Int64Type>(), &Int64Array::from(vec![42]));
    /// # Ok(()) }
    /// ```
    pub fn register_udf(&self, function: ScalarUDF) {
        self.inner.context.register_udf(function);
    }

    /// Registers a scalar function as a closure over one row's arguments, for statements of this
    /// session. The profiler can time such a function row by row.
    ///
    /// `volatility` says whether equal arguments give equal results, always
    /// ([`Volatility::Immutable`]) or within a statement ([`Volatility::Stable`]): only then may a
    /// call be evaluated ahead or again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use datafusion::arrow::datatypes::DataType;
    /// use datafusion::common::ScalarValue;
    /// use datafusion::logical_expr::Volatility;
    ///
    /// let session = skewer::Database::in_memory()?.session();
    /// session.register_row_udf(
    ///     "initials",
    ///     vec![DataType::Utf8],
    ///     DataType::Utf8,
    ///     Volatility::Immutable,
    ///     |args| {
    ///         let ScalarValue::Utf8(Some(name)) = &args[0] else {
    ///             return Ok(ScalarValue::Utf8(None));
    ///         };
    ///         let initials = name.split(' ').filter_map(|part| part.chars().next()).collect();
    ///         Ok(ScalarValue::Utf8(Some(initials)))
    ///     },
    /// );
    /// let batches = session.sql("SELECT initials('Ada Lovelace')").await?.collect().await?;
    /// assert_eq!(ScalarValue::try_from_array(batches[0].column(0), 0)?.to_string(), "AL");
    /// # Ok(()) }
    /// ```
    pub fn register_row_udf(
        &self,
        name: &str,
        arguments: Vec<DataType>,
        result: DataType,
        volatility: Volatility,
        closure: impl Fn(&[ScalarValue]) -> datafusion::common::Result<ScalarValue>
        + Send
        + Sync
        + 'static,
    ) {
        let one = Functions::new().with_row_udf(name, arguments, result, volatility, closure);
        for function in one.iter() {
            self.register_udf(function.as_ref().clone());
        }
    }

    /// Makes a batch readable as table `name` in statements of this session.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use std::sync::Arc;
    /// use skewer::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    ///
    /// let numbers = Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
    /// let batch = RecordBatch::try_from_iter([("n", numbers)])?;
    /// let session = skewer::Database::in_memory()?.session();
    /// session.register_batch("numbers", batch)?;
    /// let rows: Vec<(i64,)> = session.query_as("SELECT sum(n) FROM numbers").await?;
    /// assert_eq!(rows, [(6,)]);
    /// session.sql("CREATE TABLE kept AS SELECT * FROM numbers").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`register_table`](Self::register_table).
    pub fn register_batch(&self, name: &str, batch: RecordBatch) -> Result<(), Error> {
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        self.register_table(name, Arc::new(table))
    }

    /// Makes a table of DataFusion readable as `name` in statements of this session, which cannot
    /// write to it. A table registered under the same name before is replaced. The name is taken as
    /// it is: SQL must quote it if it has upper-case letters. Views cannot read it.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the default schema has a table or view of this name.
    pub fn register_table(&self, name: &str, table: Arc<dyn TableProvider>) -> Result<(), Error> {
        let snapshot = self.snapshot();
        let taken = if snapshot.table(MAIN, name).is_some() {
            Some(ObjectKind::Table)
        } else {
            snapshot.view(MAIN, name).map(|_| ObjectKind::View)
        };
        if let Some(kind) = taken {
            let name = name.to_owned();
            return Err(Error::AlreadyExists { kind, name });
        }
        self.inner.registered.lock().insert(name.to_owned(), table);
        Ok(())
    }

    /// Removes a table that was registered; returns whether there was one.
    pub fn deregister_table(&self, name: &str) -> bool {
        self.inner.registered.lock().remove(name).is_some()
    }

    /// Adds a schema that statements of this session can read, as `name.table`, and not write.
    /// `information_schema` and lists of schemas leave it out, and queries that read nothing else
    /// leave no trace in schema `sys`.
    pub fn register_schema(&self, name: &str, schema: Arc<dyn SchemaProvider>) {
        self.inner.schemas.lock().insert(name.to_owned(), schema);
    }

    /// An error if the session is read-only.
    pub(crate) fn refuse_if_read_only(&self) -> Result<(), Error> {
        match self.inner.read_only {
            Some(_) => Err(Error::ReadOnlySession),
            None => Ok(()),
        }
    }

    pub(crate) fn inner(&self) -> &SessionInner {
        &self.inner
    }

    /// The session as long as somebody else keeps it.
    pub(crate) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.inner))
    }

    pub(crate) fn database_inner(&self) -> &Arc<DatabaseInner> {
        self.inner.database.inner()
    }

    pub(crate) fn context(&self) -> &SessionContext {
        &self.inner.context
    }

    /// What a statement sees that begins now.
    pub(crate) fn catalog(&self) -> Arc<StatementCatalog> {
        let rows_seen = *self.inner.rows_seen.lock();
        self.catalog_seeing(rows_seen)
    }

    /// The same for a statement that sees these rows, whatever the session asks for.
    pub(crate) fn catalog_seeing(&self, rows_seen: RowsSeen) -> Arc<StatementCatalog> {
        let database = self.database_inner();
        let snapshot = self.snapshot();
        let catalog = StatementCatalog::new(
            self.inner.context.state(),
            database.storage.clone(),
            Arc::clone(&snapshot),
            database.sys_schema(snapshot),
            self.inner.schemas.lock().clone(),
            self.inner.registered.lock().clone(),
        );
        Arc::new(catalog.seeing(rows_seen))
    }

    /// Another statement has been sent: what is known of one that has ended is no progress of this one,
    /// which threads may be too busy to begin.
    pub(crate) fn forget_progress(&self) {
        let mut progress = self.inner.progress.lock();
        if progress.is_finished() {
            *progress = ProgressHandle::default();
        }
    }

    /// The progress of a statement that begins now.
    pub(crate) fn begin_progress(&self) -> ProgressHandle {
        let progress = ProgressHandle::default();
        *self.inner.progress.lock() = progress.clone();
        progress
    }
}

/// The memory and files of a session's statements: the database's, or for a read-only session with memory of
/// its own.
fn runtime_env(database: &DatabaseInner, read_only: Option<ReadOnly>) -> Arc<RuntimeEnv> {
    let shared = &database.runtime_env;
    let Some(ReadOnly { memory, .. }) = read_only else {
        return Arc::clone(shared);
    };
    let pool = MemoryBudget::new(Some(memory), RaisedBy::Nothing);
    Arc::new(RuntimeEnv {
        memory_pool: Arc::new(pool),
        ..shared.as_ref().clone()
    })
}
