//! Arguments of aggregate and window functions that DataFusion 55.2 hands on unseen, to functions that panic.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Aggregates whose result is the same in any order of their rows.
const UNORDERED: [&str; 29] = [
    "approx_distinct",
    "approx_median",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "max",
    "median",
    "min",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "sum",
    "var",
    "var_pop",
];

/// Window functions of a value.
const OF_A_VALUE: [&str; 6] = [
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
];

/// Takes ORDER BY away from aggregates that go by no order, as `avg(x ORDER BY y)`: they would be given the
/// keys as arguments. Refuses window functions of a value that are given none.
#[derive(Debug)]
pub struct GuardedArguments;

impl OptimizerRule for GuardedArguments {
    fn name(&self) -> &'static str {
        "sound_arguments"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        node: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &node {
            LogicalPlan::Window(window) => {
                for expression in &window.window_expr {
                    has_its_value(expression)?;
                }
                Ok(Transformed::no(node))
            }
            LogicalPlan::Aggregate(aggregate)
                if aggregate.aggr_expr.iter().any(has_needless_order) =>
            {
                let names = NamePreserver::new(&node);
                node.map_expressions(|expression| {
                    let name = names.save(&expression);
                    let without = expression.transform_up(|part| Ok(without_order(part)))?;
                    Ok(without.update_data(|expression| name.restore(expression)))
                })
            }
            _ => Ok(Transformed::no(node)),
        }
    }
}

fn has_its_value(expression: &Expr) -> Result<()> {
    expression.apply(|part| {
        if let Expr::WindowFunction(window) = part
            && let WindowFunctionDefinition::WindowUDF(function) = &window.fun
            && window.params.args.is_empty()
            && OF_A_VALUE.contains(&function.name())
        {
            return plan_err!("{} needs an argument", function.name());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn has_needless_order(expression: &Expr) -> bool {
    let found = expression.exists(|part| Ok(is_needless(part)));
    found.unwrap_or(false)
}

fn is_needless(part: &Expr) -> bool {
    match part {
        Expr::AggregateFunction(aggregate) => {
            !aggregate.params.order_by.is_empty() && UNORDERED.contains(&aggregate.func.name())
        }
        _ => false,
    }
}

fn without_order(part: Expr) -> Transformed<Expr> {
    match part {
        Expr::AggregateFunction(mut aggregate) if UNORDERED.contains(&aggregate.func.name()) => {
            let had_order = !std::mem::take(&mut aggregate.params.order_by).is_empty();
            Transformed::new_transformed(Expr::AggregateFunction(aggregate), had_order)
        }
        part => Transformed::no(part),
    }
}
