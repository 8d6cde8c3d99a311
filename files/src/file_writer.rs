//! Files that batches are written to.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::common::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter;

use crate::dialect::CsvDialect;
use crate::error::FilesError;
use crate::file_kind::FileKind;
use crate::passes::failed;

/// Writes a file, which appears under its name when it is complete.
pub struct FileWriter {
    path: PathBuf,
    writer: FormatWriter,
    // Dropped after what writes to it.
    file: Unfinished,
}

impl FileWriter {
    /// Begins a file of `kind` for batches of `schema`.
    ///
    /// # Errors
    /// A path at which no file can be created; a type that the format does not have.
    pub fn create(
        path: &Path,
        kind: FileKind,
        dialect: &CsvDialect,
        schema: SchemaRef,
    ) -> Result<Self, FilesError> {
        let file = Unfinished::create(path).map_err(|error| failed(path, error))?;
        let handle = file.file.try_clone().map_err(|error| failed(path, error))?;
        let writer = FormatWriter::new(handle, kind, dialect.delimiter_of(path), dialect, schema);
        Ok(Self {
            path: path.to_owned(),
            writer: writer.map_err(|error| unwritable(path, error))?,
            file,
        })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// A value that the format cannot hold; a write that fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), FilesError> {
        let written = self.writer.write(batch);
        written.map_err(|error| unwritable(&self.path, error))
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// A write that fails.
    pub fn finish(self) -> Result<(), FilesError> {
        let Self { path, writer, file } = self;
        writer.finish().map_err(|error| unwritable(&path, error))?;
        file.finish().map_err(|error| failed(&path, error))
    }
}

fn unwritable(path: &Path, error: DataFusionError) -> FilesError {
    FilesError::Write {
        path: path.to_owned(),
        error: Box::new(error),
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
    fn create(target: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A link stays one, to the new file.
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        match std::fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => {
                return Err(io::Error::new(
                    io::ErrorKind::IsADirectory,
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

    fn finish(mut self) -> io::Result<()> {
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

enum FormatWriter {
    Parquet(Box<ArrowWriter<File>>),
    Csv(Box<csv::Writer<BufWriter<File>>>),
    Json(Box<LineDelimitedWriter<BufWriter<File>>>),
}

impl FormatWriter {
    fn new(
        file: File,
        kind: FileKind,
        delimiter: u8,
        dialect: &CsvDialect,
        schema: SchemaRef,
    ) -> Result<Self, DataFusionError> {
        Ok(match kind {
            FileKind::Parquet => Self::Parquet(Box::new(ArrowWriter::try_new(file, schema, None)?)),
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

    fn write(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        match self {
            Self::Parquet(writer) => Ok(writer.write(batch)?),
            Self::Csv(writer) => Ok(writer.write(batch)?),
            Self::Json(writer) => Ok(writer.write(batch)?),
        }
    }

    fn finish(self) -> Result<(), DataFusionError> {
        match self {
            Self::Parquet(writer) => {
                writer.close()?;
                Ok(())
            }
            Self::Csv(writer) => Ok(writer.into_inner().flush()?),
            Self::Json(mut writer) => {
                writer.finish()?;
                Ok(writer.into_inner().flush()?)
            }
        }
    }
}
