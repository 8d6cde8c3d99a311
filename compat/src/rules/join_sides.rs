//! Which side of a join is collected, by estimates of the whole query.
//!
//! DataFusion 55.2 estimates the inputs of joins from what the operators below know: it knows no number of
//! distinct values, and the size of no join. So it builds hash tables of the larger side, and divides
//! sides that are small among partitions.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::not_impl_err;
use datafusion::physical_optimizer::{
    ConfigOnlyContext, PhysicalOptimizerContext, PhysicalOptimizerRule,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, PiecewiseMergeJoinExec,
    SortMergeJoinExec,
};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;

use super::build_sides::GuardedJoinSelection;

/// How much more than what is collected a side may have at worst.
pub const MOST_WORSE: f64 = 8.0;
/// Nested operators that are looked through.
const MOST_NESTED: usize = 400;
/// What a row of a hash table takes beside its columns, in bytes.
const ROW_BYTES: f64 = 16.0;

/// An estimate of one input of a join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JoinInput {
    /// Number of rows.
    pub rows: f64,
    /// Number of rows if predicates hold for many more rows than they should.
    pub worst_rows: f64,
    /// Bytes of a row.
    pub width: f64,
}

/// Estimates of both inputs of a join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JoinInputs {
    /// The left input. The join builds a hash table of its rows.
    pub left: JoinInput,
    /// The right one.
    pub right: JoinInput,
}

/// Estimates of the joins of a query's logical plan. The joins below a join come before it, the left input's first.
/// `None` stands for a join with an input that cannot be estimated. A setting of the query, which no one can see or set.
#[derive(Debug, Clone, Default)]
pub struct JoinEstimates(pub Arc<[Option<JoinInputs>]>);

impl ConfigExtension for JoinEstimates {
    const PREFIX: &'static str = "skewer_join_estimates";
}

impl ExtensionOptions for JoinEstimates {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, _: &str, _: &str) -> Result<()> {
        not_impl_err!("setting the estimates of joins")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

impl JoinInput {
    fn bytes(&self) -> f64 {
        self.rows * (self.width + ROW_BYTES)
    }

    /// Whether it may be collected into one partition, for all of the other side.
    fn can_be_collected(&self, config: &ConfigOptions) -> bool {
        let options = &config.optimizer;
        let rows = options.hash_join_single_partition_threshold_rows as f64;
        let bytes = options.hash_join_single_partition_threshold as f64;
        let worse = self.worst_rows / self.rows.max(1.0);
        self.rows <= rows
            && self.rows * self.width <= bytes
            && self.worst_rows <= rows * MOST_WORSE
            && self.rows * self.width * worse <= bytes * MOST_WORSE
    }
}

/// Picks build sides by [`JoinEstimates`]. Where the query has none, or not of all its joins, DataFusion's rule picks
/// them, with guards.
#[derive(Debug, Default)]
pub struct JoinSides(GuardedJoinSelection);

impl PhysicalOptimizerRule for JoinSides {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.optimize_with_context(plan, &ConfigOnlyContext::new(config))
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let config = context.config_options();
        let mut joins = 0;
        let estimates = config
            .extensions
            .get::<JoinEstimates>()
            .filter(|estimates| {
                let is_whole = count_joins(&plan, MOST_NESTED, &mut joins);
                is_whole && joins == estimates.0.len() && estimates.0.iter().all(Option::is_some)
            });
        let Some(estimates) = estimates else {
            return self.0.optimize_with_context(plan, context);
        };
        let mut inputs = estimates.0.iter();
        let sides = Sides {
            rule: &self.0,
            context,
        };
        sides.chosen(plan, &mut inputs)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether `plan` is a join, of whatever kind.
pub fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>()
}

/// The inputs of `plan` that are no subqueries, which the logical plan has in its expressions.
fn inputs(plan: &Arc<dyn ExecutionPlan>) -> Vec<&Arc<dyn ExecutionPlan>> {
    let mut inputs = plan.children();
    if plan.is::<ScalarSubqueryExec>() {
        inputs.truncate(1);
    }
    inputs
}

/// Counts the joins of `plan`; `false` if operators are nested too deeply.
fn count_joins(plan: &Arc<dyn ExecutionPlan>, depth: usize, joins: &mut usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    *joins += usize::from(is_join(plan));
    inputs(plan)
        .into_iter()
        .all(|input| count_joins(input, depth, joins))
}

struct Sides<'a> {
    rule: &'a GuardedJoinSelection,
    context: &'a dyn PhysicalOptimizerContext,
}

impl Sides<'_> {
    /// `plan` with sides chosen by the next of `estimates`, one for each join.
    fn chosen<'a>(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        estimates: &mut impl Iterator<Item = &'a Option<JoinInputs>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = inputs(&plan).len();
        let mut children = Vec::new();
        for (place, child) in plan.children().into_iter().enumerate() {
            let child = Arc::clone(child);
            children.push(match place < own {
                true => self.chosen(child, estimates)?,
                // A subquery's.
                false => self.rule.optimize_with_context(child, self.context)?,
            });
        }
        let is_join = is_join(&plan);
        let plan = replace_children_if_necessary(plan, children)?;
        if !is_join {
            return Ok(plan);
        }
        match estimates.next().and_then(Option::as_ref) {
            Some(inputs) => self.with_sides(plan, inputs),
            None => Ok(plan),
        }
    }

    fn with_sides(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        inputs: &JoinInputs,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let config = self.context.config_options();
        let is_left_larger = inputs.left.bytes() > inputs.right.bytes();
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let can_swap = join.join_type().supports_swap() && !join.null_aware;
            let swaps = is_left_larger && can_swap && config.optimizer.join_reordering;
            let built = if swaps { inputs.right } else { inputs.left };
            let mode = match join.partition_mode() {
                PartitionMode::Auto if join.null_aware => PartitionMode::CollectLeft,
                PartitionMode::Auto if built.can_be_collected(config) => PartitionMode::CollectLeft,
                PartitionMode::Auto => PartitionMode::Partitioned,
                mode => *mode,
            };
            if swaps {
                return join.swap_inputs(mode);
            }
            return Ok(Arc::new(join.builder().with_partition_mode(mode).build()?));
        }
        if !is_left_larger || !config.optimizer.join_reordering {
            return Ok(plan);
        }
        if let Some(join) = plan.downcast_ref::<CrossJoinExec>() {
            return join.swap_inputs();
        }
        if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
            && join.join_type().supports_swap()
        {
            return join.swap_inputs();
        }
        Ok(plan)
    }
}
