//! The redb file: one key per schema, table, view and segment, so that a commit writes what changed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::{reader::StreamReader, writer::StreamWriter};
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::changes::Row;
use crate::disk::{Disk, DiskFile};
use crate::snapshot::{
    Root, SegmentFile, SegmentMeta, SegmentNumbers, Snapshot, TableId, TableMeta, ViewMeta,
};
use crate::transaction::next_row_id;
use crate::{Result, StorageError};

/// Version of everything described in `docs/storage.md`. A change that an older build would
/// misread increments it.
pub(crate) const FORMAT: u64 = 1;

const CATALOG_FILE: &str = "catalog.redb";
/// A catalog being created, renamed when it is complete.
const NEW_CATALOG_FILE: &str = "catalog.redb.new";

/// A catalog of 10,000 segments is about 1 MB; redb's default of 1 GiB is for other uses.
const CACHE_BYTES: usize = 16 << 20;

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
/// (Schema, name) → JSON [`View`].
const VIEWS: TableDefinition<(&str, &str), &[u8]> = TableDefinition::new("views");

const META_FORMAT: &str = "format";
const META_VERSION: &str = "version";
const META_NEXT_TABLE_ID: &str = "next_table_id";
const META_NEXT_QUERY_ID: &str = "next_query_id";

#[derive(Serialize, Deserialize)]
struct Name {
    schema: String,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct View {
    sql: String,
}

/// Counters that survive a restart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    pub(crate) next_table_id: u64,
    pub(crate) next_query_id: i64,
}

/// What is in the catalog.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    pub(crate) counters: Counters,
}

/// The open catalog. `None` while it cannot be used after an I/O error.
pub(crate) struct Catalog {
    path: PathBuf,
    disk: Option<Arc<dyn Disk>>,
    database: Option<Database>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("path", &self.path).finish()
    }
}

impl Catalog {
    pub(crate) fn in_memory(default_schema: &str) -> Result<Self> {
        let path = PathBuf::from("(memory)");
        let database = guard(&path, || {
            builder()
                .create_with_backend(InMemoryBackend::new())
                .map_err(failure)
        })?;
        let mut catalog = Self {
            path,
            disk: None,
            database: Some(database),
        };
        catalog.initialise(default_schema)?;
        Ok(catalog)
    }

    /// Opens the catalog in `directory`, or creates it if there is none and no segments either.
    pub(crate) fn open(root: &Root, default_schema: &str) -> Result<Self> {
        let disk = &root.disk;
        let path = root.path.join(CATALOG_FILE);
        let exists = disk
            .exists(&path)
            .map_err(|source| StorageError::io(&path, source))?;
        if !exists {
            Self::create(root, default_schema)?;
        }
        let mut catalog = Self {
            path,
            disk: Some(Arc::clone(disk)),
            database: None,
        };
        catalog.reopen()?;
        Ok(catalog)
    }

