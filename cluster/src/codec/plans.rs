//! Whole plans as bytes, for workers.

use std::sync::Arc;

use datafusion::common::{Result, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{DistributedCodec, MaybeEncoded};
use datafusion_proto::bytes::physical_plan_to_bytes_with_proto_converter;
use datafusion_proto::physical_plan::{
    ComposedPhysicalExtensionCodec, PhysicalExtensionCodec, PhysicalProtoConverterExtension,
};
use skewer_compat::distribution::deep_plan_codec::{DeepPlanEncoder, PlanFragmentBytes};
use skewer_compat::functions::shift::Shift;

use super::SkewerCodec;
use super::aggregates::EncodedAggregate;
use super::functions::encoded_function;
use super::operators::{Encoded, encoded};

/// `plan` as bytes that a [`Worker`](datafusion_distributed::Worker) decodes; the channels to
/// workers send these instead of having `datafusion-distributed` encode the plan, which would
/// leave our functions out.
///
/// # Errors
/// If something in the plan cannot be encoded.
pub fn encode_plan(
    plan: MaybeEncoded<Arc<dyn ExecutionPlan>>,
) -> Result<MaybeEncoded<Arc<dyn ExecutionPlan>>> {
    let plan = match plan {
        MaybeEncoded::Decoded(plan) => plan,
        encoded @ MaybeEncoded::Encoded(_) => return Ok(encoded),
    };
    let codecs: Vec<Arc<dyn PhysicalExtensionCodec>> = vec![
        Arc::new(WithoutOurFunctions),
        Arc::new(SkewerCodec::default()),
    ];
    let codec = ComposedPhysicalExtensionCodec::new(codecs);
    let converter = DeepPlanEncoder::new(OURS, |piece| {
        encoded(&match piece {
            PlanFragmentBytes::Whole(plan) => Encoded::Whole(plan),
            PlanFragmentBytes::Below(plan) => Encoded::Fragment(plan),
        })
    });
    let bytes = physical_plan_to_bytes_with_proto_converter(plan, &codec, &converter)?;
    Ok(MaybeEncoded::Encoded(bytes.to_vec()))
}

/// The place of our codec in sessions of tasks, behind that of `datafusion-distributed`.
const OURS: u32 = 1;

/// The codec of `datafusion-distributed`, which comes first. It would answer that functions need
/// no bytes, whichever they are.
#[derive(Debug)]
struct WithoutOurFunctions;

impl PhysicalExtensionCodec for WithoutOurFunctions {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        DistributedCodec.try_decode(bytes, inputs, context, converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        DistributedCodec.try_encode(node, bytes, converter)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if encoded_function(function).is_some() {
            return not_impl_err!("{} is not its own", function.name());
        }
        DistributedCodec.try_encode_udf(function, bytes)
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if EncodedAggregate::of_function(function).is_some() {
            return not_impl_err!("{} is not its own", function.name());
        }
        DistributedCodec.try_encode_udaf(function, bytes)
    }

    fn try_encode_udwf(&self, function: &WindowUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if function.inner().is::<Shift>() {
            return not_impl_err!("{} is not its own", function.name());
        }
        DistributedCodec.try_encode_udwf(function, bytes)
    }
}
