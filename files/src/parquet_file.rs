//! What is in Parquet files: whether they are such, and their columns.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use datafusion::common::config::TableParquetOptions;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::execution::SessionState;
use datafusion::logical_expr::type_coercion::binary::{
    binary_numeric_coercion, type_union_coercion,
};
use datafusion::object_store::{ObjectMeta, ObjectStore};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::error::FilesError;
use crate::locate::{Located, unreadable};
use crate::passes::failed;
use crate::place_store::PlaceStore;
use skewer_sql::sql_name;

/// Looks at the last bytes of a Parquet file: DataFusion trusts the length that they say.
pub(crate) fn check_footer(file: &Located) -> Result<(), FilesError> {
    const FOOTER: u64 = 8;
    let size = file.metadata.len();
    let broken = |message: &str| {
        let message = format!("it is not a readable Parquet file: {message}");
        Err(unreadable(&file.name(), &message))
    };
    if size < FOOTER + 4 {
        return broken(&format!("it has only {size} bytes"));
    }
    let mut footer = [0; FOOTER as usize];
    File::open(&file.path)
        .and_then(|opened| opened.read_exact_at(&mut footer, size - FOOTER))
        .map_err(|error| failed(&file.path, error))?;
    let (length, magic) = footer.split_at(4);
    if magic != b"PAR1" && magic != b"PARE" {
        return broken("it does not end as one; it may be truncated");
    }
    let length = length.try_into().map_or(u32::MAX, u32::from_le_bytes);
    if u64::from(length) > size - FOOTER {
        return broken("its footer is longer than the file");
    }
    Ok(())
}

/// The columns of each file, and their statistics.
pub(crate) async fn contents(
    state: &SessionState,
    files: &[ObjectMeta],
) -> Result<Vec<(SchemaRef, Statistics)>, FilesError> {
    let store: Arc<dyn ObjectStore> = Arc::new(PlaceStore);
    let format = ParquetFormat::default().with_options(TableParquetOptions {
        global: state.config_options().execution.parquet.clone(),
        ..TableParquetOptions::default()
    });
    let at_once = state
        .config_options()
        .execution
        .meta_fetch_concurrency
        .get();
    let contents = files
        .iter()
        .map(|meta| content(state, &store, &format, meta).boxed());
    let contents: Vec<BoxFuture<'_, _>> = contents.collect();
    let contents = futures::stream::iter(contents).buffered(at_once);
    contents.try_collect().await
}

async fn content(
    state: &SessionState,
    store: &Arc<dyn ObjectStore>,
    format: &ParquetFormat,
    meta: &ObjectMeta,
) -> Result<(SchemaRef, Statistics), FilesError> {
    let schema = format
        .infer_schema(state, store, std::slice::from_ref(meta))
        .await?;
    let statistics = format
        .infer_stats(state, store, SchemaRef::clone(&schema), meta)
        .await?;
    Ok((schema, statistics))
}

/// The columns of all files, by name, in the order in which they first come. A column that a file
/// lacks is NULL there.
///
/// # Errors
/// A column with types in two files that have no common type; names both.
pub(crate) fn union(files: &[Located], schemas: &[&SchemaRef]) -> Result<Vec<Field>, FilesError> {
    let mut columns: Vec<(Field, usize, usize)> = Vec::new();
    for (place, schema) in schemas.iter().enumerate() {
        for field in schema.fields() {
            let same = |(column, _, _): &&mut (Field, usize, usize)| column.name() == field.name();
            let Some((column, first, times)) = columns.iter_mut().find(same) else {
                columns.push((field.as_ref().clone(), place, 1));
                continue;
            };
            *times += 1;
            let Some(data_type) = common(column.data_type(), field.data_type()) else {
                let there = schemas[*first].field_with_name(field.name());
                let message = format!(
                    "column {} is {} in {} and {} here; name files with the same types, or read \
                     them by themselves and CAST",
                    field.name(),
                    sql_name(there.map_or(column.data_type(), Field::data_type)),
                    files[*first].name(),
                    sql_name(field.data_type()),
                );
                return Err(unreadable(&files[place].name(), &message));
            };
            let nullable = column.is_nullable() || field.is_nullable();
            *column = Field::new(field.name(), data_type, nullable)
                .with_metadata(column.metadata().clone());
        }
    }
    let columns = columns.into_iter().map(|(column, _, times)| {
        let nullable = column.is_nullable() || times < schemas.len();
        column.with_nullable(nullable)
    });
    Ok(columns.collect())
}

/// Whether values of a file keep what they are as those of a declared type. A fraction would lose its
/// part behind the point as an integer, without a word.
pub(crate) fn fits(found: &DataType, declared: &DataType) -> bool {
    let is_text = found.is_string() && declared.is_string();
    is_text || common(found, declared).as_ref() == Some(declared)
}

/// The type that values of both types fit.
fn common(a: &DataType, b: &DataType) -> Option<DataType> {
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (a, b) if a.is_numeric() && b.is_numeric() => binary_numeric_coercion(a, b),
        (a, b) if a.is_string() && b.is_string() => type_union_coercion(a, b),
        (a, b) if a.is_temporal() && b.is_temporal() => type_union_coercion(a, b),
        (DataType::Struct(a), DataType::Struct(b)) => {
            let mut fields: Vec<Field> = a.iter().map(|field| field.as_ref().clone()).collect();
            for other in b {
                match fields.iter_mut().find(|field| field.name() == other.name()) {
                    Some(field) => {
                        let data_type = common(field.data_type(), other.data_type())?;
                        *field = Field::new(field.name(), data_type, true);
                    }
                    None => fields.push(other.as_ref().clone().with_nullable(true)),
                }
            }
            Some(DataType::Struct(Fields::from(fields)))
        }
        (DataType::List(a), DataType::List(b)) => {
            let element = common(a.data_type(), b.data_type())?;
            let field = Field::new(a.name(), element, a.is_nullable() || b.is_nullable());
            Some(DataType::List(Arc::new(field)))
        }
        _ => None,
    }
}

/// The statistics of a file's columns as those of the columns of a table. Where their types differ
/// they say nothing.
pub(crate) fn statistics_of(file: &Schema, known: &Statistics, table: &Schema) -> Statistics {
    let mut statistics = Statistics::new_unknown(table);
    statistics.num_rows = known.num_rows;
    statistics.total_byte_size = known.total_byte_size;
    for (field, column) in table.fields().iter().zip(&mut statistics.column_statistics) {
        match file.column_with_name(field.name()) {
            Some((place, own)) if own.data_type() == field.data_type() => {
                if let Some(known) = known.column_statistics.get(place) {
                    *column = known.clone();
                }
                // Parquet leaves NaN out of bounds, and DataFusion 55.2 takes a column whose
                // bounds are equal for a constant.
                if field.data_type().is_floating() {
                    column.min_value = Precision::Absent;
                    column.max_value = Precision::Absent;
                    column.sum_value = Precision::Absent;
                }
            }
            Some(_) => {}
            None => {
                *column = ColumnStatistics {
                    null_count: known.num_rows,
                    ..ColumnStatistics::new_unknown()
                }
            }
        }
    }
    statistics
}
