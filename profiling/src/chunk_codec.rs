//! Chunks of the record-level tables as rows of a Parquet file: what the records of a chunk have
//! in common as it is, packed columns as bytes.
//!
//! The file has the table's columns under their names, and last the number of records. Bytes
//! that were read are not trusted: whatever does not fit together is an error.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::parquet::basic::Encoding;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterPropertiesBuilder};
use datafusion::parquet::schema::types::ColumnPath;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chunk_columns::{ChunkError, Column, Expander, Form, forms};
use crate::chunks::MAX_RECORDS;
use crate::ids::Ids;
use crate::latencies::Latencies;
use crate::query_ids::QueryIds;
use crate::tables::Table;

/// The column with a chunk's number of records.
const RECORDS: &str = "records";

/// Chunks that are written or read at once.
pub(crate) const BATCH_CHUNKS: usize = 64;

/// The schema of a table's files: one row per chunk. `None` if the table is not of record level.
pub(crate) fn schema(table: Table) -> Option<SchemaRef> {
    let columns = table.definition().columns.iter();
    let mut fields: Vec<Field> = columns
        .zip(forms(table)?)
        .map(|(column, form)| match form {
            Form::Number | Form::Count => Field::new(column.name, DataType::Int64, false),
            Form::Text => Field::new(column.name, DataType::Utf8, true),
            Form::Ids | Form::Latencies => Field::new(column.name, DataType::Binary, false),
            Form::OptLatencies => Field::new(column.name, DataType::Binary, true),
        })
        .collect();
    fields.push(Field::new(RECORDS, DataType::Int64, false));
    Some(Arc::new(Schema::new(fields)))
}

/// How the bytes of packed columns are stored: they differ from chunk to chunk, and nobody asks
/// for the smallest.
pub(crate) fn properties(
    mut properties: WriterPropertiesBuilder,
    schema: &Schema,
) -> WriterPropertiesBuilder {
    for field in schema.fields() {
        let path = ColumnPath::from(field.name().as_str());
        if *field.data_type() == DataType::Binary {
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
                .set_column_encoding(path, Encoding::PLAIN);
        }
    }
    properties
        .set_write_batch_size(BATCH_CHUNKS)
        .set_max_row_group_row_count(None)
}

