//! Numbers that tell the rows of a query apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use datafusion::arrow::array::Int64Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// Of the numbers that workers give, the bits that say which worker it was begin here.
const WORKER_SHIFT: u32 = 50;

/// How many this process has given.
static GIVEN: AtomicI64 = AtomicI64::new(0);

/// `row_numbers() → number`: one for each row, and no two are the same on any worker of a cluster.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RowNumbers {
    worker_id: i64,
    signature: Signature,
}

impl RowNumbers {
    /// Numbers rows on this worker.
    pub fn new(worker_id: i64) -> Self {
        Self {
            worker_id,
            signature: Signature::nullary(Volatility::Volatile),
        }
    }
}

impl ScalarUDFImpl for RowNumbers {
    fn name(&self) -> &str {
        "row_numbers"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Ok(count) = i64::try_from(args.number_rows) else {
            return internal_err!("row_numbers: a batch has {} rows", args.number_rows);
        };
        let first = GIVEN.fetch_add(count, Ordering::Relaxed) | (self.worker_id << WORKER_SHIFT);
        let numbers = Int64Array::from_iter_values(first..first + count);
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    }
}
