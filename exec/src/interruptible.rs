//! Scalar functions that end when their query is cancelled.
//!
//! A function gets all rows of a batch at once, or of a partition, as an argument of a window function does.
//! [`Interruptible`] calls it with some of them at a time, and looks in between whether anybody still wants the
//! result. How many follows from how long the earlier ones took: all of a batch, if that is quick.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ExprSchema, Result, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, StructFieldMapping, Volatility,
};

use crate::row_function::RowFunction;
use skewer_compat::operators::scheduling::check_cancelled;
use skewer_compat::operators::slices::{Limits, rows_within};

/// A call with some rows should take no longer than this.
const TARGET: Duration = Duration::from_millis(10);

/// The first limits: a few calls later all rows of a batch are within them, if they are quick.
const FIRST: Limits = Limits {
    rows: 64,
    bytes: 16 << 10,
};

/// A function that gets a few rows at a time and ends when its query is cancelled. Otherwise it is the
/// function: it has its name, types and properties.
#[derive(Debug)]
pub struct Interruptible {
    function: ScalarUDF,
    rows: AtomicUsize,
    bytes: AtomicUsize,
}

impl Interruptible {
    /// `function` as one that can be interrupted. `None` if it is one already, or must see its rows as they
    /// are: if it is volatile, asynchronous, or does not evaluate all its arguments.
    pub fn wrap(function: &ScalarUDF) -> Option<ScalarUDF> {
        let inner = function.inner();
        let stays = inner.is::<Self>()
            || inner.is::<RowFunction>()
            || function.as_async().is_some()
            || function.short_circuits()
            || function.signature().volatility == Volatility::Volatile;
        (!stays).then(|| {
            ScalarUDF::from(Self {
                function: function.clone(),
                rows: AtomicUsize::new(FIRST.rows),
                bytes: AtomicUsize::new(FIRST.bytes),
            })
        })
    }

    /// The function of a call that may be interrupted.
    pub fn interrupted(function: &ScalarUDF) -> &ScalarUDF {
        let interruptible = function.inner().downcast_ref::<Self>();
        interruptible.map_or(function, |interruptible| &interruptible.function)
    }

    fn limits(&self) -> Limits {
        Limits {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Calls the function and learns how long that takes. Other threads may do so, too: then it learns from
    /// one of them.
    fn timed(&self, args: ScalarFunctionArgs, bytes: usize) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let started = Instant::now();
        let result = self.function.invoke_with_args(args)?;
        let mut limits = self.limits();
        limits.learn(started.elapsed(), TARGET, rows, bytes);
        self.rows.store(limits.rows, Ordering::Relaxed);
        self.bytes.store(limits.bytes, Ordering::Relaxed);
        Ok(result)
    }
}

impl PartialEq for Interruptible {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for Interruptible {}

impl Hash for Interruptible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

/// Arguments for some of the rows.
fn sliced(args: &ScalarFunctionArgs, start: usize, rows: usize) -> ScalarFunctionArgs {
    let slice = |arg: &ColumnarValue| match arg {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(start, rows)),
        ColumnarValue::Scalar(scalar) => ColumnarValue::Scalar(scalar.clone()),
    };
    ScalarFunctionArgs {
        args: args.args.iter().map(slice).collect(),
        arg_fields: args.arg_fields.clone(),
        number_rows: rows,
        return_field: Arc::clone(&args.return_field),
        config_options: Arc::clone(&args.config_options),
    }
}

/// The arguments that have a value for each row, from row `start` on.
fn columns(args: &ScalarFunctionArgs, start: usize) -> Vec<ArrayRef> {
    let arrays = args.args.iter().filter_map(|arg| match arg {
        ColumnarValue::Array(array) => Some(array.slice(start, array.len() - start)),
        ColumnarValue::Scalar(_) => None,
    });
    arrays.collect()
}

impl ScalarUDFImpl for Interruptible {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.function.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.return_type(arg_types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let function = self.function.inner().with_updated_config(config)?;
        Some(Self::wrap(&function).unwrap_or(function))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    #[expect(deprecated, reason = "the function may have one of its own")]
    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        self.function.inner().is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.function.inner().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check_cancelled()?;
        let (mut start, rows) = (0, args.number_rows);
        let is_of_rows = |arg: &ColumnarValue| match arg {
            ColumnarValue::Array(array) => array.len() == rows,
            ColumnarValue::Scalar(_) => true,
        };
        if !args.args.iter().all(is_of_rows) {
            return self.function.invoke_with_args(args);
        }
        let mut parts: Vec<ArrayRef> = Vec::new();
        while start < rows {
            let columns = columns(&args, start);
            if columns.is_empty() {
                break;
            }
            let (part, bytes) = rows_within(columns.iter(), rows - start, self.limits());
            if part == rows {
                return self.timed(args, bytes);
            }
            check_cancelled()?;
            let values = self.timed(sliced(&args, start, part), bytes)?;
            let values = values.into_array(part)?;
            if values.len() != part {
                return exec_err!(
                    "{} returned {} values for {part} rows",
                    self.name(),
                    values.len()
                );
            }
            parts.push(values);
            start += part;
        }
        if parts.is_empty() {
            // No rows, or one value for all.
            return self.function.invoke_with_args(args);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&parts)?))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.function.inner().simplify(args, info)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        self.function.inner().preimage(args, literal, info)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.function.evaluate_bounds(inputs)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.function.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.function.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.function.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.function.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.function.struct_field_mapping(literals)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.function.placement(args)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use datafusion::arrow::array::{AsArray, StringArray};
    use datafusion::arrow::datatypes::{Field, Int32Type};
    use datafusion::functions::unicode::character_length;
    use datafusion::logical_expr::create_udf;

