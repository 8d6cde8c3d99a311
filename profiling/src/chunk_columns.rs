//! The record-level tables seen as chunks: of each column either what all records of a chunk
//! have in common, or the chunk's packed values; and how rows are made of them.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;

use crate::chunks::{LatencyChunk, LineageChunk, OutputChunk};
use crate::definition::Origin;
use crate::ids::Ids;
use crate::latencies::Latencies;
use crate::tables::Table;

/// What a column of a record-level table is in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One number for all records.
    Number,
    /// Consecutive numbers: that of the first record is kept.
    Count,
    /// One text for all records.
    Text,
    Ids,
    Latencies,
    /// Latencies that are not known for logs of earlier versions.
    OptLatencies,
}

/// The columns of a table whose rows come in chunks, in the order of its definition; `None` if
/// the table is not of record level.
pub(crate) fn forms(table: Table) -> Option<&'static [Form]> {
    use Form::{Count, Ids, Latencies, Number, OptLatencies, Text};
    match table {
        Table::Lineage => Some(&[
            Number, Number, Number, Number, Number, Ids, Number, Text, Ids, Latencies,
        ]),
        Table::RecordLatency => Some(&[
            Number,
            Number,
            Number,
            Number,
            Number,
            Text,
            Ids,
            Latencies,
            Text,
            Text,
            OptLatencies,
        ]),
        Table::OutputRecords => Some(&[Number, Count, Number, Text, Ids, Latencies]),
        _ => None,
    }
}

/// One column of one chunk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Column<'a> {
    Number(i64),
    Count(i64),
    Text(Option<Cow<'a, str>>),
    Ids(Cow<'a, Ids>),
    Latencies(Cow<'a, Latencies>),
    /// Not known for any record.
    Unknown,
}

/// Why a chunk is none.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// A number of records that no chunk has.
    #[error("it claims to have {0} records")]
    Records(i64),
    /// A column that belongs to other records.
    #[error("column {column} has {found} values for {records} records")]
    Length {
        /// The column.
        column: String,
        /// Values that it has.
        found: usize,
        /// Records of the chunk.
        records: usize,
    },
    /// A column whose bytes are not those of packed values.
    #[error("column {column}: {source}")]
    Bytes {
        /// The column.
        column: String,
        /// What is wrong.
        source: postcard::Error,
    },
    /// Values that the table cannot have.
    #[error(transparent)]
    Values(#[from] ArrowError),
}

impl<'a> Column<'a> {
    fn text(text: Option<&'a str>) -> Column<'a> {
        Column::Text(text.map(Cow::Borrowed))
    }

    fn ids(ids: &'a Ids) -> Column<'a> {
        Column::Ids(Cow::Borrowed(ids))
    }

    fn latencies(latencies: &'a Latencies) -> Column<'a> {
        Column::Latencies(Cow::Borrowed(latencies))
    }

    /// Number of values, if the column does not have the same for any number of records.
    fn len(&self) -> Option<usize> {
        match self {
            Column::Number(_) | Column::Count(_) | Column::Text(_) | Column::Unknown => None,
            Column::Ids(ids) => Some(ids.len()),
            Column::Latencies(latencies) => Some(latencies.len()),
        }
    }

    fn is_constant(&self) -> bool {
        matches!(self, Column::Number(_) | Column::Text(_) | Column::Unknown)
    }

    fn expand(&self, records: usize) -> ArrayRef {
        match self {
            Column::Number(number) => Arc::new(Int64Array::from_value(*number, records)),
            // A first number that is too large is none that was written; nothing overflows.
            Column::Count(first) => Arc::new(Int64Array::from_iter_values(
                (0..records as i64).map(|number| first.wrapping_add(number)),
            )),
            Column::Text(Some(text)) => Arc::new(StringArray::new_repeated(text, records)),
            Column::Text(None) => Arc::new(StringArray::new_null(records)),
            Column::Ids(ids) => Arc::new(ids.decode()),
            Column::Latencies(latencies) => Arc::new(latencies.decode_ns()),
            Column::Unknown => Arc::new(Int64Array::new_null(records)),
        }
    }

    fn into_owned(self) -> Column<'static> {
        match self {
            Column::Number(number) => Column::Number(number),
            Column::Count(first) => Column::Count(first),
            Column::Text(text) => Column::Text(text.map(|text| Cow::Owned(text.into_owned()))),
            Column::Ids(ids) => Column::Ids(Cow::Owned(ids.into_owned())),
            Column::Latencies(latencies) => Column::Latencies(Cow::Owned(latencies.into_owned())),
            Column::Unknown => Column::Unknown,
        }
    }
}

/// The columns of `sys.lineage`.
pub(crate) fn lineage<'a>(origin: &Origin, chunk: &'a LineageChunk) -> Vec<Column<'a>> {
    vec![
        Column::Number(origin.query_id),
        Column::Number(chunk.fragment_id),
        Column::Number(chunk.operator_id),
        Column::Number(origin.worker_id),
        Column::Number(chunk.partition),
        Column::ids(&chunk.output_ids),
        Column::Number(chunk.input_operator_id),
        Column::text(chunk.table_name.as_deref()),
        Column::ids(&chunk.input_ids),
        Column::latencies(&chunk.latency),
    ]
}

/// The columns of `sys.record_latency`.
pub(crate) fn record_latency<'a>(origin: &Origin, chunk: &'a LatencyChunk) -> Vec<Column<'a>> {
    vec![
        Column::Number(origin.query_id),
        Column::Number(chunk.fragment_id),
        Column::Number(chunk.operator_id),
        Column::Number(origin.worker_id),
        Column::Number(chunk.partition),
        Column::text(chunk.table_name.as_deref()),
        Column::ids(&chunk.row_ids),
        Column::latencies(&chunk.latency),
        Column::text(Some(chunk.kind.name())),
        Column::text(Some(chunk.method.name())),
        Column::latencies(&chunk.error),
    ]
}

