//! DataFusion's rules that push filters down, kept from taking one column for another of its name.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

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
        let guarded = plan.transform_up(|plan| {
            let names = ambiguous_names(&plan);
            Ok(match names.is_empty() {
                true => Transformed::no(plan),
                false => Transformed::yes(Arc::new(Guard { input: plan, names }) as _),
            })
        })?;
        let pushed = self.0.optimize(guarded.data, config)?;
        if !guarded.transformed {
            return Ok(pushed);
        }
        let input = |plan: &Arc<dyn ExecutionPlan>| {
            let guard = plan.downcast_ref::<Guard>()?;
            Some(Arc::clone(&guard.input))
        };
        pushed
            .transform_up(|plan| {
                Ok(input(&plan).map_or_else(|| Transformed::no(plan), Transformed::yes))
            })
            .data()
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

/// On top of an operator while filters are pushed down: lets those through that refer to none of
/// `names`.
#[derive(Debug)]
struct Guard {
    input: Arc<dyn ExecutionPlan>,
    names: HashSet<String>,
}

impl DisplayAs for Guard {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.name())
    }
}

impl ExecutionPlan for Guard {
    fn name(&self) -> &str {
        "Guard"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("Guard has one input");
        };
        let names = self.names.clone();
        Ok(Arc::new(Self { input, names }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let schema = self.input.schema();
        let columns = schema.fields().iter().enumerate();
        let unambiguous = columns.filter(|(_, field)| !self.names.contains(field.name()));
        let filters = ChildFilterDescription::from_child_with_allowed_indices(
            &parent_filters,
            unambiguous.map(|(place, _)| place).collect(),
            &self.input,
        )?;
        Ok(FilterDescription::new().with_child(filters))
    }
}
