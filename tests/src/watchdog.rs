//! Queries that must end.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use skewer::{Error, Session};
use tokio::time::timeout;

use crate::contents::query;

/// No query of a test takes a tenth of it, even on a busy machine.
const BOUND: Duration = Duration::from_secs(180);

/// What `running` gives, which is the statement `sql` that runs in `session`.
///
/// # Panics
/// If it does not end within three minutes: tells the plan, and which operators wait for whom.
pub async fn ends<T>(session: &Session, sql: &str, running: impl Future<Output = T>) -> T {
    let mut running = pin!(running);
    if let Ok(ended) = timeout(BOUND, &mut running).await {
        return ended;
    }
    let waits = session.progress().waits();
    let explain = format!("EXPLAIN {sql}");
    let plan = match timeout(BOUND, query(session, &explain)).await {
        Ok(Ok(lines)) => lines.join("\n"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "EXPLAIN does not end either".to_owned(),
    };
    panic!("a query has not ended after {BOUND:?}:\n{sql}\n{waits}\n{plan}");
}

/// The rows of a query that must end, as [`query`] gives them.
///
/// # Errors
/// Those of the query.
///
/// # Panics
/// If it does not end within three minutes.
pub async fn query_that_ends(session: &Session, sql: &str) -> Result<Vec<String>, Error> {
    ends(session, sql, query(session, sql)).await
}
