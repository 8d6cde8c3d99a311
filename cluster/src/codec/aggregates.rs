//! Our aggregate functions as bytes.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::AggregateUDF;
use serde::{Deserialize, Serialize};
use skewer_compat::functions::group_constant::GroupConstant;
use skewer_compat::functions::single_value::SingleValue;
use skewer_compat::functions::totals::average::RoundedAverage;
use skewer_compat::functions::totals::extremes::Extreme;
use skewer_compat::functions::totals::sum::CheckedSum;
use skewer_exec::{CarriedLatency, FrameCapture, LineageCapture};

use super::{SkewerCodec, external};
use crate::records::{EncodedCapture, EncodedCarried, EncodedFrames};

/// An aggregate function, without its name.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum EncodedAggregate {
    /// [`LineageCapture`].
    Capture(EncodedCapture),
    /// [`CarriedLatency`].
    Carried(Vec<EncodedCarried>),
    /// [`FrameCapture`].
    Frames(EncodedFrames),
    /// [`SingleValue`].
    SingleValue,
    /// [`GroupConstant`].
    GroupConstant,
    /// [`CheckedSum`].
    Sum,
    /// [`RoundedAverage`].
    Average,
    /// [`Extreme`], `max` if the flag is set.
    Extreme(bool),
}

impl EncodedAggregate {
    /// The function, if it is ours.
    pub(super) fn of_function(function: &AggregateUDF) -> Option<Self> {
        let inner = function.inner();
        if let Some(capture) = inner.downcast_ref::<LineageCapture>() {
            return Some(Self::Capture(capture.into()));
        }
        if let Some(carried) = inner.downcast_ref::<CarriedLatency>() {
            let inputs = carried.inputs().iter().map(Into::into);
            return Some(Self::Carried(inputs.collect()));
        }
        if let Some(frames) = inner.downcast_ref::<FrameCapture>() {
            return Some(Self::Frames(frames.into()));
        }
        if inner.is::<SingleValue>() {
            return Some(Self::SingleValue);
        }
        if inner.is::<CheckedSum>() {
            return Some(Self::Sum);
        }
        if inner.is::<RoundedAverage>() {
            return Some(Self::Average);
        }
        if let Some(extreme) = inner.downcast_ref::<Extreme>() {
            return Some(Self::Extreme(extreme.is_max()));
        }
        inner.is::<GroupConstant>().then_some(Self::GroupConstant)
    }
}

impl SkewerCodec {
    /// The function that `bytes` stand for.
    pub(super) fn decoded_aggregate(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let encoded: EncodedAggregate = postcard::from_bytes(bytes).map_err(external)?;
        let function = match encoded {
            EncodedAggregate::SingleValue => AggregateUDF::from(SingleValue::default()),
            EncodedAggregate::GroupConstant => AggregateUDF::from(GroupConstant::default()),
            EncodedAggregate::Sum => AggregateUDF::from(CheckedSum::default()),
            EncodedAggregate::Average => AggregateUDF::from(RoundedAverage::default()),
            EncodedAggregate::Extreme(true) => AggregateUDF::from(Extreme::max()),
            EncodedAggregate::Extreme(false) => AggregateUDF::from(Extreme::min()),
            EncodedAggregate::Capture(capture) => {
                let place = self.place()?;
                return place.records.capture(name, capture, &place.recorder);
            }
            EncodedAggregate::Frames(frames) => {
                let place = self.place()?;
                AggregateUDF::from(place.records.frames(name, frames, &place.recorder)?)
            }
            EncodedAggregate::Carried(inputs) => {
                let inputs = inputs.into_iter().map(Into::into);
                let recorder = Arc::clone(&self.place()?.recorder);
                let carried = CarriedLatency::new(name.to_owned(), recorder, inputs.collect());
                AggregateUDF::from(carried)
            }
        };
        Ok(Arc::new(function))
    }
}
