//! Calls of functions that may take long, as calls that end when the query is cancelled.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, ScalarUDF};
use skewer_exec::Interruptible;

use crate::costly::{is_built_in, varies_in_size};
use crate::costly_operators::is_own;

/// The same plan, whose functions of values that vary in size, and whose functions of the user's, end when the
/// query is cancelled. It must have been optimized: rules know functions by their types. Timed evaluations stay
/// as they are, as they call functions with a few rows anyway.
///
/// # Errors
/// None of its own; those of walking a plan.
pub(crate) fn with_interruptible_calls(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| Ok(matches!(part, Expr::ScalarFunction(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !found {
        return Ok(plan);
    }
    let plan = plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::Extension(_)) {
            return Ok(Transformed::no(node));
        }
        let schema = match &node {
            LogicalPlan::TableScan(scan) => DFSchema::try_from(scan.source.schema())?,
            other => merge_schema(&other.inputs()),
        };
        node.map_expressions(|expression| expression.transform_up(|part| Ok(call(part, &schema))))
    })?;
    Ok(plan.data)
}

/// A function that may take long for a row as one that can be interrupted.
pub fn interruptible(function: &ScalarUDF) -> Option<ScalarUDF> {
    // DataFusion's operators know it by its type.
    match is_own(function) || function.name() == "get_field" {
        true => None,
        false => Interruptible::wrap(function),
    }
}

fn call(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = &expression else {
        return Transformed::no(expression);
    };
    let varies = |expression: &Expr| {
        let data_type = expression.get_type(schema);
        data_type.map_or(true, |data_type| varies_in_size(&data_type))
    };
    let may_take_long =
        !is_built_in(&call.func) || call.args.iter().any(varies) || varies(&expression);
    match interruptible(&call.func).filter(|_| may_take_long) {
        Some(function) => Transformed::yes(Expr::ScalarFunction(ScalarFunction {
            func: Arc::new(function),
            args: call.args.clone(),
        })),
        None => Transformed::no(expression),
    }
}
