//! The rows of the catalog: one key per schema, table, view and segment, so that a commit writes
//! what changed; and a digest over all of them, since redb does not check what it reads.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::io::Cursor;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::{reader::StreamReader, writer::StreamWriter};
use redb::{Key, ReadTransaction, ReadableTable, TableDefinition, TableHandle, Value};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

use crate::Result;
use crate::catalog::{
    Counters, FORMAT_OF_NODES, FORMAT_OF_STREAMS, Failure, Loaded, damaged, failure,
};
use crate::catalog_changes::Row;
use crate::placement::{MASTER, Partitioning, SegmentName, Shard};
use crate::quarantine::QuarantineMeta;
use crate::snapshot::{
    Root, SegmentFile, SegmentMeta, SegmentNumbers, Snapshot, TableId, TableMeta, ViewMeta,
};
use crate::stream_rows::{self, StreamRows};
use crate::transaction::next_row_id;

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const SCHEMAS: TableDefinition<&str, ()> = TableDefinition::new("schemas");
/// Table id → JSON [`Name`].
const TABLES: TableDefinition<u64, &[u8]> = TableDefinition::new("tables");
/// Table id → Arrow IPC stream with the schema and no batch.
const COLUMNS: TableDefinition<u64, &[u8]> = TableDefinition::new("columns");
/// Table id → next row id.
const ROW_IDS: TableDefinition<u64, i64> = TableDefinition::new("row_ids");
/// (Table id, segment id) → rows, bytes, smallest and largest row id, checksum.
type SegmentRow = (u64, u64, i64, i64, u64);
const SEGMENTS: TableDefinition<(u64, u64), SegmentRow> = TableDefinition::new("segments");
/// (Table id, segment id) → owner, number of the shard, number of shards (0: none). Segments
/// that are not here belong to the master and to no shard.
const PLACES: TableDefinition<(u64, u64), (u32, u32, u32)> = TableDefinition::new("places");
/// Table id → JSON [`Partitioning`], of tables that are not divided round robin.
const PARTITIONING: TableDefinition<u64, &[u8]> = TableDefinition::new("partitioning");
/// (Schema, name) → JSON [`View`].
const VIEWS: TableDefinition<(&str, &str), &[u8]> = TableDefinition::new("views");
/// (Table id, name) → JSON [`QuarantineMeta`].
const QUARANTINES: TableDefinition<(u64, &str), &[u8]> = TableDefinition::new("quarantines");

const META_FORMAT: &str = "format";
const META_VERSION: &str = "version";
const META_NEXT_TABLE_ID: &str = "next_table_id";
const META_NEXT_QUERY_ID: &str = "next_query_id";
/// Missing where all segments are the master's.
const META_NEXT_SEGMENT_ID: &str = "next_segment_id";
/// XOR of [`row_digest`] over all other rows.
const META_DIGEST: &str = "digest";

#[derive(Serialize, Deserialize)]
struct Name {
    schema: String,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct View {
    sql: String,
}

/// Hash of one row. Combined by XOR, so that a commit needs only the rows it changes, old and new.
fn row_digest<K: Key, V: Value>(
    table: &str,
    key: &K::SelfType<'_>,
    value: &V::SelfType<'_>,
) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    for part in [
        table.as_bytes(),
        K::as_bytes(key).as_ref(),
        V::as_bytes(value).as_ref(),
    ] {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish()
}

/// The catalog's tables, open for one transaction.
pub(crate) struct Rows<'a> {
    meta: redb::Table<'a, &'static str, u64>,
    schemas: redb::Table<'a, &'static str, ()>,
    tables: redb::Table<'a, u64, &'static [u8]>,
    columns: redb::Table<'a, u64, &'static [u8]>,
    row_ids: redb::Table<'a, u64, i64>,
    segments: redb::Table<'a, (u64, u64), SegmentRow>,
    places: redb::Table<'a, (u64, u64), (u32, u32, u32)>,
    partitioning: redb::Table<'a, u64, &'static [u8]>,
    views: redb::Table<'a, (&'static str, &'static str), &'static [u8]>,
    quarantines: redb::Table<'a, (u64, &'static str), &'static [u8]>,
    streams: StreamRows<'a>,
    digest: u64,
}

