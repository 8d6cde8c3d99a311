//! DataFusion's rule against what is said twice, but for sort keys that are not.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};

/// [`EliminateDuplicatedExpr`], which leaves sort keys alone where DataFusion thinks that columns
/// determine others. It also leaves out keys that are determined by those before them, and
/// DataFusion 55.2 is wrong about that above `DISTINCT` and `GROUP BY` over joins: it takes the keys of
/// one side for keys of all.
#[derive(Debug, Default)]
struct KeepSortKeys(EliminateDuplicatedExpr);

impl OptimizerRule for KeepSortKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Sort(sort)
                if !sort.input.schema().functional_dependencies().is_empty() =>
            {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

/// DataFusion's rules for logical plans, of which none loses sort keys.
pub fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    for rule in &mut rules {
        if rule.name() == EliminateDuplicatedExpr::new().name() {
            *rule = Arc::new(KeepSortKeys::default());
        }
    }
    rules
}
