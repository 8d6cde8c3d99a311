//! Which path does what.
//!
//! | path | |
//! |---|---|
//! | `GET /app.js`, `GET /app.css` … | the page's files |
//! | `GET /api/view/NAME?parameter=value…` | rows of a view, as an Arrow IPC stream |
//! | `GET /api/sql/NAME?parameter=value…` | the SQL of a view |
//! | `POST /api/token`, `/api/login`, `/api/logout` | a cookie, and its end |
//! | `GET /metrics` | the server's numbers as OpenMetrics text |
//! | `POST /api/cancel`, `/api/verify` | what has effects |
//! | `GET` of any other path | the page, which shows what the path names |

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use skewer::{Database, ReadOnly};
use skewer_page::assets::{Asset, INDEX, loaded};
use skewer_server::LoginLimiter;

use crate::error::Failure;
use crate::login::{Logins, MetricsToken, Tokens};
use crate::metrics::MetricsReader;
use crate::{action, guard, login, metrics, view};

/// What all requests have in common.
pub(crate) type Shared = Arc<State>;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) database: Database,
    /// Where the users are; none of a database in memory.
    pub(crate) data: Option<PathBuf>,
    pub(crate) tokens: Mutex<Tokens>,
    pub(crate) logins: Logins,
    pub(crate) limiter: Arc<LoginLimiter>,
    pub(crate) limits: ReadOnly,
    pub(crate) metrics: MetricsReader,
    /// What `/metrics` takes beside logins.
    pub(crate) metrics_token: Option<MetricsToken>,
    /// Names of this server beside loopback's.
    pub(crate) hosts: Vec<String>,
    pub(crate) port: u16,
    /// Whether connections are encrypted.
    pub(crate) is_secure: bool,
}

/// All routes.
pub(crate) fn router(shared: Shared) -> Router {
    let protected = Router::new()
        .route("/api/view/{name}", get(view::rows))
        .route("/api/sql/{name}", get(view::sql))
        .route("/api/export/{query_id}", get(view::export))
        .route("/api/cancel", post(action::cancel))
        .route("/api/verify", post(action::verify))
        .route_layer(from_fn_with_state(Arc::clone(&shared), login::required));
    let metrics = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(
            Arc::clone(&shared),
            login::required_of_programs,
        ));
    let index = File::new(INDEX);
    let mut files = Router::new();
    for asset in loaded() {
        let file = File::new(asset);
        files = files.route(
            asset.path,
            get(async move |headers: HeaderMap| file.answer(&headers)),
        );
    }
    Router::new()
        .merge(protected)
        .merge(files)
        .merge(metrics)
        .route("/api/token", post(login::by_token))
        .route("/api/login", post(login::by_password))
        .route("/api/logout", post(login::logout))
        .route("/api/{*rest}", get(unknown).post(unknown))
        .fallback(get(async move |request: Request| {
            index.answer(request.headers())
        }))
        .layer(map_response(error_as_text))
        .layer(from_fn_with_state(Arc::clone(&shared), guard::guarded))
        .with_state(shared)
}

async fn unknown(Path(rest): Path<String>) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("there is no /api/{rest}"))
}

/// The framework's own errors are empty or plain text: the page shows what it gets.
async fn error_as_text(response: Response) -> Response {
    match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => Failure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path takes another method",
        )
        .into_response(),
        _ => response,
    }
}

/// A file of the page, compressed once.
#[derive(Debug, Clone)]
struct File {
    asset: Asset,
    zipped: Arc<[u8]>,
    tag: Arc<str>,
}

impl File {
    fn new(asset: Asset) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // A Vec takes all bytes.
        let zipped = encoder
            .write_all(asset.text.as_bytes())
            .and_then(|()| encoder.finish());
        Self {
            asset,
            zipped: zipped.unwrap_or_default().into(),
            tag: format!("\"{}\"", asset.digest()).into(),
        }
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        let common = [
            (CONTENT_TYPE, self.asset.media_type),
            // Kept, and asked for again: another version of Skewer has other files under the same names.
            (CACHE_CONTROL, "no-cache"),
            (ETAG, &self.tag),
            (VARY, "accept-encoding"),
        ];
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if text(IF_NONE_MATCH) == Some(&*self.tag) {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let zips = text(ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
        match zips {
            true => (common, [(CONTENT_ENCODING, "gzip")], self.zipped.to_vec()).into_response(),
            false => (common, self.asset.text).into_response(),
        }
    }
}
