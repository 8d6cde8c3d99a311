//! What the partitions that read one build side have in common, and the memory for it.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::build::{Built, Collector};
use super::disk::{Disk, Parts};
use super::probe::Seen;
use super::spec::{Inputs, Spec};
use crate::rules::bound_key_arrays;

/// How a build side registers for memory. It can spill until a hash table is made of it.
pub const CONSUMER: &str = "JoinBuild";

/// A build side that several partitions may wait for.
pub(super) type Building = Shared<BoxFuture<'static, Result<Arc<Built>, Arc<DataFusionError>>>>;

/// What the partitions that read one build side have in common.
pub(super) struct Stage {
    pub(super) building: Building,
    /// The join of everything, if that fits.
    pub(super) whole: Arc<Inputs>,
    /// The join of what is in memory, if not all is; made when it is first needed.
    pub(super) in_memory: Mutex<Option<Arc<Inputs>>>,
    pub(super) partitions: usize,
    pub(super) shared: Arc<Rest>,
}

/// What is left of it while parts on disk are joined.
#[derive(Default)]
pub(super) struct Rest {
    pub(super) seen: Arc<Seen>,
    /// Probe rows on disk of partitions that are through.
    pub(super) probes: Mutex<Vec<Arc<Parts>>>,
    /// How many partitions are through.
    pub(super) through: AtomicUsize,
}

/// A future that collects a build side.
pub(super) fn building(
    spec: Arc<Spec>,
    input: SendableRecordBatchStream,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
) -> Building {
    let collected = async move {
        let collector = Collector {
            spec: &spec,
            depth: 0,
            disk: Disk::new(&context, &metrics, partition),
            reservation: reservation(&context, partition),
            context: &context,
            all_or_nothing: spec.null_aware || spec.has_no_keys(),
        };
        let built = collector.collect(input).await.map_err(Arc::new)?;
        Ok(Arc::new(built))
    };
    collected.boxed().shared()
}

pub(super) fn reservation(context: &TaskContext, partition: usize) -> MemoryReservation {
    MemoryConsumer::new(format!("{CONSUMER}[{partition}]"))
        .with_can_spill(true)
        .register(context.memory_pool())
}

/// The same, but that memory is not counted: what hash joins need has been reserved. Where keys are found in an array
/// instead, it takes no more.
pub(super) fn unaccounted(context: &TaskContext) -> Arc<TaskContext> {
    static WITHOUT_LIMIT: LazyLock<Arc<RuntimeEnv>> = LazyLock::new(Arc::default);
    let mut config = context.session_config().clone();
    if let MemoryLimit::Finite(limit) = context.memory_pool().memory_limit() {
        bound_key_arrays(config.options_mut(), limit);
    }
    let context = TaskContext::default()
        .with_session_config(config)
        .with_runtime(Arc::clone(&WITHOUT_LIMIT));
    Arc::new(context)
}
