//! Frames whose latencies are carried on.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::common::{Result, ScalarValue};
use skewer_profiling::Carried;

use crate::latency_propagation::{self, CarriedInput};

use super::tree::{Made, Summarize};

/// Puts together what the rows of frames carry.
#[derive(Debug)]
pub(super) struct CarriedFrames {
    inputs: Vec<CarriedInput>,
}

impl CarriedFrames {
    pub(super) fn new(inputs: Vec<CarriedInput>) -> Self {
        Self { inputs }
    }
}

impl Summarize for CarriedFrames {
    type Row = Option<Carried>;
    type Summary = Carried;

    fn rows(&self, values: &[ArrayRef]) -> Result<Vec<Option<Carried>>> {
        let rows = values.first().map_or(0, Array::len);
        latency_propagation::of_rows(values, &self.inputs, rows)
    }

    fn summarize(
        &mut self,
        _: Made,
        rows: &[&Option<Carried>],
        parts: &[Carried],
    ) -> Result<Option<Carried>> {
        let rows = rows.iter().copied().flatten();
        Ok(rows.chain(parts).copied().reduce(Carried::and))
    }

    fn value(frame: Option<Carried>) -> Result<ScalarValue> {
        latency_propagation::scalar(frame)
    }
}
