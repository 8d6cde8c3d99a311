//! EXPORT PROFILE n TO 'dir', and IMPORT PROFILE FROM 'dir'.
//!
//! A directory has a Parquet file for each table of schema `sys` that has rows of the query, with
//! the columns that a scan of the table gives, and `manifest.json`, which says what is in them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::parquet::arrow::AsyncArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use skewer_diagnosis::unknown_query;
use skewer_profiling::{ImportError, Table};
use skewer_sql::ExportFormat;

use super::untraced::{untraced_query, untraced_stream};
use super::{export_page, export_trace};
use crate::error::Error;
use crate::query_stream::QueryStream;
use crate::session::Session;

/// What is in a directory.
const MANIFEST: &str = "manifest.json";

/// Changes when files of an earlier version can no longer be read.
const FORMAT_VERSION: u32 = 1;

/// The rows of each table.
type Rows = Vec<(Table, Vec<RecordBatch>)>;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format_version: u32,
    /// Which version of Skewer wrote it.
    skewer: String,
    query_id: i64,
    sql: String,
    /// Rows of each table.
    tables: BTreeMap<String, u64>,
}

/// Writes what was recorded of a query; answers with the path and the number of rows or events.
pub(crate) async fn export(
    session: &Session,
    query_id: i64,
    path: &str,
    format: ExportFormat,
) -> Result<QueryStream, Error> {
    let known = format!("SELECT sql, profile_level FROM sys.queries WHERE query_id = {query_id}");
    let known = untraced_query(session, &known).await?;
    if known.iter().all(|batch| batch.num_rows() == 0) {
        return Err(unknown_query(session, query_id).await.into());
    }
    let target = PathBuf::from(path);
    let written = match format {
        ExportFormat::Parquet => write_directory(session, query_id, &known, &target).await?,
        ExportFormat::Perfetto => export_trace::write(session, query_id, &target).await?,
        ExportFormat::Html => export_page::write(session, query_id, &target).await?,
    };
    let written = i64::try_from(written).unwrap_or(i64::MAX);
    answer(
        exported_columns(format),
        vec![
            Arc::new(StringArray::from(vec![path])),
            Arc::new(Int64Array::from(vec![written])),
        ],
    )
}

/// The columns of the answer to EXPORT PROFILE.
pub(crate) fn exported_columns(format: ExportFormat) -> SchemaRef {
    let counted = match format {
        ExportFormat::Parquet => "rows",
        ExportFormat::Perfetto => "events",
        ExportFormat::Html => "views",
    };
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new(counted, DataType::Int64, false),
    ]))
}

/// The columns of the answer to IMPORT PROFILE.
pub(crate) fn imported_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("query_id", DataType::Int64, false),
        Field::new("sql", DataType::Utf8, false),
    ]))
}

fn answer(schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<QueryStream, Error> {
    Ok(QueryStream::ready(
        RecordBatch::try_new(schema, columns)?,
        None,
    ))
}

/// A file or directory that appears under its name when it is complete.
pub(super) struct Unfinished {
    temporary: PathBuf,
    target: PathBuf,
    finished: bool,
}

impl Unfinished {
    pub(super) fn beside(target: &Path) -> Self {
        /// Two sessions may write to one target: each has a name of its own.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{number}.tmp", std::process::id()));
        Self {
            temporary: target.with_file_name(name),
            target: target.to_owned(),
            finished: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.temporary
    }

    pub(super) fn finish(mut self) -> Result<(), Error> {
        std::fs::rename(&self.temporary, &self.target).map_err(|e| io_error(&self.target, &e))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // The error that is under way says more than these could.
            let _ = std::fs::remove_dir_all(&self.temporary);
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

pub(super) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    file_error(path, error.to_string())
}

fn file_error(path: &Path, message: impl Into<String>) -> Error {
    Error::File {
        path: path.display().to_string(),
        line: None,
        message: message.into(),
    }
}

async fn write_directory(
    session: &Session,
    query_id: i64,
    known: &[RecordBatch],
    target: &Path,
) -> Result<u64, Error> {
    match std::fs::read_dir(target) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(file_error(target, "the directory is there and not empty"));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(file_error(target, "it is there, and no directory"));
        }
        Err(_) => {}
    }
    let unfinished = Unfinished::beside(target);
    let directory = unfinished.path().to_owned();
    std::fs::create_dir_all(&directory).map_err(|e| io_error(&directory, &e))?;
    let mut manifest = Manifest {
        format_version: FORMAT_VERSION,
        skewer: env!("CARGO_PKG_VERSION").to_owned(),
        query_id,
        sql: text_of(known, "sql").unwrap_or_default(),
        tables: BTreeMap::new(),
    };
    for table in Table::ALL {
        let name = table.name();
        let sql = format!("SELECT * FROM sys.{name} WHERE query_id = {query_id}");
        let path = directory.join(file_name(name));
        let rows = write_parquet(&path, untraced_stream(session, &sql).await?).await?;
        if rows == 0 {
            std::fs::remove_file(&path).map_err(|e| io_error(&path, &e))?;
            continue;
        }
        manifest.tables.insert(name.to_owned(), rows);
    }
    let text = serde_json::to_string_pretty(&manifest);
    let text = text.map_err(|error| Error::Internal(error.to_string()))?;
    let path = directory.join(MANIFEST);
    std::fs::write(&path, text + "\n").map_err(|e| io_error(&path, &e))?;
    unfinished.finish()?;
    Ok(manifest.tables.values().sum())
}

fn file_name(table: &str) -> String {
    format!("{table}.parquet")
}

fn text_of(batches: &[RecordBatch], column: &str) -> Option<String> {
    use datafusion::arrow::array::AsArray;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0)?;
    let texts = batch.column_by_name(column)?.as_string_opt::<i32>()?;
    Some(texts.value(0).to_owned())
}

