//! DataFusion's rules, without what they conclude wrongly.
//!
//! * [`arguments`]: of arguments that functions are not made for
//! * [`chains`]: of chains of AND, which are no wrong conclusion but a slow one
//! * [`constant_keys`]: of keys that have one value
//! * [`dependencies`]: of columns that seem to determine others
//! * [`properties`]: of the order and the constants of rows
//! * [`offsets`]: of rows that are skipped
//! * [`pushdown`]: of columns with the same name
//! * [`join_filters`]: of the columns in conditions of sort-merge joins
//! * [`subqueries`]: of subqueries in conditions
//! * [`marks`]: of subqueries in values
//! * [`null_equality`]: of NULLs that are equal to each other
//! * [`nan`]: of numbers among which is a NaN
//! * [`pull_up`]: of what correlated subqueries are made of
//! * [`sort_keys`]: of what rows were sorted by
//! * [`shortcuts`]: of aggregates without a look at all rows
//! * [`group_limits`]: of groups of which only some are asked for
//! * [`arithmetic`]: of results that do not fit
//! * [`in_lists`]: of values in lists
//! * [`build_sides`]: of the size of what a join collects
//! * [`join_sides`]: of the sizes of the inputs of joins
//! * [`guard`]: how an operator is kept from a rule

mod arguments;
mod arithmetic;
mod build_sides;
mod chains;
mod constant_keys;
pub(crate) mod dependencies;
mod group_limits;
mod guard;
mod in_lists;
mod join_filters;
pub mod join_sides;
mod marks;
mod nan;
mod null_equality;
mod offsets;
mod properties;
mod pull_up;
mod pushdown;
mod shortcuts;
mod sort_keys;
mod subqueries;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion::optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion::optimizer::eliminate_join::EliminateJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::aggregate_statistics::AggregateStatistics;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;

use arguments::GuardedArguments;
pub use arithmetic::{ArithmeticPlanner, CheckArithmetic};
pub use build_sides::{bound_key_arrays, collect_larger_build_sides};
pub use chains::flat_source;
use chains::{FlatChains, FlatConditions};
use constant_keys::ConstantKeys;
use dependencies::{Decide, Guarded, keep_distinct, keep_groups, keep_joins, keep_sort_keys};
use group_limits::GuardedGroupLimits;
use in_lists::keep_nulls;
use join_filters::{GuardedJoinFilters, GuardedProjections};
use join_sides::JoinSides;
use nan::GuardedPruning;
use null_equality::{keep_apart, keep_conditions};
use offsets::GuardedSorts;
pub use properties::with_unordered_exchanges;
use properties::{GuardedGroups, GuardedPlanCheck, GuardedRequirements};
pub use pull_up::{is_by_equality, is_correlated};
use pushdown::GuardedPushdown;
use shortcuts::{GuardedStatistics, GuardedTopK};
use sort_keys::GuardedSortKeys;
use subqueries::GuardedSubqueries;
pub use subqueries::{has_subqueries, has_subquery, subquery_of};

/// DataFusion's rules for logical plans, of which none loses sort keys, columns to group by, what keeps
/// apart or repeats the rows of `unnest`, or NULLs and rows in the conditions that subqueries are, or takes
/// NULLs for equal.
pub fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let guards: [(&dyn OptimizerRule, Decide); 7] = [
        (&SimplifyExpressions::new(), keep_nulls),
        (&EliminateCrossJoin::new(), keep_apart),
        (&EliminateDuplicatedExpr::new(), keep_sort_keys),
        (&OptimizeProjections::new(), keep_groups),
        (&ReplaceDistinctWithAggregate::new(), keep_distinct),
        (&EliminateJoin::new(), keep_joins),
        (&ExtractEquijoinPredicate::new(), keep_conditions),
    ];
    let mut rules = Optimizer::new().rules;
    for rule in &mut rules {
        if let Some((_, guard)) = guards.iter().find(|(own, _)| own.name() == rule.name()) {
            let inner = Arc::clone(rule);
            *rule = Arc::new(Guarded {
                inner,
                guard: *guard,
            });
        }
    }
    rules.insert(0, Arc::new(GuardedSubqueries));
    rules.insert(0, Arc::new(GuardedArguments));
    rules.push(Arc::new(GuardedSortKeys));
    rules.push(Arc::new(ConstantKeys));
    let pushdown = PushDownFilter::new();
    if let Some(at) = rules.iter().position(|rule| rule.name() == pushdown.name()) {
        rules.insert(at + 1, Arc::new(FlatChains));
    }
    rules.push(Arc::new(FlatChains));
    rules
}

/// `plan` without columns that nothing reads, with projections where they begin.
///
/// # Errors
/// Fails where DataFusion's rule fails.
pub fn without_unread_columns(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<LogicalPlan> {
    let rule = Guarded {
        inner: Arc::new(OptimizeProjections::new()),
        guard: keep_groups,
    };
    Ok(rule.rewrite(plan, config)?.data)
}

/// DataFusion's rules for physical plans, kept from concluding too much of the rows of GROUPING SETS,
/// ROLLUP and CUBE, of joins, of OFFSET and of aggregates that statistics or a limit seem to know, and
/// from filtering by another column of the same name, and from collecting what may be large.
pub fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let sorts = || GuardedRequirements(GuardedSorts(EnsureRequirements::new()));
    let check = GuardedPlanCheck(SanityCheckPlan::new());
    let projections = GuardedProjections(ProjectionPushdown::new());
    let joins = JoinSides::default();
    let statistics = GuardedStatistics(AggregateStatistics::new());
    let top_k = GuardedTopK(TopKAggregation::new());
    let pushdowns = [FilterPushdown::new, FilterPushdown::new_post_optimization];
    let mut rules = PhysicalOptimizer::new().rules;
    for rule in &mut rules {
        if rule.name() == sorts().0.name() {
            *rule = Arc::new(sorts());
        } else if rule.name() == check.0.name() {
            *rule = Arc::new(GuardedPlanCheck(SanityCheckPlan::new()));
        } else if rule.name() == statistics.name() {
            *rule = Arc::new(GuardedStatistics(AggregateStatistics::new()));
        } else if rule.name() == top_k.name() {
            *rule = Arc::new(GuardedTopK(TopKAggregation::new()));
        } else if rule.name() == projections.name() {
            *rule = Arc::new(GuardedProjections(ProjectionPushdown::new()));
        } else if rule.name() == joins.name() {
            *rule = Arc::new(JoinSides::default());
        } else if let Some(pushdown) = pushdowns.iter().find(|own| own().name() == rule.name()) {
            *rule = Arc::new(GuardedPushdown(pushdown()));
        }
    }
    rules.push(Arc::new(FlatConditions));
    rules.insert(0, Arc::new(GuardedGroups));
    rules.insert(0, Arc::new(GuardedJoinFilters));
    rules.push(Arc::new(GuardedPruning));
    rules.push(Arc::new(GuardedGroupLimits));
    rules
}
