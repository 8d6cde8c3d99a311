//! When micro-batches run.

use std::time::Duration;

use skewer_sql::Every;
use tokio::time::Instant;

use super::Link;
use super::batch;
use super::definition;
use super::input;

/// A micro-batch that failed is tried again after this time, and each time later after twice the
/// time before.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What is known of the next micro-batch.
enum Next {
    /// It is due then.
    At(Instant),
    /// Too few rows wait.
    Later,
    /// There is no such continuous query, or it cannot run.
    Never,
}

/// Runs the micro-batches of a continuous query as long as the query and the database are there.
pub(super) async fn run(link: Link, query: u64) {
    let mut last: Option<Instant> = None;
    let mut retry = FIRST_RETRY;
    let mut has_waited = true;
    loop {
        let mut arrival = std::pin::pin!(link.streams.arrivals.notified());
        // From here on no arrival is missed.
        arrival.as_mut().enable();
        let due = match next(&link, query, last) {
            Next::At(due) => due,
            Next::Later => {
                arrival.await;
                has_waited = true;
                continue;
            }
            Next::Never => return,
        };
        // Rows that came later than the micro-batch could have begun do not make it late.
        let due = match std::mem::take(&mut has_waited) {
            true => due.max(Instant::now()),
            false => due,
        };
        tokio::time::sleep_until(due).await;
        let Some(held) = link.hold() else {
            return;
        };
        last = Some(Instant::now());
        let outcome = batch::run(&held, query, due.into_std()).await;
        drop(held);
        retry = match outcome {
            Ok(_) => FIRST_RETRY,
            Err(_) => {
                tokio::time::sleep(retry).await;
                (2 * retry).min(LAST_RETRY)
            }
        };
    }
}

/// When the next micro-batch is due, if the one before began at `last`.
fn next(link: &Link, query: u64, last: Option<Instant>) -> Next {
    let Some(held) = link.hold() else {
        return Next::Never;
    };
    let snapshot = held.inner().storage.snapshot();
    let Some(meta) = snapshot.continuous_query_by_id(query) else {
        return Next::Never;
    };
    let every = match definition::continuous_query(&meta.sql) {
        Ok(definition) => definition.every,
        Err(error) => {
            let error = format!("its definition cannot be read: {error}");
            link.streams.statuses.set_error(query, Some(error));
            return Next::Never;
        }
    };
    let waiting = input::waiting_rows(&snapshot, meta);
    match every {
        _ if waiting == 0 => Next::Later,
        Every::Interval(length) => {
            let length = Duration::from_nanos(length.unsigned_abs());
            Next::At(last.map_or_else(Instant::now, |last| last + length))
        }
        Every::Rows(rows) if waiting < rows => Next::Later,
        Every::Rows(_) => Next::At(Instant::now()),
    }
}
