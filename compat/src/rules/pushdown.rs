//! DataFusion's rules that push filters down, kept from dropping rows that are asked for.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::guard::optimize_with_filters_kept;

/// One of DataFusion's two [`FilterPushdown`] rules, of static and of dynamic filters.
///
/// DataFusion 55.2 finds the columns of a filter in the input of an operator by their names. Where two
/// have the same, as `o.amount` and `p.amount` above a join, it takes the first, and drops rows for what
/// another column holds (apache/datafusion issues 21246, 25262 and 25296). A filter on such a column
/// stays where it is.
///
/// An aggregate of all rows that has `min` and `max` alone pushes down a filter of its own, which lets only
/// those rows through that are less or greater than all before. DataFusion 55.2 makes it of the arguments that
/// are columns and that have had a value so far. Rows are lost which another aggregate needs (found with
/// SQLite's corpus; compare apache/datafusion issue 18643): `max(a), max(-a)`, or `max(a), max(b)` where `b` is
/// NULL in the first rows. Only a single aggregate of a column keeps its filter.
#[derive(Debug)]
pub struct GuardedPushdown(pub FilterPushdown);

impl PhysicalOptimizerRule for GuardedPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = |plan: &Arc<dyn ExecutionPlan>| {
            let names = ambiguous_names(plan);
            (!names.is_empty()).then_some(names)
        };
        optimize_with_filters_kept(&self.0, plan, config, guarded, has_unsound_filter)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Names that `plan` or one of its inputs has more than once. Those of its inputs count, too: an
/// operator that hands on one of two columns finds the other when it looks the name up below.
fn ambiguous_names(plan: &Arc<dyn ExecutionPlan>) -> HashSet<String> {
    let inputs = plan.children().into_iter().map(|input| input.schema());
    inputs
        .chain([plan.schema()])
        .flat_map(|schema| repeated_names(&schema))
        .collect()
}

/// Whether `plan` has a dynamic filter that is not certain to let all rows through that it needs. What nested
/// values are less or greater, comparisons and aggregates do not agree on.
fn has_unsound_filter(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(aggregate) = plan.downcast_ref::<AggregateExec>() else {
        return false;
    };
    if plan.dynamic_expressions_produced().is_empty() {
        return false;
    }
    let [only] = aggregate.aggr_expr() else {
        return true;
    };
    !only.expressions().iter().all(|argument| {
        let data_type = argument.data_type(&aggregate.input_schema());
        argument.is::<Column>() && data_type.is_ok_and(|data_type| !data_type.is_nested())
    })
}

fn repeated_names(schema: &Schema) -> Vec<String> {
    let mut seen = HashSet::new();
    let names = schema.fields().iter().map(|field| field.name());
    names
        .filter(|name| !seen.insert(name.as_str()))
        .cloned()
        .collect()
}
