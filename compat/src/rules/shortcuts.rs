//! Aggregates that are known before all rows have been seen.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use super::guard::{optimize_guarded, optimize_without_inputs};

/// DataFusion's rule that takes aggregates of all rows from statistics.
///
/// DataFusion 55.2 takes a sum, or a number of different values, from what is said of the column alone.
/// Joins and filters say of a column what is so of their input's, and that they do not know how many
/// rows there are: `SELECT sum(x) FROM (SELECT a, 7 AS x FROM t) JOIN u ON t.a = u.a` would be seven
/// times the rows of `t`. Where the number of rows is not known exactly, nothing is taken from there.
#[derive(Debug)]
pub struct GuardedStatistics(pub AggregateStatistics);

impl PhysicalOptimizerRule for GuardedStatistics {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let statistics = StatisticsContext::new();
        let is_vague = |plan: &Arc<dyn ExecutionPlan>| {
            let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
                return Ok(false);
            };
            let is_of_rows = aggregate.mode().input_mode() == AggregateInputMode::Raw;
            if !is_of_rows || !aggregate.group_expr().is_empty() {
                return Ok(false);
            }
            let input = aggregate.input().as_ref();
            let known = statistics.compute(input, &StatisticsArgs::new())?;
            Ok(!matches!(known.num_rows, Precision::Exact(_)))
        };
        optimize_without_inputs(&self.0, plan, config, is_vague)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// DataFusion's rule that has an aggregate keep no more groups than a limit above it asks for.
///
/// DataFusion 55.2 looks for the aggregate below windows, too, whose functions then see these groups
/// alone (apache/datafusion issue 25066): `SELECT a, count(*) OVER () FROM t GROUP BY a ORDER BY a LIMIT
/// 1` would count one.
#[derive(Debug)]
pub struct GuardedTopK(pub TopKAggregation);

impl PhysicalOptimizerRule for GuardedTopK {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let windows = |plan: &Arc<dyn ExecutionPlan>| {
            let is_window = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
            is_window.then(HashSet::new)
        };
        optimize_guarded(&self.0, plan, config, windows)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
