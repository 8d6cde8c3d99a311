//! Which file was to blame when reading failed.
//!
//! Readers say that a value could not be decoded, seldom in which file and on which line. When a
//! statement has failed in this way, and only then, the files that it read are gone through one by
//! one until the mistake is found again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use datafusion::arrow::array::{Array, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::csv::ReaderBuilder;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::files::{FileKind, FileTable};
use super::statement::StatementCatalog;
use super::types::sql_name;
use crate::error::Error;

/// Rows that are parsed at once while the failing one is looked for.
const STRIDE: usize = 8192;

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
            let Ok(listed) = table.list(self.base()).await else {
                continue;
            };
            let schema = match &table.schema {
                Some(schema) => Some(SchemaRef::clone(schema)),
                None => table
                    .provider(self.base(), false)
                    .await
                    .ok()
                    .map(|provider| provider.schema()),
            };
            for (_, meta) in listed {
                let path = format!("/{}", meta.location);
                if let Some(error) = check(table, schema.as_ref(), &path) {
                    return Some(error);
                }
                only = match only {
                    None if files.len() == 1 => Some(path),
                    _ => None,
                };
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
fn check(table: &FileTable, schema: Option<&SchemaRef>, path: &str) -> Option<Error> {
    match table.kind {
        FileKind::Parquet => {
            let file = File::open(path).ok()?;
            let message = match ParquetRecordBatchReaderBuilder::try_new(file)
                .and_then(|builder| builder.build())
            {
                Ok(mut reader) => reader.find_map(|batch| batch.err().map(|e| e.to_string()))?,
                Err(error) => error.to_string(),
            };
            Some(Error::File {
                path: path.to_owned(),
                line: None,
                message: format!("it is not a readable Parquet file: {message}"),
            })
        }
        FileKind::Csv => match schema {
            Some(schema) => check_csv(table, schema, path),
            None => check_width(table, path),
        },
        FileKind::Json => check_json(schema, path),
    }
}

fn check_csv(table: &FileTable, schema: &SchemaRef, path: &str) -> Option<Error> {
    let read = |stride: usize, from: usize| {
        let mut builder = ReaderBuilder::new(SchemaRef::clone(schema))
            .with_header(table.csv.header)
            .with_delimiter(table.csv.delimiter)
            .with_quote(table.csv.quote)
            .with_batch_size(stride)
            // The reader adds to the end: not the largest number there is.
            .with_bounds(from, u32::MAX as usize);
        if let Some(escape) = table.csv.escape {
            builder = builder.with_escape(escape);
        }
        let mut good = from;
        let mut reader = builder.build(File::open(path).ok()?).ok()?;
        loop {
            match reader.next() {
                Some(Ok(batch)) => good += batch.num_rows(),
                Some(Err(error)) => return Some((good, error.to_string())),
                None => return None,
            }
        }
    };
    let header = usize::from(table.csv.header);
    let is_wrong = |fields: &[String]| mistake(table, schema, fields).is_some();
    let (line, fields, otherwise) = if table.csv.null.is_some() {
        // arrow's reader does not know what stands for NULL.
        let (line, fields) = record_at(table, path, |number, fields| {
            number >= header && is_wrong(fields)
        })?;
        (line, fields, String::new())
    } else {
        let (good, first) = read(STRIDE, 0)?;
        // One row at a time from the last batch that could be read.
        let (row, message) = read(1, good).unwrap_or((good, first));
        let (line, fields) = record_at(table, path, |number, _| number == row + header)?;
        (line, fields, message)
    };
    Some(Error::File {
        path: path.to_owned(),
        line: Some(line),
        message: mistake(table, schema, &fields).unwrap_or(otherwise),
    })
}

/// What is wrong with the fields of a row.
fn mistake(table: &FileTable, schema: &SchemaRef, fields: &[String]) -> Option<String> {
    let expected = schema.fields().len();
    if fields.len() != expected {
        return Some(format!(
            "the row has {} fields in place of {expected}",
            fields.len()
        ));
    }
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
            let text: Arc<dyn Array> = Arc::new(StringArray::from(vec![value.as_str()]));
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

/// The first row of a CSV file that has not as many fields as the first.
fn check_width(table: &FileTable, path: &str) -> Option<Error> {
    let (_, first) = record_at(table, path, |record, _| record == 0)?;
    let expected = first.len();
    let (line, fields) = record_at(table, path, |_, fields| fields.len() != expected)?;
    Some(Error::File {
        path: path.to_owned(),
        line: Some(line),
        message: format!("the row has {} fields in place of {expected}", fields.len()),
    })
}

/// The first record that is `wanted` by its number and fields: the line on which it begins, from
/// 1, and its fields.
fn record_at(
    table: &FileTable,
    path: &str,
    wanted: impl Fn(usize, &[String]) -> bool,
) -> Option<(u64, Vec<String>)> {
    let mut reader = BufReader::new(File::open(path).ok()?);
    let mut line = 0;
    let mut begins = 0;
    let mut records = 0;
    let mut text = Vec::new();
    loop {
        let before = text.len();
        let read = reader.read_until(b'\n', &mut text).ok()?;
        if read > 0 {
            line += 1;
            if before == 0 {
                begins = line;
            }
        }
        let quotes = text.iter().filter(|b| **b == table.csv.quote).count();
        if read > 0 && quotes % 2 == 1 {
            continue; // the record goes on in the next line
        }
        let is_blank = text.iter().all(|b| matches!(b, b'\n' | b'\r'));
        if !is_blank {
            let fields = split_record(table, &text);
            if wanted(records, &fields) {
                return Some((begins, fields));
            }
            records += 1;
        }
        if read == 0 {
            return None;
        }
        text.clear();
    }
}

fn split_record(table: &FileTable, text: &[u8]) -> Vec<String> {
    let mut fields = vec![Vec::new()];
    let mut quoted = false;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == table.csv.quote {
            if quoted && bytes.peek() == Some(&byte) {
                bytes.next();
            } else {
                quoted = !quoted;
                continue;
            }
        } else if !quoted && byte == table.csv.delimiter {
            fields.push(Vec::new());
            continue;
        } else if !quoted && matches!(byte, b'\n' | b'\r') {
            continue;
        }
        if let Some(field) = fields.last_mut() {
            field.push(byte);
        }
    }
    fields
        .into_iter()
        .map(|field| String::from_utf8_lossy(&field).into_owned())
        .collect()
}

fn check_json(schema: Option<&SchemaRef>, path: &str) -> Option<Error> {
    let reader = BufReader::new(File::open(path).ok()?);
    for (number, text) in reader.split(b'\n').enumerate() {
        let text = text.ok()?;
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let message = match serde_json::from_slice::<serde_json::Value>(&text) {
            Err(error) => Some(error.to_string()),
            Ok(_) => schema.and_then(|schema| {
                let mut decoder = json::ReaderBuilder::new(SchemaRef::clone(schema))
                    .build_decoder()
                    .ok()?;
                let decoded = decoder.decode(&text).and_then(|_| decoder.flush());
                decoded.err().map(|e| e.to_string())
            }),
        };
        if let Some(message) = message {
            return Some(Error::File {
                path: path.to_owned(),
                line: Some(number as u64 + 1),
                message,
            });
        }
    }
    None
}
