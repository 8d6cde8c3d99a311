//! Mistakes in files: which line of a file cannot be read, and why.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use skewer_sql::sql_name;

use crate::error::FilesError;
use crate::file_kind::FileKind;
use crate::file_table::FileTable;
use crate::json_file::{is_array, wrong_line};
use crate::json_source::{JsonDialect, Records, open};

/// Reads one file of `table` from end to end and says where that fails. Values are checked against
/// the types of `given` columns. `None` if nothing is wrong with it, or if it cannot be opened.
pub fn first_mistake(
    table: &FileTable,
    given: Option<&SchemaRef>,
    path: &Path,
) -> Option<FilesError> {
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

fn mistaken(path: &Path, line: Option<u64>, message: String) -> FilesError {
    FilesError::File {
        path: path.display().to_string(),
        line,
        message,
    }
}

/// The first record with fields that are too many or too few, not UTF-8, or not of their types.
fn check_csv(table: &FileTable, given: Option<&SchemaRef>, path: &Path) -> Option<FilesError> {
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
fn check_json(given: Option<&SchemaRef>, path: &Path) -> Option<FilesError> {
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
