//! The aggregate function `avg`.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, i256};
use datafusion::common::{Result, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};

use super::accumulators::{Averages, DistinctAverages};
use super::frames::FloatFrame;
use super::groups::GroupAverages;
use super::one_nan::{GroupsOneNan, OneNan};
use super::sum::state_fields;
use super::wide::Wide;
use crate::functions::arithmetic::decimals::{
    average_type, has_digits, is_decimal, rounded_quotient, rounded_wide,
};
use crate::functions::arithmetic::out_of_range;

/// The aggregate function `avg`: of decimals as exact as a quotient of theirs
/// ([`decimals`](crate::functions::arithmetic::decimals)), else DataFusion's, which is DOUBLE.
#[derive(Debug, PartialEq, Eq, Hash, Default)]
pub struct RoundedAverage {
    of_datafusion: Avg,
}

/// How averages of decimals are made.
#[derive(Debug, Clone)]
pub struct Averaging {
    /// The type of the sums that they are made of.
    pub sum: DataType,
    /// Their own type.
    pub result: DataType,
}

impl Averaging {
    /// That of values of the type `of`.
    fn new(of: &DataType, result: &DataType) -> Self {
        Self {
            sum: sum_type(of),
            result: result.clone(),
        }
    }

    /// The average of `count` values with the sum `sum`; none of no values.
    pub(super) fn average(&self, sum: Wide<i128>, count: u64) -> Result<Option<i128>> {
        if count == 0 {
            return Ok(None);
        }
        let (DataType::Decimal128(_, of), DataType::Decimal128(precision, scale)) =
            (&self.sum, &self.result)
        else {
            return internal_err!("an average of {} as {}", self.sum, self.result);
        };
        let digits = u32::from(scale.abs_diff(*of));
        let narrow = || {
            let power = 10_i128.checked_pow(digits)?;
            rounded_quotient(sum.get()?.checked_mul(power)?, i128::from(count))
        };
        let wide = || {
            let power = i256::from_i128(10).checked_pow(digits)?;
            let dividend = sum.in_full().checked_mul(power)?;
            rounded_wide(dividend, i256::from_i128(i128::from(count)))?.to_i128()
        };
        let average = narrow().or_else(wide);
        match average.filter(|average| has_digits(*average, i16::from(*precision))) {
            Some(average) => Ok(Some(average)),
            None => Err(out_of_range(&self.result, "avg")),
        }
    }
}

/// The type that values of the type `of` are added up as.
fn sum_type(of: &DataType) -> DataType {
    match of {
        DataType::Decimal128(_, scale) => DataType::Decimal128(38, *scale),
        other => other.clone(),
    }
}

impl RoundedAverage {
    /// Whether averages of these values are made here.
    fn is_ours(&self, args: &AccumulatorArgs<'_>) -> bool {
        is_decimal(args.expr_fields[0].data_type())
    }

    fn averaging(args: &AccumulatorArgs<'_>) -> Averaging {
        Averaging::new(
            args.expr_fields[0].data_type(),
            args.return_field.data_type(),
        )
    }
}

impl AggregateUDFImpl for RoundedAverage {
    fn name(&self) -> &str {
        self.of_datafusion.name()
    }

    fn aliases(&self) -> &[String] {
        self.of_datafusion.aliases()
    }

    fn signature(&self) -> &Signature {
        self.of_datafusion.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] if is_decimal(argument) => average_type(argument),
            arguments => self.of_datafusion.return_type(arguments),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match (self.is_ours(&args), args.is_distinct) {
            (true, true) => Ok(Box::new(DistinctAverages::new(Self::averaging(&args)))),
            (true, false) => Ok(Box::new(Averages::new(Self::averaging(&args)))),
            (false, _) => Ok(Box::new(OneNan(self.of_datafusion.accumulator(args)?))),
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let of = args.expr_fields[0].data_type();
        match (self.is_ours(&args), args.is_distinct) {
            (true, _) => self.accumulator(args),
            (false, false) if *of == DataType::Float64 => {
                Ok(Box::new(OneNan(Box::new(FloatFrame::average()))))
            }
            (false, _) => self.of_datafusion.create_sliding_accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let of = args.input_fields[0].data_type();
        if !is_decimal(of) {
            return self.of_datafusion.state_fields(args);
        }
        if args.is_distinct {
            let name = format_state_name(args.name, "avg distinct");
            let value = Field::new_list_field(sum_type(of), true);
            return Ok(vec![Arc::new(Field::new_list(name, value, false))]);
        }
        let count = format_state_name(args.name, "count");
        let mut fields = vec![Arc::new(Field::new(count, DataType::UInt64, false))];
        fields.extend(state_fields(args.name, &sum_type(of)));
        Ok(fields)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.is_ours(&args) && !args.is_distinct
            || self.of_datafusion.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match self.is_ours(&args) {
            true => Ok(Box::new(GroupAverages::new(Self::averaging(&args)))),
            false => {
                let groups = self.of_datafusion.create_groups_accumulator(args)?;
                Ok(Box::new(GroupsOneNan(groups)))
            }
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.of_datafusion.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.of_datafusion.order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_datafusion.documentation()
    }
}
