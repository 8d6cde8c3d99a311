//! Plans with remedies.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNotNullExpr};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use skewer_exec::{RouteRowsExec, Routes, SpreadKeys};

use super::classes::{Exchanges, is_hash};
use super::loads::mapped;
use super::{Prescription, Remedy};
use crate::instrument::{StageBoundaries, StageBoundary};

/// What becomes of an exchange.
#[derive(Debug, Clone)]
enum Change {
    /// It sends rows where a map says.
    Route(Routes),
    /// The same, after rows with NULL in their key are left out.
    DropAndRoute(Routes),
    /// It sends copies of rows of some keys to all partitions.
    Copy(Routes),
}

/// `plan` with the remedies that `prescriptions` ask for and that do not change the result; and which of them these
/// are, by their places in `prescriptions`.
///
/// # Errors
/// None that is known; those of putting operators together.
pub fn with_remedies(
    plan: Arc<dyn ExecutionPlan>,
    prescriptions: &[Prescription],
    boundaries: Option<&dyn StageBoundaries>,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<usize>)> {
    if prescriptions.is_empty() {
        return Ok((plan, Vec::new()));
    }
    let exchanges = Exchanges::of_plan(&plan, boundaries);
    let mut changes: BTreeMap<usize, Change> = BTreeMap::new();
    let mut applied = Vec::new();
    for (place, prescription) in prescriptions.iter().enumerate() {
        let number = prescription.exchange;
        let is_free = |member: &usize| !changes.contains_key(member);
        if number >= exchanges.len()
            || !exchanges.possible(number)?.has(prescription.remedy)
            || !exchanges.members(number).iter().all(is_free)
        {
            continue;
        }
        changes.extend(changes_for(prescription, prescriptions, &exchanges));
        applied.push(place);
    }
    if changes.is_empty() {
        return Ok((plan, applied));
    }
    let mut rewrite = Rewrite {
        changes,
        boundaries,
        exchanges: 0,
    };
    Ok((rewrite.rewrite(plan)?.plan, applied))
}

/// What a prescription makes of its exchange, and of those whose keys have to meet.
fn changes_for(
    prescription: &Prescription,
    prescriptions: &[Prescription],
    exchanges: &Exchanges,
) -> Vec<(usize, Change)> {
    let number = prescription.exchange;
    let exchange = exchanges.exchange(number);
    let (partitions, per_task) = (exchange.partitions, exchange.per_task);
    let members = exchanges.members(number);
    let all = |routes: &Routes| {
        let members = members.iter();
        let changes = members.map(|member| (*member, Change::Route(routes.clone())));
        changes.collect::<Vec<_>>()
    };
    match prescription.remedy {
        Remedy::Map => {
            let known = prescriptions.iter();
            let known = known.filter(|known| members.contains(&known.exchange));
            all(&mapped(
                &known.collect::<Vec<_>>(),
                &[],
                partitions,
                per_task,
            ))
        }
        Remedy::Split => {
            let least = prescription.rows / partitions as f64;
            let keys = prescription.keys.iter();
            let dealt = keys.filter(|key| key.rows > least && !key.has_null);
            let dealt: Vec<u64> = dealt.map(|key| key.hash).collect();
            let routes = mapped(&[prescription], &dealt, partitions, per_task);
            let members = members.iter();
            members
                .map(|member| match *member == number {
                    true => (*member, Change::Route(routes.clone())),
                    false => (*member, Change::Copy(routes.clone())),
                })
                .collect()
        }
        Remedy::DealNulls | Remedy::DropNulls => {
            let by_hash = Routes::by_hash(partitions);
            let change = match prescription.remedy {
                Remedy::DealNulls => Change::Route(by_hash.clone().dealing_nulls()),
                _ => Change::DropAndRoute(by_hash.clone()),
            };
            let mut changes = all(&by_hash);
            changes.retain(|(member, _)| *member != number);
            changes.push((number, change));
            changes
        }
    }
}

impl Change {
    /// Whether rows of a key without NULL are elsewhere than its hash says.
    fn moves_keys(&self) -> bool {
        let (Self::Route(routes) | Self::DropAndRoute(routes) | Self::Copy(routes)) = self;
        !routes.keys().is_empty()
    }
}

/// A plan with changes.
struct Rewritten {
    plan: Arc<dyn ExecutionPlan>,
    /// Whether rows of some keys are in other partitions than their hashes say.
    moves_keys: bool,
}

impl Rewritten {
    fn by_hash(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan,
            moves_keys: false,
        }
    }
}

/// Changes exchanges by their numbers.
struct Rewrite<'a> {
    changes: BTreeMap<usize, Change>,
    boundaries: Option<&'a dyn StageBoundaries>,
    /// Exchanges that hash keys, so far: in the order of [`Exchanges::of_plan`].
    exchanges: usize,
}

