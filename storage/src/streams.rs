//! What the catalog has of streams and of continuous queries.
//!
//! A stream is a table whose rows go when every continuous query that reads it has read them. A
//! continuous query keeps its progress here, so one commit has its results and its progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Result;
use crate::StorageError;
use crate::catalog_changes::{Effects, Row, qualified};
use crate::error::Object;
use crate::snapshot::{SchemaContents, Snapshot, TableId};

/// What makes a table a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamMeta {
    /// The table that has the rows.
    pub table: TableId,
    /// The statement that creates it.
    pub sql: String,
    /// The files that the stream has taken, by name.
    pub files: BTreeMap<String, FileMark>,
}

/// What tells whether a file is still the one that a stream has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMark {
    /// Length of the file.
    pub bytes: u64,
    /// When it was modified, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A continuous query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuousQueryMeta {
    /// Identity; never reused.
    pub id: u64,
    /// Schema the query is in.
    pub schema_name: String,
    /// Name within the schema.
    pub name: String,
    /// The statement that creates it.
    pub sql: String,
    /// The stream that it reads.
    pub stream: TableId,
    /// How far it is.
    pub progress: Progress,
}

/// How far a continuous query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Micro-batches that were committed.
    pub batches: u64,
    /// Row id of the first row of the stream that the query has not read.
    pub next_row: i64,
    /// Row id of the first row that the query needs: rows of open windows are before `next_row`.
    pub first_needed: i64,
    /// Nanoseconds since 1970: the query expects no earlier rows. `None` before the first row, and
    /// for streams without a watermark.
    pub watermark: Option<i64>,
}

impl ContinuousQueryMeta {
    /// `schema.name`
    pub fn qualified_name(&self) -> String {
        qualified(&self.schema_name, &self.name)
    }
}

impl Snapshot {
    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = &Arc<StreamMeta>> {
        self.streams.values()
    }

    /// What makes a table a stream, if it is one.
    pub fn stream(&self, table: TableId) -> Option<&Arc<StreamMeta>> {
        self.streams.get(&table)
    }

    /// All continuous queries.
    pub fn continuous_queries(&self) -> impl Iterator<Item = &Arc<ContinuousQueryMeta>> {
        self.queries.values()
    }

    /// A continuous query by name.
    pub fn continuous_query(&self, schema: &str, name: &str) -> Option<&Arc<ContinuousQueryMeta>> {
        self.queries
            .values()
            .find(|query| query.schema_name == schema && query.name == name)
    }

    /// A continuous query by identity.
    pub fn continuous_query_by_id(&self, id: u64) -> Option<&Arc<ContinuousQueryMeta>> {
        self.queries.get(&id)
    }

    /// The continuous queries that read a stream.
    pub fn readers(&self, stream: TableId) -> impl Iterator<Item = &Arc<ContinuousQueryMeta>> {
        self.queries
            .values()
            .filter(move |query| query.stream == stream)
    }
}

/// One buffered change of streams and continuous queries.
#[derive(Debug)]
pub(crate) enum StreamChange {
    /// A table becomes a stream.
    Mark(Arc<StreamMeta>),
    /// A stream has taken files, and forgets others.
    Files {
        stream: TableId,
        taken: Vec<(String, FileMark)>,
        forgotten: Vec<String>,
    },
    CreateQuery(Arc<ContinuousQueryMeta>),
    DropQuery(u64),
    /// A micro-batch ends. It is a conflict if the query is not where the batch began.
    Advance {
        query: u64,
        from: Progress,
        to: Progress,
    },
}

/// One row of the catalog to write or to remove.
#[derive(Debug)]
pub(crate) enum StreamRow {
    PutStream(Arc<StreamMeta>),
    DeleteStream(Arc<StreamMeta>),
    PutFile(TableId, String, FileMark),
    DeleteFile(TableId, String),
    PutQuery(Arc<ContinuousQueryMeta>),
    PutProgress(u64, Progress),
    DeleteQuery(u64),
}

