//! Arrow batches to bytes of COPY TO STDOUT.

use bytes::{Bytes, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;

use super::statement::Options;
use crate::encode::{Column, Format};

/// Writes rows in text format or CSV.
#[derive(Debug)]
pub(crate) struct CopyWriter {
    options: Options,
}

impl CopyWriter {
    pub(crate) fn new(options: Options) -> Self {
        Self { options }
    }

    /// The line of names, if one is wanted.
    pub(crate) fn header(&self, schema: &Schema) -> Option<Bytes> {
        if !self.options.header {
            return None;
        }
        let mut out = BytesMut::new();
        for (n, field) in schema.fields().iter().enumerate() {
            if n > 0 {
                out.extend_from_slice(&[self.options.delimiter]);
            }
            self.field(field.name().as_bytes(), &mut out);
        }
        out.extend_from_slice(b"\n");
        Some(out.freeze())
    }

    /// The rows of a batch, one line each.
    pub(crate) fn lines(&self, batch: &RecordBatch) -> Result<Vec<Bytes>, ArrowError> {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Column::new(column, Format::Text));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut lines = Vec::with_capacity(batch.num_rows());
        let mut out = BytesMut::new();
        let mut field = BytesMut::new();
        for row in 0..batch.num_rows() {
            for (n, column) in columns.iter().enumerate() {
                if n > 0 {
                    out.extend_from_slice(&[self.options.delimiter]);
                }
                field.clear();
                match column.write(row, &mut field) {
                    true => self.field(&field, &mut out),
                    false => out.extend_from_slice(self.options.null.as_bytes()),
                }
            }
            out.extend_from_slice(b"\n");
            lines.push(out.split().freeze());
        }
        Ok(lines)
    }

    fn field(&self, field: &[u8], out: &mut BytesMut) {
        let Options {
            csv,
            delimiter,
            quote,
            escape,
            ref null,
            ..
        } = self.options;
        if !csv {
            for byte in field {
                match byte {
                    b'\\' => out.extend_from_slice(b"\\\\"),
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    b'\t' => out.extend_from_slice(b"\\t"),
                    byte if *byte == delimiter => out.extend_from_slice(&[b'\\', *byte]),
                    byte => out.extend_from_slice(&[*byte]),
                }
            }
            return;
        }
        let special =
            |byte: &u8| matches!(byte, b'\n' | b'\r') || *byte == delimiter || *byte == quote;
        if field != null.as_bytes() && field != b"\\." && !field.iter().any(special) {
            out.extend_from_slice(field);
            return;
        }
        out.extend_from_slice(&[quote]);
        for byte in field {
            if *byte == quote || *byte == escape {
                out.extend_from_slice(&[escape]);
            }
            out.extend_from_slice(&[*byte]);
        }
        out.extend_from_slice(&[quote]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, StringArray};

    use super::*;
    use crate::copy::Reader;

    #[test]
    fn what_is_written_is_read_again() {
        let values = [
            Some("plain"),
            None,
            Some(""),
            Some("a,\"b\"\n\tc\\"),
            Some("\\."),
            Some("\\N"),
        ];
        let array: ArrayRef = Arc::new(StringArray::from_iter(values));
        let batch = RecordBatch::try_from_iter([("v", array)]).unwrap();
        for options in [Options::text(), Options::csv()] {
            let lines = CopyWriter::new(options.clone()).lines(&batch).unwrap();
            let mut reader = Reader::new(options, 1);
            let mut rows = Vec::new();
            reader.push(&lines.concat(), &mut rows).unwrap();
            let read: Vec<_> = rows.iter().map(|row| row.fields[0].as_deref()).collect();
            assert_eq!(read, values);
        }
    }
}
