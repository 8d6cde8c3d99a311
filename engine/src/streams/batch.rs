//! One micro-batch: an ordinary query, and one commit.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use skewer_profiling::{Level, MicroBatch, nanos_since_epoch};
use skewer_storage::{Snapshot, TableId};

use super::Held;
use super::definition;
use super::input::{Batch, prepare, waiting_rows};
use crate::database::Database;
use crate::error::Error;
use crate::settings::ProfileSettings;
use crate::statements::{Context, Tracing, insert};

/// The share of a micro-batch's time that level `records` may take.
const BUDGET: f64 = 0.05;

/// What a micro-batch did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) rows_out: u64,
    /// The first row id that was not read.
    pub(crate) next_row: i64,
}

/// Runs the next micro-batch of a continuous query, which was due at `due`. `None` if no row waits.
///
/// # Errors
/// Whatever its query fails with. Then nothing is committed, and `sys.micro_batches` has the error.
pub(crate) async fn run(held: &Held, query: u64, due: Instant) -> Result<Option<Done>, Error> {
    let within = held.clone();
    let outcome = held
        .database()
        .run(async move {
            let inner = within.inner();
            // Micro-batches of one continuous query take turns.
            let _turn = inner.writers.take(TableId(query)).await;
            run_in_turn(within.database(), query, due).await
        })
        .await;
    let error = outcome.as_ref().err().map(ToString::to_string);
    held.inner().streams.statuses.set_error(query, error);
    outcome
}

async fn run_in_turn(handle: &Database, query: u64, due: Instant) -> Result<Option<Done>, Error> {
    let database = handle.inner();
    let snapshot = database.storage.snapshot();
    let Some(query) = snapshot.continuous_query_by_id(query).cloned() else {
        return Ok(None);
    };
    if waiting_rows(&snapshot, &query) == 0 {
        return Ok(None);
    }
    let due_at = SystemTime::now() - due.elapsed();
    let definition = definition::continuous_query(&query.sql)?;
    let session = handle.session();
    let level = definition::level(&definition)?;
    *session.inner().remedies.lock() = definition::remedies(&definition)?;
    let settings = ProfileSettings {
        level,
        ..ProfileSettings::default()
    };
    let batch = prepare(&session, &snapshot, &query, definition).await;
    let sql = match &batch {
        Ok(batch) => batch
            .select
            .as_ref()
            .unwrap_or(&batch.definition.query)
            .to_string(),
        Err(_) => query.sql.clone(),
    };
    let tracing = match level {
        Level::Records => Tracing::Within(
            BUDGET,
            ProfileSettings {
                budget: Some(BUDGET),
                ..settings
            },
        ),
        _ => Tracing::At(settings),
    };
    let mut context = Context::begin(&session, session.catalog(), &sql, tracing);
    context.admit().await;
    let mut row = MicroBatch {
        continuous_query: query.qualified_name(),
        batch: query.progress.batches.saturating_add(1).cast_signed(),
        due_at: nanos_since_epoch(due_at),
        rows_in: 0,
        rows_out: 0,
        late_rows: 0,
        latency_ns: 0,
        backlog: 0,
        deadline_missed: None,
        watermark: query.progress.watermark,
        error: None,
    };
    let (outcome, deadline) = match batch {
        Ok(batch) => {
            row.rows_in = batch.rows_in.cast_signed();
            row.late_rows = batch.late_rows.cast_signed();
            (
                Box::pin(carry_out(&mut context, &batch)).await,
                batch.definition.deadline_ns,
            )
        }
        Err(error) => (Err(error), None),
    };
    row.latency_ns = i64::try_from(due.elapsed().as_nanos()).unwrap_or(i64::MAX);
    row.deadline_missed = deadline.map(|deadline| row.latency_ns > deadline);
    let now = database.storage.snapshot();
    if let Some(query) = now.continuous_query_by_id(query.id) {
        row.backlog = waiting_rows(&now, query).cast_signed();
        row.watermark = query.progress.watermark;
    }
    match outcome {
        Ok(done) => {
            row.rows_out = done.rows_out.cast_signed();
            context.record.recorder().micro_batch(row);
            context.end(Ok(done.rows_out)).await?;
            Ok(Some(done))
        }
        Err(error) => {
            let error = context.catalog.diagnose(error).await;
            row.error = Some(error.to_string());
            context.record.recorder().micro_batch(row);
            Err(context.fail(error).await)
        }
    }
}

/// Runs the query of the micro-batch and commits its rows, its progress, and what the stream drops.
async fn carry_out(context: &mut Context, batch: &Batch) -> Result<Done, Error> {
    let target = &batch.definition.target;
    let mut added = None;
    if let Some(select) = &batch.select {
        let table = context.catalog.writable_table(target)?;
        let plan = insert::of_query(context, select.clone(), &table).await?;
        let (segments, rows) = context.write_query(&plan, &table).await?;
        context.keep_snapshot();
        added = Some((table.id, segments, rows));
    }
    let database = Arc::clone(context.session.database_inner());
    let stream = batch.stream.id;
    // Neither INSERT nor merging changes the stream's segments meanwhile.
    let _turn = database.writers.take(stream).await;
    let mut transaction = context.storage().begin();
    let mut done = Done {
        rows_out: 0,
        next_row: batch.after.next_row,
    };
    let mut grown = None;
    if let Some((table, segments, rows)) = added
        && rows > 0
    {
        transaction.add_segments(table, segments)?;
        done.rows_out = rows;
        grown = Some(table);
    }
    transaction.advance(batch.query.id, batch.before, batch.after)?;
    let read = segments_read(transaction.current(), stream);
    if !read.is_empty() {
        transaction.replace_segments(stream, &read, Vec::new())?;
    }
    context.commit(transaction).await?;
    if let Some(table) = grown {
        database.has_grown(table);
    }
    Ok(done)
}

/// The segments of a stream that no continuous query needs any more.
fn segments_read(snapshot: &Snapshot, stream: TableId) -> Vec<u64> {
    let needed = snapshot
        .readers(stream)
        .map(|query| query.progress.first_needed);
    let (Some(needed), Some(stream)) = (needed.min(), snapshot.table_by_id(stream)) else {
        return Vec::new();
    };
    let read = stream
        .segments
        .iter()
        .filter(|segment| segment.max_row_id < needed);
    read.map(|segment| segment.id).collect()
}
