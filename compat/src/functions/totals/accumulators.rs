//! Sums and averages of all rows, or of those in a frame that moves over them.

use std::collections::HashMap;
use std::fmt::Debug;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Int32Type, UInt64Type,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::Accumulator;

use super::average::Averaging;
use super::sum::sum_out_of_range;
use super::wide::{Number, Wide};
use crate::functions::arithmetic::decimals::has_digits;

/// A carry as states have it.
pub fn carry_of_state(carry: i64) -> Result<i32> {
    match i32::try_from(carry) {
        Ok(carry) => Ok(carry),
        Err(_) => exec_err!("a sum is more than 2^31 times out of its range"),
    }
}

/// Refuses a sum that is no `data_type`.
pub fn in_range<N: Number>(sum: N, data_type: &DataType) -> Result<N, DataFusionError> {
    if let DataType::Decimal128(precision, _) = data_type
        && !has_digits(sum.wider(), i16::from(*precision))
    {
        return Err(sum_out_of_range(data_type));
    }
    Ok(sum)
}

/// Sum and number of values that are not NULL.
#[derive(Debug, Clone, Copy, Default)]
struct Total<N> {
    sum: Wide<N>,
    count: u64,
}

impl<N: Number> Total<N> {
    fn of_values<T: ArrowPrimitiveType<Native = N>>(values: &ArrayRef) -> Self {
        let values = values.as_primitive::<T>();
        Self {
            sum: Wide::of_values(values),
            count: (values.len() - values.null_count()) as u64,
        }
    }

    fn add(&mut self, other: Self) {
        self.sum.add_wide(other.sum);
        self.count += other.count;
    }

    fn subtract(&mut self, other: Self) {
        self.sum.subtract_wide(other.sum);
        self.count -= other.count;
    }

    /// The sum that states of others are, without how many rows they are of.
    fn of_states<T: ArrowPrimitiveType<Native = N>>(states: &[ArrayRef]) -> Result<Self> {
        let [low, carries] = states else {
            return internal_err!("a sum has two states");
        };
        let mut total = Self::of_values::<T>(low);
        let carries = carries.as_primitive::<Int32Type>().values().iter();
        total.sum.carry += carries.map(|carry| i64::from(*carry)).sum::<i64>();
        Ok(total)
    }

    /// The sum without its carry as a `data_type`, and the carry.
    fn states<T: ArrowPrimitiveType<Native = N>>(
        self,
        data_type: &DataType,
    ) -> Result<[ScalarValue; 2]> {
        let low = (self.count != 0).then_some(self.sum.low);
        let carry = carry_of_state(self.sum.carry)?;
        Ok([
            ScalarValue::new_primitive::<T>(low, data_type)?,
            ScalarValue::Int32(Some(carry)),
        ])
    }
}

/// `sum`.
#[derive(Debug)]
pub struct Sums<T: ArrowPrimitiveType> {
    total: Total<T::Native>,
    data_type: DataType,
}

impl<T> Sums<T>
where
    T: ArrowPrimitiveType,
    T::Native: Number,
{
    /// A sum as a `data_type`, which is one of `T`.
    pub fn new(data_type: DataType) -> Self {
        Self {
            total: Total::default(),
            data_type,
        }
    }
}

impl<T> Accumulator for Sums<T>
where
    T: ArrowPrimitiveType + Debug,
    T::Native: Number,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.total.add(Total::of_values::<T>(&values[0]));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.total.subtract(Total::of_values::<T>(&values[0]));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.total.add(Total::of_states::<T>(states)?);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(self.total.states::<T>(&self.data_type)?.into())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = match self.total.count {
            0 => None,
            _ => {
                let sum = self.total.sum.get();
                let sum = sum.ok_or_else(|| sum_out_of_range(&self.data_type))?;
                Some(in_range(sum, &self.data_type)?)
            }
        };
        ScalarValue::new_primitive::<T>(sum, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// `sum(DISTINCT …)`. How often each value is there tells when it leaves a frame.
#[derive(Debug)]
pub struct DistinctSums<T: ArrowPrimitiveType> {
    counts: HashMap<T::Native, u64>,
    sum: Wide<T::Native>,
    data_type: DataType,
}

impl<T> DistinctSums<T>
where
    T: ArrowPrimitiveType,
    T::Native: Number,
{
    /// A sum as a `data_type`, which is one of `T`.
    pub fn new(data_type: DataType) -> Self {
        Self {
            counts: HashMap::new(),
            sum: Wide::default(),
            data_type,
        }
    }

    fn add(&mut self, values: &ArrayRef) {
        for value in values.as_primitive::<T>().iter().flatten() {
            let count = self.counts.entry(value).or_default();
            if *count == 0 {
                self.sum.add(value);
            }
            *count += 1;
        }
    }
}

impl<T> Accumulator for DistinctSums<T>
where
    T: ArrowPrimitiveType + Debug,
    T::Native: Number,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0]);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            let Some(count) = self.counts.get_mut(&value) else {
                return internal_err!("a value leaves a frame that it is not in");
            };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&value);
                self.sum.subtract_wide(Wide {
                    low: value,
                    carry: 0,
                });
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.add(&values);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.counts.keys();
        let values = values.map(|v| ScalarValue::new_primitive::<T>(Some(*v), &self.data_type));
        let values = values.collect::<Result<Vec<_>>>()?;
        let list = ScalarValue::new_list_nullable(&values, &self.data_type);
        Ok(vec![ScalarValue::List(list)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = match self.counts.is_empty() {
            true => None,
            false => {
                let sum = self.sum.get();
                let sum = sum.ok_or_else(|| sum_out_of_range(&self.data_type))?;
                Some(in_range(sum, &self.data_type)?)
            }
        };
        ScalarValue::new_primitive::<T>(sum, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.capacity() * size_of::<(T::Native, u64)>()
    }
}

/// `avg` of decimals.
#[derive(Debug)]
pub struct Averages {
    total: Total<i128>,
    averaging: Averaging,
}

impl Averages {
    /// Averages as `averaging` says.
    pub fn new(averaging: Averaging) -> Self {
        Self {
            total: Total::default(),
            averaging,
        }
    }
}

impl Accumulator for Averages {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.total
            .add(Total::of_values::<Decimal128Type>(&values[0]));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.total
            .subtract(Total::of_values::<Decimal128Type>(&values[0]));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, sums @ ..] = states else {
            return internal_err!("an average has three states");
        };
        let counts = counts.as_primitive::<UInt64Type>();
        let mut total = Total::of_states::<Decimal128Type>(sums)?;
        total.count = counts.values().iter().sum();
        self.total.add(total);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let [low, carry] = self.total.states::<Decimal128Type>(&self.averaging.sum)?;
        let count = ScalarValue::UInt64(Some(self.total.count));
        Ok(vec![count, low, carry])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = self.averaging.average(self.total.sum, self.total.count)?;
        ScalarValue::new_primitive::<Decimal128Type>(average, &self.averaging.result)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// `avg(DISTINCT …)` of decimals.
#[derive(Debug)]
pub struct DistinctAverages {
    values: DistinctSums<Decimal128Type>,
    averaging: Averaging,
}

impl DistinctAverages {
    /// Averages as `averaging` says.
    pub fn new(averaging: Averaging) -> Self {
        Self {
            values: DistinctSums::new(averaging.sum.clone()),
            averaging,
        }
    }
}

impl Accumulator for DistinctAverages {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = self.values.counts.len() as u64;
        let average = self.averaging.average(self.values.sum, count)?;
        ScalarValue::new_primitive::<Decimal128Type>(average, &self.averaging.result)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}
