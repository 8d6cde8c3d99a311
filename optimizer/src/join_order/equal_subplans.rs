//! Subplans that a query has several times are computed once.
//!
//! A query that reads a common table expression at several places has its plan at each of them (queries 23, 47 and 95
//! of TPC-DS), and so has a query with a subquery over the same tables (query 15 of TPC-H). After other rewrites,
//! the largest parts that are still equal become [`Shared`] rows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::LogicalPlan;
use skewer_compat::logical::common_subplan::Shared;

use super::cardinality::Estimator;

/// Rows that operators of a subplan get, below which computing them again takes no time worth speaking of.
const FEW_ROWS: f64 = 50_000.0;
/// What it costs to keep a row and to read it again, relative to one that an operator gets.
const KEPT: f64 = 3.0;
/// Bytes of rows that are not kept. Groups are mostly fewer than estimated, and what does not fit into memory goes to
/// disk.
const MOST_BYTES: f64 = 256.0 * 1024.0 * 1024.0;
/// So many subplans of a query are shared.
const MOST_SHARED: usize = 16;

/// Shares equal subplans of a query.
pub(super) struct EqualSubplans<'a> {
    /// `None` shares whatever may be shared: for tests.
    pub(super) estimator: Option<&'a Estimator<'a>>,
}

/// A node, and how many nodes there are from it on.
struct Found {
    plan: LogicalPlan,
    fingerprint: u64,
    nodes: usize,
}

impl EqualSubplans<'_> {
    /// `plan` with equal subplans shared.
    pub(super) fn shared(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if has_recursion(&plan)? {
            return Ok(Transformed::no(plan));
        }
        // The plan, and those of shared rows, of which the later ones are parts of earlier ones.
        let mut plans = vec![plan];
        while plans.len() <= MOST_SHARED {
            let Some(subplan) = self.largest(&plans)? else {
                break;
            };
            let number = plans.len();
            let rows = Arc::new(subplan.clone());
            for plan in &mut plans {
                let with_shared = std::mem::take(plan).transform_down_with_subqueries(|node| {
                    Ok(match node == subplan {
                        true => Transformed::new(
                            Shared::plan(Arc::clone(&rows), number, None),
                            true,
                            TreeNodeRecursion::Jump,
                        ),
                        false => Transformed::no(node),
                    })
                })?;
                *plan = with_shared.data;
            }
            plans.push(subplan);
        }
        if plans.len() == 1 {
            return Ok(Transformed::no(plans.swap_remove(0)));
        }
        // The last ones have no shared rows of others.
        let mut made: HashMap<usize, Arc<LogicalPlan>> = HashMap::new();
        while let Some(plan) = plans.pop() {
            let with_rows = plan.transform_down_with_subqueries(|node| {
                let number = Shared::from_plan(&node).map(Shared::number);
                let rows = number.and_then(|number| Some((number, made.get(&number)?)));
                Ok(match rows {
                    Some((number, rows)) => Transformed::new(
                        Shared::plan(Arc::clone(rows), number, None),
                        true,
                        TreeNodeRecursion::Jump,
                    ),
                    None => Transformed::no(node),
                })
            })?;
            if plans.is_empty() {
                let plan = Shared::made_at_one_place(with_rows.data, &HashMap::new())?;
                return Ok(Transformed::yes(plan));
            }
            made.insert(plans.len(), Arc::new(with_rows.data));
        }
        internal_err!("no plan is left of equal subplans")
    }

    /// The largest subplan of `plans` that is there more than once and worth sharing.
    fn largest(&self, plans: &[LogicalPlan]) -> Result<Option<LogicalPlan>> {
        let found = RefCell::new(Vec::new());
        for plan in plans {
            collect(plan, &found)?;
        }
        let mut found = found.into_inner();
        found.sort_by_key(|found| std::cmp::Reverse((found.nodes, found.fingerprint)));
        let pairs = found.windows(2);
        let equal = pairs.filter_map(|pair| {
            (pair[0].fingerprint == pair[1].fingerprint).then_some((&pair[0].plan, &pair[1].plan))
        });
        for (one, other) in equal {
            if one == other && can_be_shared(one)? && self.pays(one) {
                return Ok(Some(one.clone()));
            }
        }
        Ok(None)
    }

    fn pays(&self, plan: &LogicalPlan) -> bool {
        let Some(estimator) = self.estimator else {
            return true;
        };
        let rows = estimator.estimate(plan);
        let Some((rows, work)) = rows.zip(work(estimator, plan)) else {
            return false;
        };
        work >= FEW_ROWS && rows.rows * KEPT <= work && rows.rows * rows.width() <= MOST_BYTES
    }
}

/// How many rows the operators of `plan` get.
fn work(estimator: &Estimator<'_>, plan: &LogicalPlan) -> Option<f64> {
    if let LogicalPlan::TableScan(_) = plan {
        return Some(estimator.estimate(plan)?.rows);
    }
    let of_inputs = plan.inputs().into_iter().map(|input| {
        let rows = estimator.estimate(input)?.rows;
        Some(rows + work(estimator, input)?)
    });
    of_inputs.sum()
}

fn has_recursion(plan: &LogicalPlan) -> Result<bool> {
    let mut has_recursion = false;
    plan.apply_with_subqueries(|node| {
        has_recursion |= matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(has_recursion)
}

/// Whether `plan` returns the same rows each time, and is more than a scan.
fn can_be_shared(plan: &LogicalPlan) -> Result<bool> {
    let mut is_same = true;
    plan.apply_with_subqueries(|node| {
        // Shared rows are, too. What other rewrites have put there is not looked into.
        is_same &= !matches!(node, LogicalPlan::Extension(_)) || Shared::from_plan(node).is_some();
        node.apply_expressions(|expr| {
            is_same &= !expr.is_volatile() && !expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_same)
}

/// Whether rows of such a node may be worth keeping: others cost little more than the rows below.
fn is_root(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Aggregate(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Window(_)
    )
}

/// Adds the nodes of `plan` that may be shared to `found`, and gives its fingerprint and number of nodes. Equal plans
/// have the same fingerprint.
fn collect(plan: &LogicalPlan, found: &RefCell<Vec<Found>>) -> Result<(u64, usize)> {
    let mut hasher = DefaultHasher::new();
    let kind: Discriminant<LogicalPlan> = discriminant(plan);
    kind.hash(&mut hasher);
    plan.schema().fields().len().hash(&mut hasher);
    if let LogicalPlan::TableScan(scan) = plan {
        scan.table_name.hash(&mut hasher);
    }
    if let Some(shared) = Shared::from_plan(plan) {
        shared.number().hash(&mut hasher);
    }
    let mut nodes = 1;
    plan.apply_expressions(|expr| {
        expr.hash(&mut hasher);
        Ok(TreeNodeRecursion::Continue)
    })?;
    plan.apply_subqueries(|subquery| {
        collect(subquery, found)?;
        Ok(TreeNodeRecursion::Jump)
    })?;
    for input in plan.inputs() {
        let (fingerprint, below) = collect(input, found)?;
        fingerprint.hash(&mut hasher);
        nodes += below;
    }
    let fingerprint = hasher.finish();
    if is_root(plan) {
        found.borrow_mut().push(Found {
            plan: plan.clone(),
            fingerprint,
            nodes,
        });
    }
    Ok((fingerprint, nodes))
}