    /// Makes a complete catalog under another name, then renames it: a crash leaves none or all.
    fn create(root: &Root, default_schema: &str) -> Result<()> {
        let disk = &root.disk;
        let path = root.path.join(CATALOG_FILE);
        let segments = root.segments_dir();
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| StorageError::io(&path, source)
        };
        disk.create_dir(&segments).map_err(io(&segments))?;
        if !disk.list(&segments).map_err(io(&segments))?.is_empty() {
            let detail = "the file is missing although the directory has segments";
            return Err(StorageError::corrupt(&path, detail));
        }
        let new = root.path.join(NEW_CATALOG_FILE);
        if disk.exists(&new).map_err(io(&new))? {
            disk.remove(&new).map_err(io(&new))?;
        }
        let file = disk.create(&new).map_err(io(&new))?;
        let database = guard(&new, || {
            let backend = Backend(Arc::clone(&file));
            builder().create_with_backend(backend).map_err(failure)
        })?;
        let mut catalog = Self {
            path: new.clone(),
            disk: None,
            database: Some(database),
        };
        catalog.initialise(default_schema)?;
        drop(catalog);
        file.sync().map_err(io(&new))?;
        disk.rename(&new, &path).map_err(io(&path))?;
        disk.sync_dir(&root.path).map_err(io(&root.path))
    }

    fn initialise(&mut self, default_schema: &str) -> Result<()> {
        self.transact(|transaction| {
            let mut meta = transaction.open_table(META).map_err(failure)?;
            for (key, value) in [
                (META_FORMAT, FORMAT),
                (META_VERSION, 0),
                (META_NEXT_TABLE_ID, 1),
                (META_NEXT_QUERY_ID, 1),
            ] {
                meta.insert(key, value).map_err(failure)?;
            }
            let mut schemas = transaction.open_table(SCHEMAS).map_err(failure)?;
            schemas.insert(default_schema, ()).map_err(failure)?;
            transaction.open_table(TABLES).map_err(failure)?;
            transaction.open_table(COLUMNS).map_err(failure)?;
            transaction.open_table(ROW_IDS).map_err(failure)?;
            transaction.open_table(SEGMENTS).map_err(failure)?;
            transaction.open_table(VIEWS).map_err(failure)?;
            Ok(())
        })
    }

    /// Whether the last operation left redb usable.
    pub(crate) fn is_usable(&self) -> bool {
        self.database.is_some()
    }

    /// Opens the file again, which makes redb recover: after an I/O error it refuses everything.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        let Some(disk) = self.disk.clone() else {
            return Ok(());
        };
        self.database = None;
        let path = &self.path;
        let file = disk
            .open(path)
            .map_err(|source| StorageError::io(path, source))?;
        let length = file
            .len()
            .map_err(|source| StorageError::io(path, source))?;
        // redb would take an empty file for a new database.
        if length == 0 {
            return Err(StorageError::corrupt(path, "the file is empty"));
        }
        let database = guard(path, || {
            builder()
                .create_with_backend(Backend(file))
                .map_err(failure)
        })?;
        self.database = Some(database);
        Ok(())
    }

    /// Version of the last commit that is in the file.
    pub(crate) fn version(&self) -> Result<u64> {
        self.read(|transaction| {
            let meta = transaction.open_table(META).map_err(failure)?;
            required(&meta, META_VERSION)
        })
    }

    /// Writes a commit. After an error it may or may not be in the file: see [`Catalog::version`].
    pub(crate) fn write(&mut self, version: u64, counters: Counters, rows: &[Row]) -> Result<()> {
        self.transact(|transaction| {
            let mut meta = transaction.open_table(META).map_err(failure)?;
            meta.insert(META_VERSION, version).map_err(failure)?;
            write_counters(&mut meta, counters)?;
            drop(meta);
            let mut writer = RowWriter::new(transaction)?;
            rows.iter().try_for_each(|row| writer.write(row))
        })
    }

    /// Writes the counters alone.
    pub(crate) fn write_counters(&mut self, counters: Counters) -> Result<()> {
        self.transact(|transaction| {
            let mut meta = transaction.open_table(META).map_err(failure)?;
            write_counters(&mut meta, counters)
        })
    }

    fn transact(
        &mut self,
        body: impl FnOnce(&redb::WriteTransaction) -> Result<(), Failure>,
    ) -> Result<()> {
        let database = self.database()?;
        guard(&self.path, || {
            let transaction = database.begin_write().map_err(failure)?;
            body(&transaction)?;
            transaction.commit().map_err(failure)
        })
    }

    fn read<T>(
        &self,
        body: impl FnOnce(&redb::ReadTransaction) -> Result<T, Failure>,
    ) -> Result<T> {
        let database = self.database()?;
        guard(&self.path, || {
            body(&database.begin_read().map_err(failure)?)
        })
    }

    fn database(&self) -> Result<&Database> {
        self.database.as_ref().ok_or_else(|| {
            StorageError::io(
                &self.path,
                io::Error::other("closed after an earlier I/O error"),
            )
        })
    }

    /// Reads everything.
    pub(crate) fn load(&self, root: &Arc<Root>) -> Result<Loaded> {
        let (found, loaded) = self.read(|transaction| {
            let meta = transaction.open_table(META).map_err(failure)?;
            let found = required(&meta, META_FORMAT)?;
            if found != FORMAT {
                return Ok((found, None));
            }
            let counters = Counters {
                next_table_id: required(&meta, META_NEXT_TABLE_ID)?,
                next_query_id: required(&meta, META_NEXT_QUERY_ID)?.cast_signed(),
            };
            let mut snapshot = load_snapshot(transaction, root)?;
            snapshot.version = required(&meta, META_VERSION)?;
            Ok((found, Some(Loaded { snapshot, counters })))
        })?;
        loaded.ok_or_else(|| StorageError::Format {
            path: root.path.clone(),
            found,
            supported: FORMAT,
        })
    }
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn write_counters(
    meta: &mut redb::Table<'_, &'static str, u64>,
    counters: Counters,
) -> Result<(), Failure> {
    meta.insert(META_NEXT_TABLE_ID, counters.next_table_id)
        .map_err(failure)?;
    meta.insert(META_NEXT_QUERY_ID, counters.next_query_id.cast_unsigned())
        .map_err(failure)?;
    Ok(())
}

