//! Rows of texts to Arrow batches.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, SchemaRef};

use super::reader::Row;
use crate::decode;
use crate::error::{Column, SqlError};

/// Rows in a batch: as many as DataFusion's.
const BATCH: usize = 8192;

/// Collects rows until there are enough for a batch.
pub(crate) struct Batches {
    schema: SchemaRef,
    pub(crate) rows: Vec<Row>,
}

impl Batches {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            rows: Vec::new(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows.len() >= BATCH
    }

    /// What there is, as a batch.
    ///
    /// # Errors
    /// With the line and column of a text that is no value of its column.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, SqlError> {
        let rows = std::mem::take(&mut self.rows);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (place, field) in self.schema.fields().iter().enumerate() {
            let texts = || rows.iter().map(|row| row.fields[place].as_deref());
            let array: ArrayRef = match at_once(texts(), field.data_type()) {
                Some(array) => array,
                None => {
                    let texts: Vec<_> = rows.iter().map(|row| row.fields[place].clone()).collect();
                    decode::column(&texts, field.data_type()).map_err(|(row, error)| SqlError {
                        message: format!(
                            "line {}, column {}: {}",
                            rows.get(row).map_or(0, |row| row.line),
                            field.name(),
                            error.message
                        ),
                        column: Some(Box::new(Column {
                            table: None,
                            name: field.name().clone(),
                        })),
                        ..error
                    })?
                }
            };
            columns.push(array);
        }
        RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)
            .map_err(|error| SqlError::new("XX000", error.to_string()))
    }
}

/// All values in one go; `None` if one of them cannot be read so, or the type needs more.
fn at_once<'a>(
    texts: impl Iterator<Item = Option<&'a str>>,
    wanted: &DataType,
) -> Option<ArrayRef> {
    let is_simple = wanted.is_numeric()
        || matches!(
            wanted,
            DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Date32
        )
        || matches!(wanted, DataType::Timestamp(..));
    if !is_simple {
        return None;
    }
    let texts = StringArray::from_iter(texts);
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let array = cast_with_options(&(Arc::new(texts) as ArrayRef), wanted, &options).ok()?;
    Some(array)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn a_text_that_is_no_value_names_its_line_and_column() {
        let fields = vec![
            Field::new("n", DataType::Int32, true),
            Field::new("b", DataType::Boolean, true),
        ];
        let mut batches = Batches::new(Arc::new(Schema::new(fields)));
        let row = |line, n: &str, b: &str| Row {
            line,
            fields: vec![Some(n.to_owned()), Some(b.to_owned())],
        };
        batches.rows = vec![row(1, "1", "t"), row(2, "2", "f")];
        assert_eq!(batches.take().unwrap().num_rows(), 2);
        batches.rows = vec![row(3, "1", "t"), row(4, "one", "f")];
        let error = batches.take().unwrap_err();
        assert_eq!(error.code, "22P02");
        assert!(
            error.message.starts_with("line 4, column n: 'one'"),
            "{}",
            error.message
        );
    }
}
