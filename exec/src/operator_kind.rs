//! Which kind an operator of a plan is, as `sys.operators` says it.

use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::async_func::AsyncFuncExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
    SymmetricHashJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::partitioned_topk::PartitionedTopKExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use skewer_compat::logical::decorrelate::NUMBER;
use skewer_profiling::operator_kind::{kind_by_name, routing_by_name};
use skewer_profiling::{DistributedScan, OperatorKind, Routing, SysScan};

use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_compat::operators::materialized::SharedRowsExec;

use crate::profiled::is_exchange;
use crate::timed_evaluation::TimedEvaluationExec;

/// Whether an operator is of one of these types.
macro_rules! is_any {
    ($plan:expr, $($operator:ty),+) => { $($plan.is::<$operator>())||+ };
}

/// The kind of an operator. Its type decides; of operators whose types are not accessible here, as those that
/// connect workers, the name does.
pub fn operator_kind(plan: &dyn ExecutionPlan) -> OperatorKind {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        if scan.data_source().is::<MemorySourceConfig>() {
            OperatorKind::Values
        } else {
            OperatorKind::Scan
        }
    } else if let Some(shared) = plan.downcast_ref::<SharedRowsExec>() {
        match (shared.has_input(), shared.are_values()) {
            (true, _) => OperatorKind::Exchange,
            (false, true) => OperatorKind::SubqueryValues,
            (false, false) => OperatorKind::SharedRows,
        }
    } else if is_any!(
        plan,
        SysScan,
        DistributedScan,
        StreamingTableExec,
        LazyMemoryExec
    ) {
        OperatorKind::Scan
    } else if is_any!(plan, EmptyExec, PlaceholderRowExec) {
        OperatorKind::Values
    } else if plan.is::<WorkTableExec>() {
        OperatorKind::WorkingTable
    } else if plan.is::<FilterExec>() {
        OperatorKind::Filter
    } else if is_any!(plan, ProjectionExec, AsyncFuncExec) {
        OperatorKind::Projection
    } else if plan.is::<TimedEvaluationExec>() {
        OperatorKind::Evaluation
    } else if plan.is::<UnnestExec>() {
        OperatorKind::Unnest
    } else if is_any!(
        plan,
        HashJoinExec,
        SortMergeJoinExec,
        NestedLoopJoinExec,
        CrossJoinExec,
        PiecewiseMergeJoinExec,
        SymmetricHashJoinExec
    ) {
        OperatorKind::Join
    } else if plan.is::<AggregateExec>() {
        OperatorKind::Aggregate
    } else if is_any!(plan, WindowAggExec, BoundedWindowAggExec) {
        OperatorKind::Window
    } else if is_any!(plan, SortExec, PartialSortExec, PartitionedTopKExec) {
        OperatorKind::Sort
    } else if is_any!(plan, GlobalLimitExec, LocalLimitExec) {
        OperatorKind::Limit
    } else if is_any!(plan, UnionExec, InterleaveExec) {
        OperatorKind::Union
    } else if is_exchange(plan) {
        OperatorKind::Exchange
    } else if plan.is::<RecursiveQueryExec>() {
        OperatorKind::Recursive
    } else if plan.is::<DataSinkExec>() {
        OperatorKind::Write
    } else if is_any!(
        plan,
        ConservativePropertiesExec,
        CooperativeExec,
        BufferExec
    ) {
        OperatorKind::PassThrough
    } else {
        kind_by_name(plan.name(), "")
    }
}

/// How an exchange finds the partition of a row. `None` for other operators, and for shuffles between workers:
/// the operator that sends their rows decides.
pub fn routing(plan: &dyn ExecutionPlan) -> Option<Routing> {
    if let Some(exchange) = plan.downcast_ref::<RepartitionExec>() {
        return match exchange.partitioning() {
            Partitioning::Hash(keys, _) => {
                let key = keys.first().and_then(|key| key.downcast_ref::<Column>());
                let is_number = key.is_some_and(|key| key.name().starts_with(NUMBER));
                Some(if is_number {
                    Routing::ValueNumber
                } else {
                    Routing::Hash
                })
            }
            Partitioning::RoundRobinBatch(_) => Some(Routing::RoundRobin),
            Partitioning::Range(_) | Partitioning::UnknownPartitioning(_) => None,
        };
    }
    match operator_kind(plan) {
        OperatorKind::Exchange if is_exchange(plan) => Some(Routing::Gather),
        OperatorKind::Exchange => routing_by_name(plan.name(), ""),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use skewer_profiling::operator_kind::VALUE_NUMBER;

    use super::*;

    /// Plans and schema `sys`, which knows rows that older versions recorded, use the same prefix.
    #[test]
    fn numbers_of_values_have_one_name() {
        assert_eq!(NUMBER, VALUE_NUMBER);
    }
}
