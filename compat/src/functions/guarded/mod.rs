//! DataFusion's functions with what it leaves out: an end to the size of their results, and one NaN.
//!
//! `repeat('abc', 9223372036854775807)` is a text that no machine has. Some of DataFusion 55.2's functions ask
//! for the memory all the same, which ends the process, or write more bytes than the offsets of an array count,
//! which panics. So these are asked first how large the result of a batch will be.
//!
//! `acos(2)` is a NaN with a sign, on some machines: see [`one_nan`](crate::functions::one_nan).

mod sizes;

use std::cell::Cell;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature,
};

use self::sizes::Sizes;
use crate::functions::one_nan::result_with_one_nan;

/// So many bytes the result of a batch may have: as many as the offsets of texts and lists count.
const LARGEST: u128 = i32::MAX as u128;

/// Results of constants that are larger are made when the query runs, by whoever needs them: a plan is copied
/// again and again while it is made.
const LARGEST_FOLDED: u128 = 1 << 16;

thread_local! {
    /// Whether this thread makes a plan.
    static PLANS: Cell<bool> = const { Cell::new(false) };
}

/// Makes a part of a plan: constants that would be large are left as calls.
pub fn planning<T>(plan: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            PLANS.set(self.0);
        }
    }
    let _before = Before(PLANS.replace(true));
    plan()
}

/// Functions of floating-point numbers outside whose domain there is NaN.
const OF_NUMBERS: [&str; 21] = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cot",
    "exp", "ln", "log", "log10", "log2", "nanvl", "power", "sin", "sqrt", "tan",
];

/// What is added to a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Guard {
    /// It refuses what is too large.
    Sizes(Sizes),
    /// It gives one NaN.
    OneNan,
}

impl Guard {
    fn of_function(name: &str) -> Option<Self> {
        match OF_NUMBERS.contains(&name) {
            true => Some(Self::OneNan),
            false => Sizes::of_function(name).map(Self::Sizes),
        }
    }
}

/// A function of DataFusion's that refuses what is too large, or gives one NaN.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct GuardedFunction {
    function: Arc<ScalarUDF>,
    guard: Guard,
}

impl GuardedFunction {
    /// Of `functions` the ones that need a guard, each with its guard.
    pub fn all<'a>(functions: impl IntoIterator<Item = &'a Arc<ScalarUDF>>) -> Vec<Arc<ScalarUDF>> {
        let guarded = functions.into_iter().filter_map(Self::guarding);
        guarded.map(Arc::new).collect()
    }

    fn guarding(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
        let guard = Guard::of_function(function.name())?;
        let function = Arc::clone(function);
        Some(ScalarUDF::from(Self { function, guard }))
    }

    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.function.inner().as_ref()
    }
}

impl ScalarUDFImpl for GuardedFunction {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner().return_type(arguments)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner().return_field_from_args(args)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let function = Arc::new(self.inner().with_updated_config(config)?);
        let guard = self.guard;
        Some(ScalarUDF::from(Self { function, guard }))
    }

    fn is_strict(&self) -> bool {
        self.inner().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Guard::Sizes(sizes) = self.guard else {
            return self.inner().invoke_with_args(args).map(result_with_one_nan);
        };
        let bytes = sizes.bytes(&args.args, args.number_rows);
        if bytes > LARGEST {
            return exec_err!(
                "{} would make {} of {bytes} bytes from {} rows, and a batch of rows holds {LARGEST} at most",
                self.name(),
                sizes.what(),
                args.number_rows
            );
        }
        if bytes > LARGEST_FOLDED && PLANS.get() {
            return exec_err!("{} would make a large constant", self.name());
        }
        self.inner().invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner().simplify(args, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner().short_circuits()
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.inner().evaluate_bounds(input)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.inner().propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner().output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner().preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner().coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner().placement(args)
    }
}
