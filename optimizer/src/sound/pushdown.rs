//! DataFusion's rules that push filters down, kept from taking one column for another of its name.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;

use super::guard::optimize_guarded;

/// One of DataFusion's two [`FilterPushdown`] rules, of static and of dynamic filters.
///
/// DataFusion 55.2 finds the columns of a filter in the input of an operator by their names. Where two
/// have the same, as `o.amount` and `p.amount` above a join, it takes the first, and drops rows for what
/// another column holds (apache/datafusion issues 21246, 25262 and 25296). A filter on such a column
/// stays where it is.
#[derive(Debug)]
pub struct SoundPushdown(pub FilterPushdown);

impl PhysicalOptimizerRule for SoundPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let guarded = |plan: &Arc<dyn ExecutionPlan>| {
            let names = ambiguous_names(plan);
            (!names.is_empty()).then_some(names)
        };
        optimize_guarded(&self.0, plan, config, guarded)
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

fn repeated_names(schema: &Schema) -> Vec<String> {
    let mut seen = HashSet::new();
    let names = schema.fields().iter().map(|field| field.name());
    names
        .filter(|name| !seen.insert(name.as_str()))
        .cloned()
        .collect()
}
