//! How a CSV file is written.

use std::io::Read;
use std::path::Path;

use skewer_compat::suggest::suggest;
use skewer_sql::CopyOptions;

use crate::error::FilesError;
use crate::file_kind::FileKind;

/// How a CSV file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvDialect {
    /// Whether its first record names the columns.
    pub header: bool,
    /// The tab of `.tsv` files and the comma of others where it is not said.
    pub delimiter: Option<u8>,
    /// What surrounds fields that contain delimiters.
    pub quote: u8,
    /// What makes the next character plain; quotes are doubled where it is not said.
    pub escape: Option<u8>,
    /// What stands for NULL; the empty field where it is not said.
    pub null: Option<String>,
}

impl Default for CsvDialect {
    /// RFC 4180 with a header.
    fn default() -> Self {
        Self {
            header: true,
            delimiter: None,
            quote: b'"',
            escape: None,
            null: None,
        }
    }
}

/// The options of COPY that say how a CSV file is written.
const CSV_OPTIONS: [&str; 5] = ["header", "delimiter", "quote", "escape", "null"];

impl CsvDialect {
    /// Reads the options of COPY or CREATE EXTERNAL TABLE. Those of `also` belong to others.
    ///
    /// # Errors
    /// An option that there is not, that this kind does not have, or that has a wrong value.
    pub fn from_options(
        kind: FileKind,
        options: &CopyOptions,
        also: &[&str],
    ) -> Result<Self, FilesError> {
        let mut dialect = Self::default();
        for (name, value) in &options.others {
            if also.contains(&name.as_str()) {
                continue;
            }
            let name = match name.as_str() {
                "has_header" => "header",
                "delim" | "sep" => "delimiter",
                "nullstr" | "null_value" | "null_regex" => "null",
                other => other,
            };
            if !CSV_OPTIONS.contains(&name) {
                let known: Vec<_> = CSV_OPTIONS.iter().chain(also).copied().collect();
                return Err(FilesError::UnknownOption {
                    name: name.to_owned(),
                    suggestions: match suggest(name, known.iter().copied()) {
                        near if near.is_empty() => known.iter().map(|n| (*n).to_owned()).collect(),
                        near => near,
                    },
                });
            }
            if kind != FileKind::Csv {
                return Err(FilesError::InvalidValue {
                    name: name.to_owned(),
                    value: value.clone(),
                    expected: "it is an option of CSV files".to_owned(),
                });
            }
            match name {
                "header" => dialect.header = parse_bool(name, value)?,
                "delimiter" => dialect.delimiter = Some(parse_character(name, value)?),
                "quote" => dialect.quote = parse_character(name, value)?,
                "escape" => dialect.escape = Some(parse_character(name, value)?),
                _ => dialect.null = Some(value.clone()),
            }
        }
        Ok(dialect)
    }

    /// What is between the fields of a file.
    pub fn delimiter_of(&self, path: &Path) -> u8 {
        let is_tsv = path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("tsv"));
        self.delimiter.unwrap_or(if is_tsv { b'\t' } else { b',' })
    }

    /// A reader of the records of a file, with its header among them and rows of any width.
    pub fn records<R: Read>(&self, path: &Path, from: R) -> csv::Reader<R> {
        csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(self.delimiter_of(path))
            .quote(self.quote)
            .escape(self.escape)
            .buffer_capacity(256 << 10)
            .from_reader(from)
    }
}

fn parse_bool(name: &str, value: &str) -> Result<bool, FilesError> {
    match value.to_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(FilesError::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "it is true or false".to_owned(),
        }),
    }
}

fn parse_character(name: &str, value: &str) -> Result<u8, FilesError> {
    match value {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match value.as_bytes() {
            [byte] if byte.is_ascii() => Ok(*byte),
            _ => Err(FilesError::InvalidValue {
                name: name.to_owned(),
                value: value.to_owned(),
                expected: "it is one ASCII character".to_owned(),
            }),
        },
    }
}