/// Writes the rows; gives their number.
async fn write_parquet(path: &Path, mut rows: SendableRecordBatchStream) -> Result<u64, Error> {
    let file = tokio::fs::File::create(path).await;
    let file = file.map_err(|e| io_error(path, &e))?;
    let failed =
        |error: datafusion::parquet::errors::ParquetError| file_error(path, error.to_string());
    let mut writer = AsyncArrowWriter::try_new(file, rows.schema(), None).map_err(failed)?;
    let mut written = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        written += batch.num_rows() as u64;
        writer.write(&batch).await.map_err(failed)?;
    }
    writer.finish().await.map_err(failed)?;
    let synced = writer.into_inner().sync_all().await;
    synced.map_err(|e| io_error(path, &e))?;
    Ok(written)
}

/// Makes what EXPORT PROFILE wrote a query of schema `sys`, under a new id, with which it answers.
pub(crate) async fn import(session: &Session, path: &str) -> Result<QueryStream, Error> {
    let directory = PathBuf::from(path);
    let database = session.database_inner();
    let query_id = database.storage.next_query_id();
    let sys = Arc::clone(&database.sys);
    // Files are read and written: that must not hold up a thread that runs queries.
    let imported = tokio::task::spawn_blocking(move || {
        let (manifest, tables) = read_directory(&directory)?;
        let imported = sys.import(query_id, tables);
        imported.map_err(|error| match error {
            ImportError::Rows { table, .. } => {
                file_error(&directory.join(file_name(table)), error.to_string())
            }
            ImportError::Write(error) => {
                Error::Io(format!("schema sys could not be written: {error}"))
            }
        })?;
        Ok::<_, Error>(manifest)
    });
    let manifest = imported
        .await
        .map_err(|error| Error::Internal(error.to_string()))??;
    answer(
        imported_columns(),
        vec![
            Arc::new(Int64Array::from(vec![query_id])),
            Arc::new(StringArray::from(vec![manifest.sql])),
        ],
    )
}

/// What is in a directory that EXPORT PROFILE wrote.
fn read_directory(directory: &Path) -> Result<(Manifest, Rows), Error> {
    let manifest = manifest(directory)?;
    let mut tables = Vec::new();
    for table in Table::ALL {
        let Some(rows) = manifest.tables.get(table.name()) else {
            continue;
        };
        let file = directory.join(file_name(table.name()));
        let mut batches = read_parquet(&file)?;
        let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if found as u64 != *rows {
            let message = format!("it has {found} rows, and {MANIFEST} says {rows}");
            return Err(file_error(&file, message));
        }
        if table == Table::Queries {
            let path = directory.display().to_string();
            batches = batches
                .iter()
                .map(|batch| from_elsewhere(batch, &path))
                .collect::<Result<_, _>>()?;
        }
        tables.push((table, batches));
    }
    if !manifest.tables.contains_key(Table::Queries.name()) {
        return Err(file_error(directory, "it has no row of sys.queries"));
    }
    Ok((manifest, tables))
}

/// An error if a directory is an exported profile, of whatever version, which is no database.
pub(crate) fn expect_no_export(directory: &Path) -> Result<(), Error> {
    let Ok(text) = std::fs::read_to_string(directory.join(MANIFEST)) else {
        return Ok(());
    };
    let manifest: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let is_export = manifest
        .is_some_and(|it| it.get("format_version").is_some() && it.get("query_id").is_some());
    if !is_export {
        return Ok(());
    }
    Err(file_error(
        directory,
        format!(
            "it is an exported profile and no database; in any database, IMPORT PROFILE FROM '{}' reads it",
            directory.display()
        ),
    ))
}

fn manifest(directory: &Path) -> Result<Manifest, Error> {
    let path = directory.join(MANIFEST);
    let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => file_error(
            directory,
            format!("it is no exported profile: there is no {MANIFEST}"),
        ),
        _ => io_error(&path, &error),
    })?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| file_error(&path, error.to_string()))?;
    match manifest.format_version {
        FORMAT_VERSION => Ok(manifest),
        other => Err(file_error(
            &path,
            format!(
                "format_version is {other}, written by Skewer {}; this one reads {FORMAT_VERSION}",
                manifest.skewer
            ),
        )),
    }
}

fn read_parquet(path: &Path) -> Result<Vec<RecordBatch>, Error> {
    let file = File::open(path).map_err(|e| io_error(path, &e))?;
    let unreadable =
        |error: String| file_error(path, format!("it is not a readable Parquet file: {error}"));
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.build())
        .map_err(|error| unreadable(error.to_string()))?;
    reader
        .map(|batch| batch.map_err(|error| unreadable(error.to_string())))
        .collect()
}

/// Rows of `sys.queries` that say where they come from.
fn from_elsewhere(batch: &RecordBatch, path: &str) -> Result<RecordBatch, Error> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let mut named: Vec<(&str, ArrayRef)> = columns
        .filter(|(field, _)| field.name() != "imported_from")
        .map(|(field, column)| (field.name().as_str(), Arc::clone(column)))
        .collect();
    let from = StringArray::from(vec![path; batch.num_rows()]);
    named.push(("imported_from", Arc::new(from)));
    let nullable = named.into_iter().map(|(name, column)| (name, column, true));
    Ok(RecordBatch::try_from_iter_with_nullable(nullable)?)
}
