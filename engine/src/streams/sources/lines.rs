//! Lines of text as rows of a stream.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Array, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use skewer_files::{CsvDialect, FileKind};
use skewer_sql::CopyOptions;
use skewer_storage::TableId;
use tokio::sync::mpsc;

use super::Request;
use crate::error::Error;
use crate::statements::{Context, Tracing};
use crate::streams::input::qualified;
use crate::streams::{Held, Link};

/// Lines that wait between who reads them and who makes them durable.
pub(super) const WAITING: usize = 8192;

/// A line may have so many bytes.
pub(super) const LONGEST: usize = 1 << 20;

/// After the first line, more are waited for so long, so that they share one commit.
const GATHER: Duration = Duration::from_millis(50);

/// A commit has so many lines and bytes, at most.
const MOST_LINES: usize = 65_536;
const MOST_BYTES: usize = 8 << 20;

/// A commit that failed is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);

/// How lines are written.
#[derive(Debug, Clone)]
pub(super) enum LineFormat {
    Csv(CsvDialect),
    Json,
}

impl LineFormat {
    /// Reads the options of the source. CSV is the format that is not named, and without a header.
    pub(super) fn new(options: &CopyOptions) -> Result<Self, Error> {
        let kind = match &options.format {
            Some(format) => FileKind::of_copy(Some(format), "")?,
            None => FileKind::Csv,
        };
        let mut dialect = CsvDialect::from_options(kind, options, &[])?;
        let says_header = |name: &str| matches!(name, "header" | "has_header");
        if !options.others.iter().any(|(name, _)| says_header(name)) {
            dialect.header = false;
        }
        match kind {
            FileKind::Csv if dialect.null.is_some() => Err(Error::Unsupported(
                "the option NULL for lines; the empty field is NULL".to_owned(),
            )),
            FileKind::Csv => Ok(Self::Csv(dialect)),
            FileKind::Json => Ok(Self::Json),
            FileKind::Parquet => Err(Error::Invalid(
                "lines are csv or json; Parquet files come FROM DIRECTORY".to_owned(),
            )),
        }
    }

    /// Whether the first line names the columns.
    pub(super) fn has_header(&self) -> bool {
        matches!(self, Self::Csv(dialect) if dialect.header)
    }

    fn decode(&self, text: &[u8], schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
        match self {
            Self::Csv(dialect) => {
                let mut builder = csv::ReaderBuilder::new(Arc::clone(schema))
                    .with_delimiter(dialect.delimiter.unwrap_or(b','))
                    .with_quote(dialect.quote);
                if let Some(escape) = dialect.escape {
                    builder = builder.with_escape(escape);
                }
                builder.build(Cursor::new(text))?.collect()
            }
            Self::Json => json::ReaderBuilder::new(Arc::clone(schema))
                .build(Cursor::new(text))?
                .collect(),
        }
    }

    /// The rows of lines, and what is wrong with each line that is no row.
    fn rows(&self, lines: &[Vec<u8>], schema: &SchemaRef) -> (Vec<RecordBatch>, Vec<String>) {
        let nullable = schema.fields().iter().map(|field| {
            let field = field.as_ref().clone();
            field.with_nullable(true)
        });
        let nullable = Arc::new(Schema::new(nullable.collect::<Vec<Field>>()));
        let text = lines.join(&b'\n');
        let (batches, mut rejected) = match self.decode(&text, &nullable) {
            Ok(batches) if rows_in(&batches) == lines.len() => (batches, Vec::new()),
            // One by one, as a quote that is not closed takes other lines with it.
            _ => {
                let (mut batches, mut rejected) = (Vec::new(), Vec::new());
                for line in lines {
                    match self.decode(line, &nullable) {
                        Ok(row) if rows_in(&row) == 1 => batches.extend(row),
                        Ok(_) => rejected.push(shown(line, "it is not one row")),
                        Err(error) => rejected.push(shown(line, &error.to_string())),
                    }
                }
                (batches, rejected)
            }
        };
        let mut kept = Vec::with_capacity(batches.len());
        for batch in batches {
            let whole = has_all_values(&batch, schema);
            let missing = whole.iter().filter(|whole| *whole == Some(false)).count();
            let note = "a column that is NOT NULL has no value".to_owned();
            rejected.extend(std::iter::repeat_n(note, missing));
            match filter_record_batch(&batch, &whole) {
                Ok(batch) => kept.push(batch),
                Err(error) => rejected.push(error.to_string()),
            }
        }
        (kept, rejected)
    }
}

