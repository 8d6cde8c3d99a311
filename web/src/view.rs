//! `GET /api/view/NAME` and `GET /api/sql/NAME`: rows of a view, and its SQL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use skewer::QueryStream;
use skewer::arrow::array::RecordBatch;
use skewer_page::rows::arrow_stream;
use skewer_page::views::{ViewError, find_view};
use tokio::sync::SemaphorePermit;

use crate::error::Failure;
use crate::login::Login;

/// A view with more rows than this is asked for wrongly: views are binned to pixels.
const MOST_ROWS: usize = 100_000;

/// How long an export may take.
const EXPORT: Duration = Duration::from_secs(120);

const ARROW: &str = "application/vnd.apache.arrow.stream";

impl From<ViewError> for Failure {
    fn from(error: ViewError) -> Self {
        let status = match error {
            ViewError::Unknown(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

/// The SQL of a view with the request's values.
pub(crate) async fn sql(
    Path(name): Path<String>,
    Query(values): Query<BTreeMap<String, String>>,
) -> Result<String, Failure> {
    Ok(find_view(&name)?.sql(&values)?)
}

/// The rows of a view, as an Arrow IPC stream.
pub(crate) async fn rows(
    Path(name): Path<String>,
    Query(values): Query<BTreeMap<String, String>>,
    Extension(login): Extension<Arc<Login>>,
) -> Result<Response, Failure> {
    let view = find_view(&name)?;
    let sql = view.sql(&values)?;
    // Dropping the request cancels the view.
    let _turn = turn(&login).await?;
    let stream = login.session.sql(&sql).await?;
    let schema = stream.schema();
    let batches = bounded(stream).await?;
    let encoded = arrow_stream(view.name, &schema, &batches);
    let encoded = encoded
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(CONTENT_TYPE, ARROW)], encoded).into_response())
}

/// Waits until few enough views of the login run.
async fn turn(login: &Login) -> Result<SemaphorePermit<'_>, Failure> {
    let turn = login.views.acquire().await;
    turn.map_err(|_| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the server ends"))
}

async fn bounded(mut stream: QueryStream) -> Result<Vec<RecordBatch>, Failure> {
    let (mut batches, mut rows) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        if rows > MOST_ROWS {
            let text = format!(
                "the view has more than {MOST_ROWS} rows: select less, or run its SQL in a shell"
            );
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        batches.push(batch);
    }
    Ok(batches)
}

/// `GET /api/export/QUERY_ID`: the page with the profile of a query, as a file to keep.
///
/// It runs all views, so it may take longer than one of them, and as a turn of the login's views.
pub(crate) async fn export(
    Extension(login): Extension<Arc<Login>>,
    Path(query_id): Path<i64>,
) -> Result<Response, Failure> {
    let _turn = turn(&login).await?;
    let page = login.session.profile_page(query_id);
    let page = tokio::time::timeout(EXPORT, page).await;
    let page = page.map_err(|_| {
        let text = format!(
            "the export took longer than {EXPORT:?}: EXPORT PROFILE in a shell has no limit"
        );
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })??;
    let name = format!("attachment; filename=\"query-{query_id}.html\"");
    Ok((
        [
            (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
            (CONTENT_DISPOSITION, name),
        ],
        page,
    )
        .into_response())
}