pub(crate) fn put<K: Key + 'static, V: Value + 'static>(
    digest: &mut u64,
    table: &mut redb::Table<'_, K, V>,
    key: K::SelfType<'_>,
    value: V::SelfType<'_>,
) -> Result<(), Failure> {
    let name = table.name().to_owned();
    *digest ^= row_digest::<K, V>(&name, &key, &value);
    if let Some(old) = table.insert(&key, &value).map_err(failure)? {
        *digest ^= row_digest::<K, V>(&name, &key, &old.value());
    }
    Ok(())
}

pub(crate) fn delete<K: Key + 'static, V: Value + 'static>(
    digest: &mut u64,
    table: &mut redb::Table<'_, K, V>,
    key: K::SelfType<'_>,
) -> Result<(), Failure> {
    let name = table.name().to_owned();
    if let Some(old) = table.remove(&key).map_err(failure)? {
        *digest ^= row_digest::<K, V>(&name, &key, &old.value());
    }
    Ok(())
}

impl<'a> Rows<'a> {
    pub(crate) fn open(transaction: &'a redb::WriteTransaction) -> Result<Self, Failure> {
        let meta = transaction.open_table(META).map_err(failure)?;
        let digest = meta.get(META_DIGEST).map_err(failure)?;
        let digest = digest.map_or(0, |digest| digest.value());
        Ok(Self {
            meta,
            schemas: transaction.open_table(SCHEMAS).map_err(failure)?,
            tables: transaction.open_table(TABLES).map_err(failure)?,
            columns: transaction.open_table(COLUMNS).map_err(failure)?,
            row_ids: transaction.open_table(ROW_IDS).map_err(failure)?,
            segments: transaction.open_table(SEGMENTS).map_err(failure)?,
            places: transaction.open_table(PLACES).map_err(failure)?,
            partitioning: transaction.open_table(PARTITIONING).map_err(failure)?,
            views: transaction.open_table(VIEWS).map_err(failure)?,
            quarantines: transaction.open_table(QUARANTINES).map_err(failure)?,
            streams: StreamRows::open(transaction)?,
            digest,
        })
    }

    /// Must come last.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.meta
            .insert(META_DIGEST, self.digest)
            .map_err(failure)?;
        Ok(())
    }

    pub(crate) fn put_format(&mut self, format: u64) -> Result<(), Failure> {
        put(&mut self.digest, &mut self.meta, META_FORMAT, format)
    }

    /// A build that reads formats below `format` alone would misread the database from now on.
    fn raise_format(&mut self, format: u64) -> Result<(), Failure> {
        let before = self.meta.get(META_FORMAT).map_err(failure)?;
        let before = before.map_or(0, |before| before.value());
        match before < format {
            true => self.put_format(format),
            false => Ok(()),
        }
    }

    pub(crate) fn put_version(&mut self, version: u64) -> Result<(), Failure> {
        put(&mut self.digest, &mut self.meta, META_VERSION, version)
    }

    pub(crate) fn put_counters(&mut self, counters: Counters) -> Result<(), Failure> {
        let Counters {
            next_table_id,
            next_query_id,
            next_segment_id,
        } = counters;
        if next_segment_id > 0 {
            let meta = &mut self.meta;
            put(
                &mut self.digest,
                meta,
                META_NEXT_SEGMENT_ID,
                next_segment_id,
            )?;
        }
        for (key, value) in [
            (META_NEXT_TABLE_ID, next_table_id),
            (META_NEXT_QUERY_ID, next_query_id.cast_unsigned()),
        ] {
            put(&mut self.digest, &mut self.meta, key, value)?;
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, row: &Row) -> Result<(), Failure> {
        let digest = &mut self.digest;
        match row {
            Row::PutSchema(name) => put(digest, &mut self.schemas, name, ()),
            Row::DeleteSchema(name) => delete(digest, &mut self.schemas, name),
            Row::PutTable { id, schema, name } => {
                let name = Name {
                    schema: schema.clone(),
                    name: name.clone(),
                };
                let json = serde_json::to_vec(&name).map_err(damaged)?;
                put(digest, &mut self.tables, id.0, &json)
            }
            Row::PutColumns { id, columns } => {
                let bytes = encode_schema(columns).map_err(damaged)?;
                put(digest, &mut self.columns, id.0, &bytes)
            }
            Row::PutPartitioning { id, partitioning } => {
                if *partitioning == Partitioning::RoundRobin {
                    return Ok(());
                }
                let json = serde_json::to_vec(partitioning).map_err(damaged)?;
                put(digest, &mut self.partitioning, id.0, &json)?;
                self.raise_format(FORMAT_OF_NODES)
            }
            Row::PutNextRowId(table) => {
                put(digest, &mut self.row_ids, table.id.0, next_row_id(table))
            }
            Row::DeleteTable(id) => {
                delete(digest, &mut self.tables, id.0)?;
                delete(digest, &mut self.columns, id.0)?;
                delete(digest, &mut self.partitioning, id.0)?;
                delete(digest, &mut self.row_ids, id.0)
            }
            Row::PutSegment { table, segment } => {
                let value = (
                    segment.rows,
                    segment.bytes,
                    segment.min_row_id,
                    segment.max_row_id,
                    segment.checksum,
                );
                put(digest, &mut self.segments, (table.0, segment.id), value)?;
                if segment.owner == MASTER && segment.shard.is_none() {
                    return Ok(());
                }
                let Shard { index, of } = segment.shard.unwrap_or(Shard { index: 0, of: 0 });
                let place = (segment.owner, index, of);
                put(digest, &mut self.places, (table.0, segment.id), place)?;
                self.raise_format(FORMAT_OF_NODES)
            }
            Row::DeleteSegment { table, segment } => {
                delete(digest, &mut self.places, (table.0, *segment))?;
                delete(digest, &mut self.segments, (table.0, *segment))
            }
            Row::PutView(view) => {
                let json = View {
                    sql: view.sql.clone(),
                };
                let json = serde_json::to_vec(&json).map_err(damaged)?;
                let key = (view.schema_name.as_str(), view.name.as_str());
                put(digest, &mut self.views, key, &json)
            }
            Row::DeleteView { schema, name } => {
                delete(digest, &mut self.views, (schema.as_str(), name.as_str()))
            }
            Row::PutQuarantine { table, quarantine } => {
                let json = serde_json::to_vec(quarantine.as_ref()).map_err(damaged)?;
                let key = (table.0, quarantine.name.as_str());
                put(digest, &mut self.quarantines, key, &json)?;
                self.raise_format(FORMAT_OF_STREAMS)
            }
            Row::DeleteQuarantine { table, name } => {
                delete(digest, &mut self.quarantines, (table.0, name.as_str()))
            }
            Row::Stream(row) => {
                self.streams.write(digest, row)?;
                self.raise_format(FORMAT_OF_STREAMS)
            }
        }
    }
}

