//! Profiles of queries for programs, and the report that SQL returns.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result as DataFusionResult;
use skewer_diagnosis::{BlameFunction, Profile, ProfileSource, RunContext};
use skewer_report::Document;
use skewer_sql::{ExplainProfile, ProfileFormat, Statement};

use crate::error::Error;
use crate::session::{Session, WeakSession};
use crate::statements::explain_profile;
use crate::statements::untraced::untraced_query;
use crate::tables_read::{TablesRead, changes_since};

/// The name of the report's only column.
const COLUMN: &str = "EXPLAIN PROFILE";

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
}

/// The table function `sys.blame` for the statements of a session.
pub(crate) fn blame_function(session: WeakSession) -> BlameFunction {
    BlameFunction::new(move || match session.upgrade() {
        Some(session) => Ok(Box::new(session)),
        None => Err(Error::Cancelled.into_datafusion()),
    })
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
}

/// The profile of a query that has ended, with a caveat for each table that has changed since.
pub(crate) async fn recorded_profile(session: &Session, query_id: i64) -> Result<Profile, Error> {
    let context = RunContext {
        caveats: changes_since(session, query_id).await?,
        ..RunContext::default()
    };
    Ok(Profile::read(session, query_id, &context).await?)
}

/// The columns of a report: one of text.
pub(crate) fn report_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(COLUMN, DataType::Utf8, true)]))
}

/// A report as rows, one for each line. The column's metadata carries the lines' styles.
pub(crate) fn report_batch(document: &Document) -> Result<RecordBatch, Error> {
    let styles = (crate::STYLES.to_owned(), document.styles_text());
    let field = Field::new(COLUMN, DataType::Utf8, true);
    let field = field.with_metadata(HashMap::from([styles]));
    let lines = StringArray::from(document.texts());
    let schema = Arc::new(Schema::new(vec![field]));
    Ok(RecordBatch::try_new(schema, vec![Arc::new(lines)])?)
}

/// The document behind the rows of a report, with the styles of its lines; `None` for any other
/// result.
pub fn report_document(batch: &RecordBatch) -> Option<Document> {
    let schema = batch.schema();
    let field = schema.fields().first()?;
    let styles = field.metadata().get(crate::STYLES)?;
    let lines = batch.column(0).as_any().downcast_ref::<StringArray>()?;
    Document::from_styles(lines.iter().flatten(), styles)
}
