//! Groups by keys that have one value in all rows.
//!
//! After `WHERE d_year = 2000` every row has the same `d_year`. DataFusion 55.2 takes rows to be in the order of such a
//! key, and makes groups as of sorted rows: the first stage then keeps all groups, also where it finds as many groups
//! as rows, and the operators that replace it are not used. This rule leaves such keys out of GROUP BY. A projection
//! above has their value. (Simmen, Shekita and Malkemus, "Fundamental techniques for order optimization", SIGMOD 1996,
//! section 4, reduces sort keys by constants in the same way.)

use std::cell::Cell;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue};
use datafusion::logical_expr::logical_plan::{Aggregate, Distinct, Projection};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// How many operators are looked at for one key. Equal columns of nested joins lead to an operator in many ways.
const MOST_LOOKS: usize = 1_000;

/// Leaves keys out of GROUP BY that have one value. One key stays: without keys there is a group of no rows.
#[derive(Debug)]
pub struct ConstantKeys;

impl OptimizerRule for ConstantKeys {
    fn name(&self) -> &'static str {
        "constant_keys"
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
        let LogicalPlan::Aggregate(aggregate) = node else {
            return Ok(Transformed::no(node));
        };
        let mut values: Vec<_> = aggregate
            .group_expr
            .iter()
            .map(|key| constant(key, &aggregate.input, &Cell::new(MOST_LOOKS)))
            .collect();
        if values.iter().all(Option::is_some)
            && let Some(first) = values.first_mut()
        {
            *first = None;
        }
        match values.iter().any(Option::is_some) {
            true => without_keys(aggregate, values).map(Transformed::yes),
            false => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
        }
    }
}

/// `aggregate` without the keys that have a value in `values`, in which each key has a place.
fn without_keys(aggregate: Aggregate, values: Vec<Option<ScalarValue>>) -> Result<LogicalPlan> {
    let keys = aggregate.group_expr.into_iter().zip(&values);
    let kept = keys.filter(|(_, value)| value.is_none());
    let kept: Vec<Expr> = kept.map(|(key, _)| key).collect();
    let columns = aggregate.schema.iter().map(Column::from);
    let values = values.into_iter().chain(std::iter::repeat(None));
    let columns: Vec<Expr> = columns
        .zip(values)
        .map(|(column, value)| match value {
            Some(value) => Expr::Literal(value, None).alias_qualified(column.relation, column.name),
            None => Expr::Column(column),
        })
        .collect();
    let grouped = Aggregate::try_new(aggregate.input, kept, aggregate.aggr_expr)?;
    let grouped = Arc::new(LogicalPlan::Aggregate(grouped));
    Projection::try_new(columns, grouped).map(LogicalPlan::Projection)
}

