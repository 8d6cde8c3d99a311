//! When micro-batches run.

use std::sync::Weak;
use std::time::Duration;

use skewer_sql::Every;
use tokio::time::Instant;

use super::batch;
use super::definition;
use crate::database::{Database, DatabaseInner};

/// A micro-batch that failed is tried again after this time, and each time later after twice the
/// time before.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Runs the micro-batches of a continuous query as long as the query and the database are there.
pub(super) async fn run(database: Weak<DatabaseInner>, query: u64) {
    let mut last: Option<Instant> = None;
    let mut retry = FIRST_RETRY;
    loop {
        let Some(inner) = database.upgrade() else {
            return;
        };
        let streams = std::sync::Arc::clone(&inner.streams);
        let mut arrival = std::pin::pin!(streams.arrivals.notified());
        // From here on no arrival is missed.
        arrival.as_mut().enable();
        let snapshot = inner.storage.snapshot();
        let Some(meta) = snapshot.continuous_query_by_id(query) else {
            return;
        };
        let every = match definition::continuous_query(&meta.sql) {
            Ok(definition) => definition.every,
            Err(error) => {
                let error = format!("its definition cannot be read: {error}");
                streams.statuses.set_error(query, Some(error));
                return;
            }
        };
        let waiting = batch::waiting_rows(&snapshot, meta);
        drop((snapshot, inner));
        let due = match every {
            _ if waiting == 0 => None,
            Every::Interval(length) => {
                let length = Duration::from_nanos(length.unsigned_abs());
                Some(last.map_or_else(Instant::now, |last| (last + length).max(Instant::now())))
            }
            Every::Rows(rows) => (waiting >= rows).then(Instant::now),
        };
        let Some(due) = due else {
            arrival.await;
            continue;
        };
        tokio::time::sleep_until(due).await;
        let Some(inner) = database.upgrade() else {
            return;
        };
        last = Some(Instant::now());
        let outcome = batch::run(&Database::of_inner(inner), query, due.into_std()).await;
        retry = match outcome {
            Ok(_) => FIRST_RETRY,
            Err(_) => {
                tokio::time::sleep(retry).await;
                (2 * retry).min(LAST_RETRY)
            }
        };
    }
}
