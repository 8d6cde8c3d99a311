//! Rows as Rust values: [`Session::query_as`].

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;

use crate::error::Error;
use crate::session::Session;

/// A value that a cell of a result can become.
///
/// | Rust | SQL |
/// |---|---|
/// | `i8` to `i64`, `u8` to `u64` | any integer that fits |
/// | `f32`, `f64` | any number |
/// | `bool` | `BOOLEAN` |
/// | `String` | text; dates, times, intervals and decimals as text |
/// | `Vec<u8>` | `BYTEA` |
/// | `Option<T>` | NULL or a `T` |
/// | [`ScalarValue`] | anything |
pub trait FromValue: Sized {
    /// Converts a cell.
    ///
    /// # Errors
    /// Why the value is no such Rust value.
    fn from_value(value: ScalarValue) -> Result<Self, String>;
}

/// A row that becomes a Rust value: a tuple of [`FromValue`].
pub trait FromRow: Sized {
    /// How many columns it has.
    const COLUMNS: usize;

    /// Converts a row of a batch.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the column whose value does not fit.
    fn from_row(batch: &RecordBatch, row: usize) -> Result<Self, Error>;
}

impl FromValue for ScalarValue {
    fn from_value(value: ScalarValue) -> Result<Self, String> {
        Ok(value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: ScalarValue) -> Result<Self, String> {
        if value.is_null() {
            return Ok(None);
        }
        T::from_value(value).map(Some)
    }
}

fn mismatch(value: &ScalarValue, wanted: &str) -> String {
    if value.is_null() {
        return format!("is NULL; read it as Option<{wanted}>");
    }
    format!("has the value {value}, which is no {wanted}")
}

macro_rules! integers {
    ($($rust:ty => $variant:ident),*) => {$(
        impl FromValue for $rust {
            fn from_value(value: ScalarValue) -> Result<Self, String> {
                let is_integer = value.data_type().is_integer();
                let cast = value.cast_to(&DataType::$variant).ok().filter(|_| is_integer);
                match cast {
                    Some(ScalarValue::$variant(Some(number))) => Ok(number),
                    _ => Err(mismatch(&value, stringify!($rust))),
                }
            }
        }
    )*};
}

integers!(
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64
);

macro_rules! floats {
    ($($rust:ty => $variant:ident),*) => {$(
        impl FromValue for $rust {
            fn from_value(value: ScalarValue) -> Result<Self, String> {
                let is_numeric = value.data_type().is_numeric();
                let cast = value.cast_to(&DataType::$variant).ok().filter(|_| is_numeric);
                match cast {
                    Some(ScalarValue::$variant(Some(number))) => Ok(number),
                    _ => Err(mismatch(&value, stringify!($rust))),
                }
            }
        }
    )*};
}

floats!(f32 => Float32, f64 => Float64);

impl FromValue for bool {
    fn from_value(value: ScalarValue) -> Result<Self, String> {
        match value {
            ScalarValue::Boolean(Some(is)) => Ok(is),
            other => Err(mismatch(&other, "bool")),
        }
    }
}

impl FromValue for String {
    fn from_value(value: ScalarValue) -> Result<Self, String> {
        if let Some(Some(text)) = value.try_as_str() {
            return Ok(text.to_owned());
        }
        let kind = value.data_type();
        let is_text = kind.is_temporal()
            || matches!(
                kind,
                DataType::Decimal128(..) | DataType::Decimal256(..) | DataType::Interval(_)
            );
        if value.is_null() || !is_text {
            return Err(mismatch(&value, "String"));
        }
        let text = value.to_array().map_err(|error| error.to_string())?;
        let options = FormatOptions::default();
        let text = ArrayFormatter::try_new(&text, &options).map(|text| text.value(0).to_string());
        text.map_err(|error| error.to_string())
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: ScalarValue) -> Result<Self, String> {
        match value {
            ScalarValue::Binary(Some(bytes))
            | ScalarValue::LargeBinary(Some(bytes))
            | ScalarValue::BinaryView(Some(bytes))
            | ScalarValue::FixedSizeBinary(_, Some(bytes)) => Ok(bytes),
            other => Err(mismatch(&other, "Vec<u8>")),
        }
    }
}

fn cell<T: FromValue>(batch: &RecordBatch, column: usize, row: usize) -> Result<T, Error> {
    let value = ScalarValue::try_from_array(batch.column(column), row)?;
    T::from_value(value).map_err(|reason| {
        let schema = batch.schema();
        let name = schema.field(column).name();
        Error::Invalid(format!("column {name} of row {} {reason}", row + 1))
    })
}

macro_rules! tuples {
    ($(($count:literal: $($name:ident $index:literal),+)),*) => {$(
        impl<$($name: FromValue),+> FromRow for ($($name,)+) {
            const COLUMNS: usize = $count;

            fn from_row(batch: &RecordBatch, row: usize) -> Result<Self, Error> {
                Ok(($(cell::<$name>(batch, $index, row)?,)+))
            }
        }
    )*};
}

tuples!(
    (1: A 0),
    (2: A 0, B 1),
    (3: A 0, B 1, C 2),
    (4: A 0, B 1, C 2, D 3),
    (5: A 0, B 1, C 2, D 3, E 4),
    (6: A 0, B 1, C 2, D 3, E 4, F 5),
    (7: A 0, B 1, C 2, D 3, E 4, F 5, G 6),
    (8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7),
    (9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8),
    (10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9),
    (11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10),
    (12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
);

/// Converts all rows of a result.
///
/// # Errors
/// If the result has another number of columns, or a value does not fit.
pub(crate) fn from_batches<T: FromRow>(batches: &[RecordBatch]) -> Result<Vec<T>, Error> {
    let mut rows = Vec::new();
    for batch in batches {
        if batch.num_columns() != T::COLUMNS {
            return Err(Error::Invalid(format!(
                "the result has {} columns, and rows of {} were wanted",
                batch.num_columns(),
                T::COLUMNS
            )));
        }
        for row in 0..batch.num_rows() {
            rows.push(T::from_row(batch, row)?);
        }
    }
    Ok(rows)
}

/// Values for the parameters `$1`, `$2`, … of a statement, from Rust values.
///
/// ```
/// let values = skewer::params![7, "seven", None::<f64>];
/// assert_eq!(values.len(), 3);
/// ```
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        [$($crate::datafusion::common::ScalarValue::from($value)),*]
    };
}

