//! Our operators as bytes.
//!
//! DataFusion encodes its own operators, `datafusion-distributed` its exchanges. What is decoded
//! reports to the recorder of the task in whose session it is decoded.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};
use skewer_exec::{Exchange, KeySample, NumberedExec, Observed, ProfiledExec};

use crate::task::TaskPlace;

/// Encodes and decodes the operators of `skewer-exec`.
#[derive(Debug, Clone, Copy)]
pub struct SkewerCodec;

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

impl Encoded {
    fn of(plan: &dyn ExecutionPlan) -> Result<Self> {
        let Some(numbered) = plan.downcast_ref::<NumberedExec>() else {
            return not_impl_err!("{} is not ours", plan.name());
        };
        let observed = numbered.observed();
        let keys = observed.keys.as_ref();
        Ok(Self::Numbered {
            fragment_id: observed.fragment_id,
            operator_id: observed.operator_id,
            exchange: observed.exchange.into(),
            keys: keys.map(|keys| (keys.exchange_id(), keys.columns().to_vec())),
        })
    }

    fn decode(
        self,
        inputs: &[Arc<dyn ExecutionPlan>],
        place: &TaskPlace,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Self::Numbered {
            fragment_id,
            operator_id,
            exchange,
            keys,
        } = self;
        let [inner] = inputs else {
            return internal_err!("a numbered operator is one, not {}", inputs.len());
        };
        let observed = Observed {
            inner: Arc::clone(inner),
            fragment_id,
            operator_id,
            task: place.task,
            exchange: exchange.into(),
            keys: keys.map(|(exchange_id, columns)| {
                Arc::new(KeySample::new(columns, exchange_id, &place.recorder))
            }),
            recorder: Arc::clone(&place.recorder),
        };
        // Here nothing is replaced below it any more: it passes for the operator again, as in
        // plans that are not distributed.
        place.learn(&NumberedExec::new(observed.clone()));
        Ok(Arc::new(ProfiledExec::observing(observed)))
    }
}

impl PhysicalExtensionCodec for SkewerCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let encoded: Encoded = postcard::from_bytes(bytes).map_err(external)?;
        let Some(place) = TaskPlace::of(context.session_config()) else {
            return internal_err!("a plan is decoded in a session that is no task's");
        };
        encoded.decode(inputs, &place)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let encoded = Encoded::of(node.as_ref())?;
        bytes.extend(postcard::to_stdvec(&encoded).map_err(external)?);
        Ok(())
    }
}

fn external(error: postcard::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
