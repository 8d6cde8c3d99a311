//! Formats of files, and how names tell them.

use std::path::Path;

use crate::error::FilesError;

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Apache Parquet.
    Parquet,
    /// Values between delimiters, as a [`CsvDialect`](crate::CsvDialect) says.
    Csv,
    /// JSON objects that follow each other, or one array of them.
    Json,
}

/// Extensions of files that are packed as a whole.
const PACKED: [&str; 7] = ["gz", "gzip", "bz2", "xz", "zst", "zstd", "lz4"];

impl FileKind {
    /// The kind that a format or an extension names.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_lowercase().as_str() {
            "parquet" | "pq" => Some(Self::Parquet),
            "csv" | "tsv" => Some(Self::Csv),
            "json" | "ndjson" | "jsonl" => Some(Self::Json),
            _ => None,
        }
    }

    /// The kind of a file by its name.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = Path::new(path);
        let extension = path.extension()?.to_str()?;
        match PACKED.contains(&extension.to_lowercase().as_str()) {
            true => Self::from_name(Path::new(path.file_stem()?).extension()?.to_str()?),
            false => Self::from_name(extension),
        }
    }

    /// The kind of the file of COPY: what the option FORMAT says, or else the extension.
    ///
    /// # Errors
    /// A format that there is not; a path that does not say one.
    pub fn of_copy(format: Option<&str>, path: &str) -> Result<Self, FilesError> {
        match format {
            Some(format) => Self::from_name(format).ok_or_else(|| FilesError::InvalidValue {
                name: "FORMAT".to_owned(),
                value: format.to_owned(),
                expected: format!("it is {}", Self::NAMES),
            }),
            None => Self::of_path(path).ok_or_else(|| {
                FilesError::Invalid(format!(
                    "the name {path} does not say how the file is written: add (FORMAT …), which is {}",
                    Self::NAMES
                ))
            }),
        }
    }

    /// The kinds as a statement can name them.
    pub const NAMES: &'static str = "parquet, csv or json";

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Json => "JSON",
        }
    }
}

/// Whether the extension of a path says that the file is packed.
pub fn is_packed(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| PACKED.contains(&extension.to_lowercase().as_str()))
}