impl Session {
    /// Runs a query and converts its rows to tuples.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t AS VALUES (1, 'one'), (2, NULL)").await?;
    /// let rows: Vec<(i64, Option<String>)> = session.query_as("SELECT * FROM t ORDER BY 1").await?;
    /// assert_eq!(rows, [(1, Some("one".to_owned())), (2, None)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`sql`](Self::sql); [`Error::Invalid`] if the result has another number of
    /// columns, or a value does not fit.
    pub async fn query_as<T: FromRow>(&self, sql: &str) -> Result<Vec<T>, Error> {
        from_batches(&self.sql(sql).await?.collect().await?)
    }

    /// Runs a query with values for its parameters, and converts its rows to tuples.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::in_memory()?.session();
    /// let sql = "SELECT $1 || '!', $2 * 2";
    /// let rows: Vec<(String, i64)> = session.query_as_with(sql, &skewer::params!["hi", 21]).await?;
    /// assert_eq!(rows, [("hi!".to_owned(), 42)]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`sql_with`](Self::sql_with) and [`query_as`](Self::query_as).
    pub async fn query_as_with<T: FromRow>(
        &self,
        sql: &str,
        values: &[ScalarValue],
    ) -> Result<Vec<T>, Error> {
        from_batches(&self.sql_with(sql, values).await?.collect().await?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::*;

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([
            (
                "a",
                Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef,
                true,
            ),
            (
                "b",
                Arc::new(StringViewArray::from(vec!["one", "two"])) as ArrayRef,
                true,
            ),
        ])
        .unwrap()
    }

    #[test]
    fn rows_become_tuples() {
        let rows: Vec<(Option<i32>, String)> = from_batches(&[batch()]).unwrap();
        assert_eq!(
            rows,
            [(Some(1), "one".to_owned()), (None, "two".to_owned())]
        );
        let rows: Vec<(Option<f64>, ScalarValue)> = from_batches(&[batch()]).unwrap();
        assert_eq!(rows[0].0, Some(1.0));
    }

    #[test]
    fn what_does_not_fit_names_its_column() {
        let wrong = |error: Error| error.to_string();
        let error = wrong(from_batches::<(i64, String)>(&[batch()]).unwrap_err());
        assert!(
            error.contains("column a of row 2 is NULL; read it as Option<i64>"),
            "{error}"
        );
        let error = wrong(from_batches::<(Option<i64>, i64)>(&[batch()]).unwrap_err());
        assert!(
            error.contains("column b of row 1 has the value one, which is no i64"),
            "{error}"
        );
        let error = wrong(from_batches::<(i64,)>(&[batch()]).unwrap_err());
        assert!(error.contains("2 columns, and rows of 1"), "{error}");
        let big =
            RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![300])) as ArrayRef)]);
        let error = wrong(from_batches::<(u8,)>(&[big.unwrap()]).unwrap_err());
        assert!(error.contains("which is no u8"), "{error}");
    }
}
