//! Runs the detectors of users: the views of schema `detectors`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, StringArray, new_null_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use skewer_profiling::definition::SysRow;
use skewer_profiling::user_detectors::DETECTORS;
use skewer_profiling::{UserDetection, UserDetectors, WithinDetector};
use skewer_sql::quote::identifier;

use crate::database::{Database, DatabaseInner};
use crate::error::Error;
use crate::session::{ReadOnly, Session};
use crate::statements::untraced::untraced_query;

/// What one detector may take: a report waits for it.
const LIMITS: ReadOnly = ReadOnly {
    timeout: Duration::from_secs(5),
    memory: 256 << 20,
};

/// The views of schema `detectors` of a database.
#[derive(Debug)]
pub(crate) struct DetectorViews(Weak<DatabaseInner>);

impl DetectorViews {
    /// Of `database`, as long as it is open.
    pub(crate) fn new(database: &Arc<DatabaseInner>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(database)))
    }
}

#[async_trait]
impl UserDetectors for DetectorViews {
    async fn findings(&self, queries: Option<&[i64]>) -> Vec<RecordBatch> {
        let Some(inner) = self.0.upgrade() else {
            return Vec::new();
        };
        let views = inner.storage.snapshot().views(DETECTORS);
        if views.is_empty() {
            return Vec::new();
        }
        let session = Database::of_inner(inner).read_only_session(LIMITS);
        let state = session.context().state_ref();
        state
            .write()
            .config_mut()
            .set_extension(Arc::new(WithinDetector));
        let mut findings = Vec::new();
        for view in views {
            let name = view.name.as_str();
            // The views are planned while the statement that wants their findings is: futures within futures.
            let found = Box::pin(findings_of(&session, name, queries));
            let found = tokio::time::timeout(LIMITS.timeout, found).await;
            match found.unwrap_or(Err(Error::TimedOut(LIMITS.timeout))) {
                Ok(batches) => findings.extend(batches),
                Err(error) => {
                    tracing::warn!("detector {DETECTORS}.{name} is left out: {error}");
                    let queries = queries.unwrap_or_default().iter();
                    let broken: Vec<_> = queries.map(|id| broken(*id, name, &error)).collect();
                    findings.push(UserDetection::rows(&broken));
                }
            }
        }
        findings
    }
}

/// The findings of a view, with the columns of [`UserDetection`].
async fn findings_of(
    session: &Session,
    view: &str,
    queries: Option<&[i64]>,
) -> Result<Vec<RecordBatch>, Error> {
    let filter = queries.map_or(String::new(), |queries| {
        let ids: Vec<String> = queries.iter().map(i64::to_string).collect();
        match ids.as_slice() {
            [] => " WHERE false".to_owned(),
            ids => format!(" WHERE query_id IN ({})", ids.join(", ")),
        }
    });
    let sql = format!("SELECT * FROM {DETECTORS}.{}{filter}", identifier(view));
    let answers = untraced_query(session, &sql).await?;
    let schema = UserDetection::TABLE.schema();
    let findings = answers
        .iter()
        .map(|answer| with_columns(answer, view, &schema));
    findings.collect()
}

/// The columns of `answer` by name: missing ones are NULL, the rule's name is the view's.
fn with_columns(
    answer: &RecordBatch,
    view: &str,
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let rows = answer.num_rows();
    let columns = schema
        .fields()
        .iter()
        .map(|field| match answer.column_by_name(field.name()) {
            Some(column) => Ok(cast(column, field.data_type())?),
            None if field.name() == "detector" => {
                let names = StringArray::from(vec![view; rows]);
                Ok(Arc::new(names) as _)
            }
            None if !field.is_nullable() => {
                Err(Error::Invalid(format!("it has no column {}", field.name())))
            }
            None => Ok(new_null_array(field.data_type(), rows)),
        });
    let columns = columns.collect::<Result<Vec<_>, Error>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The finding that a detector is broken, which accuses nobody.
fn broken(query_id: i64, view: &str, error: &Error) -> UserDetection {
    let view = format!("{DETECTORS}.{}", identifier(view));
    UserDetection {
        query_id,
        detector: Some("broken detector".to_owned()),
        subject: Some(format!("view {view}")),
        cause: Some(format!("The view {view} is left out: {error}")),
        advice: Some("Correct the view with CREATE OR REPLACE VIEW, or drop it.".to_owned()),
        fragment_id: None,
        operator_id: None,
        worker_id: None,
        partition: None,
        exchange_id: None,
        table_name: None,
        row_id: None,
        cost_ns: None,
        score: None,
        threshold: None,
        confidence: None,
        innocent: Some(true),
        evidence_sql: Some(format!("SELECT * FROM {view} WHERE query_id = {query_id}")),
    }
}
