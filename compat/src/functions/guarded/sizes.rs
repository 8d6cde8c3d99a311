//! How large results will be.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

/// Bytes of an element of a list: what is made on the way to it has a number for each.
const ELEMENT: u128 = 8;

/// How a function's arguments say how large its results are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sizes {
    /// `repeat(text, times)`
    Repeated,
    /// `lpad(text, length, padding)`
    Padded,
    /// `concat(text, …)`
    Joined,
    /// `concat_ws(between, text, …)`
    JoinedWith,
    /// `replace(text, from, to)`
    Replaced,
    /// `array_repeat(element, times)`
    ListRepeated,
    /// `array_resize(list, length, element)`
    ListResized,
    /// `range(start, end, step)`
    Series,
    /// `array_to_string(list, between)`
    ListJoined,
}

impl Sizes {
    /// Of the function with this name.
    pub(super) fn of_function(name: &str) -> Option<Self> {
        Some(match name {
            "repeat" => Self::Repeated,
            "lpad" | "rpad" => Self::Padded,
            "concat" => Self::Joined,
            "concat_ws" => Self::JoinedWith,
            "replace" => Self::Replaced,
            "array_repeat" => Self::ListRepeated,
            "array_resize" => Self::ListResized,
            "range" | "generate_series" => Self::Series,
            "array_to_string" => Self::ListJoined,
            _ => return None,
        })
    }

    /// What the function makes.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::ListRepeated | Self::ListResized | Self::Series => "lists",
            _ => "texts",
        }
    }

    /// At least as many bytes as the results for these arguments have, or 0 if the function has to say
    /// itself what is wrong with them.
    pub(super) fn bytes(self, args: &[ColumnarValue], rows: usize) -> u128 {
        match (self, args) {
            (Self::Repeated, [text, times]) => {
                let (text, times) = (Column::of_value(text), Column::of_value(times));
                sum(rows, |row| {
                    text.length(row).saturating_mul(times.count(row))
                })
            }
            (Self::Padded, [text, length, padding @ ..]) => {
                let (text, length) = (Column::of_value(text), Column::of_value(length));
                let padding = padding.first().map(Column::of_value);
                let characters = sum(rows, |row| length.count(row).max(text.length(row)));
                match characters.saturating_mul(4) > super::LARGEST
                    && padding.as_ref().is_none_or(Column::is_ascii)
                    && text.is_ascii()
                {
                    true => characters,
                    false => characters.saturating_mul(4),
                }
            }
            (Self::Joined, texts) => {
                let texts: Vec<_> = texts.iter().map(Column::of_value).collect();
                sum(rows, |row| total(&texts, row))
            }
            (Self::JoinedWith, [between, texts @ ..]) => {
                let between = Column::of_value(between);
                let texts: Vec<_> = texts.iter().map(Column::of_value).collect();
                let times = texts.len() as u128;
                sum(rows, |row| {
                    let betweens = between.length(row).saturating_mul(times);
                    total(&texts, row).saturating_add(betweens)
                })
            }
            (Self::Replaced, [text, from, to]) => replaced(
                &Column::of_value(text),
                &Column::of_value(from),
                &Column::of_value(to),
                rows,
            ),
            (Self::ListRepeated, [element, times]) => {
                let (element, times) = (Column::of_value(element), Column::of_value(times));
                sum(rows, |row| {
                    let bytes = element.length(row).saturating_add(ELEMENT);
                    bytes.saturating_mul(times.count(row))
                })
            }
            (Self::ListResized, [_, length, element @ ..]) => {
                let length = Column::of_value(length);
                let element = element.first().map(Column::of_value);
                sum(rows, |row| {
                    let bytes = element.as_ref().map_or(0, |element| element.length(row));
                    bytes
                        .saturating_add(ELEMENT)
                        .saturating_mul(length.count(row))
                })
            }
            (Self::Series, bounds) => {
                let bounds: Vec<_> = bounds.iter().map(Column::of_value).collect();
                sum(rows, |row| elements(&bounds, row).saturating_mul(ELEMENT))
            }
            (Self::ListJoined, [list, between, nulls @ ..]) => {
                let (list, between) = (Column::of_value(list), Column::of_value(between));
                let nulls = nulls.first().map(Column::of_value);
                sum(rows, |row| {
                    let nulls = nulls.as_ref().map_or(0, |nulls| nulls.length(row));
                    let each = between.length(row).saturating_add(nulls);
                    list.length(row).saturating_mul(each)
                })
            }
            _ => 0,
        }
    }
}

