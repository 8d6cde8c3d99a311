//! Arithmetic whose results are right or errors.
//!
//! DataFusion 55.2 wraps whole numbers around when they overflow (apache/datafusion issues 3520, 17539 and 21318),
//! cuts the quotients of decimals, and takes `-a & a` and `a ^ a` for constants (apache/datafusion issue 24246).
//! It has no option for any of that, and a NaN that it computes has a sign ([`one_nan`](crate::functions::one_nan)). So these
//! operations are a function of ours from analysis on, and no rule mistakes them for DataFusion's operators.
//!
//! * `integers`: sums, differences and products of whole numbers
//! * [`decimals`]: those of decimals, and quotients
//! * [`narrow`]: decimals of which no operation can leave the range
//! * `floats`: those of floating-point numbers, with one NaN

pub mod decimals;
mod floats;
mod integers;
pub(crate) mod narrow;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use datafusion::arrow::datatypes::{
    ArrowNumericType, DataType, Field, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::utils::take_function_args;
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::{Interval, apply_operator};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};
use serde::{Deserialize, Serialize};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`, of decimals or floating-point numbers
    Divide,
    /// `a % b`, of floating-point numbers
    Modulo,
    /// `-a`
    Negate,
    /// `a ^ b`, bit by bit
    Xor,
    /// `a - b` of BIGINT UNSIGNED, as of numbers of rows, which is a BIGINT
    Difference,
}

impl Operation {
    /// What `operator` computes of operands of these types, which have been made equal where they must be.
    pub fn of_operands(operator: Operator, left: &DataType, right: &DataType) -> Option<Self> {
        let integers = left.is_integer() && left == right;
        let decimals = decimals::is_decimal(left) && decimals::is_decimal(right);
        let floats = left.is_floating() && left == right;
        let numbers = integers || decimals || floats;
        match operator {
            Operator::Plus if numbers => Some(Self::Add),
            Operator::Minus if numbers => Some(Self::Subtract),
            Operator::Multiply if numbers => Some(Self::Multiply),
            Operator::Divide if decimals || floats => Some(Self::Divide),
            Operator::Modulo if floats => Some(Self::Modulo),
            Operator::BitwiseXor if integers => Some(Self::Xor),
            _ => None,
        }
    }

    /// What `-a` is for an `a` of this type.
    pub fn negation_of(operand: &DataType) -> Option<Self> {
        let is_checked = operand.is_signed_integer() || decimals::is_decimal(operand);
        (is_checked || operand.is_floating()).then_some(Self::Negate)
    }

    fn operator(self) -> Operator {
        match self {
            Self::Add => Operator::Plus,
            Self::Subtract | Self::Negate | Self::Difference => Operator::Minus,
            Self::Multiply => Operator::Multiply,
            Self::Divide => Operator::Divide,
            Self::Modulo => Operator::Modulo,
            Self::Xor => Operator::BitwiseXor,
        }
    }
}

/// The types that operands of these types are cast to. Decimals stay as they are: of some DataFusion thinks that they
/// have no product.
///
/// # Errors
/// If `operator` has no such operands.
pub fn operand_types(
    operator: Operator,
    left: &DataType,
    right: &DataType,
) -> Result<(DataType, DataType)> {
    match decimals::is_decimal(left) && decimals::is_decimal(right) {
        true => Ok((left.clone(), right.clone())),
        false => BinaryTypeCoercer::new(left, &operator, right).get_input_types(),
    }
}

/// The scalar functions `add(a, b)`, `subtract(a, b)`, `multiply(a, b)`, `divide(a, b)`, `modulo(a, b)`, `negate(a)`,
/// `xor(a, b)` and `difference(a, b)` of numbers, which stand for operators. They have the operators' types, but
/// for decimals ([`decimals`]) and differences of numbers without sign. A result that does not fit is an error of
/// Arrow's: `ArithmeticOverflow`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    operation: Operation,
    signature: Signature,
}

impl Arithmetic {
    /// The function that computes `operation`.
    pub fn new(operation: Operation) -> Self {
        Self {
            operation,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    /// What it computes.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// How it is written. A long chain of operators is written from its end on, without a call for each.
    fn text(&self, operands: &[Expr], name: impl Fn(&Expr) -> String) -> Result<String> {
        let (mut first, mut rest) = match operands {
            [operand] => return Ok(format!("(- {})", name(operand))),
            [left, right] => (left, vec![(self.operation, right)]),
            _ => return plan_err!("{} takes two values", self.name()),
        };
        while let Expr::ScalarFunction(ScalarFunction { func, args }) = first
            && let Some(inner) = func.inner().downcast_ref::<Self>()
            && let [left, right] = &args[..]
        {
            rest.push((inner.operation, right));
            first = left;
        }
        let mut text = name(first);
        for (operation, operand) in rest.into_iter().rev() {
            text.push_str(&format!(" {} {}", operation.operator(), name(operand)));
        }
        Ok(text)
    }
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "add",
            Operation::Subtract => "subtract",
            Operation::Multiply => "multiply",
            Operation::Divide => "divide",
            Operation::Modulo => "modulo",
            Operation::Negate => "negate",
            Operation::Xor => "xor",
            Operation::Difference => "difference",
        }
    }

    fn display_name(&self, operands: &[Expr]) -> Result<String> {
        self.text(operands, Expr::to_string)
    }

    fn schema_name(&self, operands: &[Expr]) -> Result<String> {
        self.text(operands, |operand| operand.schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, operands: &[DataType]) -> Result<Vec<DataType>> {
        match operands {
            [_] => Ok(operands.to_vec()),
            [left, right] => {
                let (left, right) = operand_types(self.operation.operator(), left, right)?;
                Ok(vec![left, right])
            }
            _ => plan_err!("{} takes two values", self.name()),
        }
    }

    fn return_type(&self, operands: &[DataType]) -> Result<DataType> {
        match (self.operation, operands) {
            (_, [operand]) => Ok(operand.clone()),
            (Operation::Difference, [_, _]) => Ok(DataType::Int64),
            (Operation::Divide, [left, right]) if !left.is_floating() => {
                decimals::quotient_type(left, right)
            }
            (Operation::Multiply, [left, right]) if decimals::is_decimal(left) => {
                decimals::product_type(left, right)
            }
            (operation, [left, right]) => {
                BinaryTypeCoercer::new(left, &operation.operator(), right).get_result_type()
            }
            _ => plan_err!("{} takes two values", self.name()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone());
        let data_type = self.return_type(&types.collect::<Vec<_>>())?;
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), data_type, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result_type = args.return_field.data_type();
        if self.operation == Operation::Negate {
            let [operand] = take_function_args(self.name(), args.args)?;
            return on_arrays(&[operand], |operands| match operands {
                [(operand, _)] => negated(operand, result_type),
                _ => internal_err!("negate takes one value"),
            });
        }
        let [left, right] = take_function_args(self.name(), args.args)?;
        on_arrays(&[left, right], |operands| match operands {
            [left, right] => self.of_two(left, right, result_type),
            _ => internal_err!("{} takes two values", self.name()),
        })
    }

    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let types: Vec<_> = operands.iter().map(|operand| operand.data_type()).collect();
        match (self.operation, operands) {
            (Operation::Add | Operation::Subtract | Operation::Multiply, [left, right])
                if types.iter().all(DataType::is_integer) && types[0] == types[1] =>
            {
                apply_operator(&self.operation.operator(), left, right)
            }
            _ => Interval::make_unbounded(&self.return_type(&types)?),
        }
    }

    fn output_ordering(&self, operands: &[ExprProperties]) -> Result<SortProperties> {
        Ok(match (self.operation, operands) {
            (Operation::Negate, [operand]) => -operand.sort_properties,
            (Operation::Add, [left, right]) => left.sort_properties.add(&right.sort_properties),
            (Operation::Subtract | Operation::Difference, [left, right]) => {
                left.sort_properties.sub(&right.sort_properties)
            }
            (_, operands) if operands.iter().all(is_constant) => SortProperties::Singleton,
            _ => SortProperties::Unordered,
        })
    }
}

fn is_constant(operand: &ExprProperties) -> bool {
    operand.sort_properties == SortProperties::Singleton
}

/// An operand, and whether its only value is that of all rows.
type Operand = (ArrayRef, bool);

/// What `compute` makes of `operands`: one value if all have one.
fn on_arrays(
    operands: &[ColumnarValue],
    compute: impl FnOnce(&[Operand]) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let arrays = operands.iter().map(|operand| match operand {
        ColumnarValue::Array(array) => Ok((Arc::clone(array), false)),
        ColumnarValue::Scalar(value) => Ok((value.to_array()?, true)),
    });
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let result = compute(&arrays)?;
    Ok(match arrays.iter().all(|(_, is_scalar)| *is_scalar) {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
        false => ColumnarValue::Array(result),
    })
}

/// Calls `$function::<T>($arguments)` for the type `T` of whole numbers that `$type` is.
macro_rules! for_integers {
    ($type:expr, $function:ident, $($argument:expr),*) => {
        match $type {
            DataType::Int8 => $function(std::marker::PhantomData::<Int8Type>, $($argument),*),
            DataType::Int16 => $function(std::marker::PhantomData::<Int16Type>, $($argument),*),
            DataType::Int32 => $function(std::marker::PhantomData::<Int32Type>, $($argument),*),
            DataType::Int64 => $function(std::marker::PhantomData::<Int64Type>, $($argument),*),
            DataType::UInt8 => $function(std::marker::PhantomData::<UInt8Type>, $($argument),*),
            DataType::UInt16 => $function(std::marker::PhantomData::<UInt16Type>, $($argument),*),
            DataType::UInt32 => $function(std::marker::PhantomData::<UInt32Type>, $($argument),*),
            DataType::UInt64 => $function(std::marker::PhantomData::<UInt64Type>, $($argument),*),
            other => internal_err!("{other} is no whole number"),
        }
    };
}

impl Arithmetic {
    fn of_two(&self, left: &Operand, right: &Operand, result: &DataType) -> Result<ArrayRef> {
        let data_type = left.0.data_type();
        if data_type.is_null() || right.0.data_type().is_null() {
            let rows = left.0.len().max(right.0.len());
            return Ok(new_null_array(result, rows));
        }
        if decimals::is_decimal(data_type) {
            return decimals::compute(self.operation, left, right, result);
        }
        if data_type.is_floating() {
            return floats::compute(self.operation, left, right);
        }
        if self.operation == Operation::Difference {
            return integers::difference(left, right);
        }
        for_integers!(data_type, of_integers, self.operation, left, right)
    }
}

fn of_integers<T>(
    _: std::marker::PhantomData<T>,
    operation: Operation,
    left: &Operand,
    right: &Operand,
) -> Result<ArrayRef>
where
    T: ArrowNumericType,
    T::Native: integers::Integer,
{
    match operation {
        Operation::Xor => {
            let rows = match (left.1, right.1) {
                (true, _) => right.0.len(),
                (_, _) => left.0.len(),
            };
            let (left, right) = (repeated(left, rows)?, repeated(right, rows)?);
            let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
            Ok(Arc::new(integers::xor(left, right)?))
        }
        operation => integers::compute::<T>(operation, left, right),
    }
}

fn repeated((array, is_scalar): &Operand, rows: usize) -> Result<ArrayRef> {
    match *is_scalar && rows != 1 {
        true => ScalarValue::try_from_array(array, 0)?.to_array_of_size(rows),
        false => Ok(Arc::clone(array)),
    }
}

fn negated(operand: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    match operand.data_type() {
        DataType::Int8 => integers::negated::<Int8Type>(operand),
        DataType::Int16 => integers::negated::<Int16Type>(operand),
        DataType::Int32 => integers::negated::<Int32Type>(operand),
        DataType::Int64 => integers::negated::<Int64Type>(operand),
        number if number.is_floating() => floats::negated(operand),
        _ => decimals::negated(operand, result),
    }
}

/// The error of a result that does not fit into `data_type`; `what` names the operation.
pub(crate) fn out_of_range(data_type: &DataType, what: &str) -> DataFusionError {
    let name = match data_type {
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INTEGER".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::UInt8 => "TINYINT UNSIGNED".to_owned(),
        DataType::UInt16 => "SMALLINT UNSIGNED".to_owned(),
        DataType::UInt32 => "INT UNSIGNED".to_owned(),
        DataType::UInt64 => "BIGINT UNSIGNED".to_owned(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        other => other.to_string(),
    };
    ArrowError::ArithmeticOverflow(format!("{name} out of range: {what}")).into()
}
