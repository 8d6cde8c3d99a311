//! Our operators and functions as bytes.
//!
//! DataFusion encodes its own operators, `datafusion-distributed` its exchanges. What is decoded
//! reports to the recorder of the task that the codec is for; nothing else is needed to decode it.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{DistributedCodec, MaybeEncoded};
use datafusion_proto::bytes::physical_plan_to_bytes_with_proto_converter;
use datafusion_proto::physical_plan::{
    ComposedPhysicalExtensionCodec, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalExprNode;
use prost::Message;
use serde::{Deserialize, Serialize};
use skewer_compat::functions::arithmetic::{Arithmetic, Operation};
use skewer_compat::functions::conversion::Conversion;
use skewer_compat::functions::group_constant::GroupConstant;
use skewer_compat::functions::octet_length::OctetLength;
use skewer_compat::functions::patterns::{EscapedPattern, PatternKind};
use skewer_compat::functions::quantified::{Quantified, Quantifier};
use skewer_compat::functions::read_array::ReadArray;
use skewer_compat::functions::row_numbers::RowNumbers;
use skewer_compat::functions::scalar_or_error::ScalarOrError;
use skewer_compat::functions::shift::Shift;
use skewer_compat::functions::single_value::SingleValue;
use skewer_compat::functions::totals::average::RoundedAverage;
use skewer_compat::functions::totals::extremes::Extreme;
use skewer_compat::functions::totals::sum::CheckedSum;
use skewer_compat::functions::zones::{AddInterval, ReadTime, ShowTime, Timezone};
use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_exec::{
    CarriedLatency, Exchange, FrameCapture, Int32RowId, LatencyColumn, LineageCapture,
    MeasuredRecords, NumberedExec, Observed, OutputRecordsExec, ProfiledExec, RecordColumn,
    RouteRowsExec, Routes, Sampled, SampledRowId, SpreadKeys, TimedEvaluationExec,
    TimedExpressions,
};

use crate::records::{
    EncodedCapture, EncodedCarried, EncodedFrames, EncodedOutputs, EncodedSource,
};
use crate::sys::{self, EncodedScan};
use crate::task::WorkerTask;
use crate::write::{self, EncodedWrite};
use skewer_compat::distribution::deep_plan_codec::{
    DeepPlanEncoder, PlanFragmentBytes, decode_deep_plan,
};

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

/// Stands for [`SampledRowId`].
const SAMPLED_ROW_ID: &[u8] = b"sampled";

/// Stands for [`RowNumbers`].
const ROW_NUMBERS: &[u8] = b"numbers";

/// Stands for [`ScalarOrError`].
const SCALAR_OR_ERROR: &[u8] = b"only";

/// Stands for [`OctetLength`].
const OCTET_LENGTH: &[u8] = b"octets";

/// Stands for [`Timezone`].
const TIMEZONE: &[u8] = b"zone";

/// Stands for [`EscapedPattern`] of LIKE.
const LIKE_ESCAPE: &[u8] = b"like";

/// Stands for [`EscapedPattern`] of SIMILAR TO.
const SIMILAR_ESCAPE: &[u8] = b"similar";

/// Stands for [`Quantified`] by ANY.
const ANY_OF: &[u8] = b"any of";

/// Stands for [`Quantified`] by ALL.
const ALL_OF: &[u8] = b"all of";

/// Stands for [`ReadTime`].
const READ_TIME: &[u8] = b"time";

/// Stands for [`ShowTime`].
const SHOW_TIME: &[u8] = b"show time";

/// Stands for [`AddInterval`].
const ADD_INTERVAL: &[u8] = b"add interval";

/// Stands for [`ReadArray`].
const READ_ARRAY: &[u8] = b"array";

/// Stands for [`RecordColumn`].
const PACKED_RECORD: &[u8] = b"packed";

/// Stands for [`Int32RowId`].
const NARROW_ID: &[u8] = b"narrow";

/// Stands for an [`Arithmetic`], before its operation.
const ARITHMETIC: &[u8] = b"arithmetic";

/// Stands for a [`Conversion`], before the name of its type.
const CAST: &[u8] = b"cast ";

/// The same for one that tries.
const TRY_CAST: &[u8] = b"try cast ";

/// What stands for `function`, if it is one of ours.
fn encoded_function(function: &ScalarUDF) -> Option<Vec<u8>> {
    let function = function.inner();
    if let Some(arithmetic) = function.downcast_ref::<Arithmetic>() {
        let operation = postcard::to_stdvec(&arithmetic.operation()).ok()?;
        return Some([ARITHMETIC, &operation].concat());
    }
    if let Some(conversion) = function.downcast_ref::<Conversion>() {
        let kind = if conversion.tries() { TRY_CAST } else { CAST };
        return Some([kind, conversion.to().to_string().as_bytes()].concat());
    }
    let name = if function.is::<SampledRowId>() {
        Some(SAMPLED_ROW_ID)
    } else if function.is::<RowNumbers>() {
        Some(ROW_NUMBERS)
    } else if function.is::<ScalarOrError>() {
        Some(SCALAR_OR_ERROR)
    } else if function.is::<OctetLength>() {
        Some(OCTET_LENGTH)
    } else if function.is::<Timezone>() {
        Some(TIMEZONE)
    } else if function.is::<ReadTime>() {
        Some(READ_TIME)
    } else if let Some(pattern) = function.downcast_ref::<EscapedPattern>() {
        Some(match pattern.kind() {
            PatternKind::Like => LIKE_ESCAPE,
            PatternKind::Similar => SIMILAR_ESCAPE,
        })
    } else if let Some(quantified) = function.downcast_ref::<Quantified>() {
        Some(match quantified.quantifier() {
            Quantifier::Any => ANY_OF,
            Quantifier::All => ALL_OF,
        })
    } else if function.is::<ShowTime>() {
        Some(SHOW_TIME)
    } else if function.is::<AddInterval>() {
        Some(ADD_INTERVAL)
    } else if function.is::<ReadArray>() {
        Some(READ_ARRAY)
    } else if function.is::<RecordColumn>() {
        Some(PACKED_RECORD)
    } else if function.is::<Int32RowId>() {
        Some(NARROW_ID)
    } else {
        None
    };
    name.map(<[u8]>::to_vec)
}

/// An aggregate function, without its name.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum EncodedAggregate {
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
    fn of_function(function: &AggregateUDF) -> Option<Self> {
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

/// An operator without its inputs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Encoded {
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

    fn decode(
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

    /// Which records are traced is said with the plan, not in it.
    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let recorder = || Ok::<_, DataFusionError>(&self.place()?.recorder);
        let function = match bytes {
            SAMPLED_ROW_ID => ScalarUDF::from(SampledRowId::new(Arc::clone(recorder()?))),
            ROW_NUMBERS => ScalarUDF::from(RowNumbers::new(recorder()?.worker_id())),
            SCALAR_OR_ERROR => ScalarUDF::from(ScalarOrError::default()),
            OCTET_LENGTH => ScalarUDF::from(OctetLength::default()),
            SHOW_TIME => ScalarUDF::from(ShowTime::default()),
            ADD_INTERVAL => ScalarUDF::from(AddInterval::default()),
            ANY_OF => ScalarUDF::from(Quantified::new(Quantifier::Any)),
            ALL_OF => ScalarUDF::from(Quantified::new(Quantifier::All)),
            LIKE_ESCAPE => ScalarUDF::from(EscapedPattern::new(PatternKind::Like)),
            SIMILAR_ESCAPE => ScalarUDF::from(EscapedPattern::new(PatternKind::Similar)),
            // The types that they give are in the plan.
            TIMEZONE => ScalarUDF::from(Timezone::default()),
            READ_TIME => ScalarUDF::from(ReadTime::default()),
            READ_ARRAY => ScalarUDF::from(ReadArray::default()),
            PACKED_RECORD => ScalarUDF::from(RecordColumn::default()),
            NARROW_ID => ScalarUDF::from(Int32RowId::default()),
            bytes if bytes.starts_with(CAST) => conversion(&bytes[CAST.len()..], false)?,
            bytes if bytes.starts_with(TRY_CAST) => conversion(&bytes[TRY_CAST.len()..], true)?,
            bytes if bytes.starts_with(ARITHMETIC) => {
                let operation: Operation =
                    postcard::from_bytes(&bytes[ARITHMETIC.len()..]).map_err(external)?;
                ScalarUDF::from(Arithmetic::new(operation))
            }
            _ => return not_impl_err!("function {name} is not ours"),
        };
        Ok(Arc::new(function))
    }

    fn try_encode_udaf(&self, function: &AggregateUDF, bytes: &mut Vec<u8>) -> Result<()> {
        if let Some(encoded) = EncodedAggregate::of_function(function) {
            bytes.extend(postcard::to_stdvec(&encoded).map_err(external)?);
        }
        Ok(())
    }

    fn try_decode_udaf(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
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

fn conversion(to: &[u8], tries: bool) -> Result<ScalarUDF> {
    let to = String::from_utf8_lossy(to).parse()?;
    Ok(ScalarUDF::from(Conversion::new(to, tries)))
}

/// Stands for the [`Shift`] that is `lead`.
const LEAD: &[u8] = b"lead";

/// Stands for the [`Shift`] that is `lag`.
const LAG: &[u8] = b"lag";

fn encoded(operator: &Encoded) -> Result<Vec<u8>> {
    postcard::to_stdvec(operator).map_err(external)
}

fn external(error: postcard::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
