//! Plans of any depth as bytes.
//!
//! A plan is a message of messages, and prost decodes none that are nested more than a hundred deep: an
//! operator takes two levels, what numbers it two more, and an expression two or three. So every few
//! operators, and every few expressions within each other, what is below is put into the message as bytes,
//! which are a message of their own. How deep a message is then depends on neither, so that a plan that can
//! be decoded still can once its operators are numbered. Types of types stay where they are.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::DistributedCodec;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr_with_converter;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    PhysicalExprNode, PhysicalExtensionExprNode, PhysicalExtensionNode, PhysicalPlanNode,
};
use prost::Message;

/// After so many of DataFusion's operators what is below becomes bytes. An operator takes two levels. Those of
/// ours above one, whose inputs DataFusion encodes without asking us, are five at most (a timed evaluation,
/// one that claims nothing, and what numbers all three), so that two take 24.
const EVERY_OPERATORS: usize = 2;

/// After so many expressions within each other what is below becomes bytes. `CASE` and ranges take three levels,
/// the others two or less, so that these take 24.
const EVERY_EXPRESSIONS: usize = 8;

/// Bytes of stack that these take at most, also in debug builds; and of a new stack.
const STACK_LEFT: usize = 1 << 20;
const STACK: usize = 4 << 20;

/// What an operator of ours is encoded as, for
/// [`ComposedPhysicalExtensionCodec`](datafusion_proto::physical_plan::ComposedPhysicalExtensionCodec): whose
/// it is, and its bytes.
#[derive(Clone, PartialEq, Message)]
struct CodecEntry {
    #[prost(uint32, tag = 1)]
    position: u32,
    #[prost(bytes, tag = 2)]
    bytes: Vec<u8>,
}

/// What our codec takes for a plan, which has these bytes.
pub enum PlanFragmentBytes {
    /// All of it.
    Whole(Vec<u8>),
    /// What is below of one.
    Below(Vec<u8>),
}

/// Encodes a plan; what is too deep in it becomes bytes. Expressions that know each other by their ids do
/// so still: DataFusion writes these.
pub struct DeepPlanEncoder<F> {
    /// In how many operators the one is that is being encoded.
    operators: Cell<usize>,
    /// In how many expressions the one is that is being encoded.
    expressions: Cell<usize>,
    /// The place among the codecs of the one that decodes fragments.
    position: u32,
    /// What that codec takes for a piece.
    encoded: F,
}

impl<F: Fn(PlanFragmentBytes) -> Result<Vec<u8>>> DeepPlanEncoder<F> {
    /// Encodes with the codec at `position`, and makes our operators of pieces with `encoded`.
    pub fn new(position: u32, encoded: F) -> Self {
        Self {
            operators: Cell::new(0),
            expressions: Cell::new(0),
            position,
            encoded,
        }
    }

    fn embed(&self, piece: PlanFragmentBytes) -> Result<PhysicalPlanNode> {
        let of_codec = CodecEntry {
            position: self.position,
            bytes: (self.encoded)(piece)?,
        };
        Ok(PhysicalPlanNode {
            physical_plan_type: Some(PhysicalPlanType::Extension(PhysicalExtensionNode {
                node: of_codec.encode_to_vec(),
                inputs: Vec::new(),
            })),
        })
    }
}

/// What `encode` returns, one deeper, and how deep it is.
fn deeper<T>(depth: &Cell<usize>, encode: impl FnOnce() -> Result<T>) -> Result<(usize, T)> {
    let at = depth.get();
    depth.set(at + 1);
    let encoded = stacker::maybe_grow(STACK_LEFT, STACK, encode);
    depth.set(at);
    Ok((at, encoded?))
}

