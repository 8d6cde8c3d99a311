//! Types of columns: which values a column takes, and which types tables can hold.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::functions::math::expr_fn::round;
use datafusion::logical_expr::Expr;
use skewer_sql::sql_name;

use crate::error::Error;

/// What kinds of values there are, as far as assigning one to a column goes.
#[derive(PartialEq, Eq)]
enum Kind {
    Number,
    Boolean,
    Time,
    /// Text and NULL, which are read as whatever is wanted, and types with rules of their own.
    Any,
}

fn kind(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Boolean,
        t if t.is_numeric() => Kind::Number,
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..) => Kind::Time,
        DataType::Dictionary(_, value) => kind(value),
        _ => Kind::Any,
    }
}

/// Refuses to assign values to a column that could be cast to it and would hardly mean the same,
/// as dates to numbers.
pub(crate) fn must_be_assignable(column: &Field, from: &DataType) -> Result<(), Error> {
    let to = column.data_type();
    let is_text = |t: &DataType| t.is_string() || t.is_null();
    if kind(from) == kind(to) || is_text(from) || is_text(to) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "column {} is {} and its value is {}: write CAST(… AS {}) if that is meant",
        column.name(),
        sql_name(to),
        sql_name(from),
        sql_name(to)
    )))
}

/// What is cast to assign `value` to a column: fractions are rounded to whole numbers, where a
/// cast would drop them.
pub(crate) fn rounded(value: Expr, from: &DataType, to: &DataType) -> Expr {
    match to.is_integer() && (from.is_floating() || from.is_decimal()) {
        true => round(vec![value]),
        false => value,
    }
}

/// A column as tables keep it: encodings of a query's result are undone, NULL becomes text.
///
/// Errors name the column and the type that segments cannot hold.
pub(crate) fn storable(field: &Field, nullable: bool) -> Result<Field, Error> {
    let data_type = storable_type(field.data_type()).ok_or_else(|| {
        Error::Unsupported(format!(
            "column {} has type {}, which tables cannot hold; cast it to another",
            field.name(),
            sql_name(field.data_type())
        ))
    })?;
    Ok(Field::new(field.name(), data_type, nullable))
}

fn storable_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Null => DataType::Utf8View,
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, value) => storable_type(value)?,
        DataType::RunEndEncoded(_, value) => storable_type(value.data_type())?,
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) => {
            DataType::List(Arc::new(storable_item(item)?))
        }
        DataType::FixedSizeList(item, n) => {
            DataType::FixedSizeList(Arc::new(storable_item(item)?), *n)
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|f| storable_item(f))
                .collect::<Option<Vec<_>>>()?
                .into(),
        ),
        DataType::Interval(_) | DataType::Duration(_) | DataType::Union(..) => return None,
        other => other.clone(),
    })
}

fn storable_item(field: &Field) -> Option<Field> {
    let data_type = storable_type(field.data_type())?;
    Some(Field::new(field.name(), data_type, true))
}
