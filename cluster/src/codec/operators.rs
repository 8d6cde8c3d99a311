//! Our operators as bytes.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalPlanDecodeContext, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;
use serde::{Deserialize, Serialize};
use skewer_compat::distribution::deep_plan_codec::{PlanFragmentBytes, decode_deep_plan};
use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_exec::{
    Exchange, LatencyColumn, MeasuredRecords, NumberedExec, Observed, OutputRecordsExec,
    ProfiledExec, RouteRowsExec, Routes, Sampled, SpreadKeys, TimedEvaluationExec,
    TimedExpressions,
};

use super::{SkewerCodec, external};
use crate::records::{EncodedOutputs, EncodedSource};
use crate::sys::{self, EncodedScan};
use crate::write::{self, EncodedWrite};

/// An operator without its inputs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Encoded {
    /// [`NumberedExec`].
    Numbered {
        fragment_id: i64,
        operator_id: i64,
        exchange: EncodedExchange,
        /// What keys are counted of, and the columns of the keys.
        keys: Option<(Sampled, Vec<usize>)>,
    },
    /// [`TimedEvaluationExec`].
    TimedEvaluation {
        /// Expressions as DataFusion encodes them, and the names of their columns.
        expressions: Vec<(Vec<u8>, String)>,
        latency: LatencyColumn<usize>,
        /// Sources, and the columns with the ids of their records.
        records: Vec<(EncodedSource, usize)>,
    },
    /// [`OutputRecordsExec`].
    OutputRecords(EncodedOutputs),
    /// One that writes.
    Write(EncodedWrite),
    /// One that reads schema `sys`.
    Sys(EncodedScan),
    /// [`ConservativePropertiesExec`].
    ConservativeProperties,
    /// [`RouteRowsExec`]: the columns of its key, and where rows go.
    RouteRows(Vec<usize>, Routes, SpreadKeys),
    /// What is below of a plan, as bytes of DataFusion's.
    Fragment(Vec<u8>),
    /// All of a plan, in which fragments may be bytes.
    Whole(Vec<u8>),
}

/// [`Exchange`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum EncodedExchange {
    None,
    Local,
    BetweenWorkers,
}

impl From<Exchange> for EncodedExchange {
    fn from(exchange: Exchange) -> Self {
        match exchange {
            Exchange::None => Self::None,
            Exchange::Local => Self::Local,
            Exchange::BetweenWorkers => Self::BetweenWorkers,
        }
    }
}

impl From<EncodedExchange> for Exchange {
    fn from(exchange: EncodedExchange) -> Self {
        match exchange {
            EncodedExchange::None => Self::None,
            EncodedExchange::Local => Self::Local,
            EncodedExchange::BetweenWorkers => Self::BetweenWorkers,
        }
    }
}

