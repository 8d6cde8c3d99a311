//! Values as text, for the formats that are made of text.

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// A space instead of ISO 8601's T, as SQL writes timestamps; fractions only if there are any.
const OPTIONS: FormatOptions<'static> = FormatOptions::new()
    // Within lists and structs; a cell that is NULL is the format's own matter.
    .with_null("NULL")
    .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
    .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"))
    .with_datetime_format(Some("%Y-%m-%d %H:%M:%S%.f"));

/// Formatters for the columns of one batch.
pub struct Cells<'a> {
    columns: Vec<(&'a dyn Array, ArrayFormatter<'a>)>,
}

impl<'a> Cells<'a> {
    /// Fails for a type that has no text form.
    pub fn new(batch: &'a RecordBatch) -> Result<Cells<'a>, ArrowError> {
        let columns = batch.columns().iter().map(|column| {
            let array: &dyn Array = column.as_ref();
            Ok((array, ArrayFormatter::try_new(array, &OPTIONS)?))
        });
        Ok(Cells {
            columns: columns.collect::<Result<_, ArrowError>>()?,
        })
    }

    /// The value's text; `None` is NULL.
    pub fn get(&self, column: usize, row: usize) -> Result<Option<String>, ArrowError> {
        let (array, formatter) = &self.columns[column];
        // A column that is NULL throughout may have a type without a bitmap of NULLs.
        if array.is_null(row) || array.data_type().is_null() {
            return Ok(None);
        }
        formatter.value(row).try_to_string().map(Some)
    }
}

/// Whether values of the type are aligned to the right.
pub fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// The type's name in SQL, for the header of a table.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "null".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Int8 => "tinyint".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "int".into(),
        DataType::Int64 => "bigint".into(),
        DataType::UInt8 => "tinyint unsigned".into(),
        DataType::UInt16 => "smallint unsigned".into(),
        DataType::UInt32 => "int unsigned".into(),
        DataType::UInt64 => "bigint unsigned".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "varchar".into(),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "binary".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time".into(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => "(0)",
                TimeUnit::Millisecond => "(3)",
                TimeUnit::Microsecond => "(6)",
                TimeUnit::Nanosecond => "",
            };
            let zone = if zone.is_some() { "tz" } else { "" };
            format!("timestamp{zone}{digits}")
        }
        DataType::Interval(_) | DataType::Duration(_) => "interval".into(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => format!("{}[]", type_name(field.data_type())),
        DataType::Dictionary(_, value) => type_name(value),
        DataType::RunEndEncoded(_, value) => type_name(value.data_type()),
        DataType::Struct(_) => "struct".into(),
        DataType::Map(_, _) => "map".into(),
        DataType::Union(_, _) => "union".into(),
    }
}
