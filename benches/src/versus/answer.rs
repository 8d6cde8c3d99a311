//! The rows of an answer, and whether two systems give the same.

use std::cmp::Ordering;
use std::fmt;
use std::fs::File;
use std::path::Path;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::BenchError;

/// The share of a number by which two floating-point answers may differ: systems add up in another order.
const TOLERANCE: f64 = 1e-7;

/// The steps by which a decimal may differ from another system's floating-point number: it may be a sum of quotients,
/// each of which was cut to a step.
const STEPS: f64 = 3.0;

/// One value. Types that only some systems have are text.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Whole(i128),
    /// A number, and the smallest step between two numbers of its type; 0 of floating-point numbers.
    Real {
        number: f64,
        step: f64,
    },
    Text(String),
}

impl Value {
    fn new(data_type: &DataType, text: String) -> Self {
        let whole = |text: &str| text.parse().ok().map(Self::Whole);
        let read = match data_type {
            DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0) => whole(&text),
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => text.parse().ok().map(|number| Self::Real {
                number,
                step: 10_f64.powi(-i32::from(*scale)),
            }),
            other if other.is_integer() => whole(&text),
            other if other.is_floating() => {
                let number = text.parse().ok();
                number.map(|number| Self::Real { number, step: 0.0 })
            }
            _ => None,
        };
        read.unwrap_or_else(|| {
            // One system's date is another system's midnight.
            let date = text.strip_suffix("T00:00:00");
            Self::Text(date.unwrap_or(&text).to_owned())
        })
    }

    fn is_inexact(&self) -> bool {
        matches!(self, Self::Real { .. })
    }

    /// The value as a number, and the step of its type.
    fn number(&self) -> Option<(f64, f64)> {
        match self {
            Self::Whole(number) => Some((*number as f64, 1.0)),
            Self::Real { number, step } => Some((*number, *step)),
            Self::Null | Self::Text(_) => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Whole(_) | Self::Real { .. } => 1,
            Self::Text(_) => 2,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some((a, _)), Some((b, _))) => a.total_cmp(&b),
                _ => self.rank().cmp(&other.rank()),
            },
        }
    }

    /// Whether two systems mean the same by these.
    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            _ => match (self.number(), other.number()) {
                (Some((a, step_a)), Some((b, step_b))) => {
                    let inexact = a.abs().max(b.abs()) * TOLERANCE;
                    // A system with decimals keeps steps where another has a floating-point number.
                    let rounded = match (self, other) {
                        (Self::Whole(_), _) | (_, Self::Whole(_)) => 0.0,
                        _ => step_a.max(step_b) * STEPS,
                    };
                    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= inexact.max(rounded)
                }
                _ => self == other,
            },
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real { number, .. } => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
        }
    }
}

/// The rows of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    rows: Vec<Vec<Value>>,
}

impl Answer {
    /// The rows of `batches`.
    ///
    /// # Errors
    /// If Arrow cannot show a value.
    pub fn new(batches: &[RecordBatch]) -> Result<Self, BenchError> {
        let options = FormatOptions::default().with_null("");
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter();
            let shown = columns
                .map(|column| ArrayFormatter::try_new(column, &options))
                .collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter().zip(&shown);
                let values = values.map(|(column, shown)| {
                    if column.is_null(row) {
                        Value::Null
                    } else {
                        Value::new(column.data_type(), shown.value(row).to_string())
                    }
                });
                rows.push(values.collect());
            }
        }
        Ok(Self { rows })
    }

    /// The rows in a file that [`write`] wrote, or DuckDB did; none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let file = File::open(path).map_err(BenchError::file(path))?;
        let batches = FileReader::try_new(file, None)?.collect::<Result<Vec<_>, _>>()?;
        Self::new(&batches)
    }

    /// What differs between two answers, if anything does. The order of rows counts if it `is_ordered`.
    pub fn difference(&self, other: &Self, is_ordered: bool) -> Option<String> {
        let (rows, others) = (self.rows.len(), other.rows.len());
        if rows != others {
            return Some(format!("{rows} rows and {others}"));
        }
        let (mut one, mut two) = (self.clone(), other.clone());
        if !is_ordered {
            let places = one.places(&two);
            one.sort_by(&places);
            two.sort_by(&places);
        }
        let pairs = one.rows.iter().zip(&two.rows).enumerate();
        for (row, (a, b)) in pairs {
            if a.len() != b.len() {
                return Some(format!("{} columns and {}", a.len(), b.len()));
            }
            let mut values = a.iter().zip(b).enumerate();
            if let Some((column, (a, b))) = values.find(|(_, (a, b))| !a.equals(b)) {
                return Some(format!("row {row}, column {column}: {a} and {b}"));
            }
        }
        None
    }

    /// The columns, those first that have no number which systems may round in another way.
    fn places(&self, other: &Self) -> Vec<usize> {
        let width = self.rows.first().map_or(0, Vec::len);
        let is_inexact = |place: &usize| {
            let mut rows = self.rows.iter().chain(&other.rows);
            rows.any(|row| row.get(*place).is_some_and(Value::is_inexact))
        };
        let (inexact, exact): (Vec<usize>, Vec<usize>) = (0..width).partition(is_inexact);
        exact.into_iter().chain(inexact).collect()
    }

    fn sort_by(&mut self, places: &[usize]) {
        self.rows.sort_by(|a, b| {
            let orders = places
                .iter()
                .map(|&place| match (a.get(place), b.get(place)) {
                    (Some(a), Some(b)) => a.order(b),
                    _ => Ordering::Equal,
                });
            orders.fold(Ordering::Equal, Ordering::then)
        });
    }
}