impl<F: Fn(PlanFragmentBytes) -> Result<Vec<u8>>> PhysicalProtoConverterExtension
    for DeepPlanEncoder<F>
{
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let (depth, node) = deeper(&self.operators, || {
            let plan = Arc::clone(plan);
            PhysicalPlanNode::try_from_physical_plan_with_converter(plan, codec, self)
        })?;
        match depth {
            0 => self.embed(PlanFragmentBytes::Whole(node.encode_to_vec())),
            _ if depth.is_multiple_of(EVERY_OPERATORS) => {
                self.embed(PlanFragmentBytes::Below(node.encode_to_vec()))
            }
            _ => Ok(node),
        }
    }

    fn physical_expr_to_proto(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        let (depth, node) = deeper(&self.expressions, || {
            serialize_physical_expr_with_converter(expression, codec, self)
        })?;
        if depth == 0 || !depth.is_multiple_of(EVERY_EXPRESSIONS) {
            return Ok(node);
        }
        Ok(PhysicalExprNode {
            expr_id: None,
            expr_type: Some(ExprType::Extension(PhysicalExtensionExprNode {
                expr: node.encode_to_vec(),
                inputs: Vec::new(),
            })),
        })
    }

    fn proto_to_execution_plan(
        &self,
        _: &PhysicalPlanNode,
        _: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("plans are encoded here, not decoded")
    }

    fn proto_to_physical_expr(
        &self,
        _: &PhysicalExprNode,
        _: &Schema,
        _: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        internal_err!("expressions are encoded here, not decoded")
    }
}

/// Decodes a plan and the fragments that are bytes in it.
#[derive(Default)]
struct DeepPlanDecoder {
    /// Expressions by the id that they know each other by, as a dynamic filter that a join and a scan share:
    /// those that follow are derived from the first, as
    /// [`DeduplicatingProtoConverter`](datafusion_proto::physical_plan::DeduplicatingProtoConverter) does.
    known: RefCell<HashMap<u64, Arc<dyn PhysicalExpr>>>,
}

impl DeepPlanDecoder {
    fn expression(
        &self,
        node: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        // No other expression is one that DataFusion does not know.
        if let Some(ExprType::Extension(fragment)) = &node.expr_type {
            let node = PhysicalExprNode::decode(fragment.expr.as_slice()).map_err(no_message)?;
            return self.expression(&node, schema, context);
        }
        let expression = parse_physical_expr_with_converter(node, schema, context, self)?;
        let Some(id) = node.expr_id else {
            return Ok(expression);
        };
        let first = self.known.borrow().get(&id).map(Arc::clone);
        match first {
            Some(first) => {
                let children = expression.children().into_iter().map(Arc::clone);
                let children = children.collect();
                first.with_new_children(children)
            }
            None => {
                let known = Arc::clone(&expression);
                self.known.borrow_mut().insert(id, known);
                Ok(expression)
            }
        }
    }
}

impl PhysicalProtoConverterExtension for DeepPlanDecoder {
    fn proto_to_execution_plan(
        &self,
        plan: &PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        stacker::maybe_grow(STACK_LEFT, STACK, || {
            plan.try_into_physical_plan_with_context(context, self)
        })
    }

    fn proto_to_physical_expr(
        &self,
        expression: &PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        stacker::maybe_grow(STACK_LEFT, STACK, || {
            self.expression(expression, schema, context)
        })
    }

    fn execution_plan_to_proto(
        &self,
        _: &Arc<dyn ExecutionPlan>,
        _: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        internal_err!("plans are decoded here, not encoded")
    }

    fn physical_expr_to_proto(
        &self,
        _: &Arc<dyn PhysicalExpr>,
        _: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        internal_err!("expressions are decoded here, not encoded")
    }
}

/// The plan that a piece is of. Of what is below of one, `converter` is that of the plan around it, which
/// knows the expressions that both have. Results of scalar subqueries are not known here: workers are sent
/// none.
///
/// # Errors
/// If it is no plan, or one that cannot be decoded.
pub fn decode_deep_plan(
    piece: PlanFragmentBytes,
    context: &TaskContext,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Arc<dyn ExecutionPlan>> {
    let decoder = DeepPlanDecoder::default();
    let (bytes, converter) = match piece {
        PlanFragmentBytes::Whole(bytes) => {
            (bytes, &decoder as &dyn PhysicalProtoConverterExtension)
        }
        PlanFragmentBytes::Below(bytes) => (bytes, converter),
    };
    let codec = DistributedCodec::new_combined_with_user(context.session_config());
    let context = PhysicalPlanDecodeContext::new(context, &codec);
    let plan = PhysicalPlanNode::decode(bytes.as_slice()).map_err(no_message)?;
    // What is in it has bytes of its own.
    drop(bytes);
    converter.proto_to_execution_plan(&plan, &context)
}

fn no_message(error: prost::DecodeError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
