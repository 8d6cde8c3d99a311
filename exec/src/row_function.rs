//! Scalar functions written as a closure over one row.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use skewer_profiling::ticks::Stopwatch;

use skewer_compat::operators::scheduling::check_cancelled;

/// A function of one row's arguments.
pub type RowClosure = dyn Fn(&[ScalarValue]) -> Result<ScalarValue> + Send + Sync;

thread_local! {
    /// Nanoseconds of each row of the evaluation under way on this thread, if somebody asked.
    static ROW_TIMES: RefCell<Option<RowTimes>> = const { RefCell::new(None) };
}

struct RowTimes {
    ns: Vec<f64>,
    /// Whether every row function saw all the rows (`CASE` and `AND` may leave some out).
    complete: bool,
}

/// Runs `evaluate` on `rows` rows and returns, beside its result, what the row functions in it
/// took for each row, in nanoseconds; `None` if a row function did not see every row.
pub fn with_row_times<T>(rows: usize, evaluate: impl FnOnce() -> T) -> (T, Option<Vec<f64>>) {
    ROW_TIMES.set(Some(RowTimes {
        ns: vec![0.0; rows],
        complete: true,
    }));
    let result = evaluate();
    let times = ROW_TIMES.take();
    (result, times.filter(|t| t.complete).map(|t| t.ns))
}

/// A scalar function that calls a closure once per row, and so can time every row directly.
pub struct RowFunction {
    name: String,
    signature: Signature,
    return_type: DataType,
    closure: Arc<RowClosure>,
}

impl RowFunction {
    /// A function `name(arguments) → return_type` with the given volatility.
    pub fn new(
        name: impl Into<String>,
        arguments: Vec<DataType>,
        return_type: DataType,
        volatility: Volatility,
        closure: Arc<RowClosure>,
    ) -> Self {
        let signature = if arguments.is_empty() {
            Signature::nullary(volatility)
        } else {
            Signature::exact(arguments, volatility)
        };
        Self {
            name: name.into(),
            signature,
            return_type,
            closure,
        }
    }
}

impl std::fmt::Debug for RowFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowFunction")
            .field("name", &self.name)
            .field("signature", &self.signature)
            .field("return_type", &self.return_type)
            .finish_non_exhaustive()
    }
}

impl PartialEq for RowFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.closure, &other.closure)
    }
}

impl Eq for RowFunction {}

impl Hash for RowFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        (Arc::as_ptr(&self.closure) as *const ()).hash(state);
    }
}

impl ScalarUDFImpl for RowFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.return_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let timed = ROW_TIMES.with_borrow_mut(|times| match times {
            Some(times) if times.ns.len() == rows => true,
            Some(times) => {
                times.complete = false;
                false
            }
            None => false,
        });
        let mut took = Vec::with_capacity(if timed { rows } else { 0 });
        let mut results = Vec::with_capacity(rows);
        let mut row_args = Vec::with_capacity(args.args.len());
        for row in 0..rows {
            // A row may take seconds.
            check_cancelled()?;
            row_args.clear();
            for arg in &args.args {
                row_args.push(match arg {
                    ColumnarValue::Scalar(scalar) => scalar.clone(),
                    ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row)?,
                });
            }
            let started = timed.then(Stopwatch::start);
            results.push((self.closure)(&row_args)?);
            if let Some(started) = started {
                took.push(started.elapsed().as_nanos() as f64);
            }
        }
        if timed {
            ROW_TIMES.with_borrow_mut(|times| {
                let times = times.iter_mut().flat_map(|times| times.ns.iter_mut());
                times.zip(took).for_each(|(total, ns)| *total += ns);
            });
        }
        if results.is_empty() {
            let empty = datafusion::arrow::array::new_empty_array(&self.return_type);
            return Ok(ColumnarValue::Array(empty));
        }
        let array = ScalarValue::iter_to_array(results)?;
        let array = if array.data_type() == &self.return_type {
            array
        } else {
            datafusion::arrow::compute::cast(&array, &self.return_type)?
        };
        Ok(ColumnarValue::Array(array))
    }
}
