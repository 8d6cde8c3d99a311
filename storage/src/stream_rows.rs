//! The catalog's rows of streams and continuous queries.

use std::collections::BTreeMap;
use std::sync::Arc;

use redb::{ReadTransaction, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::catalog::{Failure, damaged, failure};
use crate::catalog_rows::{delete, each, put};
use crate::snapshot::{Snapshot, TableId};
use crate::streams::{ContinuousQueryMeta, FileMark, Progress, StreamMeta, StreamRow};

/// Table id → JSON [`Stream`], of tables that are streams.
const STREAMS: TableDefinition<u64, &[u8]> = TableDefinition::new("streams");
/// (Table id, name of a file) → bytes, time of modification in nanoseconds since 1970.
const STREAM_FILES: TableDefinition<(u64, &str), (u64, i64)> = TableDefinition::new("stream_files");
/// Id → JSON [`ContinuousQuery`].
const QUERIES: TableDefinition<u64, &[u8]> = TableDefinition::new("continuous_queries");
/// Id of a continuous query → micro-batches, next row, first needed row, watermark
/// ([`NO_WATERMARK`] for none).
type ProgressRow = (u64, i64, i64, i64);
const PROGRESS: TableDefinition<u64, ProgressRow> = TableDefinition::new("progress");

const NO_WATERMARK: i64 = i64::MIN;

#[derive(Serialize, Deserialize)]
struct Stream {
    sql: String,
}

#[derive(Serialize, Deserialize)]
struct ContinuousQuery {
    schema: String,
    name: String,
    sql: String,
    stream: u64,
}

/// The tables of redb, open for one transaction.
pub(crate) struct StreamRows<'a> {
    streams: redb::Table<'a, u64, &'static [u8]>,
    files: redb::Table<'a, (u64, &'static str), (u64, i64)>,
    queries: redb::Table<'a, u64, &'static [u8]>,
    progress: redb::Table<'a, u64, ProgressRow>,
}

impl<'a> StreamRows<'a> {
    pub(crate) fn open(transaction: &'a redb::WriteTransaction) -> Result<Self, Failure> {
        Ok(Self {
            streams: transaction.open_table(STREAMS).map_err(failure)?,
            files: transaction.open_table(STREAM_FILES).map_err(failure)?,
            queries: transaction.open_table(QUERIES).map_err(failure)?,
            progress: transaction.open_table(PROGRESS).map_err(failure)?,
        })
    }

    pub(crate) fn write(&mut self, digest: &mut u64, row: &StreamRow) -> Result<(), Failure> {
        match row {
            StreamRow::PutStream(stream) => {
                let json = Stream {
                    sql: stream.sql.clone(),
                };
                let json = serde_json::to_vec(&json).map_err(damaged)?;
                put(digest, &mut self.streams, stream.table.0, &json)
            }
            StreamRow::DeleteStream(stream) => {
                for name in stream.files.keys() {
                    delete(digest, &mut self.files, (stream.table.0, name))?;
                }
                delete(digest, &mut self.streams, stream.table.0)
            }
            StreamRow::PutFile(stream, name, mark) => {
                let value = (mark.bytes, mark.modified_ns);
                put(digest, &mut self.files, (stream.0, name), value)
            }
            StreamRow::DeleteFile(stream, name) => {
                delete(digest, &mut self.files, (stream.0, name))
            }
            StreamRow::PutQuery(query) => {
                let json = ContinuousQuery {
                    schema: query.schema_name.clone(),
                    name: query.name.clone(),
                    sql: query.sql.clone(),
                    stream: query.stream.0,
                };
                let json = serde_json::to_vec(&json).map_err(damaged)?;
                put(digest, &mut self.queries, query.id, &json)
            }
            StreamRow::PutProgress(query, progress) => {
                let value = (
                    progress.batches,
                    progress.next_row,
                    progress.first_needed,
                    progress.watermark.unwrap_or(NO_WATERMARK),
                );
                put(digest, &mut self.progress, *query, value)
            }
            StreamRow::DeleteQuery(query) => {
                delete(digest, &mut self.progress, *query)?;
                delete(digest, &mut self.queries, *query)
            }
        }
    }
}

/// Reads streams and continuous queries into `snapshot`, which has its tables.
pub(crate) fn load(
    transaction: &ReadTransaction,
    digest: &mut u64,
    snapshot: &mut Snapshot,
) -> Result<(), Failure> {
    let mut files: BTreeMap<u64, BTreeMap<String, FileMark>> = BTreeMap::new();
    each(transaction, STREAM_FILES, digest, |(stream, name), mark| {
        let (bytes, modified_ns) = mark;
        let mark = FileMark { bytes, modified_ns };
        let of_stream = files.entry(stream).or_default();
        of_stream.insert(name.to_owned(), mark);
        Ok(())
    })?;
    each(transaction, STREAMS, digest, |table, json| {
        let Stream { sql } = serde_json::from_slice(json).map_err(damaged)?;
        let id = TableId(table);
        if !snapshot.names.contains_key(&id) {
            return Err(damaged(format_args!("stream {table} has no table")));
        }
        let stream = StreamMeta {
            table: id,
            sql,
            files: files.remove(&table).unwrap_or_default(),
        };
        snapshot.streams.insert(id, Arc::new(stream));
        Ok(())
    })?;
    let mut progress = BTreeMap::new();
    each(transaction, PROGRESS, digest, |query, row| {
        let (batches, next_row, first_needed, watermark) = row;
        let of_query = Progress {
            batches,
            next_row,
            first_needed,
            watermark: (watermark != NO_WATERMARK).then_some(watermark),
        };
        progress.insert(query, of_query);
        Ok(())
    })?;
    each(transaction, QUERIES, digest, |id, json| {
        let query: ContinuousQuery = serde_json::from_slice(json).map_err(damaged)?;
        let stream = TableId(query.stream);
        let Some(progress) = progress.remove(&id) else {
            let detail = format_args!("continuous query {} has no progress", query.name);
            return Err(damaged(detail));
        };
        if !snapshot.streams.contains_key(&stream) {
            let detail = format_args!("continuous query {} has no stream", query.name);
            return Err(damaged(detail));
        }
        let query = ContinuousQueryMeta {
            id,
            schema_name: query.schema,
            name: query.name,
            sql: query.sql,
            stream,
            progress,
        };
        snapshot.queries.insert(id, Arc::new(query));
        Ok(())
    })
}
