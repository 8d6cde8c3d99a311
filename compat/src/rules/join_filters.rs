//! Conditions of sort-merge joins.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::SortMergeJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;

use super::guard::optimize_guarded;

/// Lets the conditions of sort-merge joins see NULL in every column.
///
/// An outer join evaluates its condition for rows without a partner, too, as if that were a row of NULLs.
/// DataFusion 55.2 makes such rows of the columns as the inputs have them, and fails where one is never
/// NULL.
#[derive(Debug)]
pub struct GuardedJoinFilters;

impl PhysicalOptimizerRule for GuardedJoinFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() else {
                return Ok(Transformed::no(plan));
            };
            let Some(filter) = join.filter().as_ref().and_then(with_nulls) else {
                return Ok(Transformed::no(plan));
            };
            let join = SortMergeJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                join.on().to_vec(),
                Some(filter),
                join.join_type(),
                join.sort_options().to_vec(),
                join.null_equality(),
            )?;
            Ok(Transformed::yes(Arc::new(join) as _))
        })
        .data()
    }

    fn name(&self) -> &str {
        "sound_join_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// DataFusion's rule that pushes projections down, which in DataFusion 55.2 takes columns from below a
/// sort-merge join and lets its condition look for them where they were (apache/datafusion issue 24414).
#[derive(Debug)]
pub struct GuardedProjections(pub ProjectionPushdown);

impl PhysicalOptimizerRule for GuardedProjections {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let has_filter = |plan: &Arc<dyn ExecutionPlan>| {
            let join = plan.downcast_ref::<SortMergeJoinExec>()?;
            join.filter().as_ref().map(|_| HashSet::new())
        };
        optimize_guarded(&self.0, plan, config, has_filter)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same condition on columns that may be NULL, unless they may already.
fn with_nulls(filter: &JoinFilter) -> Option<JoinFilter> {
    let fields = filter.schema().fields();
    if fields.iter().all(|field| field.is_nullable()) {
        return None;
    }
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let fields: Vec<_> = fields.iter().map(nullable).collect();
    Some(JoinFilter::new(
        Arc::clone(filter.expression()),
        filter.column_indices().to_vec(),
        Arc::new(Schema::new(fields)),
    ))
}
