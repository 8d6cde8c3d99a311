//! The aggregate function `sum`.

use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Field, FieldRef, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, TimeUnit, UInt64Type,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, SetMonotonicity,
    Signature, StatisticsArgs,
};

use super::accumulators::{DistinctSums, Sums};
use super::frames::{FloatFrame, IntervalSums};
use super::groups::GroupSums;
use super::one_nan::{GroupsOneNan, OneNan};
use crate::functions::arithmetic::out_of_range;

/// The aggregate function `sum` with DataFusion's types: BIGINT of whole numbers, DECIMAL with ten digits more of
/// decimals. A sum that does not fit is an error of Arrow's: `ArithmeticOverflow`.
#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub struct CheckedSum {
    of_datafusion: Sum,
}

impl CheckedSum {
    /// DataFusion's accumulator, with one NaN.
    fn of_floats(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let sums = self.of_datafusion.accumulator(args)?;
        Ok(Box::new(OneNan(sums)))
    }
}

/// The error of a sum that does not fit into `data_type`.
pub(super) fn sum_out_of_range(data_type: &DataType) -> DataFusionError {
    out_of_range(data_type, "sum")
}

/// Calls `$function::<T>($argument)` for the type `T` of numbers that `$type` is, else gives `$other`.
macro_rules! for_numbers {
    ($type:expr, $function:ident, $other:expr) => {
        match $type {
            data_type @ DataType::Int64 => {
                Ok(Box::new($function::<Int64Type>::new(data_type.clone())))
            }
            data_type @ DataType::UInt64 => {
                Ok(Box::new($function::<UInt64Type>::new(data_type.clone())))
            }
            data_type @ DataType::Decimal128(..) => Ok(Box::new($function::<Decimal128Type>::new(
                data_type.clone(),
            ))),
            data_type @ DataType::Duration(TimeUnit::Second) => {
                Ok(Box::new($function::<DurationSecondType>::new(
                    data_type.clone(),
                )))
            }
            data_type @ DataType::Duration(TimeUnit::Millisecond) => {
                Ok(Box::new($function::<DurationMillisecondType>::new(
                    data_type.clone(),
                )))
            }
            data_type @ DataType::Duration(TimeUnit::Microsecond) => {
                Ok(Box::new($function::<DurationMicrosecondType>::new(
                    data_type.clone(),
                )))
            }
            data_type @ DataType::Duration(TimeUnit::Nanosecond) => {
                Ok(Box::new($function::<DurationNanosecondType>::new(
                    data_type.clone(),
                )))
            }
            _ => $other,
        }
    };
}

fn interval_sums(unit: IntervalUnit) -> Box<dyn Accumulator> {
    let data_type = DataType::Interval(unit);
    match unit {
        IntervalUnit::YearMonth => Box::new(IntervalSums::<IntervalYearMonthType>::new(data_type)),
        IntervalUnit::DayTime => Box::new(IntervalSums::<IntervalDayTimeType>::new(data_type)),
        IntervalUnit::MonthDayNano => {
            Box::new(IntervalSums::<IntervalMonthDayNanoType>::new(data_type))
        }
    }
}

/// Whether sums of this type have carries; others are DataFusion's.
fn has_carry(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..) | DataType::Duration(_)
    )
}

/// The columns of a sum's state: the sum without its carry, and the carry.
pub(super) fn state_fields(name: &str, sum: &DataType) -> [FieldRef; 2] {
    let field = |part, data_type, nullable| {
        let name = format_state_name(name, part);
        Arc::new(Field::new(name, data_type, nullable))
    };
    [
        field("sum", sum.clone(), true),
        field("carry", DataType::Int32, false),
    ]
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.of_datafusion.name()
    }

    fn signature(&self) -> &Signature {
        self.of_datafusion.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.of_datafusion.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if let DataType::Interval(unit) = args.return_field.data_type()
            && !args.is_distinct
        {
            return Ok(interval_sums(*unit));
        }
        match args.is_distinct {
            true => for_numbers!(
                args.return_field.data_type(),
                DistinctSums,
                self.of_floats(args)
            ),
            false => for_numbers!(args.return_field.data_type(), Sums, self.of_floats(args)),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::Float64 if !args.is_distinct => {
                Ok(Box::new(OneNan(Box::new(FloatFrame::sum()))))
            }
            data_type if has_carry(data_type) => self.accumulator(args),
            DataType::Interval(_) => self.accumulator(args),
            _ => self.of_datafusion.create_sliding_accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        match !args.is_distinct && has_carry(args.return_type()) {
            true => Ok(state_fields(args.name, args.return_type()).into()),
            false => self.of_datafusion.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        let is_interval = matches!(args.return_field.data_type(), DataType::Interval(_));
        !is_interval && self.of_datafusion.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        for_numbers!(
            args.return_field.data_type(),
            GroupSums,
            self.of_datafusion
                .create_groups_accumulator(args)
                .map(|groups| Box::new(GroupsOneNan(groups)) as _)
        )
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.of_datafusion.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.of_datafusion.order_sensitivity()
    }

    // Not of statistics: those of a constant are its product with the number of rows modulo its range.
    fn value_from_stats(&self, _: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        None
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.of_datafusion.set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_datafusion.documentation()
    }
}