fn rows_in(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Which rows have values in all columns that are NOT NULL.
fn has_all_values(batch: &RecordBatch, schema: &SchemaRef) -> BooleanArray {
    let columns = batch.columns().iter().zip(schema.fields());
    let required: Vec<_> = columns.filter(|(_, field)| !field.is_nullable()).collect();
    (0..batch.num_rows())
        .map(|row| Some(required.iter().all(|(column, _)| column.is_valid(row))))
        .collect()
}

/// A line with what is wrong with it, for messages.
fn shown(line: &[u8], what: &str) -> String {
    let text = String::from_utf8_lossy(line);
    let begin: String = text.chars().take(80).collect();
    format!("the line '{begin}' is left out: {what}")
}

/// Makes lines durable as rows of `stream` until nobody sends any. What waits when somebody asks is
/// durable when the answer comes.
pub(super) async fn ingest(
    link: &Link,
    stream: TableId,
    format: &LineFormat,
    lines: &mut mpsc::Receiver<Vec<u8>>,
    requests: &mut mpsc::Receiver<Request>,
) {
    loop {
        let mut buffer = Vec::new();
        let mut asked = None;
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => buffer.push(line),
                None => return,
            },
            request = requests.recv() => match request {
                Some(request) => asked = Some(request),
                None => return,
            },
        }
        let until = tokio::time::Instant::now() + GATHER;
        let mut bytes = 0;
        while buffer.len() < MOST_LINES && bytes < MOST_BYTES {
            let next = match asked {
                Some(_) => lines.try_recv().ok(),
                None => tokio::time::timeout_at(until, lines.recv())
                    .await
                    .unwrap_or(None),
            };
            let Some(line) = next else {
                break;
            };
            bytes += line.len();
            buffer.push(line);
        }
        if write(link, stream, format, buffer).await.is_none() {
            return;
        }
        if let Some(asked) = asked {
            // Whoever asked may have gone.
            let _ = asked.send(Ok(()));
        }
    }
}

/// Makes lines durable, however often that fails; `None` if the stream or the database is gone.
pub(super) async fn write(
    link: &Link,
    stream: TableId,
    format: &LineFormat,
    mut lines: Vec<Vec<u8>>,
) -> Option<()> {
    lines.retain(|line| !line.iter().all(u8::is_ascii_whitespace));
    if lines.is_empty() {
        return Some(());
    }
    let table = link
        .hold()?
        .inner()
        .storage
        .snapshot()
        .table_by_id(stream)?;
    let (batches, rejected) = format.rows(&lines, &table.schema);
    let rows = rows_in(&batches);
    loop {
        let outcome = match rows {
            0 => Ok(()),
            _ => commit(&link.hold()?, stream, batches.clone()).await,
        };
        match outcome {
            Ok(()) => {
                link.streams.statuses.change(stream.0, |status| {
                    status.rows += rows as i64;
                    status.rejected += rejected.len() as i64;
                    // The last mistake stays until the next one.
                    status.error = rejected.last().cloned().or(status.error.take());
                });
                return Some(());
            }
            Err(Error::Cancelled) => return None,
            Err(error) => {
                let error = format!("its rows cannot be written: {error}");
                link.streams.statuses.set_error(stream.0, Some(error));
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn commit(held: &Held, stream: TableId, batches: Vec<RecordBatch>) -> Result<(), Error> {
    let within = held.clone();
    let committed = async move {
        let session = within.database().session();
        let catalog = session.catalog();
        let Some(table) = catalog.snapshot().table_by_id(stream) else {
            return Err(Error::Cancelled);
        };
        let sql = format!("INSERT INTO {}", qualified(&table));
        let mut context = Context::begin(&session, catalog, &sql, Tracing::None);
        let _turn = context.turn_to_append(&table).await;
        let schema = batches.first().map(RecordBatch::schema);
        let schema = schema.unwrap_or_else(|| Arc::clone(&table.schema));
        let rows = futures::stream::iter(batches.into_iter().map(Ok));
        let rows = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        let (segments, _) = context.write(rows, &table).await?;
        let mut transaction = context.storage().begin();
        transaction.add_segments(stream, segments)?;
        context.commit(transaction).await?;
        session.database_inner().has_grown(stream);
        Ok(())
    };
    held.database().run(committed).await
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::DataType;

    use super::*;

    fn rows(options: &[(&str, &str)], format: &str, lines: &[&str]) -> (usize, Vec<String>) {
        let options = CopyOptions {
            format: Some(format.to_owned()),
            others: options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, false),
            Field::new("b", DataType::Utf8, true),
        ]));
        let lines: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
        let format = LineFormat::new(&options).unwrap();
        let (batches, rejected) = format.rows(&lines, &schema);
        (rows_in(&batches), rejected)
    }

    #[test]
    fn a_line_that_is_no_row_takes_no_other_with_it() {
        assert_eq!(rows(&[], "csv", &["1,x", "2,\"y, z\"", "3,"]), (3, vec![]));
        let (good, rejected) = rows(
            &[],
            "csv",
            &["1,x", "2,\"open", "three,x", "4,x", ",x", "5,x,y"],
        );
        assert_eq!(good, 3, "{rejected:?}");
        assert_eq!(rejected.len(), 3, "{rejected:?}");
        let (good, rejected) = rows(
            &[],
            "json",
            &[
                "{\"a\": 1}",
                "{\"a\":",
                "{\"a\": 2} {\"a\": 3}",
                "{\"b\": \"x\"}",
            ],
        );
        assert_eq!((good, rejected.len()), (1, 3), "{rejected:?}");
    }

    #[test]
    fn options_say_how_lines_are_written() {
        assert_eq!(rows(&[("delimiter", ";")], "csv", &["1;x"]), (1, vec![]));
        let refused = |format: &str, name: &str| {
            let options = CopyOptions {
                format: Some(format.to_owned()),
                others: vec![(name.to_owned(), "x".to_owned())],
            };
            LineFormat::new(&options).is_err()
        };
        assert!(refused("csv", "null"));
        assert!(refused("parquet", "header"));
        assert!(refused("csv", "colour"));
    }
}
