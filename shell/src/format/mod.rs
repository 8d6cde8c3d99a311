//! How results are written to standard output.
//!
//! * [`cells`]: values as text
//! * [`table`]: boxes for a terminal, plain ASCII for a pipe
//! * [`csv`], [`json`], [`markdown`]: for programs and documents
//! * [`plan`]: EXPLAIN's text, as it is

pub mod cells;
pub mod csv;
pub mod json;
pub mod markdown;
pub mod plan;
pub mod table;

use std::io::{self, Write};

use clap::ValueEnum;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;

use crate::terminal::Palette;

/// The formats of `--format` and `.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A box drawn to the terminal's width; plain ASCII with everything in it in a pipe
    Table,
    /// Comma-separated with a header; NULL is empty, the empty string is ""
    Csv,
    /// One array of objects per result
    Json,
    /// One object per row and line
    Ndjson,
    /// A pipe table
    Markdown,
}

impl Format {
    /// The name that `--format` and `.mode` take.
    pub fn name(self) -> &'static str {
        match self {
            Format::Table => "table",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Ndjson => "ndjson",
            Format::Markdown => "markdown",
        }
    }
}

/// How much room there is.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Columns of the terminal; `None` is a pipe: nothing is shortened, no box characters.
    pub width: Option<usize>,
    /// Rows to show before the middle ones are left out; `None` shows all.
    pub max_rows: Option<usize>,
    /// Styles for headers and NULLs.
    pub palette: Palette,
}

/// What was written of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Rows of the result.
    pub rows: u64,
    /// Rows of them that were written.
    pub shown_rows: u64,
    /// Columns of the result.
    pub columns: usize,
    /// Columns of them that were written.
    pub shown_columns: usize,
}

/// A result could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Standard output or a file refused it.
    #[error("cannot write the result: {0}")]
    Io(#[from] io::Error),
    /// A value has no form in this format.
    #[error("cannot write the result in this format: {0}")]
    Value(#[from] ArrowError),
}

impl WriteError {
    /// Whether the reader of the pipe went away, as `head` does.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, WriteError::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Writes one result, batch by batch.
pub trait ResultWriter {
    /// Takes the next rows; may keep them until the end.
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError>;

    /// Writes what is left. Called once, after the last batch.
    fn finish(&mut self, out: &mut dyn Write) -> Result<Shown, WriteError>;
}

/// The writer of a result with columns `schema`.
pub fn writer(format: Format, schema: SchemaRef, layout: Layout) -> Box<dyn ResultWriter> {
    match format {
        Format::Table => Box::new(table::TableWriter::new(schema, layout)),
        Format::Csv => Box::new(csv::CsvWriter::new(schema)),
        Format::Json => Box::new(json::JsonWriter::array(&schema)),
        Format::Ndjson => Box::new(json::JsonWriter::lines(&schema)),
        Format::Markdown => Box::new(markdown::MarkdownWriter::new(schema)),
    }
}
