//! JSON files as a source of DataFusion's.
//!
//! DataFusion's own takes the fraction of a number away where a column is of integers, and every
//! line break for the end of a record.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::ReaderBuilder;
use datafusion::arrow::json::reader::Decoder;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileOpenFuture, FileOpener, FileScanConfig, FileSource,
};
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_datasource::TableSchema;
use datafusion_datasource::projection::{ProjectionOpener, SplitProjection};
use futures::StreamExt;
use serde_json::Value;

use crate::json_file::ArrayItems;
use crate::place_store::path_of;
use skewer_sql::sql_name;

/// Rows of a batch that is read before anybody has said how many it shall have.
const BATCH: usize = 8192;

/// How the records of a file are written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JsonDialect {
    /// Whether they are the items of one array.
    pub(crate) array: bool,
    /// Whether objects and lists may be read as text.
    pub(crate) nested_text: bool,
    /// Whether a number may not fit its column: then it is read as text and cast.
    pub(crate) checked: bool,
}

/// Files of JSON objects.
#[derive(Debug, Clone)]
pub(crate) struct JsonFiles {
    dialect: JsonDialect,
    table_schema: TableSchema,
    projection: SplitProjection,
    batch_size: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl JsonFiles {
    pub(crate) fn new(dialect: JsonDialect, table_schema: TableSchema) -> Self {
        Self {
            dialect,
            projection: SplitProjection::unprojected(&table_schema),
            table_schema,
            batch_size: BATCH,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl FileSource for JsonFiles {
    fn create_file_opener(
        &self,
        _: Arc<dyn ObjectStore>,
        _: &FileScanConfig,
        _: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let file_schema = self.table_schema.file_schema();
        let opener = JsonOpener {
            dialect: self.dialect,
            schema: Arc::new(file_schema.project(&self.projection.file_indices)?),
            batch_size: self.batch_size,
        };
        ProjectionOpener::try_new(self.projection.clone(), Arc::new(opener), file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self {
            batch_size,
            ..self.clone()
        })
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let projection = self.projection.source.try_merge(projection)?;
        let file_schema = self.table_schema.file_schema();
        Ok(Some(Arc::new(Self {
            projection: SplitProjection::new(file_schema, &projection),
            ..self.clone()
        })))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        "json"
    }

    fn supports_repartitioning(&self) -> bool {
        // Parts of files begin where records do, which the table knows.
        false
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut roots = self.projection.source.iter();
        roots.try_fold(TreeNodeRecursion::Continue, |goes_on, root| match goes_on {
            TreeNodeRecursion::Stop => Ok(TreeNodeRecursion::Stop),
            _ => f(&root.expr),
        })
    }
}

struct JsonOpener {
    dialect: JsonDialect,
    schema: SchemaRef,
    batch_size: usize,
}

impl FileOpener for JsonOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let path = path_of(&file.object_meta.location);
        let part = file
            .range
            .map(|range| (range.start as u64, range.end as u64));
        let schema = SchemaRef::clone(&self.schema);
        let (dialect, batch_size) = (self.dialect, self.batch_size);
        Ok(Box::pin(async move {
            let text = open(&path, part, dialect)?;
            let records = Records::new(text, schema, dialect, batch_size)?;
            let batches = records.map(|batch| batch.map_err(DataFusionError::from));
            Ok(futures::stream::iter(batches).boxed())
        }))
    }
}

/// The records of a file, or of a part of it, as they follow each other.
pub(crate) fn open(
    path: &Path,
    part: Option<(u64, u64)>,
    dialect: JsonDialect,
) -> std::io::Result<Box<dyn BufRead + Send>> {
    let mut file = File::open(path)?;
    if let Some((start, end)) = part {
        file.seek(SeekFrom::Start(start))?;
        return Ok(Box::new(BufReader::with_capacity(
            256 << 10,
            file.take(end - start),
        )));
    }
    let whole = BufReader::with_capacity(256 << 10, file);
    Ok(match dialect.array {
        true => Box::new(BufReader::with_capacity(256 << 10, ArrayItems::new(whole))),
        false => Box::new(whole),
    })
}

/// Records as batches.
pub(crate) struct Records<R> {
    text: R,
    decoder: Decoder,
    /// The columns, and the types that they are decoded as.
    schema: SchemaRef,
    decoded: SchemaRef,
    nested_text: bool,
    batch_size: usize,
    done: bool,
}

impl<R: BufRead> Records<R> {
    /// # Errors
    /// A type that JSON cannot be read as.
    pub(crate) fn new(
        text: R,
        schema: SchemaRef,
        dialect: JsonDialect,
        batch_size: usize,
    ) -> Result<Self, ArrowError> {
        let decoded = match dialect.checked {
            true => Arc::new(Schema::new(as_text(schema.fields()))),
            false => SchemaRef::clone(&schema),
        };
        let decoder = ReaderBuilder::new(SchemaRef::clone(&decoded))
            .with_batch_size(batch_size)
            .with_coerce_primitive(true)
            .build_decoder()?;
        Ok(Self {
            text,
            decoder,
            schema,
            decoded,
            nested_text: dialect.nested_text,
            batch_size,
            done: false,
        })
    }

    /// What has not been read yet.
    pub(crate) fn text(&mut self) -> &mut R {
        &mut self.text
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        match self.nested_text {
            true => self.decode_values()?,
            false => loop {
                let bytes = self.text.fill_buf()?;
                if bytes.is_empty() {
                    break;
                }
                let decoded = self.decoder.decode(bytes)?;
                let length = bytes.len();
                self.text.consume(decoded);
                if decoded != length {
                    break;
                }
            },
        }
        let batch = self.decoder.flush()?;
        batch.map(|batch| self.checked(batch)).transpose()
    }

    /// Decodes as many records as a batch has, value by value.
    fn decode_values(&mut self) -> Result<(), ArrowError> {
        let mut records = Vec::new();
        let mut values = serde_json::Deserializer::from_reader(&mut self.text).into_iter::<Value>();
        for value in values.by_ref().take(self.batch_size) {
            let mut value = value.map_err(|error| ArrowError::JsonError(error.to_string()))?;
            if let Value::Object(entries) = &mut value {
                for field in self.decoded.fields() {
                    if let Some(value) = entries.get_mut(field.name()) {
                        nested_to_text(value, field.data_type());
                    }
                }
            }
            records.push(value);
        }
        self.decoder.serialize(&records)
    }

    /// The columns with their types.
    fn checked(&self, batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
        if self.decoded == self.schema {
            return Ok(batch);
        }
        let columns = self.schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, column)| typed(column, field));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = datafusion::arrow::array::RecordBatchOptions::new()
            .with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(SchemaRef::clone(&self.schema), columns, &options)
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let read = self.read().transpose();
        self.done = !matches!(read, Some(Ok(_)));
        read
    }
}