/// Format of the catalog, which says whether anything else can be read.
pub(crate) fn format(transaction: &ReadTransaction) -> Result<u64, Failure> {
    meta(transaction, META_FORMAT)
}

/// Version of the last commit.
pub(crate) fn version(transaction: &ReadTransaction) -> Result<u64, Failure> {
    meta(transaction, META_VERSION)
}

fn meta(transaction: &ReadTransaction, key: &str) -> Result<u64, Failure> {
    optional_meta(transaction, key)?.ok_or_else(|| damaged(format_args!("key {key} is missing")))
}

fn optional_meta(transaction: &ReadTransaction, key: &str) -> Result<Option<u64>, Failure> {
    let table = transaction.open_table(META).map_err(failure)?;
    let value = table.get(key).map_err(failure)?;
    Ok(value.map(|value| value.value()))
}

/// Calls `body` with every row of a table, and adds them to the digest.
pub(crate) fn each<K: Key + 'static, V: Value + 'static>(
    transaction: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
    digest: &mut u64,
    mut body: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let rows = match transaction.open_table(table) {
        Ok(rows) => rows,
        // Nothing was ever written to it: the database is older than the table.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(failure(error)),
    };
    for row in rows.iter().map_err(failure)? {
        let (key, value) = row.map_err(failure)?;
        *digest ^= row_digest::<K, V>(table.name(), &key.value(), &value.value());
        body(key.value(), value.value())?;
    }
    Ok(())
}

