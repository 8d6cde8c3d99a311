//! Rules for logical plans, without what they conclude from columns that seem to determine others.
//!
//! Above `DISTINCT` and `GROUP BY` over joins, DataFusion 55.2 takes the keys of one side for keys of all
//! rows. So it would leave out sort keys, and columns to group by, that are not determined by the others.
//! Above `unnest` it takes the keys of rows for keys of the rows that their lists become. So it would
//! leave out `DISTINCT`, and joins that give several rows for one, and group by more columns.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{FunctionalDependencies, Result, get_required_group_by_exprs_indices};
use datafusion::logical_expr::logical_plan::{Aggregate, Projection, Unnest};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

/// Tells what a rule is to make of a plan.
pub type Decide = fn(LogicalPlan) -> Result<Guard>;

/// What a rule is to make of a plan.
pub enum Guard {
    /// Nothing.
    Leave(LogicalPlan),
    /// What it makes of this one, which returns the same.
    Rewrite(LogicalPlan),
}

/// A rule that is not shown from what it would draw a wrong conclusion.
#[derive(Debug)]
pub struct Guarded {
    pub inner: Arc<dyn OptimizerRule + Send + Sync>,
    pub guard: Decide,
}

impl OptimizerRule for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match (self.guard)(plan)? {
            Guard::Leave(plan) => Ok(Transformed::no(plan)),
            Guard::Rewrite(plan) => self.inner.rewrite(plan, config),
        }
    }
}

/// For `EliminateDuplicatedExpr`: leaves sort keys alone where DataFusion thinks that columns
/// determine others.
pub fn keep_sort_keys(plan: LogicalPlan) -> Result<Guard> {
    Ok(match &plan {
        LogicalPlan::Sort(sort) if !sort.input.schema().functional_dependencies().is_empty() => {
            Guard::Leave(plan)
        }
        _ => Guard::Rewrite(plan),
    })
}

/// For `OptimizeProjections`, which is not told what determines the columns that rows are grouped by.
pub fn keep_groups(plan: LogicalPlan) -> Result<Guard> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if would_lose_groups(&aggregate) => {
            let plan = LogicalPlan::Aggregate(knowing_nothing(aggregate)?);
            Ok(Transformed::yes(plan))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Guard::Rewrite(plan.data))
}

fn would_lose_groups(aggregate: &Aggregate) -> bool {
    let names = aggregate
        .group_expr
        .iter()
        .map(|expr| expr.schema_name().to_string());
    let names: Vec<_> = names.collect();
    get_required_group_by_exprs_indices(aggregate.input.schema(), &names)
        .is_some_and(|required| required.len() < names.len())
}

/// The same above a projection that makes nothing of its input but does not know what determines its
/// columns. `OptimizeProjections` removes it.
fn knowing_nothing(aggregate: Aggregate) -> Result<Aggregate> {
    let schema = aggregate.input.schema().as_ref().clone();
    let columns = schema.columns().into_iter().map(Expr::Column).collect();
    let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
    let input = Projection::try_new_with_schema(columns, aggregate.input, Arc::new(schema))?;
    Aggregate::try_new_with_schema(
        Arc::new(LogicalPlan::Projection(input)),
        aggregate.group_expr,
        aggregate.aggr_expr,
        aggregate.schema,
    )
}

/// For `ReplaceDistinctWithAggregate`, which leaves out `DISTINCT` of rows that seem to be unique.
pub fn keep_distinct(plan: LogicalPlan) -> Result<Guard> {
    match plan {
        LogicalPlan::Distinct(_) => forget_unnested(plan),
        other => Ok(Guard::Leave(other)),
    }
}

/// For `EliminateJoin`, which leaves out joins that seem to give a row once at most.
pub fn keep_joins(plan: LogicalPlan) -> Result<Guard> {
    forget_unnested(plan)
}

/// The same plan, whose rows are not unique only because they were before `unnest`.
fn forget_unnested(plan: LogicalPlan) -> Result<Guard> {
    without_unnested_keys(plan).map(Guard::Rewrite)
}

/// Plans relations in FROM so that `GROUP BY` above them does not group by more columns.
///
/// DataFusion's SQL planner also groups by the columns that those in `GROUP BY` seem to determine
/// (`add_group_by_exprs_from_dependencies` in datafusion-expr). It takes the keys of rows for keys of the
/// rows that their lists become, so it would return several rows for a group.
#[derive(Debug)]
pub struct ForgetsUnnestedKeys;

thread_local! {
    /// Whether this thread asks DataFusion for a plan of the relation that it is called for.
    static IS_PLANNING: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for ForgetsUnnestedKeys {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let is_query = matches!(
            relation,
            TableFactor::Derived { .. } | TableFactor::Table { .. }
        );
        if IS_PLANNING.replace(false) || !is_query {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_PLANNING.set(true);
        let plan = without_unnested_keys(context.plan(relation)?)?;
        let planned = PlannedRelation::new(plan, None);
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// The same plan. Its schemas do not claim that keys of rows are keys of the rows that `unnest` makes of them.
fn without_unnested_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut unnests = false;
    plan.apply_with_subqueries(|node| {
        unnests |= matches!(node, LogicalPlan::Unnest(_));
        Ok(if unnests {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    if !unnests {
        return Ok(plan);
    }
    let plan = plan.transform_up_with_subqueries(|node| {
        Ok(Transformed::yes(match node {
            LogicalPlan::Unnest(unnest) => {
                let schema = unnest.schema.as_ref().clone();
                let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
                LogicalPlan::Unnest(Unnest {
                    schema: Arc::new(schema),
                    ..unnest
                })
            }
            other => other.recompute_schema()?,
        }))
    })?;
    Ok(plan.data)
}
