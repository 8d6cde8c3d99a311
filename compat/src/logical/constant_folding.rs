//! Optimizing without keeping others waiting.
//!
//! The optimizer calls functions of constants, which may take any time, as an edit distance of two long texts
//! does. Nothing ends such a call.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use tokio::runtime::{Handle, RuntimeFlavor};

/// What `optimize` makes of `plan`. If functions of constants are called for that, another thread takes over
/// the tasks of this one meanwhile.
pub fn optimized<T>(plan: &LogicalPlan, optimize: impl FnOnce() -> T) -> Result<T> {
    let runtime = Handle::try_current();
    let can_hand_over = runtime.is_ok_and(|r| r.runtime_flavor() == RuntimeFlavor::MultiThread);
    Ok(match can_hand_over && calls_functions_of_constants(plan)? {
        true => tokio::task::block_in_place(optimize),
        false => optimize(),
    })
}

fn calls_functions_of_constants(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| Ok(is_call_of_constants(part)))?;
            Ok(match found {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })
    })?;
    Ok(found)
}

fn is_call_of_constants(expression: &Expr) -> bool {
    let Expr::ScalarFunction(function) = expression else {
        return false;
    };
    !function.args.is_empty() && !function.args.iter().any(Expr::any_column_refs)
}

#[cfg(test)]
mod tests {
    use datafusion::functions::expr_fn::{abs, levenshtein, now};
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};

    use super::*;

    #[test]
    fn calls_of_constants_are_told_from_others() {
        for (expression, expected) in [
            (abs(col("a")), false),
            (lit(1), false),
            (now(), false),
            (abs(lit(-1)), true),
            (abs(col("a")) + levenshtein(lit("x"), lit("y")), true),
        ] {
            let rows = LogicalPlanBuilder::values(vec![vec![lit(1)]]).unwrap();
            let rows = rows.project([col("column1").alias("a")]).unwrap();
            let plan = rows.project([expression.clone()]).unwrap().build().unwrap();
            let found = calls_functions_of_constants(&plan).unwrap();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
