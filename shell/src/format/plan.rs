//! EXPLAIN's output: text with lines of its own, which a box would only break.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;

use skewer::report::Document;
use skewer::report_document;

use super::cells::Cells;
use super::{ResultWriter, Shown, WriteError};

/// Writes the last column as it is, under the other columns' values as a heading.
#[derive(Debug)]
pub struct PlanWriter {
    coloured: bool,
    rows: u64,
    columns: usize,
}

impl PlanWriter {
    /// Reports of EXPLAIN PROFILE come in colour if `coloured`.
    pub fn new(coloured: bool) -> PlanWriter {
        PlanWriter {
            coloured,
            rows: 0,
            columns: 0,
        }
    }
}

impl PlanWriter {
    /// Writes a report.
    pub fn document(&self, document: &Document, out: &mut dyn Write) -> Result<(), WriteError> {
        for line in document.lines() {
            let line = if self.coloured {
                line.ansi()
            } else {
                line.text()
            };
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

impl ResultWriter for PlanWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        if let Some(document) = report_document(batch) {
            self.columns = 1;
            self.rows += batch.num_rows() as u64;
            return self.document(&document, out);
        }
        let cells = Cells::new(batch)?;
        self.columns = batch.num_columns();
        let Some(last) = self.columns.checked_sub(1) else {
            return Ok(());
        };
        for row in 0..batch.num_rows() {
            let mut headings = Vec::new();
            for column in 0..last {
                headings.extend(cells.get(column, row)?);
            }
            if !headings.is_empty() {
                if self.rows > 0 {
                    writeln!(out)?;
                }
                writeln!(out, "{}", headings.join(" · "))?;
            }
            let text = cells.get(last, row)?.unwrap_or_default();
            let text = text.trim_end_matches('\n');
            writeln!(out, "{text}")?;
            self.rows += 1;
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<Shown, WriteError> {
        Ok(Shown {
            rows: self.rows,
            shown_rows: self.rows,
            columns: self.columns,
            shown_columns: self.columns,
        })
    }
}
