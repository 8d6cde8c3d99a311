//! `sys.streams` and `sys.continuous_queries`.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use skewer_profiling::OneMoreTable;
use skewer_storage::Snapshot;

use super::Streams;
use super::definition;
use super::input::waiting_rows;

/// `sys` with the streams of `snapshot`.
pub(crate) fn with_streams(
    sys: Arc<dyn SchemaProvider>,
    snapshot: Arc<Snapshot>,
    streams: Arc<Streams>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "streams", move || {
        stream_rows(&snapshot, &streams).map(Some)
    })
}

/// `sys` with the continuous queries of `snapshot`.
pub(crate) fn with_continuous_queries(
    sys: Arc<dyn SchemaProvider>,
    snapshot: Arc<Snapshot>,
    streams: Arc<Streams>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "continuous_queries", move || {
        query_rows(&snapshot, &streams).map(Some)
    })
}

fn text(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn optional_text(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

fn numbers(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn stream_rows(snapshot: &Snapshot, streams: &Streams) -> Result<RecordBatch> {
    let found = snapshot.streams().filter_map(|stream| {
        let table = snapshot.table_by_id(stream.table)?;
        Some((stream, table, streams.statuses.get(stream.table.0)))
    });
    let found: Vec<_> = found.collect();
    let each = || found.iter();
    let watermarks = each().map(|(stream, ..)| {
        let stream = definition::stream(&stream.sql).ok()?;
        definition::watermark(&stream).map(|(column, _)| column)
    });
    let columns: [(&str, ArrayRef, bool); 10] = [
        (
            "stream",
            text(each().map(|(_, table, _)| table.qualified_name())),
            false,
        ),
        (
            "sql",
            text(each().map(|(stream, ..)| stream.sql.clone())),
            false,
        ),
        ("watermark_column", optional_text(watermarks), true),
        (
            "address",
            optional_text(each().map(|(.., status)| status.address.clone())),
            true,
        ),
        (
            "rows_kept",
            numbers(each().map(|(_, table, _)| table.rows().cast_signed())),
            false,
        ),
        (
            "files_taken",
            numbers(each().map(|(stream, ..)| stream.files.len() as i64)),
            false,
        ),
        (
            "rows_ingested",
            numbers(each().map(|(.., status)| status.rows)),
            false,
        ),
        (
            "lines_rejected",
            numbers(each().map(|(.., status)| status.rejected)),
            false,
        ),
        (
            "is_ended",
            Arc::new(BooleanArray::from_iter(
                each().map(|(.., status)| Some(status.is_ended)),
            )),
            false,
        ),
        (
            "error",
            optional_text(each().map(|(.., status)| status.error.clone())),
            true,
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn query_rows(snapshot: &Snapshot, streams: &Streams) -> Result<RecordBatch> {
    let found = snapshot.continuous_queries().map(|query| {
        let stream = snapshot.table_by_id(query.stream);
        let stream = stream.map_or(String::new(), |stream| stream.qualified_name());
        (query, stream)
    });
    let found: Vec<_> = found.collect();
    let each = || found.iter().map(|(query, _)| query);
    let targets = each().map(|query| {
        let definition = definition::continuous_query(&query.sql);
        definition.map_or(String::new(), |definition| definition.target.to_string())
    });
    let watermarks = each().map(|query| query.progress.watermark);
    let columns: [(&str, ArrayRef, bool); 10] = [
        (
            "continuous_query",
            text(each().map(|query| query.qualified_name())),
            false,
        ),
        ("sql", text(each().map(|query| query.sql.clone())), false),
        (
            "stream",
            text(found.iter().map(|(_, stream)| stream.clone())),
            false,
        ),
        ("target_table", text(targets), false),
        (
            "batches",
            numbers(each().map(|query| query.progress.batches.cast_signed())),
            false,
        ),
        (
            "next_row",
            numbers(each().map(|query| query.progress.next_row)),
            false,
        ),
        (
            "first_needed_row",
            numbers(each().map(|query| query.progress.first_needed)),
            false,
        ),
        (
            "watermark",
            Arc::new(TimestampNanosecondArray::from_iter(watermarks).with_timezone("UTC")),
            true,
        ),
        (
            "rows_waiting",
            numbers(each().map(|query| waiting_rows(snapshot, query).cast_signed())),
            false,
        ),
        (
            "error",
            optional_text(each().map(|query| streams.statuses.get(query.id).error)),
            true,
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
