//! Profiles of queries for programs, and the report that SQL returns.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result as DataFusionResult;
use skewer_diagnosis::{
    BlameFunction, CriticalPathFunction, Profile, ProfileSource, RunContext, TableQuarantine,
    WhatIfFunction,
};
use skewer_report::Document;
use skewer_sql::{ExplainProfile, ProfileFormat, Statement};

use crate::catalog::quarantine::logged;
use crate::error::Error;
use crate::session::{Session, WeakSession};
use crate::statements::untraced::untraced_query;
use crate::statements::{explain_profile, export_page};
use crate::tables_read::{TablesRead, changes_since};

/// The column with a report's text.
const COLUMN: &str = "EXPLAIN PROFILE";

/// The column with the styles of a report's lines.
const STYLES: &str = "styles";

/// The key of a text column's metadata with the styles of all lines.
const STYLES_KEY: &str = "skewer.styles";

#[async_trait]
impl ProfileSource for Session {
    async fn query(&self, sql: &str) -> DataFusionResult<Vec<RecordBatch>> {
        let answer = untraced_query(self, sql).await;
        answer.map_err(Error::into_datafusion)
    }

    async fn view_sql(&self, view: &str, query_id: i64) -> DataFusionResult<String> {
        let sys = &self.database_inner().sys;
        sys.expanded_sql(view, query_id).await
    }

    fn replaced_tables(&self, tables_read: &str) -> Vec<String> {
        TablesRead::parse(tables_read).replaced(&self.snapshot())
    }

    fn quarantines_of(&self, table: &str) -> Option<Vec<TableQuarantine>> {
        let (schema, name) = table.split_once('.')?;
        let table = self.snapshot().table(schema, name)?;
        let quarantines = table.quarantines.values();
        Some(quarantines.map(|q| logged(&table, q)).collect())
    }
}

/// The table function `sys.blame` for the statements of a session.
pub(crate) fn blame_function(session: WeakSession) -> BlameFunction {
    BlameFunction::new(move || source_of(&session))
}

/// The table function `sys.what_if` for the statements of a session.
pub(crate) fn what_if_function(session: WeakSession) -> WhatIfFunction {
    WhatIfFunction::new(move || source_of(&session))
}

/// The table function `sys.critical_path` for the statements of a session.
pub(crate) fn critical_path_function(session: WeakSession) -> CriticalPathFunction {
    CriticalPathFunction::new(move || source_of(&session))
}

fn source_of(session: &WeakSession) -> datafusion::common::Result<Box<dyn ProfileSource>> {
    match session.upgrade() {
        Some(session) => Ok(Box::new(session)),
        None => Err(Error::Cancelled.into_datafusion()),
    }
}

impl Session {
    /// Runs a statement at level `records`, drops its rows, and returns its profile: what
    /// `EXPLAIN PROFILE` reports, as data.
    ///
    /// `sql` may begin with `EXPLAIN PROFILE (…)` to choose the level and the sample, and end with
    /// `WITHOUT` to leave rows out. [`report`](crate::report) renders a profile as text or JSON.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t AS SELECT value AS a FROM range(0, 1000)").await?;
    /// let profile = session.profile("SELECT sum(a) FROM t WHERE a % 2 = 0").await?;
    /// let slowest = profile.plan.operators.iter().max_by_key(|operator| operator.self_ns);
    /// println!("{:?}", slowest.map(|operator| &operator.description));
    /// assert_eq!(profile.summary.rows_returned, Some(1));
    /// println!("{}", skewer::report::text(&profile).texts().join("\n"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`sql`](Self::sql), and of reading schema `sys`.
    pub async fn profile(&self, sql: &str) -> Result<Profile, Error> {
        let explain = match skewer_sql::parse(sql)? {
            Statement::ExplainProfile(explain) => explain,
            statement => ExplainProfile {
                level: None,
                sample: None,
                format: ProfileFormat::Text,
                as_sql: false,
                sql: sql.to_owned(),
                statement: Box::new(statement),
                without: Vec::new(),
            },
        };
        if matches!(*explain.statement, Statement::Diff { .. }) {
            return Err(Error::Unsupported(
                "a profile of EXPLAIN PROFILE DIFF, which runs nothing; run it with Session::sql"
                    .to_owned(),
            ));
        }
        self.forget_progress();
        let session = self.clone();
        let profile = async move { explain_profile::profile(&session, explain).await };
        self.database().run(profile).await
    }

