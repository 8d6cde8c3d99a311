//! SQL names of Arrow types.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};

/// The SQL name of a type; Arrow's where SQL has none.
pub fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INTEGER".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::UInt8 => "TINYINT UNSIGNED".to_owned(),
        DataType::UInt16 => "SMALLINT UNSIGNED".to_owned(),
        DataType::UInt32 => "INT UNSIGNED".to_owned(),
        DataType::UInt64 => "BIGINT UNSIGNED".to_owned(),
        DataType::Float32 => "REAL".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".to_owned(),
        DataType::Date32 => "DATE".to_owned(),
        DataType::Time64(TimeUnit::Nanosecond) => "TIME".to_owned(),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP".to_owned(),
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => "(0)",
                TimeUnit::Millisecond => "(3)",
                TimeUnit::Microsecond => "(6)",
                TimeUnit::Nanosecond => "",
            };
            let zone = if zone.is_some() {
                " WITH TIME ZONE"
            } else {
                ""
            };
            format!("TIMESTAMP{digits}{zone}")
        }
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            format!("DECIMAL({precision}, {scale})")
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => "INTERVAL".to_owned(),
        DataType::List(field) | DataType::LargeList(field) => {
            format!("{}[]", sql_name(field.data_type()))
        }
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|f| format!("{} {}", f.name(), sql_name(f.data_type())))
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        other => other.to_string(),
    }
}
