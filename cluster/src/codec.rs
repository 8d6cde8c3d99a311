//! Our operators as bytes.
//!
//! DataFusion encodes its own operators, `datafusion-distributed` its exchanges. What is decoded
//! reports to the recorder of the task in whose session it is decoded.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;
use serde::{Deserialize, Serialize};
use skewer_exec::{
    Exchange, KeySample, MeasuredRecords, NumberedExec, Observed, ProfiledExec,
    TimedEvaluationExec, TimedExpressions,
};

use crate::records::RecordParts;
use crate::task::TaskPlace;

/// Encodes and decodes the operators of `skewer-exec`, for one query.
#[derive(Debug, Clone, Default)]
pub struct SkewerCodec {
    /// What operators of the record level name by numbers.
    records: Arc<RecordParts>,
}

impl SkewerCodec {
    /// A codec for the query that has `records`.
    pub fn new(records: Arc<RecordParts>) -> Self {
        Self { records }
    }
}

/// An operator without its inputs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Encoded {
    /// [`NumberedExec`].
    Numbered {
        fragment_id: i64,
        operator_id: i64,
        exchange: EncodedExchange,
        /// The exchange whose keys are counted, and the columns of the keys.
        keys: Option<(i64, Vec<usize>)>,
    },
    /// [`TimedEvaluationExec`].
    TimedEvaluation {
        /// Expressions as DataFusion encodes them, and the names of their columns.
        expressions: Vec<(Vec<u8>, String)>,
        latency_name: String,
        earlier_latency: Option<usize>,
        /// Numbers of sources, and the columns with the ids of their records.
        records: Vec<(usize, usize)>,
    },
}

/// [`Exchange`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum EncodedExchange {
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
    fn encode(
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
                keys: keys.map(|keys| (keys.exchange_id(), keys.columns().to_vec())),
            });
        }
        let Some(timed) = plan.downcast_ref::<TimedEvaluationExec>() else {
            return not_impl_err!("{} is not ours", plan.name());
        };
        let timed = timed.timed();
        let expressions = timed.expressions.iter().map(|(expression, name)| {
            let node = converter.physical_expr_to_proto(expression, self)?;
            Ok((node.encode_to_vec(), name.clone()))
        });
        let records = timed.records.iter().map(|measured| {
            let source = self.records.number_of(&measured.source);
            (source, measured.id_column)
        });
        Ok(Encoded::TimedEvaluation {
            expressions: expressions.collect::<Result<_>>()?,
            latency_name: timed.latency_name.clone(),
            earlier_latency: timed.earlier_latency,
            records: records.collect(),
        })
    }

    fn decode(
        &self,
        encoded: Encoded,
        input: &Arc<dyn ExecutionPlan>,
        place: &TaskPlace,
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match encoded {
            Encoded::Numbered {
                fragment_id,
                operator_id,
                exchange,
                keys,
            } => {
                let observed = Observed {
                    inner: Arc::clone(input),
                    fragment_id,
                    operator_id,
                    task: place.task,
                    exchange: exchange.into(),
                    keys: keys.map(|(exchange_id, columns)| {
                        Arc::new(KeySample::new(columns, exchange_id, &place.recorder))
                    }),
                    recorder: Arc::clone(&place.recorder),
                };
                // Here nothing is replaced below it any more: it passes for the operator again,
                // as in plans that are not distributed.
                place.learn(&NumberedExec::new(observed.clone()));
                Ok(Arc::new(ProfiledExec::observing(observed)))
            }
            Encoded::TimedEvaluation {
                expressions,
                latency_name,
                earlier_latency,
                records,
            } => {
                let decoding = PhysicalPlanDecodeContext::new(context, self);
                let schema = input.schema();
                let expressions = expressions.into_iter().map(|(bytes, name)| {
                    let node = PhysicalExprNode::decode(bytes.as_slice())
                        .map_err(|error| DataFusionError::External(Box::new(error)))?;
                    let expression = converter.proto_to_physical_expr(&node, &schema, &decoding)?;
                    Ok((expression, name))
                });
                let records = records.into_iter().map(|(source, id_column)| {
                    let source = self.records.source(source)?;
                    Ok(MeasuredRecords { source, id_column })
                });
                let timed = TimedExpressions {
                    expressions: expressions.collect::<Result<_>>()?,
                    latency_name,
                    earlier_latency,
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

impl PhysicalExtensionCodec for SkewerCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let encoded: Encoded = postcard::from_bytes(bytes).map_err(external)?;
        let Some(place) = TaskPlace::of(context.session_config()) else {
            return internal_err!("a plan is decoded in a session that is no task's");
        };
        let [input] = inputs else {
            return internal_err!("our operators have one input, not {}", inputs.len());
        };
        self.decode(encoded, input, &place, context, converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let encoded = self.encode(node.as_ref(), converter)?;
        bytes.extend(postcard::to_stdvec(&encoded).map_err(external)?);
        Ok(())
    }
}

fn external(error: postcard::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
