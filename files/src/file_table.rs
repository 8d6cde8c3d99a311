//! Files that a query reads as one table, before anybody has looked into them.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::{CreateExternalTable, Statement as DFStatement};
use skewer_sql::CopyOptions;

use crate::dialect::CsvDialect;
use crate::error::FilesError;
use crate::file_kind::{FileKind, is_packed};
use crate::locate::{Located, Place, fixed_part, locate, nothing, unreadable};

/// The beginning of a file that says how long its rows are.
const SAMPLE: usize = 64 << 10;

/// Files that a query reads as one table.
#[derive(Debug, Clone)]
pub struct FileTable {
    /// Files, directories or patterns.
    pub(crate) locations: Vec<String>,
    /// How the files are written.
    pub kind: FileKind,
    /// Whether the statement says the kind, so that any file may be of it.
    kind_said: bool,
    /// How they are written if they are CSV.
    pub csv: CsvDialect,
    /// The columns, if they are not to be found in the files.
    pub(crate) schema: Option<SchemaRef>,
    /// The statement that declared the columns.
    declared: Option<Box<CreateExternalTable>>,
}

impl FileTable {
    /// The files of one location, with columns as they are found in them, or as given.
    pub fn new(location: &str, kind: FileKind, csv: CsvDialect, schema: Option<SchemaRef>) -> Self {
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
    pub fn is_path(name: &str) -> bool {
        name.contains('/') || FileKind::of_path(name).is_some()
    }

    /// The files that a path, a folder or a pattern in FROM means.
    ///
    /// # Errors
    /// A location whose files are of no known format, or of several.
    pub fn from_path(name: &str) -> Result<Self, FilesError> {
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
    fn kind_within(location: &str) -> Result<FileKind, FilesError> {
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
                        _ => fixed_part(location),
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
    ///
    /// # Errors
    /// A format or an option that there is not.
    pub fn external(statement: &CreateExternalTable) -> Result<Self, FilesError> {
        let kind =
            FileKind::from_name(&statement.file_type).ok_or_else(|| FilesError::InvalidValue {
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
    pub fn path(&self) -> String {
        self.locations.join(", ")
    }

    /// The existing files, sorted by their paths within each location.
    ///
    /// # Errors
    /// A location without files; a packed file.
    pub fn files(&self) -> Result<Vec<Located>, FilesError> {
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
                return Err(FilesError::Unsupported(format!(
                    "{} is packed; unpack it first",
                    packed.name()
                )));
            }
            found.retain(|file| files.iter().all(|known| known.path != file.path));
            files.append(&mut found);
        }
        Ok(files)
    }

    /// About how many rows text files have, by the length of the first ones. `None` for Parquet, or
    /// if that cannot be told.
    ///
    /// # Errors
    /// Those of [`FileTable::files`].
    pub fn expected_rows(&self) -> Result<Option<u64>, FilesError> {
        if self.kind == FileKind::Parquet {
            return Ok(None);
        }
        let listed = self.files()?;
        let bytes: u64 = listed.iter().map(|file| file.metadata.len()).sum();
        let Some(first) = listed.first() else {
            return Ok(None);
        };
        let mut sample = Vec::with_capacity(SAMPLE);
        let read = File::open(&first.path)
            .and_then(|file| file.take(SAMPLE as u64).read_to_end(&mut sample));
        let lines = sample.iter().filter(|byte| **byte == b'\n').count();
        Ok(match read {
            Ok(read) if lines > 0 => Some(bytes * lines as u64 / read as u64),
            _ => None,
        })
    }

    /// The columns that the statement says, if it does.
    ///
    /// # Errors
    /// A declared type that there is not.
    pub async fn given(&self, state: &SessionState) -> Result<Option<SchemaRef>, FilesError> {
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
) -> Result<SchemaRef, FilesError> {
    let statement = DFStatement::CreateExternalTable(declared.clone());
    match Box::pin(state.statement_to_plan(statement)).await? {
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(plan)) => {
            Ok(Arc::new(plan.schema.as_arrow().clone()))
        }
        other => Err(FilesError::Internal(format!(
            "CREATE EXTERNAL TABLE was planned as {}",
            other.display()
        ))),
    }
}
