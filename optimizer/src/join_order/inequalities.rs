//! Semi and anti joins that compare one column by an inequality: the least and greatest value of each key are enough.
//!
//! ```text
//! L SEMI JOIN R ON L.k = R.k AND L.w <> R.w
//!
//! L SEMI JOIN (SELECT k, min(w) AS least, max(w) AS greatest FROM R GROUP BY k) AS R
//!   ON L.k = R.k AND (L.w <> least OR L.w <> greatest)
//! ```
//!
//! A key with many rows on both sides makes a pair of each two (query 95 of TPC-DS). `min` and `max`
//! leave NULL out, as the comparison does.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_aggregate::expr_fn::{max, min};
use datafusion::logical_expr::logical_plan::{Aggregate, Join};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr,
};

use super::cardinality::Estimator;

/// What a row costs that is aggregated, relative to a pair that is compared.
const AGGREGATED: f64 = 5.0;
/// Rows of the right side that are not worth it.
const FEW_ROWS: f64 = 50_000.0;
/// What the least and the greatest values are called. Nothing above a semi join sees them.
const LEAST: &str = "__skewer_least";
const GREATEST: &str = "__skewer_greatest";

/// Aggregates the right sides of semi and anti joins.
pub(super) struct Inequalities<'a> {
    /// `None` aggregates all that can be: for tests.
    pub(super) estimator: Option<&'a Estimator<'a>>,
}

/// `left operator right`, where `left` is of the left side.
struct Comparison<'a> {
    left: &'a Column,
    operator: Operator,
    right: &'a Column,
}

impl Inequalities<'_> {
    /// `plan` with joins that compare a row with two values of its key at most, where that pays.
    pub(super) fn aggregated(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Join(join) = &node else {
                return Ok(Transformed::no(node));
            };
            Ok(match self.join(join)? {
                Some(join) => Transformed::yes(LogicalPlan::Join(join)),
                None => Transformed::no(node),
            })
        })
    }

    fn join(&self, join: &Join) -> Result<Option<Join>> {
        let is_semi = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti);
        let equality = join.null_equality == NullEquality::NullEqualsNothing;
        if !is_semi || join.null_aware || !equality || join.on.is_empty() {
            return Ok(None);
        }
        let Some(comparison) = Comparison::of_join(join) else {
            return Ok(None);
        };
        if !comparison.has_exact_values(join)? || !self.pays(join) {
            return Ok(None);
        }
        let mut keys: Vec<Expr> = Vec::new();
        for (_, key) in &join.on {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        let Comparison {
            left,
            operator,
            right,
        } = comparison;
        let with = |value: &str| {
            let value = Expr::Column(Column::new_unqualified(value));
            binary_expr(Expr::Column(left.clone()), operator, value)
        };
        let column = || Expr::Column(right.clone());
        let least = || min(column()).alias(LEAST);
        let greatest = || max(column()).alias(GREATEST);
        let (values, condition) = match operator {
            Operator::NotEq => (vec![least(), greatest()], with(LEAST).or(with(GREATEST))),
            // Some value is greater if the greatest is.
            Operator::Lt | Operator::LtEq => (vec![greatest()], with(GREATEST)),
            _ => (vec![least()], with(LEAST)),
        };
        let groups = Aggregate::try_new(Arc::clone(&join.right), keys, values)?;
        Ok(Some(Join {
            right: Arc::new(LogicalPlan::Aggregate(groups)),
            filter: Some(condition),
            ..join.clone()
        }))
    }

    /// Whether pairs of rows cost more than groups.
    fn pays(&self, join: &Join) -> bool {
        let Some(estimator) = self.estimator else {
            return true;
        };
        let sides = [&join.left, &join.right].map(|side| estimator.estimate(side));
        let [Some(left), Some(right)] = sides else {
            return false;
        };
        let keys = join.on.iter().map(|(_, key)| key);
        let keys = right.keys(join.right.schema(), keys).distinct;
        let pairs = left.rows * right.rows / keys.clamp(1.0, right.rows.max(1.0));
        right.rows >= FEW_ROWS && pairs > AGGREGATED * right.rows + left.rows
    }
}

impl<'a> Comparison<'a> {
    /// The only condition of `join` beside its keys, if it is an inequality of a column of each side. The keys are
    /// columns.
    fn of_join(join: &'a Join) -> Option<Self> {
        let mut keys = join.on.iter();
        if !keys.all(|(_, key)| matches!(key, Expr::Column(_))) {
            return None;
        }
        let Some(Expr::BinaryExpr(BinaryExpr { left, op, right })) = &join.filter else {
            return None;
        };
        let (Expr::Column(one), Expr::Column(other)) = (left.as_ref(), right.as_ref()) else {
            return None;
        };
        let is_inequality = matches!(
            op,
            Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        );
        if !is_inequality {
            return None;
        }
        let (of_left, of_right) = (join.left.schema(), join.right.schema());
        if of_left.has_column(one) && of_right.has_column(other) {
            return Some(Self {
                left: one,
                operator: *op,
                right: other,
            });
        }
        if of_left.has_column(other) && of_right.has_column(one) {
            return Some(Self {
                left: other,
                operator: op.swap()?,
                right: one,
            });
        }
        None
    }

    /// Whether both columns have the same type, whose values are equal only if they are the same.
    fn has_exact_values(&self, join: &Join) -> Result<bool> {
        let of_left = Expr::Column(self.left.clone()).get_type(join.left.schema())?;
        let of_right = Expr::Column(self.right.clone()).get_type(join.right.schema())?;
        let is_exact = of_left.is_integer()
            || of_left.is_decimal()
            || matches!(
                of_left,
                DataType::Date32 | DataType::Date64 | DataType::Timestamp(..)
            );
        Ok(is_exact && of_left == of_right)
    }
}
