//! Comma-separated values as RFC 4180 has them, with lines that end in `\n`.

use std::io::{self, Write};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use super::cells::Cells;
use super::{ResultWriter, Shown, WriteError};

/// Streams rows; the header comes before the first.
pub struct CsvWriter {
    schema: SchemaRef,
    header_written: bool,
    rows: u64,
}

impl CsvWriter {
    /// A writer of results with these columns.
    pub fn new(schema: SchemaRef) -> CsvWriter {
        CsvWriter {
            schema,
            header_written: false,
            rows: 0,
        }
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.header_written {
            self.header_written = true;
            for (i, field) in self.schema.fields().iter().enumerate() {
                separator(i, out)?;
                value(field.name(), out)?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

impl ResultWriter for CsvWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        self.header(out)?;
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                separator(column, out)?;
                if let Some(text) = cells.get(column, row)? {
                    value(&text, out)?;
                }
            }
            out.write_all(b"\n")?;
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

fn separator(column: usize, out: &mut dyn Write) -> io::Result<()> {
    if column > 0 {
        out.write_all(b",")
    } else {
        Ok(())
    }
}

/// Quoted where a reader would otherwise see something else; the empty string too, since an
/// empty field means NULL.
fn value(text: &str, out: &mut dyn Write) -> io::Result<()> {
    if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        write!(out, "\"{}\"", text.replace('"', "\"\""))
    } else {
        out.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_misread_is_quoted() {
        let mut out = Vec::new();
        for text in ["plain", "", "a,b", "say \"hi\"", "two\nlines"] {
            value(text, &mut out).unwrap();
            out.push(b'|');
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "plain|\"\"|\"a,b\"|\"say \"\"hi\"\"\"|\"two\nlines\"|"
        );
    }
}
