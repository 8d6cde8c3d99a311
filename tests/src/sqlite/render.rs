//! Values as the dialect writes them.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use md5::{Digest, Md5};

use super::script::Order;

/// All values of a result, row by row.
///
/// # Errors
/// If the result has other columns than `types` says, or a value that is none of these.
pub(super) fn values(
    batches: &[RecordBatch],
    types: &[char],
    order: Order,
) -> Result<Vec<String>, String> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for batch in batches {
        if batch.num_columns() != types.len() {
            let (got, expected) = (batch.num_columns(), types.len());
            return Err(format!("{got} columns instead of {expected}"));
        }
        let columns = batch.columns().iter().zip(types);
        let columns = columns.map(|(column, of)| column_values(column, *of));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let of_row = |row: usize| columns.iter().map(|column| column[row].clone()).collect();
        rows.extend((0..batch.num_rows()).map(of_row));
    }
    if order == Order::Rows {
        rows.sort();
    }
    let mut values: Vec<String> = rows.into_iter().flatten().collect();
    if order == Order::Values {
        values.sort();
    }
    Ok(values)
}

fn column_values(column: &dyn Array, of: char) -> Result<Vec<String>, String> {
    let failed = |e| format!("a value of type {} as {of}: {e}", column.data_type());
    let is_text = matches!(
        column.data_type(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    let null = || "NULL".to_owned();
    Ok(match of {
        // The dialect writes the number that a text begins with.
        'I' if is_text => {
            let texts = cast(column, &DataType::Utf8).map_err(failed)?;
            let texts = texts.as_string::<i32>().iter();
            texts
                .map(|text| text.map_or_else(null, |text| leading_number(text).to_string()))
                .collect()
        }
        'I' => {
            let numbers = cast(column, &DataType::Int64).map_err(failed)?;
            let numbers = numbers.as_primitive::<Int64Type>().iter();
            numbers
                .map(|number| number.map_or_else(null, |number| number.to_string()))
                .collect()
        }
        'R' => {
            let numbers = cast(column, &DataType::Float64).map_err(failed)?;
            let numbers = numbers.as_primitive::<Float64Type>().iter();
            numbers
                .map(|number| number.map_or_else(null, |number| format!("{number:.3}")))
                .collect()
        }
        'T' => {
            let options = FormatOptions::default().with_null("NULL");
            let texts = ArrayFormatter::try_new(column, &options).map_err(failed)?;
            (0..column.len())
                .map(|row| match texts.value(row).to_string() {
                    empty if empty.is_empty() => "(empty)".to_owned(),
                    text => text
                        .chars()
                        .map(|c| if (' '..='~').contains(&c) { c } else { '@' })
                        .collect(),
                })
                .collect()
        }
        other => return Err(format!("no type {other}")),
    })
}

fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.trim_start_matches(['-', '+']);
    let sign = text.len() - digits.len();
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let end = sign + end.unwrap_or(digits.len());
    text[..end].parse().unwrap_or(0)
}

/// Number and hash of values.
pub(super) fn hashed(values: &[String]) -> String {
    let mut hash = Md5::new();
    for value in values {
        hash.update(value.as_bytes());
        hash.update(b"\n");
    }
    let digest: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{} values hashing to {digest}", values.len())
}

/// The first values, for people.
pub(super) fn shortened(values: &[String]) -> String {
    let first: Vec<&str> = values.iter().take(12).map(String::as_str).collect();
    first.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_the_lines() {
        let values = ["1", "NULL"].map(str::to_owned);
        // As `printf '1\nNULL\n' | md5sum` says.
        assert_eq!(
            hashed(&values),
            "2 values hashing to 2be67997a5f720286a651cc52b0cb9dd"
        );
    }

    #[test]
    fn a_text_in_a_column_of_integers_is_the_number_that_it_begins_with() {
        for (text, number) in [("12ab", 12), ("-7", -7), ("", 0), ("x1", 0), ("+3.9", 3)] {
            assert_eq!(leading_number(text), number, "{text}");
        }
    }
}
