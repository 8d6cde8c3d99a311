//! Joins whose build side may be larger than memory.
//!
//! A [`SpillingJoinExec`] reads the build side first, as DataFusion's hash join does. While memory
//! suffices it only counts, and in the end hands everything to that join, with its dynamic filter.
//! When memory is refused, it splits the build side into parts by a hash of the keys. The largest parts
//! go to disk until the others fit. Probe rows whose part is in memory are joined at once; others go to
//! disk, but for those that a Bloom filter tells have no partner. Then the parts on disk are joined one
//! after the other in the same way: one that does not fit is split by another hash. A part of one key
//! cannot be split: it is joined in blocks (`blocks`). So are joins without keys. (DataFusion 55.2's
//! nested loop join spills, too, but reads its build side a second time, and returns build rows of outer
//! joins once for each partition.)
//!
//! Where rows are promised in the order of the probe side, `runs` puts them in order again.

mod blocks;
mod build;
mod disk;
mod driver;
mod keys;
mod leaf;
mod pieces;
mod probe;
mod runs;
mod spec;
mod stage;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use parking_lot::Mutex;

use driver::Driver;
pub use spec::Pace;
use spec::{Inputs, Spec};
pub use stage::CONSUMER;
use stage::{Stage, building};

/// A join that spills where memory has a limit. To plan inspection it *is* that join.
pub struct SpillingJoinExec {
    spec: Arc<Spec>,
    metrics: ExecutionPlanMetricsSet,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether memory has a limit, once a partition has asked.
    limited: Option<bool>,
    /// The join of everything, of partitions with build sides of their own.
    whole: Option<Arc<Inputs>>,
    /// What all partitions have in common if the build side is one, until all have it.
    stage: Option<Arc<Stage>>,
    /// How many have it.
    executed: usize,
}

impl SpillingJoinExec {
    /// Of `plan`, which is, or passes for, one that [`spills`] can be made of. Streams that a join
    /// probes with yield in time with `pace`.
    ///
    /// # Errors
    /// If `plan` is another operator.
    pub fn new(plan: Arc<dyn ExecutionPlan>, pace: Pace) -> Result<Self> {
        Ok(Self {
            spec: Arc::new(Spec::new(plan, pace)?),
            metrics: ExecutionPlanMetricsSet::new(),
            state: Mutex::default(),
        })
    }

    fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.spec.plan
    }

    /// The same around another plan node.
    fn around(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(plan, Arc::clone(&self.spec.pace))?))
    }

    /// The build side of a partition, and what it is joined with.
    fn stage(&self, partition: usize, context: &Arc<TaskContext>) -> Result<Arc<Stage>> {
        let mut state = self.state.lock();
        let new_stage = |whole: Arc<Inputs>, partition, partitions| {
            let build = self.spec.left().execute(partition, Arc::clone(context))?;
            let (spec, context) = (Arc::clone(&self.spec), Arc::clone(context));
            let metrics = self.metrics.clone();
            Result::Ok(Arc::new(Stage {
                building: building(spec, build, context, metrics, partition),
                whole,
                in_memory: Mutex::default(),
                partitions,
                shared: Arc::default(),
            }))
        };
        if !self.spec.collects_left {
            let whole = match &state.whole {
                Some(whole) => Arc::clone(whole),
                None => Arc::clone(state.whole.insert(Arc::new(self.spec.whole()?))),
            };
            return new_stage(whole, partition, 1);
        }
        let partitions = self.spec.right().output_partitioning().partition_count();
        let stage = match state.stage.take() {
            Some(stage) => stage,
            None if state.executed > 0 => {
                return internal_err!("a partition of a join is executed twice");
            }
            None => new_stage(Arc::new(self.spec.whole()?), 0, partitions)?,
        };
        state.executed += 1;
        if state.executed < partitions {
            state.stage = Some(Arc::clone(&stage));
        }
        Ok(stage)
    }
}

/// Whether `plan` is a join that a [`SpillingJoinExec`] can stand for.
pub fn spills(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<HashJoinExec>() || plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>()
}

impl fmt::Debug for SpillingJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpillingJoinExec")
            .field(self.plan())
            .finish()
    }
}

impl DisplayAs for SpillingJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan().fmt_as(format, f)
    }
}

impl ExecutionPlan for SpillingJoinExec {
    fn name(&self) -> &str {
        self.plan().name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.plan().as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan().properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.plan().maintains_input_order()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.plan().children()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = Arc::clone(self.plan()).replace_children(children, options)?;
        self.around(plan)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.plan().apply_expressions(f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.plan().dynamic_expressions_produced()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let limited = *self.state.lock().limited.get_or_insert_with(|| {
            let limit = context.memory_pool().memory_limit();
            matches!(limit, MemoryLimit::Finite(_))
                && context.runtime_env().disk_manager.tmp_files_enabled()
        });
        if !limited {
            return self.plan().execute(partition, context);
        }
        let stage = self.stage(partition, &context)?;
        let probe = self.spec.right().execute(partition, Arc::clone(&context))?;
        let metrics = self.metrics.clone();
        Ok(Driver::new(&self.spec, partition, context, metrics, stage, probe).stream())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.plan().metrics().unwrap_or_default();
        for metric in self.metrics.clone_inner().iter() {
            metrics.push(Arc::clone(metric));
        }
        Some(metrics)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.plan().child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.plan().statistics_from_inputs(input_stats, args)
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = Arc::clone(self.plan()).reset_state()?;
        self.around(plan)
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        self.around(self.plan().with_new_state(state)?).ok()
    }

    fn fetch(&self) -> Option<usize> {
        self.plan().fetch()
    }
}
