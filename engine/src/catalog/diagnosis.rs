//! Which file was to blame when reading failed.
//!
//! Readers say that a value could not be decoded, seldom in which file and on which line. When a
//! statement has failed in this way, and only then, the files that it read are gone through one by
//! one until the mistake is found again.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::files::json_file::{is_array, wrong_line};
use super::files::json_source::{JsonDialect, Records, open};
use super::files::{FileKind, FileTable};
use super::statement::StatementCatalog;
use crate::error::Error;
use skewer_sql::sql_name;

impl StatementCatalog {
    /// Adds to an error about unreadable data which file, and which line of it, is to blame.
    pub(crate) async fn diagnose(&self, error: Error) -> Error {
        match &error {
            Error::Corrupt { path, message } if path.is_empty() => {
                let found = self.damaged_segment().await;
                found.or(self.damaged_file(message).await).unwrap_or(error)
            }
            // A file that is not there may be a segment.
            Error::File {
                path, line: None, ..
            } if !path.is_empty() => self.damaged_segment().await.unwrap_or(error),
            Error::File { path, message, .. } if path.is_empty() => {
                self.damaged_file(message).await.unwrap_or(error)
            }
            // A value that was cast after it was read as text.
            Error::Execution(message) | Error::InvalidCast(message)
                if self.touched().files.iter().any(|f| f.csv.null.is_some()) =>
            {
                match self.damaged_file(message).await {
                    Some(found @ Error::File { line: Some(_), .. }) => found,
                    _ => error,
                }
            }
            _ => error,
        }
    }

    /// The first segment of the statement's tables that cannot be read from end to end.
    async fn damaged_segment(&self) -> Option<Error> {
        for table in self.touched().tables {
            if let Err(error) = self.storage().verify_table(&table).await {
                return Some(error.into());
            }
        }
        None
    }

    /// The first of the statement's files, and the line in it, that cannot be read.
    async fn damaged_file(&self, message: &str) -> Option<Error> {
        let files = self.touched().files;
        let mut only = None;
        for table in &files {
            let Ok(listed) = table.files() else {
                continue;
            };
            // Types that were found in the files fit them; others may not.
            let given = table.given(self.base()).await.ok().flatten();
            let is_only = files.len() == 1 && listed.len() == 1;
            for file in listed {
                if let Some(error) = check(table, given.as_ref(), &file.path) {
                    return Some(error);
                }
                only = only.or_else(|| is_only.then(|| file.name()));
            }
        }
        only.map(|path| Error::File {
            path,
            line: None,
            message: message.to_owned(),
        })
    }
}

/// Reads one file from end to end and says where that fails.
fn check(table: &FileTable, given: Option<&SchemaRef>, path: &Path) -> Option<Error> {
    match table.kind {
        FileKind::Parquet => {
            let file = File::open(path).ok()?;
            let message = match ParquetRecordBatchReaderBuilder::try_new(file)
                .and_then(|builder| builder.build())
            {
                Ok(mut reader) => reader.find_map(|batch| batch.err().map(|e| e.to_string()))?,
                Err(error) => error.to_string(),
            };
            let message = format!("it is not a readable Parquet file: {message}");
            Some(mistaken(path, None, message))
        }
        FileKind::Csv => check_csv(table, given, path),
        FileKind::Json => check_json(given, path),
    }
}

fn mistaken(path: &Path, line: Option<u64>, message: String) -> Error {
    Error::File {
        path: path.display().to_string(),
        line,
        message,
    }
}

/// The first record with fields that are too many or too few, not UTF-8, or not of their types.
fn check_csv(table: &FileTable, given: Option<&SchemaRef>, path: &Path) -> Option<Error> {
    let mut records = table.csv.records(path, File::open(path).ok()?);
    let mut record = csv::ByteRecord::new();
    let mut header = table.csv.header;
    let mut width = given.map(|schema| schema.fields().len());
    while records.read_byte_record(&mut record).ok()? {
        let expected = *width.get_or_insert(record.len());
        let is_header = std::mem::take(&mut header);
        if is_header && given.is_some() && record.len() == expected {
            continue;
        }
        let line = record.position().map(csv::Position::line);
        let wrong = |message: String| Some(mistaken(path, line, message));
        if record.len() != expected {
            let found = record.len();
            return wrong(format!("the row has {found} fields in place of {expected}"));
        }
        let mut fields = Vec::with_capacity(expected);
        for field in &record {
            match std::str::from_utf8(field) {
                Ok(field) => fields.push(field),
                Err(_) => return wrong("it is not UTF-8".to_owned()),
            }
        }
        if let Some(message) = given.and_then(|schema| mistake(table, schema, &fields)) {
            return wrong(message);
        }
    }
    None
}

/// Which of the fields of a row is not of its type.
fn mistake(table: &FileTable, schema: &SchemaRef, fields: &[&str]) -> Option<String> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    schema
        .fields()
        .iter()
        .zip(fields)
        .filter(|(_, value)| match &table.csv.null {
            Some(null) => *value != null && !value.is_empty(),
            None => !value.is_empty(),
        })
        .find_map(|(field, value)| {
            let text: Arc<dyn Array> = Arc::new(StringArray::from(vec![*value]));
            cast_with_options(&text, field.data_type(), &strict)
                .is_err()
                .then(|| {
                    format!(
                        "'{value}' in column {} is not {}",
                        field.name(),
                        sql_name(field.data_type())
                    )
                })
        })
}

/// The first record that is not JSON, or that has a value that is not of its type.
fn check_json(given: Option<&SchemaRef>, path: &Path) -> Option<Error> {
    let dialect = JsonDialect {
        array: is_array(path).ok()?,
        nested_text: false,
        checked: true,
    };
    if !dialect.array
        && let Some((line, message)) = wrong_line(BufReader::new(File::open(path).ok()?))
    {
        return Some(mistaken(path, Some(line), message));
    }
    let text = Lines {
        inner: open(path, None, dialect).ok()?,
        line: 1,
    };
    let mut records = Records::new(text, SchemaRef::clone(given?), dialect, 1).ok()?;
    loop {
        records.text().skip_space().ok()?;
        let line = records.text().line;
        if let Err(error) = records.next()? {
            let message = error.to_string();
            let message = message.strip_prefix("Json error: ").unwrap_or(&message);
            return Some(mistaken(path, Some(line), message.to_owned()));
        }
    }
}

/// A text, and on which line of it one is.
struct Lines<R> {
    inner: R,
    line: u64,
}

impl<R: BufRead> Lines<R> {
    fn skip_space(&mut self) -> std::io::Result<()> {
        loop {
            let bytes = self.inner.fill_buf()?;
            let space = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
            if space == 0 {
                return Ok(());
            }
            self.consume(space);
        }
    }
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.fill_buf()?;
        let length = bytes.len().min(out.len());
        out[..length].copy_from_slice(&bytes[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Lines<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        if let Ok(bytes) = self.inner.fill_buf() {
            let read = &bytes[..length.min(bytes.len())];
            self.line += memchr::memchr_iter(b'\n', read).count() as u64;
        }
        self.inner.consume(length);
    }
}