/// Objects and lists as text, where the type is text.
fn nested_to_text(value: &mut Value, data_type: &DataType) {
    match (&mut *value, data_type) {
        (Value::Object(_) | Value::Array(_), DataType::Utf8) => {
            *value = Value::String(value.to_string());
        }
        (Value::Object(entries), DataType::Struct(fields)) => {
            for field in fields {
                if let Some(value) = entries.get_mut(field.name()) {
                    nested_to_text(value, field.data_type());
                }
            }
        }
        (Value::Array(values), DataType::List(element)) => {
            for value in values {
                nested_to_text(value, element.data_type());
            }
        }
        _ => {}
    }
}

/// The columns with text in place of integers.
fn as_text(fields: &Fields) -> Fields {
    let text = |field: &FieldRef| match field.data_type() {
        data_type if data_type.is_integer() => Arc::new(Field::new(
            field.name(),
            DataType::Utf8,
            field.is_nullable(),
        )),
        DataType::List(element) => {
            let element = as_text(&Fields::from(vec![Arc::clone(element)]));
            let list = DataType::List(Arc::clone(&element[0]));
            Arc::new(field.as_ref().clone().with_data_type(list))
        }
        DataType::Struct(fields) => {
            let fields = DataType::Struct(as_text(fields));
            Arc::new(field.as_ref().clone().with_data_type(fields))
        }
        _ => Arc::clone(field),
    };
    fields.iter().map(text).collect()
}

/// A column of texts as what they stand for.
///
/// # Errors
/// A value that is none, as a fraction in a column of integers.
fn typed(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let wanted = field.data_type();
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    let cast = |safe: bool, column: &ArrayRef| {
        let options = CastOptions {
            safe,
            ..CastOptions::default()
        };
        cast_with_options(column, wanted, &options)
    };
    let Some(texts) = column.as_string_opt::<i32>() else {
        return cast(false, column);
    };
    let numbers = cast(true, column)?;
    if numbers.null_count() == texts.null_count() {
        return Ok(numbers);
    }
    // 1.0 and 1e3 are whole numbers, too.
    let whole = texts.iter().map(|text| {
        text.map(|text| {
            whole_number(text).ok_or_else(|| {
                ArrowError::JsonError(format!(
                    "'{text}' in column {} is not {}",
                    field.name(),
                    sql_name(wanted)
                ))
            })
        })
        .transpose()
    });
    let whole: ArrayRef = Arc::new(whole.collect::<Result<StringArray, _>>()?);
    cast(true, &whole)?
        .nulls()
        .into_iter()
        .flat_map(|nulls| (0..nulls.len()).filter(|row| nulls.is_null(*row)))
        .find(|row| texts.is_valid(*row))
        .map_or_else(
            || cast(true, &whole),
            |row| {
                Err(ArrowError::JsonError(format!(
                    "'{}' in column {} is not {}",
                    texts.value(row),
                    field.name(),
                    sql_name(wanted)
                )))
            },
        )
}

/// A number as an integer: `12`, `1.0`, `1e3`. `None` if it is none, or longer than any type has.
fn whole_number(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{part}");
    if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let point = whole.len() as i32 + exponent;
    let significant = all.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    if point < significant.len() as i32 || point > 40 {
        return None;
    }
    let width = point as usize;
    let digits = match all.len() >= width {
        true => all[..width].to_owned(),
        false => format!("{all:0<width$}"),
    };
    Some(format!("{sign}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_those_without_a_fraction() {
        for (text, whole) in [
            ("12", Some("12")),
            ("-1.0", Some("-1")),
            ("1e3", Some("1000")),
            ("1.25e2", Some("125")),
            ("100e-2", Some("1")),
            ("0.0", Some("0")),
            ("0.5", None),
            ("1e-1", None),
            ("1e99", None),
            ("two", None),
            ("true", None),
            ("", None),
        ] {
            assert_eq!(whole_number(text).as_deref(), whole, "{text}");
        }
    }
}
