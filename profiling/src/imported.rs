//! Rows of a query that was recorded elsewhere, as a part of the log.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::error::ArrowError;

use crate::chunk_codec;
use crate::chunk_columns::{Column, Form, forms};
use crate::chunks::MAX_RECORDS;
use crate::ids::Ids;
use crate::latencies::Latencies;
use crate::operator_kind::with_kinds;
use crate::tables::Table;

/// Picoseconds of a nanosecond.
const PICOSECONDS: i64 = 1000;

/// Rows of a table, as they are in files of the log: under the id `query_id`, and with what the
/// table's definition asks for. Columns that may be NULL may be missing.
///
/// # Errors
/// If a column is missing, is of another type, or has NULLs that it must not have.
pub(crate) fn stored(
    table: Table,
    batch: &RecordBatch,
    query_id: i64,
) -> Result<RecordBatch, ArrowError> {
    let schema = table.definition().schema();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let column = match (field.name().as_str(), batch.column_by_name(field.name())) {
            ("query_id", _) => Arc::new(Int64Array::from_value(query_id, batch.num_rows())),
            (_, Some(column)) => cast(column, field.data_type())?,
            (_, None) if field.is_nullable() => new_null_array(field.data_type(), batch.num_rows()),
            (name, None) => {
                return Err(ArrowError::SchemaError(format!(
                    "there is no column {name}"
                )));
            }
        };
        columns.push(column);
    }
    let mut rows = RecordBatch::try_new(schema, columns)?;
    if table == Table::Operators {
        rows = with_kinds(&rows)?;
    }
    match (forms(table), chunk_codec::schema(table)) {
        (Some(forms), Some(schema)) => {
            let runs = runs(forms, &rows);
            let chunks: Vec<(usize, Vec<Column<'_>>)> = runs
                .into_iter()
                .map(|(first, length)| (length, chunk(forms, &rows.slice(first, length))))
                .collect();
            Ok(chunk_codec::pack(&schema, &chunks))
        }
        _ => Ok(rows),
    }
}

/// Rows that can be one chunk: the first and their number.
fn runs(forms: &[Form], rows: &RecordBatch) -> Vec<(usize, usize)> {
    let belongs = |row: usize| {
        let mut columns = forms.iter().zip(rows.columns());
        columns.all(|(form, column)| match form {
            Form::Number => {
                let numbers = column.as_primitive::<Int64Type>();
                numbers.value(row) == numbers.value(row - 1)
            }
            Form::Count => {
                let numbers = column.as_primitive::<Int64Type>();
                numbers.value(row) == numbers.value(row - 1).wrapping_add(1)
            }
            Form::Text => {
                let texts: &StringArray = column.as_string();
                let text = |row: usize| texts.is_valid(row).then(|| texts.value(row));
                text(row) == text(row - 1)
            }
            Form::Ids | Form::Latencies => true,
            Form::OptLatencies => column.is_null(row) == column.is_null(row - 1),
        })
    };
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for row in 0..rows.num_rows() {
        match runs.last_mut() {
            Some((_, length)) if *length < MAX_RECORDS && belongs(row) => *length += 1,
            _ => runs.push((row, 1)),
        }
    }
    runs
}

/// The columns of a chunk of rows.
fn chunk(forms: &[Form], rows: &RecordBatch) -> Vec<Column<'static>> {
    let columns = forms.iter().zip(rows.columns());
    let columns = columns.map(|(form, column)| match form {
        Form::Number => Column::Number(column.as_primitive::<Int64Type>().value(0)),
        Form::Count => Column::Count(column.as_primitive::<Int64Type>().value(0)),
        Form::Text => {
            let texts: &StringArray = column.as_string();
            let text = texts.is_valid(0).then(|| texts.value(0).to_owned());
            Column::Text(text.map(Into::into))
        }
        Form::Ids => {
            let ids = column.as_primitive::<Int64Type>();
            Column::Ids(std::borrow::Cow::Owned(Ids::encode_nullable(ids)))
        }
        Form::OptLatencies if column.is_null(0) => Column::Unknown,
        Form::Latencies | Form::OptLatencies => {
            let nanoseconds = column.as_primitive::<Int64Type>().values().iter();
            let picoseconds: Vec<i64> = nanoseconds
                .map(|ns| ns.saturating_mul(PICOSECONDS))
                .collect();
            let latencies = Latencies::encode(&picoseconds);
            Column::Latencies(std::borrow::Cow::Owned(latencies))
        }
    });
    columns.collect()
}
