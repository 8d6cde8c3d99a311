//! Parquet, CSV and JSON files as tables.
//!
//! ```text
//! locate       which files a path, a folder or a pattern means
//! partitions   columns that folders name: year=2024/
//! passes       whole files are read before the query, to learn what is in them:
//!   csv_file, csv_types     records, header, types of a CSV file
//!   json_file, json_types   records and keys of a JSON file
//!   parquet_file            columns and statistics from the footers
//! tables       what was found in each file, put together
//! scan         the table, and the operators that read it
//! json_source  JSON as batches
//! place_store  files for DataFusion's readers, whatever their names are
//! ```

mod csv_file;
mod csv_types;
pub(crate) mod dialect;
pub(crate) mod json_file;
pub(crate) mod json_source;
mod json_types;
pub(crate) mod locate;
mod parquet_file;
mod partitions;
mod passes;
pub(crate) mod place_store;
mod scan;
mod tables;

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::{CreateExternalTable, Statement as DFStatement};
use skewer_sql::CopyOptions;

pub(crate) use self::dialect::CsvDialect;
use self::locate::{Located, Place, locate, nothing, unreadable};
use crate::error::Error;

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Parquet,
    Csv,
    /// JSON objects that follow each other, or one array of them.
    Json,
}

/// Extensions of files that are packed as a whole.
const PACKED: [&str; 7] = ["gz", "gzip", "bz2", "xz", "zst", "zstd", "lz4"];

impl FileKind {
    /// The kind that a format or an extension names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.to_lowercase().as_str() {
            "parquet" | "pq" => Some(Self::Parquet),
            "csv" | "tsv" => Some(Self::Csv),
            "json" | "ndjson" | "jsonl" => Some(Self::Json),
            _ => None,
        }
    }

    /// The kind of a file by its name.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let path = Path::new(path);
        let extension = path.extension()?.to_str()?;
        match PACKED.contains(&extension.to_lowercase().as_str()) {
            true => Self::named(Path::new(path.file_stem()?).extension()?.to_str()?),
            false => Self::named(extension),
        }
    }

    /// The kinds as a statement can name them.
    pub(crate) const NAMES: &'static str = "parquet, csv or json";

    fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Json => "JSON",
        }
    }
}

/// Whether the extension of a path says that the file is packed.
pub(crate) fn is_packed(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| PACKED.contains(&extension.to_lowercase().as_str()))
}

/// Files that a query reads as one table.
#[derive(Debug, Clone)]
pub(crate) struct FileTable {
    /// Files, directories or patterns.
    pub(crate) locations: Vec<String>,
    pub(crate) kind: FileKind,
    /// Whether the statement says the kind, so that any file may be of it.
    kind_said: bool,
    pub(crate) csv: CsvDialect,
    /// The columns, if they are not to be found in the files.
    pub(crate) schema: Option<SchemaRef>,
    /// The statement that declared the columns.
    declared: Option<Box<CreateExternalTable>>,
}

impl FileTable {
    /// The files of one location, with columns as they are found in them, or as given.
    pub(crate) fn new(
        location: &str,
        kind: FileKind,
        csv: CsvDialect,
        schema: Option<SchemaRef>,
    ) -> Self {
        Self {
            locations: vec![location.to_owned()],
            kind,
            kind_said: true,
            csv,
            schema,
            declared: None,
        }
    }

    /// Whether a name in FROM is a path rather than the name of a table.
    pub(crate) fn is_path(name: &str) -> bool {
        name.contains('/') || FileKind::of_path(name).is_some()
    }