impl Rewrite<'_> {
    fn rewrite(&mut self, plan: Arc<dyn ExecutionPlan>) -> Result<Rewritten> {
        let boundary = self.boundaries.and_then(|of| of.boundary_of(&plan));
        if let Some(StageBoundary::Exchange {
            sender: Some(sender),
            ..
        }) = boundary
        {
            let change = self.change(&sender);
            let (inputs, _) = self.rewrite_children(&sender)?;
            let sender = replace_children_if_necessary(sender, inputs)?;
            let Some(change) = change else {
                let plan = replace_children_if_necessary(plan, vec![sender])?;
                return Ok(Rewritten::by_hash(plan));
            };
            let moves_keys = change.moves_keys();
            let sender = changed(&sender, change)?;
            let boundaries = self.boundaries.ok_or_else(no_boundary)?;
            let plan = without_last_column(boundaries.with_sender(&plan, sender)?)?;
            return Ok(Rewritten { plan, moves_keys });
        }
        let is_exchange = plan.downcast_ref::<RepartitionExec>().is_some_and(is_hash);
        let change = self.change(&plan);
        let (children, moves_keys) = self.rewrite_children(&plan)?;
        let plan = replace_children_if_necessary(plan, children)?;
        if let Some(change) = change {
            let moves_keys = change.moves_keys();
            let plan = without_last_column(changed(&plan, change)?)?;
            return Ok(Rewritten { plan, moves_keys });
        }
        if is_exchange {
            return Ok(Rewritten::by_hash(plan));
        }
        let plan = match moves_keys {
            true => without_dynamic_filter(plan)?,
            false => plan,
        };
        Ok(Rewritten { plan, moves_keys })
    }

    /// The rewritten inputs, and whether keys of one are moved.
    fn rewrite_children(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<(Vec<Arc<dyn ExecutionPlan>>, bool)> {
        let (mut children, mut moves_keys) = (Vec::new(), false);
        for child in plan.children() {
            let rewritten = self.rewrite(Arc::clone(child))?;
            children.push(rewritten.plan);
            moves_keys |= rewritten.moves_keys;
        }
        Ok((children, moves_keys))
    }

    /// What becomes of `plan`, which is counted if it is an exchange that hashes keys.
    fn change(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Option<Change> {
        plan.downcast_ref::<RepartitionExec>()
            .filter(|exchange| is_hash(exchange))?;
        self.exchanges += 1;
        self.changes.get(&(self.exchanges - 1)).cloned()
    }
}

fn no_boundary() -> datafusion::error::DataFusionError {
    internal_datafusion_err!("an exchange between workers without boundaries")
}

/// An exchange with a change. Its rows have one column more.
fn changed(exchange: &Arc<dyn ExecutionPlan>, change: Change) -> Result<Arc<dyn ExecutionPlan>> {
    let not_hash = || internal_datafusion_err!("{} does not hash columns", exchange.name());
    let repartition = exchange
        .downcast_ref::<RepartitionExec>()
        .ok_or_else(not_hash)?;
    let Partitioning::Hash(keys, partitions) = repartition.partitioning() else {
        return Err(not_hash());
    };
    let columns = keys.iter().map(|key| {
        let column = key.downcast_ref::<Column>();
        column.map(Column::index).ok_or_else(not_hash)
    });
    let columns = columns.collect::<Result<_>>()?;
    let mut input = Arc::clone(repartition.input());
    let (routes, spread) = match change {
        Change::Route(routes) => (routes, SpreadKeys::Deal),
        Change::Copy(routes) => (routes, SpreadKeys::Copy),
        Change::DropAndRoute(routes) => {
            if let Some(known) = known(keys, &input)? {
                input = Arc::new(FilterExec::try_new(known, input)?);
            }
            (routes, SpreadKeys::Deal)
        }
    };
    let routed = RouteRowsExec::new(input, columns, routes, spread)?;
    let by_route = Partitioning::Hash(vec![routed.route()], *partitions);
    Ok(Arc::new(RepartitionExec::try_new(
        Arc::new(routed),
        by_route,
    )?))
}

/// That no key is NULL; `None` if none can be.
fn known(
    keys: &[Arc<dyn PhysicalExpr>],
    input: &Arc<dyn ExecutionPlan>,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let schema = input.schema();
    let mut all: Option<Arc<dyn PhysicalExpr>> = None;
    for key in keys {
        if !key.nullable(&schema)? {
            continue;
        }
        let known: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(Arc::clone(key)));
        all = Some(match all {
            Some(others) => Arc::new(BinaryExpr::new(others, Operator::And, known)),
            None => known,
        });
    }
    Ok(all)
}

/// What an exchange returns, without the column of routes.
fn without_last_column(exchange: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = exchange.schema();
    let columns = schema.fields().len() - 1;
    let kept = schema.fields().iter().take(columns).enumerate();
    let kept = kept.map(|(index, field)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), index));
        ProjectionExpr::new(column, field.name().clone())
    });
    let kept: Vec<_> = kept.collect();
    Ok(Arc::new(ProjectionExec::try_new(kept, exchange)?))
}

/// A join of partitions, some of whose keys are moved, without the filter that it gives to the scan of its probe side: the filter looks for a row's
/// partner in the partition that the hash of the key says.
fn without_dynamic_filter(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match plan.downcast_ref::<HashJoinExec>() {
        Some(join) if *join.partition_mode() == PartitionMode::Partitioned => {
            join.builder().reset_state().build_exec()
        }
        _ => Ok(plan),
    }
}
