//! Scalar subqueries: their value where they have no row or several, and joins in their place.
//!
//! * [`values`]: forms of which DataFusion knows what their value may be, right after planning
//! * [`rows`]: those that are compared with more than equal columns
//! * [`schemas`]: what may be NULL then
//! * [`joins`]: so workers can run them, and lineage sees them

mod joins;
mod rows;
mod schemas;
mod values;

use std::sync::Arc;

use crate::functions::single_value::SingleValue;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::logical_plan::Aggregate;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, SortExpr, Subquery};

pub use joins::optimize_with_joins;
pub(crate) use schemas::with_schemas;
pub use values::with_values;
pub(crate) use values::{is_aggregate, only_value};

fn has_scalar_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            found |= expression.exists(|e| Ok(matches!(e, Expr::ScalarSubquery(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// `subquery` with one row in all cases, that of its only row or of NULL; an error if it has several.
fn single(subquery: &Subquery) -> Result<Subquery> {
    let function = AggregateUDF::from(SingleValue::default());
    let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
    let value = Expr::from((qualifier, field));
    let input = Arc::clone(&subquery.subquery);
    let aggregate = aggregated(function.into(), value, Vec::new(), input, field.name())?;
    Ok(in_place_of(subquery, aggregate))
}

/// `function` of the `value` of all rows of `input`, as a column with this name.
pub(crate) fn aggregated(
    function: Arc<AggregateUDF>,
    value: Expr,
    order_by: Vec<SortExpr>,
    input: Arc<LogicalPlan>,
    name: &str,
) -> Result<LogicalPlan> {
    let call = AggregateFunction::new_udf(function, vec![value], false, None, order_by, None);
    let call = Expr::AggregateFunction(call).alias(name);
    let aggregate = Aggregate::try_new(input, vec![], vec![call])?;
    Ok(LogicalPlan::Aggregate(aggregate))
}

fn in_place_of(original: &Subquery, plan: LogicalPlan) -> Subquery {
    Subquery {
        outer_ref_columns: plan.all_out_ref_exprs(),
        subquery: Arc::new(plan),
        spans: original.spans.clone(),
    }
}

/// `expression` of a subquery, in the query around it, whose columns are those of `scope`; of others, further
/// out, it remains in one.
fn around(expression: Expr, scope: &DFSchema) -> Result<Expr> {
    let around = expression.transform_up(|part| match part {
        Expr::OuterReferenceColumn(_, column) if scope.has_column(&column) => {
            Ok(Transformed::yes(Expr::Column(column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(around.data)
}
