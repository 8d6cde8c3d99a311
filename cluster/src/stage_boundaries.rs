//! Where a distributed plan is cut.

use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use datafusion_distributed::{
    BroadcastExec, DistributedExec, DistributedLeafExec, NetworkBoundary, NetworkBoundaryExt,
    NetworkShuffleExec,
};
use skewer_optimizer::instrument::{StageBoundaries, StageBoundary};

/// The cuts that `datafusion-distributed` makes.
///
/// ```text
/// DistributedExec                         Root
///   SortPreservingMergeExec
///     NetworkCoalesceExec                 Exchange
///       SortExec                      ┐
///         AggregateExec               │ stage 2, on every worker
///           NetworkShuffleExec        ┘   Exchange
///             RepartitionExec         ┐     its sender
///               AggregateExec         │ stage 1
///                 DistributedLeafExec ┘   Leaf
/// ```
#[derive(Debug, Clone, Copy)]
pub struct DistributedBoundaries;

impl StageBoundaries for DistributedBoundaries {
    fn boundary_of(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<StageBoundary> {
        if plan.is::<DistributedExec>() {
            return Some(StageBoundary::Root);
        }
        if let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() {
            return Some(StageBoundary::Leaf(Arc::clone(leaf.original())));
        }
        let stage = plan.as_network_boundary()?.input_stage();
        let top = stage.local_plan();
        let sender = top.filter(|top| top.is::<RepartitionExec>() || top.is::<BroadcastExec>());
        Some(StageBoundary::Exchange {
            tasks: stage.task_count(),
            sender: sender.cloned(),
        })
    }

    /// A `NetworkShuffleExec` tells workers by its own properties how to send rows, whatever its input is.
    fn with_sender(
        &self,
        exchange: &Arc<dyn ExecutionPlan>,
        sender: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(shuffle) = exchange.downcast_ref::<NetworkShuffleExec>() else {
            return internal_err!("{} has no sender that hashes keys", exchange.name());
        };
        let Some(repartition) = sender.downcast_ref::<RepartitionExec>() else {
            return internal_err!("{} sends no rows to other workers", sender.name());
        };
        let Partitioning::Hash(keys, _) = repartition.partitioning() else {
            return internal_err!("{} does not hash keys", sender.name());
        };
        // The exchange has the partitions of one task, its sender those of all tasks.
        let per_task = exchange.output_partitioning().partition_count();
        let of_task = Partitioning::Hash(keys.clone(), per_task);
        let of_task = RepartitionExec::try_new(Arc::clone(repartition.input()), of_task)?;
        let stage = shuffle.input_stage().clone();
        let changed = NetworkShuffleExec::try_new(Arc::new(of_task), stage.task_count())?;
        let changed = changed.with_input_stage(stage)?;
        let changed: Arc<dyn ExecutionPlan> = changed;
        replace_children_if_necessary(changed, vec![sender])
    }
}

/// Whether rows come to `plan` from other workers: what is below it runs there.
pub fn is_exchange_between_workers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is_network_boundary()
}
