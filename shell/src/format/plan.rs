//! EXPLAIN's output: text with lines of its own, which a box would only break.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;

use super::cells::Cells;
use super::{ResultWriter, Shown, WriteError};

/// Writes the last column as it is, under the other columns' values as a heading.
#[derive(Debug, Default)]
pub struct PlanWriter {
    rows: u64,
    columns: usize,
}

impl ResultWriter for PlanWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
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
            writeln!(out, "{}", text.trim_end_matches('\n'))?;
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
