//! From an optimized logical plan to a physical plan that records what it does.
//!
//! Dependencies go down only: this crate knows `skewer-exec` and `skewer-profiling`.
//!
//! * [`plan_query`](plan_query()): the entry: a plan for each profile level
//! * [`lineage`]: the logical rewrite that carries record ids and latencies
//! * [`costly`]: which expressions are worth timing
//! * [`evaluates_costly`]: which operators evaluate what may take long for a row
//! * `interruptible_calls`: functions that end when their query is cancelled
//! * [`timed_node`]: the logical node of a timed evaluation, and its planning
//! * `shared_rows`: the logical node of rows that several places read, and its planning
//! * [`instrument`]: numbering and wrapping physical operators
//! * `details`: what operators show of themselves, without what the profiler added
//! * [`scalar_subquery`]: what scalar subqueries may be, and joins in their place
//! * `selected_values`, `sorted_subqueries`, `join_conditions`: subqueries in VALUES, in ORDER BY and in ON of
//!   joins, where DataFusion runs them
//! * [`with_counted_duplicates`]: INTERSECT ALL and EXCEPT ALL
//! * [`optimize_dependent_joins`]: joins in place of correlated subqueries
//! * [`ExplicitCasts`]: casts between times with and without zone, and of array literals
//! * [`below`]: parts of expressions as columns of the input
//! * [`logical_rules`], [`physical_rules`]: DataFusion's rules, without wrong conclusions
//! * [`ArithmeticPlanner`], [`CheckArithmetic`]: operators whose results are right or errors
//! * [`distribution`]: plans that run on several workers

mod below;
pub mod costly;
mod costly_operators;
mod counted_duplicates;
mod dependent_join;
mod details;
pub mod distribution;
mod explicit_casts;
mod given_up;
pub mod instrument;
mod interruptible_calls;
mod join_conditions;
pub mod lineage;
mod plan_query;
pub mod scalar_subquery;
mod selected_values;
mod shared_rows;
mod sorted_subqueries;
mod sound;
pub mod timed_node;

pub use costly_operators::evaluates_costly;
pub use counted_duplicates::with_counted_duplicates;
pub use dependent_join::optimize_dependent_joins;
pub use explicit_casts::ExplicitCasts;
pub use interruptible_calls::interruptible;
pub use plan_query::{plan_query, plan_query_on};
pub use selected_values::with_selected_values;
pub use sound::{
    ArithmeticPlanner, CheckArithmetic, flat_source, logical_rules, physical_rules,
    with_unordered_exchanges,
};

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::LogicalPlan;

/// `plan`, as SQL was planned, with its subqueries in places and forms of which DataFusion 55.2 makes the right
/// joins.
///
/// # Errors
/// Those of building a plan;
/// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) of conditions of
/// joins that cannot be moved.
pub fn with_movable_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let has_subqueries = plan.exists(sound::has_subqueries)?;
    let is_lateral = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Subquery(_)));
    if !has_subqueries && !plan.exists(is_lateral)? {
        return Ok(plan);
    }
    let plan = dependent_join::without_lone_lateral(plan)?;
    if !has_subqueries {
        return Ok(plan);
    }
    let plan = with_selected_values(plan)?;
    let plan = sorted_subqueries::with_sorted_columns(plan)?;
    let plan = join_conditions::with_join_conditions(plan)?;
    scalar_subquery::with_values(plan)
}
