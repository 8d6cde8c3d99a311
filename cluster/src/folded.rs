//! Plans of any depth as bytes.
//!
//! A plan is a message of messages, and prost decodes none that are nested more than a hundred deep: an
//! operator takes two levels, what numbers it two more, and expressions take some, too. So every few
//! operators what is below is put into the message as bytes, which are a message of their own.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::DistributedCodec;
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalPlanNodeExt, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{PhysicalExprNode, PhysicalExtensionNode, PhysicalPlanNode};
use prost::Message;

/// After so many of DataFusion's operators what is below is folded. An operator takes two levels. Those of
/// ours above one, whose inputs DataFusion encodes without asking us, are five at most (a timed evaluation,
/// one that claims nothing, and what numbers all three), so that two take 24, and leave the others to
/// expressions.
const EVERY: usize = 2;

/// Bytes of stack that these take at most, also in debug builds; and of a new stack.
const STACK_LEFT: usize = 1 << 20;
const STACK: usize = 4 << 20;

/// What an operator of ours is encoded as, for
/// [`ComposedPhysicalExtensionCodec`](datafusion_proto::physical_plan::ComposedPhysicalExtensionCodec): whose
/// it is, and its bytes.
#[derive(Clone, PartialEq, Message)]
struct OfCodec {
    #[prost(uint32, tag = 1)]
    position: u32,
    #[prost(bytes, tag = 2)]
    bytes: Vec<u8>,
}

/// Encodes a plan with all that is too deep in it folded.
pub(crate) struct Folding<F> {
    expressions: DeduplicatingProtoConverter,
    /// In how many operators the one is that is being encoded.
    depth: Cell<usize>,
    /// The place among the codecs of the one that unfolds.
    position: u32,
    /// What that codec takes for a plan with these bytes.
    folded: F,
}

impl<F: Fn(Vec<u8>) -> Result<Vec<u8>>> Folding<F> {
    pub(crate) fn new(position: u32, folded: F) -> Self {
        Self {
            expressions: DeduplicatingProtoConverter::default(),
            depth: Cell::new(0),
            position,
            folded,
        }
    }

    fn fold(&self, plan: &PhysicalPlanNode) -> Result<PhysicalPlanNode> {
        let of_codec = OfCodec {
            position: self.position,
            bytes: (self.folded)(plan.encode_to_vec())?,
        };
        Ok(PhysicalPlanNode {
            physical_plan_type: Some(PhysicalPlanType::Extension(PhysicalExtensionNode {
                node: of_codec.encode_to_vec(),
                inputs: Vec::new(),
            })),
        })
    }
}

impl<F: Fn(Vec<u8>) -> Result<Vec<u8>>> PhysicalProtoConverterExtension for Folding<F> {
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        let encoded = stacker::maybe_grow(STACK_LEFT, STACK, || {
            let plan = Arc::clone(plan);
            PhysicalPlanNode::try_from_physical_plan_with_converter(plan, codec, self)
        });
        self.depth.set(depth);
        match depth > 0 && depth.is_multiple_of(EVERY) {
            true => self.fold(&encoded?),
            false => encoded,
        }
    }

    fn physical_expr_to_proto(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        self.expressions.physical_expr_to_proto(expression, codec)
    }

    fn proto_to_execution_plan(
        &self,
        plan: &PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.expressions.proto_to_execution_plan(plan, context)
    }

    fn proto_to_physical_expr(
        &self,
        expression: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        self.expressions
            .proto_to_physical_expr(expression, schema, context)
    }
}

/// The plan whose bytes were folded; `converter` is that of the plan around it, which knows the expressions
/// that both have. Results of scalar subqueries are not known here: workers are sent none.
///
/// # Errors
/// If they are no plan, or one that cannot be decoded.
pub(crate) fn unfolded(
    bytes: Vec<u8>,
    context: &TaskContext,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Arc<dyn ExecutionPlan>> {
    let codec = DistributedCodec::new_combined_with_user(context.session_config());
    let context = PhysicalPlanDecodeContext::new(context, &codec);
    stacker::maybe_grow(STACK_LEFT, STACK, || {
        let plan = PhysicalPlanNode::decode(bytes.as_slice())
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        // What is in it has bytes of its own.
        drop(bytes);
        converter.proto_to_execution_plan(&plan, &context)
    })
}
