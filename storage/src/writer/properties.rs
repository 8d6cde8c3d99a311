//! How segments are encoded as Parquet.

use datafusion::arrow::datatypes::Schema;
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::file::metadata::SortingColumn;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::schema::types::ColumnPath;

use crate::snapshot::ROW_ID;

/// Rows of a row group: the unit that a scan gives to a thread, so a segment feeds eight.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// A row group is closed early when its encoded pages take this much memory: wide rows, too, are
/// to feed several threads.
const ROW_GROUP_BYTES: usize = 16 << 20;

/// Rows of a page: what is read to get at one row by its id.
const PAGE_ROWS: usize = 1 << 13;

/// Bytes of a dictionary of numbers. Who reads one row reads the dictionary of its row group first: it is no
/// larger than a page of 64-bit numbers.
const NUMBERS_DICTIONARY: usize = PAGE_ROWS * 8;

/// Bytes of a dictionary of texts, which saves more.
const DICTIONARY: usize = 1 << 18;

/// How a segment with columns of `schema` is encoded; without statistics of the columns at `with_nan`.
pub(super) fn properties(
    schema: &Schema,
    sorted_by: Option<SortingColumn>,
    with_nan: &[usize],
) -> WriterProperties {
    let row_id = ColumnPath::from(ROW_ID);
    let mut properties = WriterProperties::builder();
    for (at, field) in schema.fields().iter().enumerate() {
        let column = ColumnPath::new(vec![field.name().clone()]);
        if with_nan.contains(&at) {
            let none = EnabledStatistics::None;
            properties = properties.set_column_statistics_enabled(column.clone(), none);
        }
        let bytes = match field.data_type().primitive_width() {
            Some(_) => NUMBERS_DICTIONARY,
            None => DICTIONARY,
        };
        properties = properties.set_column_dictionary_page_size_limit(column, bytes);
    }
    properties
        // Decodes at several times the speed of zstd; scans matter more than bytes.
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_column_dictionary_enabled(row_id.clone(), false)
        .set_column_encoding(row_id, Encoding::DELTA_BINARY_PACKED)
        .set_sorting_columns(sorted_by.map(|column| vec![column]))
        .set_created_by(format!("skewer {}", env!("CARGO_PKG_VERSION")))
        .build()
}
