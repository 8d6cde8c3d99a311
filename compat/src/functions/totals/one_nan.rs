//! Totals of floating-point numbers with one NaN: see [`one_nan`](crate::functions::one_nan).

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::functions::one_nan::{value_with_one_nan, with_one_nan};

/// An accumulator whose total is the one NaN if it is a NaN.
#[derive(Debug)]
pub(super) struct OneNan(pub(super) Box<dyn Accumulator>);

impl Accumulator for OneNan {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate().map(value_with_one_nan)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

/// The same for the totals of groups.
pub(super) struct GroupsOneNan(pub(super) Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for GroupsOneNan {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.0.update_batch(values, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate(emit_to).map(with_one_nan)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.0.merge_batch(states, groups, count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