fn required(meta: &redb::ReadOnlyTable<&'static str, u64>, key: &str) -> Result<u64, Failure> {
    let value = meta.get(key).map_err(failure)?;
    value
        .map(|value| value.value())
        .ok_or_else(|| damaged(format_args!("key {key} is missing")))
}

fn load_snapshot(
    transaction: &redb::ReadTransaction,
    root: &Arc<Root>,
) -> Result<Snapshot, Failure> {
    let mut snapshot = Snapshot::default();
    let schemas = transaction.open_table(SCHEMAS).map_err(failure)?;
    for entry in schemas.iter().map_err(failure)? {
        let (name, _) = entry.map_err(failure)?;
        snapshot
            .schemas
            .insert(name.value().to_owned(), Arc::default());
    }

    let mut tables = BTreeMap::new();
    let columns = transaction.open_table(COLUMNS).map_err(failure)?;
    let row_ids = transaction.open_table(ROW_IDS).map_err(failure)?;
    let names = transaction.open_table(TABLES).map_err(failure)?;
    for entry in names.iter().map_err(failure)? {
        let (id, name) = entry.map_err(failure)?;
        let id = id.value();
        let name: Name = serde_json::from_slice(name.value()).map_err(damaged)?;
        let schema = columns.get(id).map_err(failure)?;
        let next = row_ids.get(id).map_err(failure)?;
        let (Some(schema), Some(next)) = (schema, next) else {
            return Err(damaged(format_args!("table {} is incomplete", name.name)));
        };
        let schema = decode_schema(schema.value()).map_err(damaged)?;
        let id = TableId(id);
        let table = TableMeta::new(id, &name.schema, &name.name, schema, next.value());
        tables.insert(id, table);
    }

    let segments = transaction.open_table(SEGMENTS).map_err(failure)?;
    for entry in segments.iter().map_err(failure)? {
        let (key, value) = entry.map_err(failure)?;
        let (table, id) = key.value();
        let (rows, bytes, min_row_id, max_row_id, checksum) = value.value();
        let numbers = SegmentNumbers {
            rows,
            bytes,
            min_row_id,
            max_row_id,
            checksum,
        };
        let table_id = TableId(table);
        let table = tables
            .get_mut(&table_id)
            .ok_or_else(|| damaged(format_args!("segment {id} belongs to no table")))?;
        let path = root.segment_path(table_id, id);
        let file = SegmentFile::new(Arc::clone(root), path, true);
        let segment = SegmentMeta::new(table_id, id, numbers, file);
        table.segments.push(Arc::new(segment));
    }
    for table in tables.into_values() {
        snapshot.insert_table(Arc::new(table));
    }

    let views = transaction.open_table(VIEWS).map_err(failure)?;
    for entry in views.iter().map_err(failure)? {
        let (key, value) = entry.map_err(failure)?;
        let (schema, name) = key.value();
        let view: View = serde_json::from_slice(value.value()).map_err(damaged)?;
        let view = ViewMeta {
            schema_name: schema.to_owned(),
            name: name.to_owned(),
            sql: view.sql,
        };
        let contents = snapshot.schemas.entry(schema.to_owned()).or_default();
        Arc::make_mut(contents)
            .views
            .insert(name.to_owned(), Arc::new(view));
    }
    Ok(snapshot)
}

/// The catalog's tables, open for one transaction.
struct RowWriter<'a> {
    schemas: redb::Table<'a, &'static str, ()>,
    tables: redb::Table<'a, u64, &'static [u8]>,
    columns: redb::Table<'a, u64, &'static [u8]>,
    row_ids: redb::Table<'a, u64, i64>,
    segments: redb::Table<'a, (u64, u64), SegmentRow>,
    views: redb::Table<'a, (&'static str, &'static str), &'static [u8]>,
}

