//! Properties of a record that its table's columns show.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Schema, TimeUnit};
use datafusion::common::Result;

use skewer_sql::quote::{identifier, literal};
use skewer_sql::row_ids::ROW_ID;

use super::round_thresholds;

/// Values longer than this many bytes are no categories.
const LONGEST_CATEGORY: usize = 60;

/// Columns that are looked at: a table of thousands would make the sample's query too large.
const COLUMNS: usize = 200;

/// A property of a record.
#[derive(Debug, Clone)]
pub(super) struct Feature {
    /// The column, as SQL names it.
    pub(super) column: String,
    pub(super) property: Property,
    /// Of the column.
    data_type: DataType,
}

/// What of a column's value is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Property {
    /// The number or time itself, by its order.
    Value,
    /// How long it is: the function that tells.
    Size(&'static str),
    /// Which value it is.
    Category,
    /// Whether there is one.
    Missing,
}

impl Feature {
    /// The properties of the columns of a table, without its row ids.
    pub(super) fn of_schema(schema: &Schema) -> Vec<Self> {
        let fields = schema.fields().iter();
        let fields = fields.filter(|field| field.name() != ROW_ID);
        fields
            .take(COLUMNS)
            .flat_map(|field| Self::of_column(field))
            .collect()
    }

    fn of_column(field: &Field) -> Vec<Self> {
        use Property::{Category, Missing, Size, Value};
        let properties: &[Property] = match field.data_type() {
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
            | DataType::Date32 => &[Value, Category, Missing],
            DataType::Float32 | DataType::Float64 | DataType::Timestamp(..) => &[Value, Missing],
            DataType::Boolean => &[Category, Missing],
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                &[Size("length"), Category, Missing]
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                &[Size("octet_length"), Missing]
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                &[Size("array_length"), Missing]
            }
            _ => &[Missing],
        };
        let properties = properties
            .iter()
            .filter(|p| **p != Missing || field.is_nullable());
        properties
            .map(|property| Self {
                column: identifier(field.name()),
                property: *property,
                data_type: field.data_type().clone(),
            })
            .collect()
    }

    /// The property of the column of `t`.
    pub(super) fn sql(&self) -> String {
        let column = format!("t.{}", self.column);
        match self.property {
            Property::Value => match self.data_type {
                // Microseconds are exact as a floating-point number.
                DataType::Timestamp(..) => {
                    let kind = DataType::Timestamp(TimeUnit::Microsecond, None);
                    format!("CAST(arrow_cast({column}, '{kind}') AS BIGINT)")
                }
                DataType::Date32 => format!("CAST(CAST({column} AS INT) AS BIGINT)"),
                _ => column,
            },
            Property::Size(function) => format!("{function}({column})"),
            Property::Category => match self.data_type {
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => format!(
                    "CASE WHEN octet_length({column}) <= {LONGEST_CATEGORY} THEN {column} END"
                ),
                _ => column,
            },
            Property::Missing => format!("{column} IS NULL"),
        }
    }

    /// The left side of a condition about the property, with a prefix of the column:
    /// `length(t.line)`.
    pub(super) fn subject(&self, prefix: &str) -> String {
        match self.property {
            Property::Size(function) => format!("{function}({prefix}{})", self.column),
            Property::Value | Property::Category | Property::Missing => {
                format!("{prefix}{}", self.column)
            }
        }
    }

    /// Its values in the answers' column `f{index}`: in order, or by what they are.
    pub(super) fn values(&self, answers: &[RecordBatch], index: usize) -> Result<Values> {
        let name = format!("f{index}");
        let columns: Vec<&dyn Array> = answers
            .iter()
            .filter_map(|batch| batch.column_by_name(&name))
            .map(|column| &**column)
            .collect();
        if columns.is_empty() {
            return Ok(Values::Categories(Vec::new()));
        }
        let column = concat(&columns)?;
        match self.property {
            Property::Value | Property::Size(_) => {
                let numbers: ArrayRef = cast(&column, &DataType::Float64)?;
                let numbers = numbers.as_primitive::<Float64Type>();
                let known = |n: Option<f64>| n.filter(|n| n.is_finite());
                Ok(Values::Ordered(numbers.iter().map(known).collect()))
            }
            Property::Category => {
                let texts: ArrayRef = cast(&column, &DataType::Utf8)?;
                let texts = texts.as_string::<i32>().iter();
                Ok(Values::Categories(
                    texts.map(|text| text.map(str::to_owned)).collect(),
                ))
            }
            Property::Missing => {
                let missing = column.as_boolean().iter();
                let missing = missing.map(|is| (is == Some(true)).then(String::new));
                Ok(Values::Categories(missing.collect()))
            }
        }
    }

    /// A category as a literal in SQL.
    pub(super) fn category(&self, value: &str) -> String {
        match self.data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => literal(value),
            DataType::Date32 => format!("DATE '{value}'"),
            _ => value.to_owned(),
        }
    }

    /// The most readable literal that is at least `from` and less than `to`, or, if `above` is
    /// false, more than `from` and at most `to`.
    pub(super) fn bound(&self, from: f64, to: f64, above: bool) -> String {
        match self.data_type {
            _ if matches!(self.property, Property::Size(_)) => {
                round_thresholds::whole(from, to, above).to_string()
            }
            DataType::Timestamp(_, ref zone) => {
                round_thresholds::timestamp(round_thresholds::time(from, to, above), zone.is_some())
            }
            DataType::Date32 => round_thresholds::date(round_thresholds::day(from, to, above)),
            DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => {
                round_thresholds::number(round_thresholds::round(from, to, above))
            }
            _ => round_thresholds::whole(from, to, above).to_string(),
        }
    }
}

/// The values of a property, one for each record of the sample.
#[derive(Debug)]
pub(super) enum Values {
    /// By their order.
    Ordered(Vec<Option<f64>>),
    /// By what they are.
    Categories(Vec<Option<String>>),
}
