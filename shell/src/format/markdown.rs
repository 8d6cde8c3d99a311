//! A pipe table as GitHub renders it.

use std::io::{self, Write};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use super::cells::{Cells, is_number};
use super::{ResultWriter, Shown, WriteError};

/// Streams rows; columns are not padded, which no renderer needs.
pub struct MarkdownWriter {
    schema: SchemaRef,
    header_written: bool,
    rows: u64,
}

impl MarkdownWriter {
    /// A writer of results with these columns.
    pub fn new(schema: SchemaRef) -> MarkdownWriter {
        MarkdownWriter {
            schema,
            header_written: false,
            rows: 0,
        }
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.header_written {
            return Ok(());
        }
        self.header_written = true;
        for field in self.schema.fields() {
            write!(out, "| {} ", escape(field.name()))?;
        }
        out.write_all(b"|\n")?;
        for field in self.schema.fields() {
            let rule = if is_number(field.data_type()) {
                "| ---: "
            } else {
                "| --- "
            };
            out.write_all(rule.as_bytes())?;
        }
        out.write_all(b"|\n")
    }
}

impl ResultWriter for MarkdownWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        self.header(out)?;
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                let text = cells.get(column, row)?;
                write!(out, "| {} ", escape(text.as_deref().unwrap_or("NULL")))?;
            }
            out.write_all(b"|\n")?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<Shown, WriteError> {
        self.header(out)?;
        let columns = self.schema.fields().len();
        Ok(Shown {
            rows: self.rows,
            shown_rows: self.rows,
            columns,
            shown_columns: columns,
        })
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace("\r\n", "<br>")
        .replace(['\n', '\r'], "<br>")
}
