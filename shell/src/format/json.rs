//! JSON: one array per result, or one object per line.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;

use super::{ResultWriter, Shown, WriteError};

/// Streams rows as objects with every column, NULLs included.
pub struct JsonWriter {
    schema: SchemaRef,
    array: bool,
    rows: u64,
}

impl JsonWriter {
    /// `[{…},\n{…}]`
    pub fn array(schema: &Schema) -> JsonWriter {
        JsonWriter {
            schema: Arc::new(unique_names(schema)),
            array: true,
            rows: 0,
        }
    }

    /// `{…}\n{…}\n`
    pub fn lines(schema: &Schema) -> JsonWriter {
        JsonWriter {
            array: false,
            ..JsonWriter::array(schema)
        }
    }
}

impl ResultWriter for JsonWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> Result<(), WriteError> {
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), batch.columns().to_vec())?;
        let mut lines = Vec::new();
        let mut writer = WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, LineDelimited>(&mut lines);
        writer.write(&batch)?;
        writer.finish()?;
        drop(writer);
        if !self.array {
            out.write_all(&lines)?;
            self.rows += batch.num_rows() as u64;
            return Ok(());
        }
        // A JSON text has no raw newline inside an object: every newline ends a row.
        for line in lines.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
            out.write_all(if self.rows == 0 { b"[" } else { b",\n " })?;
            out.write_all(line)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<Shown, WriteError> {
        if self.array {
            out.write_all(if self.rows == 0 { b"[]\n" } else { b"]\n" })?;
        }
        let columns = self.schema.fields().len();
        Ok(Shown {
            rows: self.rows,
            shown_rows: self.rows,
            columns,
            shown_columns: columns,
        })
    }
}

/// Renames the second `x` of a result to `x_1`: an object keeps only one of two equal keys.
fn unique_names(schema: &Schema) -> Schema {
    let mut taken: HashSet<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let mut seen = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        if seen.insert(field.name().clone()) {
            return field.as_ref().clone().with_nullable(true);
        }
        let free = (1..)
            .map(|n| format!("{}_{n}", field.name()))
            .find(|name| !taken.contains(name))
            .unwrap_or_default();
        taken.insert(free.clone());
        field.as_ref().clone().with_name(free).with_nullable(true)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn equal_names_are_told_apart() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let schema = Schema::new(vec![field("x"), field("x"), field("x_1"), field("x")]);
        let names: Vec<_> = unique_names(&schema)
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        assert_eq!(names, ["x", "x_2", "x_1", "x_3"]);
    }
}
