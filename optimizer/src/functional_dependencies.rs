//! DataFusion's rules for logical plans, without what they conclude from columns that seem to determine
//! others.
//!
//! Above `DISTINCT` and `GROUP BY` over joins, DataFusion 55.2 takes the keys of one side for keys of all
//! rows. So it would leave out sort keys, and columns to group by, that are not determined by the others.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{FunctionalDependencies, Result, get_required_group_by_exprs_indices};
use datafusion::logical_expr::logical_plan::{Aggregate, Projection};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};

/// DataFusion's rules for logical plans, of which none loses sort keys or columns to group by.
pub fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    for rule in &mut rules {
        let guard = if rule.name() == EliminateDuplicatedExpr::new().name() {
            keep_sort_keys
        } else if rule.name() == OptimizeProjections::new().name() {
            keep_groups
        } else {
            continue;
        };
        let inner = Arc::clone(rule);
        *rule = Arc::new(Guarded { inner, guard });
    }
    rules
}

/// What a rule is to make of a plan.
enum Guard {
    /// Nothing.
    Leave(LogicalPlan),
    /// What it makes of this one, which returns the same.
    Rewrite(LogicalPlan),
}

/// A rule that is not shown from what it would draw a wrong conclusion.
#[derive(Debug)]
struct Guarded {
    inner: Arc<dyn OptimizerRule + Send + Sync>,
    guard: fn(LogicalPlan) -> Result<Guard>,
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

/// For [`EliminateDuplicatedExpr`]: leaves sort keys alone where DataFusion thinks that columns
/// determine others.
fn keep_sort_keys(plan: LogicalPlan) -> Result<Guard> {
    Ok(match &plan {
        LogicalPlan::Sort(sort) if !sort.input.schema().functional_dependencies().is_empty() => {
            Guard::Leave(plan)
        }
        _ => Guard::Rewrite(plan),
    })
}

/// For [`OptimizeProjections`], which is not told what determines the columns that rows are grouped by.
fn keep_groups(plan: LogicalPlan) -> Result<Guard> {
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
/// columns. [`OptimizeProjections`] removes it.
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
