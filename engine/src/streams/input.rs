//! The rows of a micro-batch: which it reads, and the query that it runs on them.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, TimestampNanosecondType};
use datafusion::sql::sqlparser::ast::Query;
use skewer_sql::CreateContinuousQuery;
use skewer_sql::quote::identifier;
use skewer_storage::{ContinuousQueryMeta, Progress, Snapshot, TableMeta};

use super::definition;
use super::rewrite::{RowRange, Rows, StreamTable, batch_query};
use super::window::{Windows, timestamp};
use crate::error::Error;
use crate::session::Session;
use crate::statements::untraced::untraced_query;

/// A micro-batch reads about so many rows at most; more wait for the next one.
const MOST_ROWS: u64 = 1 << 20;

/// A micro-batch that is about to run.
pub(super) struct Batch {
    pub(super) query: Arc<ContinuousQueryMeta>,
    pub(super) definition: CreateContinuousQuery,
    pub(super) stream: Arc<TableMeta>,
    pub(super) before: Progress,
    pub(super) after: Progress,
    pub(super) rows_in: u64,
    pub(super) late_rows: u64,
    /// What it runs; nothing if no window closes.
    pub(super) select: Option<Box<Query>>,
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

/// Decides which rows the micro-batch reads, and what it runs on them.
pub(super) async fn prepare(
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
