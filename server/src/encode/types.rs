//! Which PostgreSQL type a column has.

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use pgwire::api::Type;
use pgwire::messages::data::FieldDescription;

use super::{Format, canonical_type};

/// A type with its modifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PgType {
    pub(crate) kind: Type,
    /// Precision and scale of `numeric`; −1 for none.
    pub(crate) modifier: i32,
}

impl PgType {
    /// The type of a column; text where PostgreSQL has none for it.
    pub(crate) fn of_type(data_type: &DataType) -> Self {
        let plain = |kind| Self { kind, modifier: -1 };
        let Some(canonical) = canonical_type(data_type) else {
            return plain(Type::TEXT);
        };
        match canonical {
            DataType::Boolean => plain(Type::BOOL),
            DataType::Int16 => plain(Type::INT2),
            DataType::Int32 => plain(Type::INT4),
            DataType::Int64 => plain(Type::INT8),
            DataType::Float32 => plain(Type::FLOAT4),
            DataType::Float64 => plain(Type::FLOAT8),
            DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                Self {
                    kind: Type::NUMERIC,
                    modifier: numeric_modifier(precision, scale),
                }
            }
            DataType::Binary => plain(Type::BYTEA),
            DataType::Date32 => plain(Type::DATE),
            DataType::Time64(_) => plain(Type::TIME),
            DataType::Timestamp(_, None) => plain(Type::TIMESTAMP),
            DataType::Timestamp(_, Some(_)) => plain(Type::TIMESTAMPTZ),
            DataType::Interval(_) => plain(Type::INTERVAL),
            // Catalog queries make lists of oids so: PostgreSQL has no other unsigned numbers.
            DataType::List(item) if item.data_type() == &DataType::UInt32 => plain(Type::OID_ARRAY),
            DataType::List(item) => {
                let item = Self::of_type(item.data_type());
                Self {
                    kind: array_of(&item.kind),
                    modifier: item.modifier,
                }
            }
            _ => plain(Type::TEXT),
        }
    }

    /// Bytes that a value takes; −1 if they vary.
    pub(crate) fn size(&self) -> i16 {
        match self.kind {
            Type::BOOL => 1,
            Type::INT2 => 2,
            Type::INT4 | Type::FLOAT4 | Type::DATE => 4,
            Type::INT8 | Type::FLOAT8 | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => 8,
            Type::INTERVAL => 16,
            _ => -1,
        }
    }

    /// What RowDescription says of a column.
    pub(crate) fn field(field: &Field, format: Format) -> FieldDescription {
        let kind = Self::of_type(field.data_type());
        let code = match format {
            Format::Text => 0,
            Format::Binary => 1,
        };
        let oid = kind.kind.oid();
        FieldDescription::new(
            field.name().clone(),
            0,
            0,
            oid,
            kind.size(),
            kind.modifier,
            code,
        )
    }
}

/// The types of a result's columns.
pub(crate) fn kinds(schema: &Schema) -> Vec<Type> {
    let fields = schema.fields().iter();
    fields
        .map(|f| PgType::of_type(f.data_type()).kind)
        .collect()
}

/// Scales below 0 have no place in what older clients understand.
fn numeric_modifier(precision: u8, scale: i8) -> i32 {
    match u8::try_from(scale) {
        Ok(scale) => ((i32::from(precision) << 16) | i32::from(scale)) + 4,
        Err(_) => -1,
    }
}

fn array_of(item: &Type) -> Type {
    match *item {
        Type::BOOL => Type::BOOL_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::FLOAT4 => Type::FLOAT4_ARRAY,
        Type::FLOAT8 => Type::FLOAT8_ARRAY,
        Type::NUMERIC => Type::NUMERIC_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        Type::DATE => Type::DATE_ARRAY,
        Type::TIME => Type::TIME_ARRAY,
        Type::TIMESTAMP => Type::TIMESTAMP_ARRAY,
        Type::TIMESTAMPTZ => Type::TIMESTAMPTZ_ARRAY,
        Type::INTERVAL => Type::INTERVAL_ARRAY,
        _ => Type::TEXT_ARRAY,
    }
}
