//! Windows whose input is sorted by the very columns that they name.
//!
//! The planner sorts by whichever of equal columns it comes to first, and by no constant. Why the
//! rows are in the window's order then may be known only below an exchange: on the other side of it
//! nobody knows any more, and windows insist on their order when they run.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::{
    LexOrdering, LexRequirement, PhysicalSortExpr, PhysicalSortRequirement,
};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, InputOrderMode,
    ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedExec, NetworkBoundaryExt};

/// The order that a window insists on.
fn required(plan: &Arc<dyn ExecutionPlan>) -> Option<LexRequirement> {
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        // Otherwise it looks for the groups itself.
        if window.input_order_mode != InputOrderMode::Sorted {
            return None;
        }
    } else if !plan.is::<WindowAggExec>() {
        return None;
    }
    let required = plan.required_input_ordering().into_iter().next()??;
    Some(required.into_single())
}

/// Whether `order` begins with the very columns of `required`.
fn is_literally(order: &LexOrdering, required: &LexRequirement) -> bool {
    order.len() >= required.len()
        && order.iter().zip(required.iter()).all(|(by, required)| {
            by.expr.eq(&required.expr) && required.options.is_none_or(|o| o == by.options)
        })
}

/// `order` by the columns of `required` where it is by others that are equal to these in `input`, and
/// by those that are constant there first: the rows come in the same order. `None` if that cannot be
/// said of all.
fn with_names(
    order: &LexOrdering,
    required: &LexRequirement,
    input: &Arc<dyn ExecutionPlan>,
) -> Option<LexOrdering> {
    let known = input.equivalence_properties();
    let is_same = |by: &PhysicalSortExpr, required: &PhysicalSortRequirement| {
        let class = known.eq_group().get_equivalence_class(&required.expr);
        by.expr.eq(&required.expr) || class.is_some_and(|class| class.contains(&by.expr))
    };
    let mut named = Vec::new();
    for required in required.iter() {
        let options = match order.iter().find(|by| is_same(by, required)) {
            Some(by) => by.options,
            None if known.is_expr_constant(&required.expr).is_some() => {
                required.options.unwrap_or_default()
            }
            None => return None,
        };
        named.push(PhysicalSortExpr::new(Arc::clone(&required.expr), options));
    }
    let others = order
        .iter()
        .filter(|by| !required.iter().any(|required| is_same(by, required)));
    LexOrdering::new(named.into_iter().chain(others.cloned()))
}

/// How the input of a window is sorted.
enum Sorted {
    /// As required.
    Literally,
    /// As required, now that this takes its place.
    Replaced(Arc<dyn ExecutionPlan>),
    /// By something else that comes to the same, or by no operator that could be changed.
    Otherwise,
}

fn sorted(input: &Arc<dyn ExecutionPlan>, by: &LexRequirement) -> Result<Sorted> {
    if let Some(sort) = input.downcast_ref::<SortExec>() {
        if is_literally(sort.expr(), by) {
            return Ok(Sorted::Literally);
        }
        // Of rows that are equal in its order a limit may take any; not of others.
        let Some(order) = with_names(sort.expr(), by, sort.input()) else {
            return Ok(Sorted::Otherwise);
        };
        if sort.fetch().is_some() {
            return Ok(Sorted::Otherwise);
        }
        let replaced = SortExec::new(order, Arc::clone(sort.input()))
            .with_preserve_partitioning(sort.preserve_partitioning());
        return Ok(Sorted::Replaced(Arc::new(replaced)));
    }
    if let Some(merge) = input.downcast_ref::<SortPreservingMergeExec>() {
        return Ok(match sorted(merge.input(), by)? {
            Sorted::Replaced(input) if merge.fetch().is_none() => {
                let order = with_names(merge.expr(), by, merge.input());
                order.map_or(Sorted::Otherwise, |order| {
                    Sorted::Replaced(Arc::new(SortPreservingMergeExec::new(order, input)))
                })
            }
            Sorted::Literally if is_literally(merge.expr(), by) => Sorted::Literally,
            _ => Sorted::Otherwise,
        });
    }
    // Windows leave the order as it is, whichever they need themselves.
    if required(input).is_none() {
        return Ok(Sorted::Otherwise);
    }
    Ok(match sorted(input.children()[0], by)? {
        Sorted::Replaced(child) => Sorted::Replaced(replace_children_if_necessary(
            Arc::clone(input),
            vec![child],
        )?),
        as_it_is => as_it_is,
    })
}

/// `plan` whose windows' inputs are sorted by the columns that the windows name, where they are
/// sorted for a window.
///
/// # Errors
/// Those of putting operators together.
pub fn sorted_by_name(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let sorted = Arc::clone(plan).transform_up(|window| {
        let Some(by) = required(&window) else {
            return Ok(Transformed::no(window));
        };
        match sorted(window.children()[0], &by)? {
            Sorted::Replaced(input) => Ok(Transformed::yes(replace_children_if_necessary(
                window,
                vec![input],
            )?)),
            Sorted::Literally | Sorted::Otherwise => Ok(Transformed::no(window)),
        }
    });
    Ok(sorted?.data)
}

/// Whether the windows of a plan that has been cut know from what is on their side of an exchange
/// that their input has its order, as they do on a worker.
///
/// # Errors
/// Those of putting operators together.
pub fn windows_know_their_order(cut: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let has_windows = cut.exists(|node| Ok(required(node).is_some()))?;
    Ok(!has_windows || as_on_a_worker(cut)?.is_some())
}

/// `plan` without what is known of rows only on the other side of an exchange. `None` if a window in
/// it does not know its order.
fn as_on_a_worker(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut children = Vec::new();
    for child in plan.children() {
        match as_on_a_worker(child)? {
            Some(child) => children.push(child),
            None => return Ok(None),
        }
    }
    if plan.as_network_boundary().is_some() {
        let partitions = plan.output_partitioning().partition_count();
        let received = EmptyExec::new(plan.schema()).with_partitions(partitions);
        return Ok(Some(Arc::new(received)));
    }
    if children.is_empty() || plan.is::<DistributedExec>() {
        return Ok(Some(Arc::clone(plan)));
    }
    let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let plan = Arc::clone(plan).replace_children(children, anew)?;
    let Some(by) = required(&plan) else {
        return Ok(Some(plan));
    };
    let known = plan.children()[0].equivalence_properties();
    let is_known = known.ordering_satisfy_requirement(by)?;
    Ok(is_known.then_some(plan))
}