    /// The files that a path, a folder or a pattern in FROM means.
    ///
    /// # Errors
    /// A location whose files are of no known format, or of several.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let kind = match FileKind::of_path(name) {
            Some(kind) => kind,
            None => Self::kind_within(name)?,
        };
        Ok(Self {
            kind_said: false,
            ..Self::new(name, kind, CsvDialect::default(), None)
        })
    }

    /// The only kind of the files of a folder or pattern.
    fn kind_within(location: &str) -> Result<FileKind, Error> {
        let (place, files) = locate(location, false)?;
        let mut first: Option<(FileKind, &Located)> = None;
        for file in &files {
            let Some(kind) = FileKind::of_path(&file.path.to_string_lossy()) else {
                continue;
            };
            match first {
                Some((other, before)) if other != kind => {
                    let extension = |file: &Located| {
                        let extension = file.path.extension().unwrap_or_default();
                        extension.to_string_lossy().into_owned()
                    };
                    let base = match place {
                        Place::Folder => location.trim_end_matches('/'),
                        _ => locate::fixed_part(location),
                    };
                    let message = format!(
                        "there are {} and {} files here; say which, as in '{base}/**/*.{}'",
                        other.name(),
                        kind.name(),
                        extension(before)
                    );
                    return Err(unreadable(location, &message));
                }
                _ => first = first.or(Some((kind, file))),
            }
        }
        match (first, place) {
            (Some((kind, _)), _) => Ok(kind),
            (None, Place::File) if !files.is_empty() => Err(unreadable(
                location,
                &format!(
                    "its name does not say how it is written: name it in CREATE EXTERNAL TABLE … \
                     STORED AS …, which is {}",
                    FileKind::NAMES
                ),
            )),
            (None, place) => Err(nothing(location, place, "Parquet, CSV or JSON")),
        }
    }

    /// The files of CREATE EXTERNAL TABLE.
    pub(crate) fn external(statement: &CreateExternalTable) -> Result<Self, Error> {
        let kind = FileKind::named(&statement.file_type).ok_or_else(|| Error::InvalidValue {
            name: "STORED AS".to_owned(),
            value: statement.file_type.clone(),
            expected: format!("it is {}", FileKind::NAMES),
        })?;
        let options = CopyOptions {
            format: None,
            others: statement
                .options
                .iter()
                .map(|(name, value)| {
                    let name = name.to_lowercase();
                    let name = name.strip_prefix("format.").unwrap_or(&name).to_owned();
                    let value = match value.clone().into_string() {
                        Some(text) => text,
                        None => value.to_string(),
                    };
                    (name, value)
                })
                .collect(),
        };
        let csv = CsvDialect::from_options(kind, &options, &[])?;
        Ok(Self {
            locations: statement.locations.clone(),
            kind,
            kind_said: true,
            csv,
            schema: None,
            declared: (!statement.columns.is_empty()).then(|| Box::new(statement.clone())),
        })
    }

    /// The locations as one text.
    pub(crate) fn path(&self) -> String {
        self.locations.join(", ")
    }

    /// The existing files, sorted by their paths within each location.
    ///
    /// # Errors
    /// A location without files; a packed file.
    pub(crate) fn files(&self) -> Result<Vec<Located>, Error> {
        let mut files: Vec<Located> = Vec::new();
        for location in &self.locations {
            let (place, mut found) = locate(location, self.kind_said)?;
            found.retain(|file| {
                let kind = FileKind::of_path(&file.path.to_string_lossy());
                !file.in_folder || kind == Some(self.kind)
            });
            if found.is_empty() {
                return Err(nothing(location, place, self.kind.name()));
            }
            if let Some(packed) = found.iter().find(|file| is_packed(&file.path)) {
                return Err(Error::Unsupported(format!(
                    "{} is packed; unpack it first",
                    packed.name()
                )));
            }
            found.retain(|file| files.iter().all(|known| known.path != file.path));
            files.append(&mut found);
        }
        Ok(files)
    }

    /// The columns that the statement says, if it does.
    pub(crate) async fn given(&self, state: &SessionState) -> Result<Option<SchemaRef>, Error> {
        match (&self.schema, &self.declared) {
            (Some(schema), _) => Ok(Some(SchemaRef::clone(schema))),
            (None, Some(declared)) => Ok(Some(declared_schema(state, declared).await?)),
            (None, None) => Ok(None),
        }
    }
}

/// The columns that CREATE EXTERNAL TABLE declares.
async fn declared_schema(
    state: &SessionState,
    declared: &CreateExternalTable,
) -> Result<SchemaRef, Error> {
    let statement = DFStatement::CreateExternalTable(declared.clone());
    match Box::pin(state.statement_to_plan(statement)).await? {
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(plan)) => {
            Ok(Arc::new(plan.schema.as_arrow().clone()))
        }
        other => Err(Error::Internal(format!(
            "CREATE EXTERNAL TABLE was planned as {}",
            other.display()
        ))),
    }
}