    /// Returns the profile of a query that has ended, from what schema `sys` recorded of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("SELECT count(*) FROM range(0, 1000)").await?.collect().await?;
    /// let query_id = session.last_query_id().unwrap();
    /// let profile = session.profile_of(query_id).await?;
    /// assert_eq!(profile.summary.status, "finished");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If `sys.queries` does not have the query, or schema `sys` cannot be read.
    pub async fn profile_of(&self, query_id: i64) -> Result<Profile, Error> {
        let session = self.clone();
        let profile = async move { recorded_profile(&session, query_id).await };
        self.database().run(profile).await
    }

    /// The profiler's page about a query that has ended, as one HTML file that needs no server: what
    /// `EXPORT PROFILE n TO 'x.html' (FORMAT html)` writes.
    ///
    /// # Errors
    /// If `sys.queries` does not have the query, or schema `sys` cannot be read.
    pub async fn profile_page(&self, query_id: i64) -> Result<String, Error> {
        let session = self.clone();
        let page = async move { export_page::page(&session, query_id).await };
        self.database().run(page).await
    }
}

/// The profile of a query that has ended, with a caveat for each table that has changed since.
pub(crate) async fn recorded_profile(session: &Session, query_id: i64) -> Result<Profile, Error> {
    let context = RunContext {
        caveats: changes_since(session, query_id).await?,
        ..RunContext::default()
    };
    Ok(Profile::read(session, query_id, &context).await?)
}

/// The columns of a report: its text and, if `profile.report_styles` is set, the lines' styles.
pub(crate) fn report_schema(session: &Session) -> SchemaRef {
    let with_styles = session.inner().profile.lock().report_styles;
    let styles = with_styles.then(|| Field::new(STYLES, DataType::Utf8, true));
    let text = Field::new(COLUMN, DataType::Utf8, true);
    let fields: Vec<Field> = [text].into_iter().chain(styles).collect();
    Arc::new(Schema::new(fields))
}

/// A report as rows, one for each line. The metadata of the text's column carries the styles of all
/// lines for programs that share the process.
pub(crate) fn report_batch(session: &Session, document: &Document) -> Result<RecordBatch, Error> {
    let schema = report_schema(session);
    let mut fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    let styles = (STYLES_KEY.to_owned(), document.styles_text());
    fields[0].set_metadata(HashMap::from([styles]));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(StringArray::from(document.texts()))];
    if fields.len() > 1 {
        let styles = document.styles_text();
        let styles: Vec<&str> = styles.split_terminator(';').collect();
        columns.push(Arc::new(StringArray::from(styles)));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// Returns the document behind the rows of a report, with the styles of its lines; `None` for any
/// other result, and for a report from a server without `profile.report_styles`.
pub fn report_document(batch: &RecordBatch) -> Option<Document> {
    let lines = cast(batch.columns().first()?, &DataType::Utf8).ok()?;
    let lines: &StringArray = lines.as_string();
    let texts = || lines.iter().map(Option::unwrap_or_default);
    let schema = batch.schema();
    if let Some(styles) = schema.fields().first()?.metadata().get(STYLES_KEY) {
        return Document::from_styles(texts(), styles);
    }
    let is_report = schema.field(0).name() == COLUMN;
    let styles = batch.column_by_name(STYLES).filter(|_| is_report)?;
    let styles = cast(styles, &DataType::Utf8).ok()?;
    let styles: &StringArray = styles.as_string();
    let styles: String = styles
        .iter()
        .flat_map(|styles| [styles.unwrap_or_default(), ";"])
        .collect();
    Document::from_styles(texts(), &styles)
}
