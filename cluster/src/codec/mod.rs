//! Our operators and functions as bytes.
//!
//! DataFusion encodes its own operators, `datafusion-distributed` its exchanges. What is decoded
//! reports to the recorder of the task that the codec is for; nothing else is needed to decode it.

mod aggregates;
mod functions;
mod operators;
mod plans;

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use skewer_compat::functions::shift::Shift;

use self::aggregates::EncodedAggregate;
use self::functions::encoded_function;
use self::operators::{Encoded, encoded};
pub use self::plans::encode_plan;
use crate::task::WorkerTask;

/// Encodes and decodes the operators and functions of `skewer-exec`.
#[derive(Debug, Clone, Default)]
pub struct SkewerCodec {
    /// The task that plans are decoded for.
    place: Option<Arc<WorkerTask>>,
}

impl SkewerCodec {
    /// A codec that decodes the plans of a task; without a task a codec only encodes.
    pub fn of_task(place: Arc<WorkerTask>) -> Self {
        Self { place: Some(place) }
    }

    fn place(&self) -> Result<&Arc<WorkerTask>> {
        match &self.place {
            Some(place) => Ok(place),
            None => internal_err!("a plan is decoded for no task"),
        }
    }
}

impl PhysicalExtensionCodec for SkewerCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let encoded: Encoded = postcard::from_bytes(bytes).map_err(external)?;
        self.decode(encoded, inputs, context, converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        bytes.extend(encoded(&self.encode(node.as_ref(), converter)?)?);
        Ok(())
    }

    fn try_encode_udf(&self, function: &ScalarUDF, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend(encoded_function(function).unwrap_or_default());
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        self.decoded_function(name, bytes)
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if let Some(encoded) = EncodedAggregate::of_function(function) {
            bytes.extend(postcard::to_stdvec(&encoded).map_err(external)?);
        }
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.decoded_aggregate(name, bytes)
    }

    fn try_encode_udwf(&self, function: &WindowUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if let Some(shift) = function.inner().downcast_ref::<Shift>() {
            bytes.extend(if shift.is_lead() { LEAD } else { LAG });
        }
        Ok(())
    }

    fn try_decode_udwf(&self, name: &str, bytes: &[u8]) -> Result<Arc<WindowUDF>> {
        let function = match bytes {
            LEAD => Shift::lead(),
            LAG => Shift::lag(),
            _ => return not_impl_err!("window function {name} is not ours"),
        };
        Ok(Arc::new(WindowUDF::from(function)))
    }
}

/// Stands for the [`Shift`] that is `lead`.
const LEAD: &[u8] = b"lead";

/// Stands for the [`Shift`] that is `lag`.
const LAG: &[u8] = b"lag";

fn external(error: postcard::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