/// An argument, whose values are looked at one by one.
enum Column<'a> {
    Scalar(&'a ScalarValue),
    Array(&'a ArrayRef),
}

impl<'a> Column<'a> {
    fn of_value(value: &'a ColumnarValue) -> Self {
        match value {
            ColumnarValue::Scalar(scalar) => Self::Scalar(scalar),
            ColumnarValue::Array(array) => Self::Array(array),
        }
    }

    /// Bytes of a text, elements of a list, and 0 of anything else.
    fn length(&self, row: usize) -> u128 {
        match self {
            Self::Scalar(ScalarValue::List(list)) => list.value_length(0) as u128,
            Self::Scalar(ScalarValue::LargeList(list)) => list.value_length(0) as u128,
            Self::Scalar(scalar) => match scalar.try_as_str() {
                Some(text) => text.map_or(0, str::len) as u128,
                None => 0,
            },
            Self::Array(array) if array.is_null(row) => 0,
            Self::Array(array) => match array.data_type() {
                DataType::List(_) => array.as_list::<i32>().value_length(row) as u128,
                DataType::LargeList(_) => array.as_list::<i64>().value_length(row) as u128,
                _ => self.text(row).map_or(0, str::len) as u128,
            },
        }
    }

    fn text(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Scalar(scalar) => scalar.try_as_str().flatten(),
            Self::Array(array) if array.is_null(row) => None,
            Self::Array(array) => match array.data_type() {
                DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
                DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
                DataType::Utf8View => Some(array.as_string_view().value(row)),
                _ => None,
            },
        }
    }

    fn is_ascii(&self) -> bool {
        match self {
            Self::Scalar(scalar) => scalar.try_as_str().flatten().is_none_or(str::is_ascii),
            Self::Array(array) => match array.data_type() {
                DataType::Utf8 => array.as_string::<i32>().is_ascii(),
                DataType::LargeUtf8 => array.as_string::<i64>().is_ascii(),
                DataType::Utf8View => array.as_string_view().is_ascii(),
                _ => false,
            },
        }
    }

    fn integer(&self, row: usize) -> Option<i64> {
        match self {
            Self::Scalar(ScalarValue::Int64(integer)) => *integer,
            Self::Array(array) if array.is_valid(row) => {
                let integers = array.as_primitive_opt::<Int64Type>()?;
                Some(integers.value(row))
            }
            _ => None,
        }
    }

    /// An integer that counts: nothing if it is negative or NULL.
    fn count(&self, row: usize) -> u128 {
        let integer = self.integer(row).unwrap_or(0);
        u128::try_from(integer).unwrap_or(0)
    }
}

fn sum(rows: usize, bytes: impl Fn(usize) -> u128) -> u128 {
    (0..rows).fold(0_u128, |sum, row| sum.saturating_add(bytes(row)))
}

fn total(texts: &[Column<'_>], row: usize) -> u128 {
    texts.iter().map(|text| text.length(row)).sum()
}

/// Bytes of texts in which `to` stands where `from` did: first as if all of a text were occurrences of it.
fn replaced(text: &Column<'_>, from: &Column<'_>, to: &Column<'_>, rows: usize) -> u128 {
    let at_most = sum(rows, |row| {
        let length = text.length(row);
        let times = length / from.length(row).max(1) + 1;
        length.saturating_add(times.saturating_mul(to.length(row)))
    });
    if at_most <= super::LARGEST {
        return at_most;
    }
    sum(rows, |row| {
        let (Some(text), Some(from)) = (text.text(row), from.text(row)) else {
            return 0;
        };
        let times = text.matches(from).count() as u128;
        let left = (text.len() as u128).saturating_sub(times * from.len() as u128);
        left.saturating_add(times.saturating_mul(to.length(row)))
    })
}

/// How many elements are between integers; 0 for times, which end soon enough.
fn elements(bounds: &[Column<'_>], row: usize) -> u128 {
    let (start, end, step) = match bounds {
        [end] => (Some(0), end.integer(row), Some(1)),
        [start, end] => (start.integer(row), end.integer(row), Some(1)),
        [start, end, step] => (start.integer(row), end.integer(row), step.integer(row)),
        _ => return 0,
    };
    let (Some(start), Some(end), Some(step)) = (start, end, step) else {
        return 0;
    };
    let backwards = step < 0;
    match step {
        0 => 0,
        _ if backwards != (end < start) && start != end => 0,
        _ => u128::from(start.abs_diff(end) / step.unsigned_abs()) + 1,
    }
}