/// Writes an answer to a file; none if it has no rows.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, batches: &[RecordBatch]) -> Result<(), BenchError> {
    let Some(first) = batches.first() else {
        return Ok(());
    };
    let file = File::create(path).map_err(BenchError::file(path))?;
    let mut writer = FileWriter::try_new(file, &first.schema())?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray,
        StringViewArray,
    };

    use super::*;

    fn answer(columns: Vec<ArrayRef>) -> Answer {
        let names = ["a", "b", "c"];
        let batch = RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap();
        Answer::new(&[batch]).unwrap()
    }

    #[test]
    fn types_and_the_last_digits_may_differ() {
        let average = Decimal128Array::from(vec![Some(24_333), None])
            .with_precision_and_scale(20, 4)
            .unwrap();
        let one = answer(vec![
            Arc::new(Int64Array::from(vec![1, 2])),
            Arc::new(StringViewArray::from(vec!["x", "y"])),
            Arc::new(average),
        ]);
        let two = answer(vec![
            Arc::new(Int32Array::from(vec![2, 1])),
            Arc::new(StringArray::from(vec!["y", "x"])),
            Arc::new(Float64Array::from(vec![None, Some(2.433_333)])),
        ]);
        assert_eq!(one.difference(&two, false), None);
        assert!(one.difference(&two, true).is_some());
    }

    #[test]
    fn rows_with_equal_keys_are_told_apart_by_their_numbers() {
        let one = answer(vec![
            Arc::new(Float64Array::from(vec![2.0, 1.0])),
            Arc::new(StringArray::from(vec!["x", "x"])),
        ]);
        let two = answer(vec![
            Arc::new(Float64Array::from(vec![1.0 + 1e-12, 2.0])),
            Arc::new(StringArray::from(vec!["x", "x"])),
        ]);
        assert_eq!(one.difference(&two, false), None);
    }

    #[test]
    fn other_values_and_other_numbers_of_rows_are_differences() {
        let numbers = |values: Vec<Option<i64>>| answer(vec![Arc::new(Int64Array::from(values))]);
        let one = numbers(vec![Some(1), None]);
        for (two, told) in [
            (numbers(vec![Some(1)]), "2 rows and 1"),
            (
                numbers(vec![Some(1), Some(0)]),
                "row 0, column 0: NULL and 0",
            ),
            (numbers(vec![Some(2), None]), "row 1, column 0: 1 and 2"),
        ] {
            assert_eq!(one.difference(&two, false).unwrap(), told);
        }
        assert_eq!(one.difference(&one, true), None);
    }

    #[test]
    fn an_answer_comes_back_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answer");
        assert_eq!(Answer::read(&path).unwrap(), Answer::default());
        let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        write(&path, std::slice::from_ref(&batch)).unwrap();
        assert_eq!(Answer::read(&path).unwrap(), Answer::new(&[batch]).unwrap());
    }
}
