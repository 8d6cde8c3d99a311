//! The aggregate functions `max` and `min`.

use std::sync::Arc;

use datafusion::arrow::array::ArrowNativeTypeOp;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, FieldRef, Float16Type, Float32Type, Float64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

/// The aggregate functions `max` and `min`, which take NaN for the greatest number.
///
/// DataFusion 55.2 begins the maximum of a group with the least finite number, so that a group of -∞ only got
/// that, and NaN beside other numbers won or lost by the order of rows (both found by the generator of queries).
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Extreme {
    is_max: bool,
    of_datafusion: Arc<AggregateUDF>,
}

impl Extreme {
    /// The aggregate function `max`.
    pub fn max() -> Self {
        Self {
            is_max: true,
            of_datafusion: max_udaf(),
        }
    }

    /// The aggregate function `min`.
    pub fn min() -> Self {
        Self {
            is_max: false,
            of_datafusion: min_udaf(),
        }
    }

    /// Whether it is `max`.
    pub fn is_max(&self) -> bool {
        self.is_max
    }

    fn of_groups<T>(&self, data_type: &DataType) -> Box<dyn GroupsAccumulator>
    where
        T: ArrowPrimitiveType + Send,
        T::Native: ArrowNativeTypeOp,
    {
        match self.is_max {
            true => {
                let replace = |most: &mut T::Native, value: T::Native| {
                    if value.is_gt(*most) {
                        *most = value;
                    }
                };
                let groups = PrimitiveGroupsAccumulator::<T, _>::new(data_type, replace);
                Box::new(groups.with_starting_value(T::Native::MIN_TOTAL_ORDER))
            }
            false => {
                let replace = |least: &mut T::Native, value: T::Native| {
                    if value.is_lt(*least) {
                        *least = value;
                    }
                };
                let groups = PrimitiveGroupsAccumulator::<T, _>::new(data_type, replace);
                Box::new(groups.with_starting_value(T::Native::MAX_TOTAL_ORDER))
            }
        }
    }
}

impl AggregateUDFImpl for Extreme {
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
        self.of_datafusion.accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.of_datafusion.create_sliding_accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.of_datafusion.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.of_datafusion.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            number @ DataType::Float16 => Ok(self.of_groups::<Float16Type>(number)),
            number @ DataType::Float32 => Ok(self.of_groups::<Float32Type>(number)),
            number @ DataType::Float64 => Ok(self.of_groups::<Float64Type>(number)),
            _ => self.of_datafusion.create_groups_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.of_datafusion.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.of_datafusion.order_sensitivity()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.of_datafusion.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.of_datafusion.reverse_udf()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs<'_>) -> Option<ScalarValue> {
        self.of_datafusion.value_from_stats(statistics)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.of_datafusion.inner().set_monotonicity(data_type)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.of_datafusion.documentation()
    }
}
