//! One micro-batch: an ordinary query, and one commit.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, TimestampNanosecondType};
use datafusion::sql::sqlparser::ast::Query;
use skewer_profiling::{Level, MicroBatch, nanos_since_epoch};
use skewer_sql::CreateContinuousQuery;
use skewer_sql::quote::identifier;
use skewer_storage::{ContinuousQueryMeta, Progress, Snapshot, TableId, TableMeta};

use super::Held;
use super::definition;
use super::rewrite::{RowRange, Rows, StreamTable, batch_query};
use super::window::{Windows, timestamp};
use crate::database::Database;
use crate::error::Error;
use crate::session::Session;
use crate::settings::ProfileSettings;
use crate::statements::untraced::untraced_query;
use crate::statements::{Context, Tracing, insert};

/// A micro-batch reads about so many rows at most; more wait for the next one.
const MOST_ROWS: u64 = 1 << 20;

/// The share of a micro-batch's time that level `records` may take.
const BUDGET: f64 = 0.05;

/// What a micro-batch did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    pub(crate) rows_out: u64,
    /// The first row id that was not read.
    pub(crate) next_row: i64,
}

/// A micro-batch that is about to run.
struct Batch {
    query: Arc<ContinuousQueryMeta>,
    definition: CreateContinuousQuery,
    stream: Arc<TableMeta>,
    before: Progress,
    after: Progress,
    rows_in: u64,
    late_rows: u64,
    /// What it runs; nothing if no window closes.
    select: Option<Box<Query>>,
}

/// Rows of the stream that a continuous query has not read.
pub(crate) fn waiting_rows(snapshot: &Snapshot, query: &ContinuousQueryMeta) -> u64 {
    match snapshot.table_by_id(query.stream) {
        Some(stream) => rows_from(&stream, query.progress.next_row),
        None => 0,
    }
}

/// The row id after all rows of a stream.
pub(crate) fn end_of(stream: &TableMeta) -> i64 {
    let last = stream.segments.iter().map(|segment| segment.max_row_id);
    last.max().map_or(0, |last| last + 1)
}

fn rows_from(stream: &TableMeta, first: i64) -> u64 {
    let rows = stream.segments.iter().map(|segment| {
        // Merged segments may have rows on both sides.
        let above = segment.max_row_id + 1 - first.max(segment.min_row_id);
        segment.rows.min(u64::try_from(above).unwrap_or(0))
    });
    rows.sum()
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

/// Decides which rows the micro-batch reads, and what it runs on them.
async fn prepare(
    session: &Session,
    snapshot: &Snapshot,
    query: &Arc<ContinuousQueryMeta>,
    definition: CreateContinuousQuery,
) -> Result<Batch, Error> {
    let missing = || Error::Internal(format!("{} has no stream", query.qualified_name()));
    let stream = snapshot.table_by_id(query.stream).ok_or_else(missing)?;
    let meta = snapshot.stream(query.stream).ok_or_else(missing)?;
    let watermark = definition::watermark(&definition::stream(&meta.sql)?);
    let windows = definition::windows(&definition.query, watermark.as_ref())?;
    let name = qualified(&stream);
    let before = query.progress;
    let range = RowRange {
        from: before.next_row,
        to: end_of_batch(&stream, before.next_row),
    };
    let time = watermark.as_ref().map(|(column, _)| identifier(column));
    let mut columns = "count(*)".to_owned();
    if let Some(time) = &time {
        columns = format!("{columns}, max({time})");
        if let (Some(windows), Some(before)) = (windows, before.watermark) {
            let open = timestamp(windows.first_open(before));
            columns = format!("{columns}, count(*) FILTER (WHERE {time} < {open})");
        }
    }
    let sql = format!("SELECT {columns} FROM {name} WHERE {}", range.condition());
    let found = untraced_query(session, &sql).await?;
    let mut after = Progress {
        batches: before.batches + 1,
        next_row: range.to,
        first_needed: range.to,
        watermark: before.watermark,
    };
    if let Some((_, delay)) = watermark.as_ref()
        && let Some(latest) = time_of(&found, 1)
    {
        after.watermark = before.watermark.max(Some(latest.saturating_sub(*delay)));
    }
    let table = StreamTable {
        name: &name,
        columns: &stream.schema,
        time: watermark.as_ref().map(|(column, _)| column.as_str()),
    };
    let select = match windows {
        None => Some(batch_query(&definition.query, table, Rows::Each(range))?),
        Some(windows) => {
            let needed = RowRange {
                from: before.first_needed,
                ..range
            };
            let closing = windows.closing(before.watermark, after.watermark);
            let time = time.unwrap_or_default();
            after.first_needed = match closing {
                Some(_) => first_needed(session, &name, &time, needed, windows, after).await?,
                None => before.first_needed,
            };
            closing
                .map(|closing| {
                    let rows = Rows::Windows(needed, windows, closing);
                    batch_query(&definition.query, table, rows)
                })
                .transpose()?
        }
    };
    Ok(Batch {
        rows_in: number(&found, 0).unwrap_or(0).unsigned_abs(),
        late_rows: number(&found, 2).unwrap_or(0).unsigned_abs(),
        query: Arc::clone(query),
        definition,
        stream,
        before,
        after,
        select,
    })
}

/// The row id after the last row of the micro-batch that begins with row `first`.
fn end_of_batch(stream: &TableMeta, first: i64) -> i64 {
    let mut segments: Vec<_> = stream
        .segments
        .iter()
        .filter(|s| s.max_row_id >= first)
        .collect();
    segments.sort_by_key(|segment| segment.min_row_id);
    let (mut rows, mut end) = (0, first);
    for segment in segments {
        if rows >= MOST_ROWS {
            break;
        }
        rows += segment.rows;
        end = end.max(segment.max_row_id + 1);
    }
    end
}

/// The row id of the first row that is in a window which stays open.
async fn first_needed(
    session: &Session,
    stream: &str,
    time: &str,
    range: RowRange,
    windows: Windows,
    after: Progress,
) -> Result<i64, Error> {
    let Some(watermark) = after.watermark else {
        return Ok(range.from);
    };
    let sql = format!(
        "SELECT min({}) FROM {stream} WHERE {} AND {time} >= {}",
        skewer_sql::row_ids::ROW_ID,
        range.condition(),
        timestamp(windows.first_open(watermark))
    );
    let found = untraced_query(session, &sql).await?;
    Ok(number(&found, 0).unwrap_or(range.to))
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

/// The name of a table as SQL.
pub(crate) fn qualified(table: &TableMeta) -> String {
    format!(
        "{}.{}",
        identifier(&table.schema_name),
        identifier(&table.name)
    )
}

/// The number in a column of the only row.
fn number(rows: &[RecordBatch], column: usize) -> Option<i64> {
    let row = rows.iter().find(|batch| batch.num_rows() > 0)?;
    let column = row.columns().get(column)?.as_primitive_opt::<Int64Type>()?;
    column.is_valid(0).then(|| column.value(0))
}

/// The time in a column of the only row, in nanoseconds since 1970.
fn time_of(rows: &[RecordBatch], column: usize) -> Option<i64> {
    let row = rows.iter().find(|batch| batch.num_rows() > 0)?;
    let column = row.columns().get(column)?;
    let column = column.as_primitive_opt::<TimestampNanosecondType>()?;
    column.is_valid(0).then(|| column.value(0))
}
