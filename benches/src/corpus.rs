//! Databases with generated tables, kept between runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use skewer::Database;

use crate::data::{Batches, with_schema};
use crate::error::BenchError;

/// Written last: a directory without it is from a run that was interrupted.
const COMPLETE: &str = "complete";

/// A database with generated tables.
#[derive(Debug)]
pub struct Corpus {
    /// The database, open.
    pub database: Database,
    /// Each table and the directory of its segments.
    tables: Vec<(String, PathBuf)>,
}

impl Corpus {
    /// Opens the database `name` in `directory`, or makes it with the tables that `generate` gives.
    pub async fn open(
        directory: &Path,
        name: &str,
        generate: impl FnOnce() -> Vec<(&'static str, Batches)>,
    ) -> Result<Self, BenchError> {
        let home = directory.join(name);
        let path = home.join("db");
        let complete = home.join(COMPLETE);
        if let Ok(names) = fs::read_to_string(&complete) {
            let names = names.lines().map(str::to_owned).collect();
            let tables = segment_directories(&path, names)?;
            let database = Database::open(&path)?;
            return Ok(Self { database, tables });
        }
        if home.exists() {
            fs::remove_dir_all(&home).map_err(BenchError::file(&home))?;
        }
        fs::create_dir_all(&home).map_err(BenchError::file(&home))?;
        let database = Database::open(&path)?;
        let session = database.session();
        let mut names = Vec::new();
        for (table, batches) in generate() {
            let file = home.join(format!("{table}.parquet"));
            write_parquet(&file, batches)?;
            let sql = format!("CREATE TABLE {table} AS SELECT * FROM '{}'", file.display());
            session.sql(&sql).await?;
            fs::remove_file(&file).map_err(BenchError::file(&file))?;
            names.push(table.to_owned());
        }
        fs::write(&complete, names.join("\n")).map_err(BenchError::file(&complete))?;
        let tables = segment_directories(&path, names)?;
        Ok(Self { database, tables })
    }

    /// Plain DataFusion over the same Parquet files.
    pub async fn plain(&self) -> Result<SessionContext, BenchError> {
        let context = SessionContext::new();
        self.register(&context).await?;
        Ok(context)
    }

    /// Makes the same Parquet files tables of a session of plain DataFusion's.
    pub async fn register(&self, context: &SessionContext) -> Result<(), BenchError> {
        for (table, directory) in &self.tables {
            let directory = format!("{}/", directory.display());
            context
                .register_parquet(table, &directory, ParquetReadOptions::default())
                .await?;
        }
        Ok(())
    }

    /// Each table's name and the directory of its Parquet files, which have a column more than it:
    /// `_row_id`.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Path)> {
        let tables = self.tables.iter();
        tables.map(|(name, directory)| (name.as_str(), directory.as_path()))
    }

    /// Writes what schema `sys` holds in memory; other measurements are not to be disturbed by it.
    pub async fn flush(&self) -> Result<(), BenchError> {
        let database = self.database.clone();
        database.close().await?;
        Ok(())
    }
}

/// The directories of segments are numbered in the order in which tables were created.
fn segment_directories(
    database: &Path,
    names: Vec<String>,
) -> Result<Vec<(String, PathBuf)>, BenchError> {
    let segments = database.join("segments");
    let mut numbered = Vec::new();
    for entry in fs::read_dir(&segments).map_err(BenchError::file(&segments))? {
        let path = entry.map_err(BenchError::file(&segments))?.path();
        let number = path.file_name().and_then(|name| name.to_str());
        if let Some(number) = number.and_then(|name| name.parse::<u64>().ok()) {
            numbered.push((number, path));
        }
    }
    numbered.sort();
    if numbered.len() != names.len() {
        return Err(BenchError::Unexpected(format!(
            "{} has {} directories for {} tables",
            segments.display(),
            numbered.len(),
            names.len()
        )));
    }
    let paths = numbered.into_iter().map(|(_, path)| path);
    Ok(names.into_iter().zip(paths).collect())
}

fn write_parquet(path: &Path, batches: Batches) -> Result<(), BenchError> {
    let (schema, batches) = with_schema(batches)?;
    let file = File::create(path).map_err(BenchError::file(path))?;
    // The file lives for a moment only.
    let properties = WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build()))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}