/// The one value that `expression` has in all rows of `plan`, if conditions say so. It is never NULL. `looks` says at how
/// many more operators to look.
fn constant(expression: &Expr, plan: &LogicalPlan, looks: &Cell<usize>) -> Option<ScalarValue> {
    looks.set(looks.get().checked_sub(1)?);
    let column = match expression {
        Expr::Alias(alias) => return constant(&alias.expr, plan, looks),
        Expr::Literal(value, _) => return (is_exact(value)).then(|| value.clone()),
        Expr::Column(column) => column,
        _ => return None,
    };
    let schema = plan.schema();
    let index = schema.maybe_index_of_column(column)?;
    let data_type = schema.field(index).data_type();
    let of_column = |place: usize, input: &LogicalPlan| {
        let column = Column::from(input.schema().qualified_field(place));
        constant(&Expr::Column(column), input, looks)
    };
    let value = match plan {
        LogicalPlan::Filter(filter) => {
            let mut conditions = split_conjunction(&filter.predicate).into_iter();
            let compared = conditions.find_map(|condition| compared_with(condition, index, schema));
            compared.or_else(|| of_column(index, &filter.input))
        }
        LogicalPlan::Projection(projection) => {
            constant(&projection.expr[index], &projection.input, looks)
        }
        LogicalPlan::SubqueryAlias(alias) => of_column(index, &alias.input),
        LogicalPlan::Sort(sort) => of_column(index, &sort.input),
        LogicalPlan::Limit(limit) => of_column(index, &limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => of_column(index, input),
        LogicalPlan::Union(union) => {
            let mut inputs = union.inputs.iter().map(|input| of_column(index, input));
            let first = inputs.next()??;
            inputs
                .all(|value| value.as_ref() == Some(&first))
                .then_some(first)
        }
        LogicalPlan::Window(window) => {
            let is_of_input = index < window.input.schema().fields().len();
            is_of_input.then(|| of_column(index, &window.input))?
        }
        LogicalPlan::Aggregate(aggregate) => {
            let key = aggregate.group_expr.get(index)?;
            constant(key, &aggregate.input, looks)
        }
        LogicalPlan::Join(join) => {
            let width = join.left.schema().fields().len();
            let (left, right) = match join.join_type {
                JoinType::Inner => (true, true),
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                    (true, false)
                }
                JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => (false, true),
                JoinType::RightMark | JoinType::Full => (false, false),
            };
            let place = match join.join_type {
                JoinType::RightSemi | JoinType::RightAnti => Some(index),
                _ => index.checked_sub(width),
            };
            let own = match place {
                None if left => of_column(index, &join.left),
                Some(place) if right => of_column(place, &join.right),
                _ => None,
            };
            let other = || {
                let is_inner = join.join_type == JoinType::Inner;
                let mut keys = join.on.iter().filter(|_| is_inner);
                keys.find_map(|(one, other)| match place {
                    None => (is_column(one, index, join.left.schema()))
                        .then(|| constant(other, &join.right, looks))?,
                    Some(place) => (is_column(other, place, join.right.schema()))
                        .then(|| constant(one, &join.left, looks))?,
                })
            };
            own.or_else(other)
        }
        _ => None,
    };
    value.filter(|value| value.data_type() == *data_type)
}

/// The value that column `index` has where `condition` holds.
fn compared_with(condition: &Expr, index: usize, schema: &DFSchema) -> Option<ScalarValue> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = condition
    else {
        return None;
    };
    let value = match (left.as_ref(), right.as_ref()) {
        (column, Expr::Literal(value, _)) if is_column(column, index, schema) => value,
        (Expr::Literal(value, _), column) if is_column(column, index, schema) => value,
        _ => return None,
    };
    is_exact(value).then(|| value.clone())
}

fn is_column(expression: &Expr, index: usize, schema: &DFSchema) -> bool {
    match expression {
        Expr::Column(column) => schema.maybe_index_of_column(column) == Some(index),
        _ => false,
    }
}

/// Whether what equals `value` is the same in each respect. 0.0 equals -0.0, one month equals 30 days.
fn is_exact(value: &ScalarValue) -> bool {
    let data_type = value.data_type();
    let is_exact = data_type.is_integer()
        || data_type.is_decimal()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
        );
    is_exact && !value.is_null()
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;

    use crate::session::repaired;

    /// Two columns of each table lead to both columns of the next one: 25 joins are looked through in 2^25 ways.
    #[tokio::test]
    async fn a_key_is_given_up_that_many_equal_columns_lead_to() {
        let context = repaired(SessionStateBuilder::new());
        let last = 25;
        let mut tables = "(VALUES (1, 2, 3)) AS t0 (x, y, z)".to_owned();
        for join in 1..=last {
            let (one, other) = (format!("t{join}"), format!("t{}", join - 1));
            tables = format!(
                "(VALUES (1, 2, 3)) AS {one} (x, y, z) JOIN ({tables}) ON {one}.x = {other}.x \
                 AND {one}.x = {other}.y AND {one}.y = {other}.x AND {one}.y = {other}.y"
            );
        }
        let sql = format!("SELECT t{last}.x, t{last}.z, count(*) FROM {tables} GROUP BY 1, 2");
        let state = context.state();
        let plan = state.create_logical_plan(&sql).await.unwrap();
        state.optimize(&plan).unwrap();
    }
}
