//! Functions that are slow for one record, known to the master and to workers that are processes of
//! their own.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use skewer::Functions;

/// What one record takes; so long that a busy machine cannot matter.
pub const DELAY: Duration = Duration::from_millis(60);

/// A function of whole columns: `(record, value, delayed)` is the value, [`DELAY`] later for the
/// one record that is to be delayed.
pub const OF_COLUMNS: &str = "checked_columns";

/// The same as a function of one row.
pub const OF_ROWS: &str = "checked_row";

/// Both.
pub fn functions() -> Functions {
    let of_columns = create_udf(
        OF_COLUMNS,
        vec![DataType::Int64; 3],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|arguments| {
            let columns = ColumnarValue::values_to_arrays(arguments)?;
            let [records, values, delayed] = [0, 1, 2].map(|at| {
                let column = columns[at].as_primitive::<Int64Type>();
                column.iter()
            });
            let rows = records.zip(values).zip(delayed);
            let values: Int64Array = rows
                .map(|((record, value), delayed)| {
                    wait_if(record == delayed);
                    value
                })
                .collect();
            Ok(ColumnarValue::Array(Arc::new(values) as ArrayRef))
        }),
    );
    Functions::new().with_udf(of_columns).with_row_udf(
        OF_ROWS,
        vec![DataType::Int64; 3],
        DataType::Int64,
        Volatility::Immutable,
        |row| {
            let [
                ScalarValue::Int64(record),
                value,
                ScalarValue::Int64(delayed),
            ] = row
            else {
                return Ok(ScalarValue::Int64(None));
            };
            wait_if(record == delayed);
            Ok(value.clone())
        },
    )
}

fn wait_if(delayed: bool) {
    if delayed {
        std::thread::sleep(DELAY);
    }
}