/// The columns of `sys.output_records`.
pub(crate) fn output_records<'a>(origin: &Origin, chunk: &'a OutputChunk) -> Vec<Column<'a>> {
    vec![
        Column::Number(origin.query_id),
        Column::Count(chunk.first_output_row),
        Column::Number(chunk.operator_id),
        Column::text(chunk.table_name.as_deref()),
        Column::ids(&chunk.record_ids),
        Column::latencies(&chunk.latency),
    ]
}

/// Makes rows of chunks: of one table, some of its columns.
#[derive(Debug)]
pub(crate) struct Expander {
    schema: SchemaRef,
    /// Of each column the last constant and an array of it: the next chunk's is mostly a slice
    /// of that.
    constants: Vec<Option<(Column<'static>, ArrayRef)>>,
}

impl Expander {
    /// An expander to rows of `schema`, which is a projection of the table's.
    pub(crate) fn new(schema: &SchemaRef) -> Expander {
        Expander {
            schema: Arc::clone(schema),
            constants: vec![None; schema.fields().len()],
        }
    }

    /// The rows of a chunk of `records` records, of which `columns` are those of the schema.
    pub(crate) fn expand<'a>(
        &mut self,
        records: usize,
        columns: impl IntoIterator<Item = Column<'a>>,
    ) -> Result<RecordBatch, ChunkError> {
        let mut arrays = Vec::with_capacity(self.constants.len());
        for (index, (column, last)) in columns.into_iter().zip(&mut self.constants).enumerate() {
            if let Some(found) = column.len()
                && found != records
            {
                let column = self.schema.field(index).name().clone();
                return Err(ChunkError::Length {
                    column,
                    found,
                    records,
                });
            }
            arrays.push(match last {
                Some((constant, array)) if *constant == column && records <= array.len() => {
                    array.slice(0, records)
                }
                _ => {
                    let array = column.expand(records);
                    if column.is_constant() {
                        *last = Some((column.into_owned(), Arc::clone(&array)));
                    }
                    array
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(records));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}
