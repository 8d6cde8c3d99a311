//! Physical plans that several runs of a query are copied from.
//!
//! Operators keep what a run leaves behind: counters, hash tables, filters that become narrower while the query runs. So
//! no run executes the plan that is kept. Each gets a copy, whose operators have computed their properties before but
//! begin anew. The rules that connect operators by such filters run on the copy.
//!
//! A plan is kept only if all of its operators are known to leave nothing behind in what their copies share.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::{
    ConfigOnlyContext, PhysicalOptimizerContext, PhysicalOptimizerRule,
};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_compat::operators::materialized::{SharedRows, SharedRowsExec};
use skewer_exec::cached_scan::CachedScan;

/// A rule for physical plans.
pub(crate) type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// The place of the physical plan of a query that has been optimized, for its later runs. Empty before the first.
#[derive(Debug, Default)]
pub struct ReusablePlan(OnceLock<Option<Arc<dyn ExecutionPlan>>>);

impl ReusablePlan {
    /// Whether a run takes its operators from here.
    pub fn is_kept(&self) -> bool {
        matches!(self.0.get(), Some(Some(_)))
    }

    /// The operators of another run; `None` if the plan is not kept.
    ///
    /// # Errors
    /// Those of making operators.
    pub(crate) fn another_run(&self) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match self.0.get() {
            Some(Some(plan)) => copied(plan, &mut HashMap::new()).map(Some),
            Some(None) | None => Ok(None),
        }
    }

    /// Whether it is known that the plan cannot be kept.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }

    /// Keeps `plan`, if it can be, and gives the operators of this run.
    ///
    /// # Errors
    /// Those of making operators.
    pub(crate) fn first_run(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let kept = can_be_copied(&plan)?.then(|| Arc::clone(&plan));
        match self.0.get_or_init(|| kept) {
            Some(kept) => copied(kept, &mut HashMap::new()),
            None => Ok(plan),
        }
    }
}

/// The rules that run once for a kept plan, and the ones that run for each copy of it.
pub(crate) fn divided(rules: &[Rule]) -> (&[Rule], &[Rule]) {
    let connects = FilterPushdown::new_post_optimization();
    let first = rules.iter().position(|rule| rule.name() == connects.name());
    rules.split_at(first.unwrap_or(rules.len()))
}

/// `plan` after `rules`.
///
/// # Errors
/// Those of the rules.
pub(crate) fn ruled(
    plan: Arc<dyn ExecutionPlan>,
    rules: &[Rule],
    config: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let context = ConfigOnlyContext::new(config);
    let context: &dyn PhysicalOptimizerContext = &context;
    let apply = |plan, rule: &Rule| {
        let ruled = rule.optimize_with_context(plan, context);
        ruled.map_err(|error| error.context(rule.name()))
    };
    rules.iter().try_fold(plan, apply)
}

/// Whether copies of `plan` share nothing that a run changes.
fn can_be_copied(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut can = true;
    plan.apply(|node| {
        can &= is_known(node)?;
        Ok(match can {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(can)
}

fn is_known(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return Ok(scan_of_another_run(scan)?.is_some());
    }
    if let Some(shared) = node.downcast_ref::<SharedRowsExec>() {
        return Ok(!shared.is_of_iteration());
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        // Copies share the filter that it fills.
        return Ok(aggregate.dynamic_expressions_produced().is_empty());
    }
    if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        return Ok(window.state_observer().is_none());
    }
    Ok(node.is::<CoalescePartitionsExec>()
        || node.is::<ConservativePropertiesExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<EmptyExec>()
        || node.is::<FilterExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<HashJoinExec>()
        || node.is::<InterleaveExec>()
        || node.is::<LocalLimitExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<PlaceholderRowExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
        || node.is::<WindowAggExec>())
}

/// The operators of another run. `rows` has those rows of it that several operators share, by their number.
fn copied(
    plan: &Arc<dyn ExecutionPlan>,
    rows: &mut HashMap<usize, Arc<SharedRows>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        return match scan_of_another_run(scan)? {
            Some(scan) => Ok(scan),
            None => internal_err!("a scan cannot be copied that could be before"),
        };
    }
    let inputs = plan.children().into_iter();
    let inputs: Vec<_> = inputs
        .map(|input| copied(input, rows))
        .collect::<Result<_>>()?;
    if let Some(shared) = plan.downcast_ref::<SharedRowsExec>() {
        let input = inputs.into_iter().next();
        return Ok(Arc::new(shared.of_another_run(input, rows)));
    }
    if inputs.is_empty() {
        return Arc::clone(plan).reset_state();
    }
    // Copies have the properties of what they are copied from.
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    let copy = Arc::clone(plan).replace_children(inputs, options)?;
    let copy = copy.reset_state()?;
    match copy.downcast_ref::<SortExec>() {
        // DataFusion 55.2 gives it a filter as if it returned only the first rows.
        Some(sort) if sort.fetch().is_none() => Ok(Arc::new(sort.with_fetch(None))),
        _ => Ok(copy),
    }
}

/// A scan of segments with counters of its own; `None` for scans of anything else.
fn scan_of_another_run(scan: &DataSourceExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(config) = scan.data_source().downcast_ref::<FileScanConfig>() else {
        return Ok(None);
    };
    let Some(cached) = config.file_source().downcast_ref::<CachedScan>() else {
        return Ok(None);
    };
    let Some(source) = cached.of_another_run()? else {
        return Ok(None);
    };
    let mut config = config.clone();
    config.file_source = Arc::new(source);
    Ok(Some(Arc::new(
        scan.clone().with_data_source(Arc::new(config)),
    )))
}
