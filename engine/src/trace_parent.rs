//! The caller's span of a statement: of a comment, or of the setting `trace.parent`.

use std::future::Future;
use std::sync::atomic::Ordering;

use skewer_sql::{TraceParent, trace_parent_in_comment};

use crate::session::Session;

tokio::task_local! {
    static OF_COMMENT: Option<TraceParent>;
}

/// Runs `future`, which carries out `sql`.
pub(crate) async fn scope<F: Future>(session: &Session, sql: &str, future: F) -> F::Output {
    let of_comment = match trace_parent_in_comment(sql) {
        Some(Ok(parent)) => Some(parent),
        Some(Err(error)) => {
            let inner = session.inner();
            // A client that is wrong once is wrong with each statement.
            if !inner.has_warned_of_comment.swap(true, Ordering::Relaxed) {
                tracing::warn!("the traceparent in a comment is ignored: {error}");
            }
            None
        }
        None => None,
    };
    OF_COMMENT.scope(of_comment, future).await
}

/// The caller's span of the statement that runs in this task.
pub(crate) fn trace_parent(session: &Session) -> Option<TraceParent> {
    let of_comment = OF_COMMENT.try_with(|parent| *parent).ok().flatten();
    of_comment.or(*session.inner().trace_parent.lock())
}
