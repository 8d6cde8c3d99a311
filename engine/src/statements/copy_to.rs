//! COPY t or (query) TO 'file'.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::parquet::arrow::ArrowWriter;
use futures::StreamExt;
use skewer_sql::{CopySource, CopyTo, Statement};

use super::copy_from::kind_of;
use super::{Context, Outcome, as_statement};
use crate::error::Error;
use skewer_files::{CsvDialect, FileKind, is_packed};

/// Writes a file, which appears under its name when it is complete.
pub(crate) async fn execute(context: &mut Context, copy: CopyTo) -> Result<Outcome, Error> {
    let kind = kind_of(copy.options.format.as_deref(), &copy.path)?;
    let path = PathBuf::from(&copy.path);
    if is_packed(&path) {
        return Err(Error::Unsupported(format!(
            "{} would be packed; write it without, and pack it then",
            copy.path
        )));
    }
    let csv = CsvDialect::from_options(kind, &copy.options, &[])?;
    let query = match copy.source {
        CopySource::Query(query) => query,
        CopySource::Table(name, columns) => {
            let columns: Vec<_> = columns.iter().map(ToString::to_string).collect();
            let columns = match columns.is_empty() {
                true => "*".to_owned(),
                false => columns.join(", "),
            };
            let sql = format!("SELECT {columns} FROM {name}");
            match skewer_sql::parse(&sql)? {
                Statement::Query(query) => query,
                _ => return Err(Error::Internal(sql)),
            }
        }
    };
    let plan = context.catalog.plan(as_statement(query)).await?;
    let mut stream = context.stream(&plan).await?;
    let io = |error: &std::io::Error| file_error(&path, error);
    let file = Unfinished::create(&path).map_err(|e| io(&e))?;
    let mut writer = FileWriter::new(&file, kind, csv.delimiter_of(&path), &csv, stream.schema())
        .map_err(|e| located(&path, e))?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        writer.write(&batch).map_err(|e| located(&path, e))?;
        rows += batch.num_rows() as u64;
        context.progress.add_rows(batch.num_rows() as u64);
    }
    writer.finish().map_err(|e| located(&path, e))?;
    file.finish().map_err(|e| io(&e))?;
    Ok(Outcome::Count(rows))
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    match Error::from_io(error) {
        Error::Io(message) => Error::File {
            path: path.display().to_string(),
            line: None,
            message,
        },
        other => other,
    }
}

/// What a writer found wrong, with the file's name.
fn located(path: &Path, error: Error) -> Error {
    match error {
        Error::Corrupt { message, .. } | Error::Io(message) | Error::File { message, .. } => {
            Error::File {
                path: path.display().to_string(),
                line: None,
                message,
            }
        }
        other => other,
    }
}

/// A file under a name of its own, which is removed unless it is finished.
struct Unfinished {
    /// Where it is written; that of the target if it is no file, as `/dev/null` is none.
    path: PathBuf,
    target: PathBuf,
    file: File,
    finished: bool,
}

impl Unfinished {
    fn create(target: &Path) -> std::io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A link stays one, to the new file.
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        match std::fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::IsADirectory,
                    "it is a folder; name a file in it",
                ));
            }
            Ok(metadata) if !metadata.is_file() => {
                return Ok(Self {
                    file: File::options().write(true).open(&target)?,
                    path: target.clone(),
                    target,
                    finished: true,
                });
            }
            _ => {}
        }
        // Hidden, so that no folder has it, and short: the target's name may be as long as names
        // can be.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".skewer-{}-{number}.tmp", std::process::id());
        let path = target.with_file_name(name);
        Ok(Self {
            file: File::create(&path)?,
            path,
            target,
            finished: false,
        })
    }

    fn finish(mut self) -> std::io::Result<()> {
        if self.path == self.target {
            return Ok(());
        }
        self.file.sync_all()?;
        std::fs::rename(&self.path, &self.target)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // The error that is under way says more than this one could.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

enum FileWriter {
    Parquet(Box<ArrowWriter<File>>),
    Csv(Box<csv::Writer<BufWriter<File>>>),
    Json(Box<LineDelimitedWriter<BufWriter<File>>>),
}

impl FileWriter {
    fn new(
        file: &Unfinished,
        kind: FileKind,
        delimiter: u8,
        dialect: &CsvDialect,
        schema: SchemaRef,
    ) -> Result<Self, Error> {
        let file = file.file.try_clone().map_err(|e| Error::from_io(&e))?;
        Ok(match kind {
            FileKind::Parquet => {
                let writer = ArrowWriter::try_new(file, schema, None);
                Self::Parquet(Box::new(writer.map_err(parquet_error)?))
            }
            FileKind::Csv => {
                let mut builder = csv::WriterBuilder::new()
                    .with_header(dialect.header)
                    .with_delimiter(delimiter)
                    .with_quote(dialect.quote)
                    .with_null(dialect.null.clone().unwrap_or_default());
                if let Some(escape) = dialect.escape {
                    builder = builder.with_escape(escape).with_double_quote(false);
                }
                let mut writer = builder.build(BufWriter::new(file));
                // An empty result has a header too.
                writer.write(&RecordBatch::new_empty(schema))?;
                Self::Csv(Box::new(writer))
            }
            FileKind::Json => Self::Json(Box::new(LineDelimitedWriter::new(BufWriter::new(file)))),
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        match self {
            Self::Parquet(writer) => writer.write(batch).map_err(parquet_error),
            Self::Csv(writer) => Ok(writer.write(batch)?),
            Self::Json(writer) => Ok(writer.write(batch)?),
        }
    }

    fn finish(self) -> Result<(), Error> {
        use std::io::Write;
        let flush = |mut file: BufWriter<File>| file.flush().map_err(|e| Error::from_io(&e));
        match self {
            Self::Parquet(writer) => writer.close().map(|_| ()).map_err(parquet_error),
            Self::Csv(writer) => flush(writer.into_inner()),
            Self::Json(mut writer) => {
                writer.finish()?;
                flush(writer.into_inner())
            }
        }
    }
}

fn parquet_error(error: datafusion::parquet::errors::ParquetError) -> Error {
    Error::from(datafusion::common::DataFusionError::from(error))
}