    use super::*;
    use skewer_compat::operators::scheduling::{Cancellation, ScheduledStream, Scheduler};

    fn call(function: &ScalarUDF, texts: Vec<ColumnarValue>, rows: usize) -> Result<ColumnarValue> {
        let field = |name| Arc::new(Field::new(name, DataType::Utf8, true));
        function.invoke_with_args(ScalarFunctionArgs {
            arg_fields: texts.iter().map(|_| field("s")).collect(),
            args: texts,
            number_rows: rows,
            return_field: Arc::new(Field::new("n", DataType::Int32, true)),
            config_options: Arc::default(),
        })
    }

    #[test]
    fn it_returns_what_the_function_returns() {
        let length = Interruptible::wrap(&character_length()).unwrap();
        assert_eq!(length.name(), "character_length");
        assert_eq!(
            Interruptible::interrupted(&length),
            character_length().as_ref()
        );
        assert!(Interruptible::wrap(&length).is_none());
        let lengths: Vec<_> = (0..1_000).map(|row| (row * 37) % 500).collect();
        let texts = lengths.iter().map(|length| "x".repeat(*length as usize));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        // Cut, and as a whole when it is known to be quick.
        for _ in 0..5 {
            let texts = ColumnarValue::Array(Arc::clone(&texts));
            let found = call(&length, vec![texts], 1_000).unwrap();
            let found = found.into_array(1_000).unwrap();
            assert_eq!(found.as_primitive::<Int32Type>().values(), &lengths[..]);
        }
        let one = ColumnarValue::Scalar(ScalarValue::from("four"));
        let found = call(&length, vec![one], 7).unwrap();
        assert!(matches!(
            found,
            ColumnarValue::Scalar(ScalarValue::Int32(Some(4)))
        ));
        let none = ColumnarValue::Array(texts.slice(0, 0));
        let found = call(&length, vec![none], 0).unwrap();
        assert_eq!(found.into_array(0).unwrap().len(), 0);
    }

    #[test]
    fn it_ends_when_its_query_is_cancelled() {
        let cancellation = Cancellation::default();
        let cancel = cancellation.clone();
        let calls = Arc::new(AtomicUsize::new(0));
        let called = Arc::clone(&calls);
        let slow = create_udf(
            "slow",
            vec![DataType::Utf8],
            DataType::Utf8,
            Volatility::Immutable,
            Arc::new(move |args| {
                called.fetch_add(1, Ordering::Relaxed);
                cancel.cancel();
                Ok(args[0].clone())
            }),
        );
        let slow = Interruptible::wrap(&slow).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 1_000]));
        let query = Scheduler::new(1).query(cancellation);
        let mut stream = ScheduledStream::new(query, None);
        let cx = &mut Context::from_waker(Waker::noop());
        let polled = stream.poll(cx, |_| {
            Poll::Ready(call(&slow, vec![ColumnarValue::Array(texts)], 1_000).is_err())
        });
        assert_eq!(polled, Poll::Ready(true));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