impl<'a> RowWriter<'a> {
    fn new(transaction: &'a redb::WriteTransaction) -> Result<Self, Failure> {
        Ok(Self {
            schemas: transaction.open_table(SCHEMAS).map_err(failure)?,
            tables: transaction.open_table(TABLES).map_err(failure)?,
            columns: transaction.open_table(COLUMNS).map_err(failure)?,
            row_ids: transaction.open_table(ROW_IDS).map_err(failure)?,
            segments: transaction.open_table(SEGMENTS).map_err(failure)?,
            views: transaction.open_table(VIEWS).map_err(failure)?,
        })
    }

    fn write(&mut self, row: &Row) -> Result<(), Failure> {
        match row {
            Row::PutSchema(name) => {
                self.schemas.insert(name.as_str(), ()).map_err(failure)?;
            }
            Row::DeleteSchema(name) => {
                self.schemas.remove(name.as_str()).map_err(failure)?;
            }
            Row::PutTable { id, schema, name } => {
                let name = Name {
                    schema: schema.clone(),
                    name: name.clone(),
                };
                let json = serde_json::to_vec(&name).map_err(damaged)?;
                self.tables.insert(id.0, json.as_slice()).map_err(failure)?;
            }
            Row::PutColumns { id, columns } => {
                let bytes = encode_schema(columns).map_err(damaged)?;
                self.columns
                    .insert(id.0, bytes.as_slice())
                    .map_err(failure)?;
            }
            Row::PutNextRowId(table) => {
                self.row_ids
                    .insert(table.id.0, next_row_id(table))
                    .map_err(failure)?;
            }
            Row::DeleteTable(id) => {
                self.tables.remove(id.0).map_err(failure)?;
                self.columns.remove(id.0).map_err(failure)?;
                self.row_ids.remove(id.0).map_err(failure)?;
            }
            Row::PutSegment { table, segment } => {
                let value = (
                    segment.rows,
                    segment.bytes,
                    segment.min_row_id,
                    segment.max_row_id,
                    segment.checksum,
                );
                self.segments
                    .insert((table.0, segment.id), value)
                    .map_err(failure)?;
            }
            Row::DeleteSegment { table, segment } => {
                self.segments.remove((table.0, *segment)).map_err(failure)?;
            }
            Row::PutView(view) => {
                let json = View {
                    sql: view.sql.clone(),
                };
                let json = serde_json::to_vec(&json).map_err(damaged)?;
                let key = (view.schema_name.as_str(), view.name.as_str());
                self.views.insert(key, json.as_slice()).map_err(failure)?;
            }
            Row::DeleteView { schema, name } => {
                let key = (schema.as_str(), name.as_str());
                self.views.remove(key).map_err(failure)?;
            }
        }
        Ok(())
    }
}

fn encode_schema(schema: &Schema) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, schema)?.finish()?;
    Ok(bytes)
}

fn decode_schema(bytes: &[u8]) -> Result<SchemaRef, ArrowError> {
    Ok(StreamReader::try_new(Cursor::new(bytes), None)?.schema())
}

/// Why an operation on the catalog failed, before the path is known.
enum Failure {
    Redb(redb::Error),
    Damaged(String),
}

fn failure(error: impl Into<redb::Error>) -> Failure {
    Failure::Redb(error.into())
}

fn damaged(detail: impl fmt::Display) -> Failure {
    Failure::Damaged(detail.to_string())
}

/// Runs an operation of redb; its panics, which damaged pages can cause, become errors.
fn guard<T>(path: &Path, body: impl FnOnce() -> Result<T, Failure>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Failure::Damaged(detail))) => Err(StorageError::corrupt(path, detail)),
        Ok(Err(Failure::Redb(redb::Error::Io(source)))) => match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Err(StorageError::corrupt(path, source))
            }
            _ => Err(StorageError::io(path, source)),
        },
        Ok(Err(Failure::Redb(error @ redb::Error::PreviousIo))) => {
            Err(StorageError::io(path, io::Error::other(error)))
        }
        Ok(Err(Failure::Redb(error))) => Err(StorageError::corrupt(path, error)),
        Err(panic) => {
            let detail = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unreadable");
            Err(StorageError::corrupt(path, detail))
        }
    }
}

/// redb's file, through the same door as everything else.
#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}