/// Reads everything.
pub(crate) fn load(transaction: &ReadTransaction, root: &Arc<Root>) -> Result<Loaded, Failure> {
    let mut snapshot = Snapshot {
        version: version(transaction)?,
        ..Snapshot::default()
    };
    let mut digest = 0;
    each(transaction, META, &mut digest, |_, _| Ok(()))?;
    let expected = meta(transaction, META_DIGEST)?;
    digest ^= row_digest::<&str, u64>(META.name(), &META_DIGEST, &expected);

    each(transaction, SCHEMAS, &mut digest, |name, ()| {
        snapshot.schemas.insert(name.to_owned(), Arc::default());
        Ok(())
    })?;

    let mut columns = BTreeMap::new();
    each(transaction, COLUMNS, &mut digest, |id, bytes| {
        columns.insert(id, decode_schema(bytes).map_err(damaged)?);
        Ok(())
    })?;
    let mut row_ids = BTreeMap::new();
    each(transaction, ROW_IDS, &mut digest, |id, next| {
        row_ids.insert(id, next);
        Ok(())
    })?;
    let mut partitioning: BTreeMap<u64, Partitioning> = BTreeMap::new();
    each(transaction, PARTITIONING, &mut digest, |id, json| {
        partitioning.insert(id, serde_json::from_slice(json).map_err(damaged)?);
        Ok(())
    })?;
    let mut tables = BTreeMap::new();
    each(transaction, TABLES, &mut digest, |id, name| {
        let Name { schema, name } = serde_json::from_slice(name).map_err(damaged)?;
        let (Some(columns), Some(next)) = (columns.remove(&id), row_ids.get(&id)) else {
            return Err(damaged(format_args!("table {name} is incomplete")));
        };
        let mut table = TableMeta::new(TableId(id), &schema, &name, columns, *next);
        table.partitioning = partitioning.remove(&id).unwrap_or_default();
        tables.insert(id, table);
        Ok(())
    })?;

    let mut places = BTreeMap::new();
    each(transaction, PLACES, &mut digest, |segment, place| {
        places.insert(segment, place);
        Ok(())
    })?;
    each(transaction, SEGMENTS, &mut digest, |(table, id), row| {
        let (rows, bytes, min_row_id, max_row_id, checksum) = row;
        let numbers = SegmentNumbers {
            rows,
            bytes,
            min_row_id,
            max_row_id,
            checksum,
        };
        let meta = tables
            .get_mut(&table)
            .ok_or_else(|| damaged(format_args!("segment {id} belongs to no table")))?;
        let (owner, index, of) = places.remove(&(table, id)).unwrap_or((MASTER, 0, 0));
        let name = SegmentName {
            owner,
            table: meta.id,
            id,
        };
        let shard = (of > 0).then_some(Shard { index, of });
        let segment = SegmentMeta::new(numbers, shard, SegmentFile::new(root, name, true));
        meta.segments.push(Arc::new(segment));
        Ok(())
    })?;
    if let Some((table, segment)) = places.into_keys().next() {
        let stray = format_args!("segment {segment} of table {table} has a place only");
        return Err(damaged(stray));
    }
    each(
        transaction,
        QUARANTINES,
        &mut digest,
        |(table, name), json| {
            let quarantine: QuarantineMeta = serde_json::from_slice(json).map_err(damaged)?;
            let stray = || damaged(format_args!("quarantine {name} belongs to no table"));
            let table = tables.get_mut(&table).ok_or_else(stray)?;
            let quarantines = &mut table.quarantines;
            quarantines.insert(name.to_owned(), Arc::new(quarantine));
            Ok(())
        },
    )?;
    for table in tables.into_values() {
        snapshot.insert_table(Arc::new(table));
    }

    each(transaction, VIEWS, &mut digest, |(schema, name), json| {
        let View { sql } = serde_json::from_slice(json).map_err(damaged)?;
        let view = ViewMeta {
            schema_name: schema.to_owned(),
            name: name.to_owned(),
            sql,
        };
        let contents = snapshot.schemas.entry(schema.to_owned()).or_default();
        let views = &mut Arc::make_mut(contents).views;
        views.insert(name.to_owned(), Arc::new(view));
        Ok(())
    })?;

    let tables: Vec<Arc<TableMeta>> = snapshot.all_tables().cloned().collect();
    for table in tables {
        for quarantine in table.quarantines.values() {
            let shown = snapshot.show_quarantine(&table, quarantine);
            shown.map_err(damaged)?;
        }
    }
    stream_rows::load(transaction, &mut digest, &mut snapshot)?;

    if digest != expected {
        return Err(damaged("its checksum is wrong"));
    }
    let counters = Counters {
        next_table_id: meta(transaction, META_NEXT_TABLE_ID)?,
        next_query_id: meta(transaction, META_NEXT_QUERY_ID)?.cast_signed(),
        next_segment_id: optional_meta(transaction, META_NEXT_SEGMENT_ID)?.unwrap_or(0),
    };
    Ok(Loaded { snapshot, counters })
}

fn encode_schema(schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, schema)?.finish()?;
    Ok(bytes)
}

fn decode_schema(bytes: &[u8]) -> Result<SchemaRef, ArrowError> {
    Ok(StreamReader::try_new(Cursor::new(bytes), None)?.schema())
}
