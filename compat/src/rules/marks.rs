//! Subqueries that are values: `SELECT x IN (…)`, `sum(CASE WHEN EXISTS (…) THEN 1 END)`.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Aggregate, Filter, Projection};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Makes mark joins below `node` of the `IN` and `EXISTS` in its values, which DataFusion 55.2 makes of
/// those in conditions alone. What it cannot make one of stays as it is.
pub fn marked(node: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
    let input = match &node {
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::Aggregate(Aggregate { input, .. }) => input.clone(),
        _ => return Ok(Transformed::no(node)),
    };
    let mut tests = Vec::new();
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            if is_test(part) && !tests.contains(part) {
                tests.push(part.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    // As conditions that are no joins by themselves.
    let Some(conditions) = conjunction(tests.iter().cloned().map(Expr::is_not_null)) else {
        return Ok(Transformed::no(node));
    };
    let filter = LogicalPlan::Filter(Filter::try_new(conditions, input)?);
    let decorrelated = DecorrelatePredicateSubquery::new().rewrite(filter, config)?;
    let LogicalPlan::Projection(Projection { input, .. }) = decorrelated.data else {
        return Ok(Transformed::no(node));
    };
    let LogicalPlan::Filter(Filter {
        predicate, input, ..
    }) = input.as_ref()
    else {
        return Ok(Transformed::no(node));
    };
    let marks = marks(predicate)?;
    if marks.len() != tests.len() {
        return Ok(Transformed::no(node));
    }

    let names = NamePreserver::new(&node);
    let with_marks = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let with_marks = expression.transform_down(|part| {
            match tests.iter().position(|test| *test == part) {
                Some(place) => Ok(Transformed::yes(marks[place].clone())),
                None => Ok(Transformed::no(part)),
            }
        })?;
        Ok(with_marks.update_data(|expression| name.restore(expression)))
    })?;
    with_marks
        .map_data(|node| node.with_new_exprs(node.expressions(), vec![input.as_ref().clone()]))
}

fn is_test(expression: &Expr) -> bool {
    matches!(expression, Expr::Exists(_) | Expr::InSubquery(_))
}

/// What has become of the subqueries that are asked whether they are NULL, if all have become marks.
fn marks(conditions: &Expr) -> Result<Vec<Expr>> {
    let mut marks = Vec::new();
    for condition in split_conjunction(conditions) {
        match condition {
            Expr::IsNotNull(mark) if !mark.exists(|part| Ok(is_test(part)))? => {
                marks.push(mark.as_ref().clone());
            }
            _ => return Ok(Vec::new()),
        }
    }
    Ok(marks)
}
