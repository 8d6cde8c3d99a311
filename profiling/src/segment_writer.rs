//! Writing the Parquet file of a segment.

use std::io::Write;

use datafusion::arrow::array::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::{KeyValue, ParquetMetaData};
use datafusion::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use datafusion::parquet::schema::types::ColumnPath;

use crate::chunk_codec;
use crate::definition::{Kind, TableDefinition};
use crate::tables::Table;

/// A row group is closed at the end of a query's rows once it has this many rows of the table,
/// so that a query's rows are found without reading much of other queries.
const ROW_GROUP_ROWS: usize = 64 * 1024;

/// A row group of chunks is closed once it has this many records: row groups are what is read
/// in parallel.
const ROW_GROUP_RECORDS: usize = 1 << 20;

/// The entry of a file of chunks that says how many records each row group has.
const RECORDS_KEY: &str = "skewer.records";

/// Whether a batch ends the rows of a query, so that a row group may end there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryEnd {
    Yes,
    No,
}

/// Writes batches of the columns that the table's files have.
pub(crate) fn write(
    table: Table,
    sink: impl Write + Send,
    batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
) -> Result<()> {
    match chunk_codec::schema(table) {
        None => write_rows(table.definition(), sink, batches),
        Some(_) => write_chunks(table, sink, batches),
    }
}

fn write_rows(
    table: &TableDefinition,
    sink: impl Write + Send,
    batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
) -> Result<()> {
    let mut properties = properties();
    // Numbers are stored as differences, which for a run of one value, too, takes next to
    // nothing and is quicker than looking every number up in a dictionary; texts as a dictionary.
    for column in table.columns {
        if matches!(
            column.kind,
            Kind::Int | Kind::OptInt | Kind::Time | Kind::OptTime
        ) {
            let path = ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    let mut writer = ArrowWriter::try_new(sink, table.schema(), Some(properties.build()))?;
    for (batch, end) in batches {
        writer.write(&batch)?;
        if end == QueryEnd::Yes && writer.in_progress_rows() >= ROW_GROUP_ROWS {
            writer.flush()?;
        }
    }
    writer.close()?;
    Ok(())
}

fn write_chunks(
    table: Table,
    sink: impl Write + Send,
    batches: impl Iterator<Item = (RecordBatch, QueryEnd)>,
) -> Result<()> {
    let schema = chunk_codec::schema(table).unwrap_or_else(|| table.definition().schema());
    let properties = chunk_codec::properties(properties(), &schema).build();
    let mut writer = ArrowWriter::try_new(sink, schema, Some(properties))?;
    let (mut groups, mut records) = (Vec::new(), 0);
    for (batch, end) in batches {
        records += chunk_codec::records(&batch);
        writer.write(&batch)?;
        let least = match end {
            QueryEnd::Yes => ROW_GROUP_ROWS,
            QueryEnd::No => ROW_GROUP_RECORDS,
        };
        if records >= least {
            writer.flush()?;
            groups.push(std::mem::take(&mut records).to_string());
        }
    }
    if writer.in_progress_rows() > 0 {
        groups.push(records.to_string());
    }
    let entry = KeyValue::new(RECORDS_KEY.to_owned(), groups.join(","));
    writer.append_key_value_metadata(entry);
    writer.close()?;
    Ok(())
}

fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        // Packed columns are small as they are. ZSTD was four fifths of the time of writing them, which
        // the next query's threads lack.
        .set_compression(Compression::LZ4_RAW)
        .set_created_by("skewer".to_owned())
}

/// Rows of the table in each row group of a file, about.
pub(crate) fn rows_of_groups(table: Table, metadata: &ParquetMetaData) -> Result<Vec<usize>> {
    let groups = metadata.row_groups();
    if chunk_codec::schema(table).is_none() {
        let rows = groups.iter().map(|group| group.num_rows());
        return Ok(rows
            .map(|rows| usize::try_from(rows).unwrap_or(0))
            .collect());
    }
    let entries = metadata.file_metadata().key_value_metadata();
    let mut entries = entries.into_iter().flatten();
    let entry = entries.find(|entry| entry.key == RECORDS_KEY);
    let records = entry.and_then(|entry| entry.value.as_deref());
    // None is an empty text, which is no list of one number.
    let records = records.map(|records| records.split_terminator(','));
    let records: Option<Vec<usize>> = records.and_then(|records| {
        let records = records.map(|records| records.parse::<u32>().ok().map(|n| n as usize));
        records.collect()
    });
    records
        .filter(|records| records.len() == groups.len())
        .ok_or_else(|| {
            ParquetError::General(
                "it does not say how many records it has, as files of this version do".to_owned(),
            )
        })
}