/// Packs chunks, each with its number of records and all the table's columns.
pub(crate) fn pack(schema: &SchemaRef, chunks: &[(usize, Vec<Column<'_>>)]) -> RecordBatch {
    let records = schema.fields().len() - 1;
    let column = |index: usize| chunks.iter().map(move |(_, columns)| &columns[index]);
    let mut arrays: Vec<ArrayRef> = (0..records)
        .map(|index| stored(schema.field(index).data_type(), column(index)))
        .collect();
    let lengths = chunks.iter().map(|(records, _)| *records as i64);
    arrays.push(Arc::new(Int64Array::from_iter_values(lengths)));
    RecordBatch::try_new(Arc::clone(schema), arrays)
        .unwrap_or_else(|error| panic!("chunks do not fit their file's columns: {error}"))
}

/// Columns of a table, as a file has them, of chunks with all the table's columns.
pub(crate) fn columns(
    table: Table,
    projection: &[usize],
    chunks: &[(usize, Vec<Column<'_>>)],
) -> Result<RecordBatch, ArrowError> {
    let schema = schema(table).unwrap_or_else(|| table.definition().schema());
    let schema = Arc::new(schema.project(projection)?);
    let arrays = projection
        .iter()
        .zip(schema.fields())
        .map(|(index, field)| {
            let column = chunks.iter().map(|(_, columns)| &columns[*index]);
            stored(field.data_type(), column)
        });
    RecordBatch::try_new(Arc::clone(&schema), arrays.collect())
}

/// One column of some chunks, as a file has it.
fn stored<'a>(data_type: &DataType, column: impl Iterator<Item = &'a Column<'a>>) -> ArrayRef {
    match data_type {
        DataType::Int64 => {
            let numbers = column.map(|column| match column {
                Column::Number(number) | Column::Count(number) => *number,
                _ => 0,
            });
            Arc::new(Int64Array::from_iter_values(numbers))
        }
        DataType::Utf8 => {
            let texts = column.map(|column| match column {
                Column::Text(text) => text.as_deref(),
                _ => None,
            });
            Arc::new(texts.collect::<StringArray>())
        }
        _ => {
            let blobs = column.map(|column| match column {
                Column::Ids(ids) => Some(bytes(ids.as_ref())),
                Column::Latencies(latencies) => Some(bytes(latencies.as_ref())),
                _ => None,
            });
            Arc::new(blobs.collect::<BinaryArray>())
        }
    }
}

fn bytes(values: &impl Serialize) -> Vec<u8> {
    // Fails for types that do not know their length, which these are not; if it did, nothing
    // would be read back, and a warning would say so.
    postcard::to_stdvec(values).unwrap_or_default()
}

/// Records of the chunks in a batch of all the columns of a file.
pub(crate) fn records(batch: &RecordBatch) -> usize {
    let records = batch.column_by_name(RECORDS);
    let records = records.and_then(|column| column.as_primitive_opt::<Int64Type>());
    records.map_or(0, |records| {
        let claimed = records.values().iter().map(|records| check(*records));
        claimed.filter_map(Result::ok).sum()
    })
}

/// Columns of a file that are read for columns of its table: those, the query and the number of
/// records.
pub(crate) fn needed(schema: &SchemaRef, projection: &[usize]) -> Vec<usize> {
    let mut needed = projection.to_vec();
    needed.extend([0, schema.fields().len() - 1]);
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// The rows of one of the chunks in a batch of the [`needed`] columns, if it belongs to a wanted
/// query.
pub(crate) fn expand(
    table: Table,
    batch: &RecordBatch,
    chunk: usize,
    projection: &[usize],
    ids: &QueryIds,
    expander: &mut Expander,
) -> Option<Result<RecordBatch, ChunkError>> {
    let columns = table.definition().columns;
    let forms = forms(table)?;
    let number = |name: &str| batch[name].as_primitive::<Int64Type>().value(chunk);
    if !ids.contains(number(columns[0].name)) {
        return None;
    }
    let mut unpacked = || {
        let records = check(number(RECORDS))?;
        let columns = projection.iter().map(|index| {
            let name = columns[*index].name;
            unpack(forms[*index], name, &batch[name], chunk)
        });
        let columns: Vec<Column<'_>> = columns.collect::<Result<_, _>>()?;
        expander.expand(records, columns)
    };
    Some(unpacked())
}

fn check(records: i64) -> Result<usize, ChunkError> {
    let sound = usize::try_from(records).ok();
    sound
        .filter(|records| *records <= MAX_RECORDS)
        .ok_or(ChunkError::Records(records))
}

fn unpack<'a>(
    form: Form,
    name: &str,
    column: &'a ArrayRef,
    chunk: usize,
) -> Result<Column<'a>, ChunkError> {
    let number = || column.as_primitive::<Int64Type>().value(chunk);
    let bytes = || column.as_binary::<i32>().value(chunk);
    Ok(match form {
        Form::Number => Column::Number(number()),
        Form::Count => Column::Count(number()),
        Form::Text => {
            let texts = column.as_string::<i32>();
            let text = texts.is_valid(chunk).then(|| texts.value(chunk));
            Column::Text(text.map(Cow::Borrowed))
        }
        Form::Ids => Column::Ids(Cow::Owned(values::<Ids>(name, bytes())?)),
        Form::OptLatencies if column.is_null(chunk) => Column::Unknown,
        Form::Latencies | Form::OptLatencies => {
            Column::Latencies(Cow::Owned(values::<Latencies>(name, bytes())?))
        }
    })
}

fn values<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, ChunkError> {
    let values = match postcard::take_from_bytes(bytes) {
        Ok((values, [])) => Ok(values),
        Ok(_) => Err(postcard::Error::DeserializeBadEncoding),
        Err(error) => Err(error),
    };
    values.map_err(|source| ChunkError::Bytes {
        column: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Chunks as they may be recorded, each with its number of records and its columns: texts
    /// and ids may be absent where the table allows that.
    fn chunks(table: Table) -> impl Strategy<Value = Vec<(usize, Vec<Column<'static>>)>> {
        let chunk = (1usize..300).prop_flat_map(move |records| {
            let kinds = table.definition().columns.iter().zip(forms(table).unwrap());
            let columns: Vec<BoxedStrategy<Column<'static>>> = kinds
                .map(|(column, form)| {
                    column_of(*form, column.kind.nullable(), column.name, records)
                })
                .collect();
            (Just(records), columns)
        });
        prop::collection::vec(chunk, 0..6)
    }

    fn column_of(
        form: Form,
        nullable: bool,
        name: &str,
        records: usize,
    ) -> BoxedStrategy<Column<'static>> {
        // Whether a value that a chance of 1 in 5 makes absent is so.
        let kept = move |chance: u8| !nullable || chance > 0;
        match form {
            Form::Number if name == "query_id" => (0i64..3).prop_map(Column::Number).boxed(),
            Form::Number => (0i64..9).prop_map(Column::Number).boxed(),
            Form::Count => (0i64..1 << 40).prop_map(Column::Count).boxed(),
            Form::Text => {
                let texts = prop::sample::select(vec!["", "main.t", "computation"]);
                (texts, 0u8..5)
                    .prop_map(move |(text, chance)| {
                        Column::Text(kept(chance).then_some(Cow::Borrowed(text)))
                    })
                    .boxed()
            }
            Form::Ids => (prop::collection::vec((0i64.., 0u8..5), records), 0u32..60)
                .prop_map(move |(ids, scale)| {
                    let ids = ids.iter();
                    let ids = ids.map(|(id, chance)| kept(*chance).then_some(id >> scale));
                    Column::Ids(Cow::Owned(Ids::encode_nullable(&ids.collect())))
                })
                .boxed(),
            Form::Latencies | Form::OptLatencies => {
                let ps = prop_oneof![0i64..3, 0i64..1 << 50];
                (prop::collection::vec(ps, records), 0u8..5)
                    .prop_map(move |(ps, chance)| match kept(chance) {
                        true => Column::Latencies(Cow::Owned(Latencies::encode(&ps))),
                        false => Column::Unknown,
                    })
                    .boxed()
            }
        }
    }

    fn any_chunks() -> impl Strategy<Value = (Table, Vec<(usize, Vec<Column<'static>>)>)> {
        prop::sample::select(vec![
            Table::Lineage,
            Table::RecordLatency,
            Table::OutputRecords,
        ])
        .prop_flat_map(|table| (Just(table), chunks(table)))
    }

    fn unpacked(
        table: Table,
        stored: &RecordBatch,
        projection: &[usize],
        ids: &QueryIds,
    ) -> Vec<Result<RecordBatch, ChunkError>> {
        let schema = Arc::new(table.definition().schema().project(projection).unwrap());
        let mut expander = Expander::new(&schema);
        (0..stored.num_rows())
            .filter_map(|chunk| expand(table, stored, chunk, projection, ids, &mut expander))
            .collect()
    }

    proptest! {
        #[test]
        fn what_was_packed_expands_to_the_rows_of_the_chunks_themselves(
            (table, chunks) in any_chunks(),
            wanted in 0u16..1024,
            query in prop::option::of(0i64..3),
        ) {
            let all = table.definition().schema();
            let columns = 0..all.fields().len();
            let projection: Vec<usize> = columns.filter(|index| wanted >> index & 1 == 1).collect();
            let ids = query.map_or(QueryIds::ALL, |query| QueryIds::Listed([query].into()));

            let file = schema(table).unwrap();
            let stored = pack(&file, &chunks);
            prop_assert_eq!(records(&stored), chunks.iter().map(|(records, _)| records).sum::<usize>());
            let stored = stored.project(&needed(&file, &projection)).unwrap();

            let expected: Vec<RecordBatch> = chunks
                .iter()
                .filter(|(_, columns)| match &columns[0] {
                    Column::Number(id) => ids.contains(*id),
                    _ => false,
                })
                .map(|(records, columns)| {
                    let rows = Expander::new(&all).expand(*records, columns.clone()).unwrap();
                    rows.project(&projection).unwrap()
                })
                .collect();
            let unpacked = unpacked(table, &stored, &projection, &ids);
            let unpacked: Vec<RecordBatch> = unpacked.into_iter().map(Result::unwrap).collect();
            prop_assert_eq!(unpacked, expected);
        }

        #[test]
        fn damaged_bytes_are_an_error_or_other_values_but_nothing_worse(
            (table, chunks) in any_chunks(),
            noise in prop::collection::vec((0usize..4000, any::<u8>()), 1..4),
            cut in 0usize..40,
            claimed in prop::option::of(any::<i64>()),
        ) {
            let file = schema(table).unwrap();
            let stored = pack(&file, &chunks);
            let columns = stored.columns().iter().zip(file.fields()).map(|(column, field)| {
                match column.as_binary_opt::<i32>() {
                    Some(blobs) => Arc::new(BinaryArray::from_iter(blobs.iter().map(|blob| {
                        let mut blob = blob?.to_vec();
                        for (place, byte) in &noise {
                            let len = blob.len();
                            blob[*place % len] = *byte;
                        }
                        blob.truncate(blob.len().max(cut) - cut / 20);
                        Some(blob)
                    }))) as ArrayRef,
                    None => match claimed.filter(|_| field.name() == RECORDS) {
                        Some(claimed) => Arc::new(Int64Array::from_value(claimed, chunks.len())),
                        None => Arc::clone(column),
                    },
                }
            });
            let damaged = RecordBatch::try_new(file.clone(), columns.collect()).unwrap();
            records(&damaged);
            let all: Vec<usize> = (0..file.fields().len() - 1).collect();
            for rows in unpacked(table, &damaged, &all, &QueryIds::ALL).into_iter().flatten() {
                prop_assert!(rows.num_rows() <= MAX_RECORDS);
            }
        }
    }

    #[test]
    fn lengths_that_would_take_all_memory_are_refused() {
        let huge = Ids::range(0, 1 << 60);
        let columns = |ids: &Ids| {
            vec![
                Column::Number(1),
                Column::Count(0),
                Column::Number(1),
                Column::Text(None),
                Column::Ids(Cow::Owned(ids.clone())),
                Column::Latencies(Cow::Owned(Latencies::constant(7, 1 << 60))),
            ]
        };
        let file = schema(Table::OutputRecords).unwrap();
        for records in [1 << 60, 5] {
            let stored = pack(&file, &[(records, columns(&huge))]);
            let all = [0, 1, 2, 3, 4, 5];
            let refused = unpacked(Table::OutputRecords, &stored, &all, &QueryIds::ALL);
            let error = refused[0].as_ref().unwrap_err().to_string();
            assert!(error.contains("1152921504606846976"), "{error}");
        }
    }
}