impl Snapshot {
    /// Applies one change. After an error the snapshot is unchanged.
    pub(crate) fn apply_to_streams(
        &mut self,
        change: &StreamChange,
        effects: &mut Effects,
    ) -> Result<()> {
        match change {
            StreamChange::Mark(stream) => {
                self.existing(stream.table)?;
                self.streams.insert(stream.table, Arc::clone(stream));
                let row = StreamRow::PutStream(Arc::clone(stream));
                effects.rows.push(Row::Stream(row));
            }
            StreamChange::Files {
                stream,
                taken,
                forgotten,
            } => {
                let Some(meta) = self.streams.get_mut(stream) else {
                    let name = format!("with id {stream}");
                    return Err(StorageError::not_found(Object::Stream, name));
                };
                let meta = Arc::make_mut(meta);
                for name in forgotten {
                    meta.files.remove(name);
                    let row = StreamRow::DeleteFile(*stream, name.clone());
                    effects.rows.push(Row::Stream(row));
                }
                for (name, mark) in taken {
                    meta.files.insert(name.clone(), *mark);
                    let row = StreamRow::PutFile(*stream, name.clone(), *mark);
                    effects.rows.push(Row::Stream(row));
                }
            }
            StreamChange::CreateQuery(query) => {
                if !self.has_schema(&query.schema_name) {
                    return Err(StorageError::not_found(Object::Schema, &query.schema_name));
                }
                if self
                    .continuous_query(&query.schema_name, &query.name)
                    .is_some()
                {
                    let name = query.qualified_name();
                    return Err(StorageError::exists(Object::ContinuousQuery, name));
                }
                if !self.streams.contains_key(&query.stream) {
                    let name = format!("with id {}", query.stream);
                    return Err(StorageError::not_found(Object::Stream, name));
                }
                self.queries.insert(query.id, Arc::clone(query));
                let row = StreamRow::PutQuery(Arc::clone(query));
                effects.rows.push(Row::Stream(row));
                let row = StreamRow::PutProgress(query.id, query.progress);
                effects.rows.push(Row::Stream(row));
            }
            StreamChange::DropQuery(id) => {
                if self.queries.remove(id).is_none() {
                    let name = format!("with id {id}");
                    return Err(StorageError::not_found(Object::ContinuousQuery, name));
                }
                effects.rows.push(Row::Stream(StreamRow::DeleteQuery(*id)));
            }
            StreamChange::Advance { query, from, to } => {
                let Some(meta) = self.queries.get_mut(query) else {
                    let name = format!("with id {query}");
                    return Err(StorageError::not_found(Object::ContinuousQuery, name));
                };
                if meta.progress != *from {
                    return Err(StorageError::Conflict {
                        detail: format!(
                            "another micro-batch of continuous query {} was committed meanwhile",
                            meta.qualified_name()
                        ),
                    });
                }
                Arc::make_mut(meta).progress = *to;
                let row = StreamRow::PutProgress(*query, *to);
                effects.rows.push(Row::Stream(row));
            }
        }
        Ok(())
    }

    /// A table is about to be dropped: if it is a stream, nobody may read it.
    pub(crate) fn unmark_stream(&mut self, table: TableId, effects: &mut Effects) -> Result<()> {
        if let Some(reader) = self.readers(table).next() {
            let name = self.existing(table)?.qualified_name();
            return Err(is_read(&name, reader));
        }
        if let Some(stream) = self.streams.remove(&table) {
            effects
                .rows
                .push(Row::Stream(StreamRow::DeleteStream(stream)));
        }
        Ok(())
    }

    /// A schema is about to be dropped: nobody outside it may read its streams.
    pub(crate) fn refuse_outside_readers(
        &self,
        schema: &str,
        contents: &SchemaContents,
    ) -> Result<()> {
        for table in contents.tables.values() {
            let outside = self.readers(table.id).find(|q| q.schema_name != schema);
            if let Some(reader) = outside {
                return Err(is_read(&table.qualified_name(), reader));
            }
        }
        Ok(())
    }

    /// Drops the continuous queries of a schema.
    pub(crate) fn drop_queries_of(&mut self, schema: &str, effects: &mut Effects) -> Result<()> {
        let of_schema = self.queries.values().filter(|q| q.schema_name == schema);
        let ids: Vec<u64> = of_schema.map(|query| query.id).collect();
        ids.into_iter()
            .try_for_each(|id| self.apply_to_streams(&StreamChange::DropQuery(id), effects))
    }
}

/// The error for a stream that cannot be dropped.
fn is_read(stream: &str, reader: &ContinuousQueryMeta) -> StorageError {
    let reader = reader.qualified_name();
    // As statements may write them.
    let short = |name: &str| name.strip_prefix("main.").unwrap_or(name).to_owned();
    StorageError::invalid(format_args!(
        "stream {} is read by continuous query {reader}: write DROP CONTINUOUS QUERY {reader} first",
        short(stream),
        reader = short(&reader)
    ))
}