impl SkewerCodec {
    pub(super) fn encode(
        &self,
        plan: &dyn ExecutionPlan,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Encoded> {
        if let Some(numbered) = plan.downcast_ref::<NumberedExec>() {
            let observed = numbered.observed();
            let keys = observed.keys.as_ref();
            return Ok(Encoded::Numbered {
                fragment_id: observed.fragment_id,
                operator_id: observed.operator_id,
                exchange: observed.exchange.into(),
                keys: keys.map(|keys| (keys.sampled(), keys.columns().to_vec())),
            });
        }
        if let Some(outputs) = plan.downcast_ref::<OutputRecordsExec>() {
            return Ok(Encoded::OutputRecords(outputs.into()));
        }
        if plan.is::<ConservativePropertiesExec>() {
            return Ok(Encoded::ConservativeProperties);
        }
        if let Some(routed) = plan.downcast_ref::<RouteRowsExec>() {
            let (keys, routes) = (routed.keys().to_vec(), routed.routes().clone());
            return Ok(Encoded::RouteRows(keys, routes, routed.spread()));
        }
        if let Some(write) = write::encode(plan)? {
            return Ok(Encoded::Write(write));
        }
        if let Some(scan) = sys::encode(plan, self, converter)? {
            return Ok(Encoded::Sys(scan));
        }
        let Some(timed) = plan.downcast_ref::<TimedEvaluationExec>() else {
            return not_impl_err!("{} is not ours", plan.name());
        };
        let timed = timed.timed();
        let expressions = timed.expressions.iter().map(|(expression, name)| {
            let node = converter.physical_expr_to_proto(expression, self)?;
            Ok((node.encode_to_vec(), name.clone()))
        });
        let records = timed.records.iter();
        let records = records.map(|measured| ((&measured.source).into(), measured.id_column));
        Ok(Encoded::TimedEvaluation {
            expressions: expressions.collect::<Result<_>>()?,
            latency: timed.latency.clone(),
            records: records.collect(),
        })
    }

    pub(super) fn decode(
        &self,
        encoded: Encoded,
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let only_input = || match inputs {
            [input] => Ok(input),
            _ => internal_err!("our operators have one input, not {}", inputs.len()),
        };
        let place = self.place()?;
        match encoded {
            Encoded::OutputRecords(outputs) => {
                let (records, recorder) = (&place.records, &place.recorder);
                let outputs = records.outputs(outputs, only_input()?, context, recorder)?;
                Ok(Arc::new(outputs))
            }
            Encoded::RouteRows(keys, routes, spread) => {
                let input = Arc::clone(only_input()?);
                Ok(Arc::new(RouteRowsExec::new(input, keys, routes, spread)?))
            }
            Encoded::ConservativeProperties => {
                let input = only_input()?;
                let operator = match input.downcast_ref::<NumberedExec>() {
                    Some(numbered) => &numbered.observed().inner,
                    None => input,
                };
                let plan = ConservativePropertiesExec::observed(Arc::clone(input), operator);
                Ok(Arc::new(plan))
            }
            Encoded::Fragment(plan) => {
                decode_deep_plan(PlanFragmentBytes::Below(plan), context, converter)
            }
            Encoded::Whole(plan) => {
                decode_deep_plan(PlanFragmentBytes::Whole(plan), context, converter)
            }
            Encoded::Write(write) => write::decode(write, inputs, context),
            Encoded::Sys(scan) => sys::decode(scan, self, context, converter),
            Encoded::Numbered {
                fragment_id,
                operator_id,
                exchange,
                keys,
            } => {
                let observed = Observed {
                    inner: Arc::clone(only_input()?),
                    fragment_id,
                    operator_id,
                    task: place.task,
                    exchange: exchange.into(),
                    keys: keys
                        .map(|(of, columns)| place.records.keys(columns, of, &place.recorder)),
                    recorder: Arc::clone(&place.recorder),
                };
                // Here nothing is replaced below it any more: it passes for the operator again,
                // as in plans that are not distributed.
                place.register_exchange(&NumberedExec::new(observed.clone()));
                Ok(Arc::new(ProfiledExec::observing(observed)))
            }
            Encoded::TimedEvaluation {
                expressions,
                latency,
                records,
            } => {
                let input = only_input()?;
                let decoding = PhysicalPlanDecodeContext::new(context, self);
                let schema = input.schema();
                let expressions = expressions.into_iter().map(|(bytes, name)| {
                    let node = PhysicalExprNode::decode(bytes.as_slice())
                        .map_err(|error| DataFusionError::External(Box::new(error)))?;
                    let expression = converter.proto_to_physical_expr(&node, &schema, &decoding)?;
                    Ok((expression, name))
                });
                let records = records.into_iter().map(|(source, id_column)| {
                    let source = place.records.source(source)?;
                    Ok(MeasuredRecords { source, id_column })
                });
                let timed = TimedExpressions {
                    expressions: expressions.collect::<Result<_>>()?,
                    latency,
                    records: records.collect::<Result<_>>()?,
                };
                Ok(Arc::new(TimedEvaluationExec::try_new(
                    Arc::clone(input),
                    Arc::new(timed),
                    Arc::clone(&place.recorder),
                )?))
            }
        }
    }
}

/// Bytes of an operator.
pub(super) fn encoded(operator: &Encoded) -> Result<Vec<u8>> {
    postcard::to_stdvec(operator).map_err(external)
}
