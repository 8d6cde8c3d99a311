//! Sums of floating-point numbers, and of intervals, in a frame that moves over rows.
//!
//! DataFusion 55.2 takes what leaves a frame away from the sum. After NaN or an infinity all later sums were NaN, and
//! after `1e300` small numbers were lost (found here). A frame here is two parts: of the older one the sums from each
//! row on are kept, of the newer one the sum so far. When all of the older part has left, the newer one becomes it.

use std::fmt::Debug;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{ArrowNativeTypeOp, ArrowPrimitiveType, DataType, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

use super::sum::sum_out_of_range;

/// The rows of a frame.
#[derive(Debug, Default)]
struct Frame {
    /// Sum and number of values from each row of the older part on; the oldest is last.
    older: Vec<(f64, u64)>,
    /// The values of the newer part.
    newer: Vec<Option<f64>>,
    /// Sum and number of values of the newer part.
    sum: (f64, u64),
}

impl Frame {
    fn add(&mut self, values: &ArrayRef) {
        for value in values.as_primitive::<Float64Type>() {
            self.newer.push(value);
            self.sum = with(self.sum, value);
        }
    }

    fn remove_oldest(&mut self, rows: usize) -> Result<()> {
        for _ in 0..rows {
            if self.older.is_empty() {
                let mut sum = (0.0, 0);
                for value in self.newer.drain(..).rev() {
                    sum = with(sum, value);
                    self.older.push(sum);
                }
                self.sum = (0.0, 0);
            }
            if self.older.pop().is_none() {
                return internal_err!("a row leaves a frame that it is not in");
            }
        }
        Ok(())
    }

    /// Sum and number of the values.
    fn total(&self) -> (f64, u64) {
        let older = self.older.last().copied().unwrap_or((0.0, 0));
        (older.0 + self.sum.0, older.1 + self.sum.1)
    }

    fn size(&self) -> usize {
        self.older.capacity() * size_of::<(f64, u64)>()
            + self.newer.capacity() * size_of::<Option<f64>>()
    }
}

fn with((sum, count): (f64, u64), value: Option<f64>) -> (f64, u64) {
    match value {
        Some(value) => (sum + value, count + 1),
        None => (sum, count),
    }
}

/// `sum` or `avg` of the DOUBLE in a frame.
#[derive(Debug)]
pub struct FloatFrame {
    frame: Frame,
    averages: bool,
}

impl FloatFrame {
    /// `sum`
    pub fn sum() -> Self {
        Self {
            frame: Frame::default(),
            averages: false,
        }
    }

    /// `avg`
    pub fn average() -> Self {
        Self {
            frame: Frame::default(),
            averages: true,
        }
    }
}

impl Accumulator for FloatFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.frame.add(&values[0]);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.frame.remove_oldest(values[0].len())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (sum, count) = self.frame.total();
        let result = (count > 0).then(|| match self.averages {
            true => sum / count as f64,
            false => sum,
        });
        Ok(ScalarValue::Float64(result))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a frame has no state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a frame has no state")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.frame.size()
    }
}

/// `sum` of intervals, which have no carries: what does not fit in between is an error, too.
#[derive(Debug)]
pub struct IntervalSums<T: ArrowPrimitiveType> {
    sum: T::Native,
    count: u64,
    data_type: DataType,
}

impl<T> IntervalSums<T>
where
    T: ArrowPrimitiveType,
    T::Native: ArrowNativeTypeOp,
{
    /// A sum as a `data_type`, which is one of `T`.
    pub fn new(data_type: DataType) -> Self {
        Self {
            sum: T::Native::default(),
            count: 0,
            data_type,
        }
    }

    fn each(
        &mut self,
        values: &ArrayRef,
        step: impl Fn(T::Native, T::Native) -> Result<T::Native, ArrowError>,
    ) -> Result<()> {
        for value in values.as_primitive::<T>().iter().flatten() {
            let sum = step(self.sum, value);
            self.sum = sum.map_err(|_| sum_out_of_range(&self.data_type))?;
        }
        Ok(())
    }
}

impl<T> Accumulator for IntervalSums<T>
where
    T: ArrowPrimitiveType + Debug,
    T::Native: ArrowNativeTypeOp,
{
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += (values[0].len() - values[0].null_count()) as u64;
        self.each(&values[0], T::Native::add_checked)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= (values[0].len() - values[0].null_count()) as u64;
        self.each(&values[0], T::Native::sub_checked)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = (self.count > 0).then_some(self.sum);
        ScalarValue::new_primitive::<T>(sum, &self.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
