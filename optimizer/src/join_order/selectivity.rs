//! Rules that estimate the share of rows for which a predicate holds, from statistics of columns.
//!
//! Where nothing is known, the shares are System R's (Selinger et al., "Access path selection in a
//! relational database management system", SIGMOD 1979, table 1), but for patterns.

use std::collections::BTreeMap;

use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::statistics::as_number;

/// Comparison by `<` and the like with an unknown value.
const RANGE: f64 = 1.0 / 3.0;
/// Equality with an unknown value of an unknown column.
const EQUAL: f64 = 0.1;
/// A pattern.
const PATTERN: f64 = 0.1;
/// Anything else.
const OTHER: f64 = 0.25;

/// Estimates of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ColumnEstimate {
    /// Number of distinct values.
    pub(super) distinct: f64,
    /// Share of rows in which it is NULL.
    pub(super) nulls: f64,
    /// The least and the greatest value, as numbers.
    pub(super) bounds: Option<(f64, f64)>,
    /// Bytes of a value in memory, on average.
    pub(super) bytes: f64,
}

impl ColumnEstimate {
    /// The estimate of a column if only its number of distinct values is known.
    pub(super) fn with_distinct(distinct: f64) -> Self {
        Self {
            distinct: distinct.max(1.0),
            nulls: 0.0,
            bounds: None,
            bytes: 8.0,
        }
    }
}

/// A column compared with a constant.
pub(super) struct Range<'a> {
    pub(super) column: &'a Column,
    pub(super) least: Option<f64>,
    pub(super) greatest: Option<f64>,
}

impl<'a> Range<'a> {
    /// The range of a column's values, if `expression` compares it with a number.
    pub(super) fn in_expression(expression: &'a Expr) -> Option<Self> {
        if let Expr::Between(between) = expression {
            let column = column(&between.expr).filter(|_| !between.negated)?;
            return Some(Self {
                column,
                least: Some(constant(&between.low)?),
                greatest: Some(constant(&between.high)?),
            });
        }
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expression else {
            return None;
        };
        let (column, op, number) = match (column(left), column(right)) {
            (Some(column), None) => (column, *op, constant(right)?),
            (None, Some(column)) => (column, op.swap()?, constant(left)?),
            _ => return None,
        };
        let (least, greatest) = match op {
            Operator::Lt | Operator::LtEq => (None, Some(number)),
            Operator::Gt | Operator::GtEq => (Some(number), None),
            _ => return None,
        };
        Some(Self {
            column,
            least,
            greatest,
        })
    }
}

fn column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        _ => None,
    }
}

fn constant(expression: &Expr) -> Option<f64> {
    match expression {
        Expr::Literal(value, _) => as_number(value),
        _ => None,
    }
}

/// The rules, over columns with these estimates.
pub(super) struct Rules<'a> {
    pub(super) columns: &'a dyn Fn(&Column) -> Option<ColumnEstimate>,
}

impl Rules<'_> {
    /// The share of rows for which all of `predicates` hold. Bounds of one column count together.
    pub(super) fn all<'a>(&self, predicates: impl IntoIterator<Item = &'a Expr>) -> f64 {
        let mut share = 1.0;
        let mut ranges: BTreeMap<&Column, (f64, f64)> = BTreeMap::new();
        for predicate in predicates {
            let range = Range::in_expression(predicate);
            let known = range.and_then(|range| {
                let bounds = (self.columns)(range.column)?.bounds?;
                Some((range, bounds))
            });
            let Some((range, bounds)) = known else {
                share *= self.one(predicate);
                continue;
            };
            let (least, greatest) = ranges.entry(range.column).or_insert(bounds);
            *least = range.least.map_or(*least, |bound| bound.max(*least));
            *greatest = range
                .greatest
                .map_or(*greatest, |bound| bound.min(*greatest));
        }
        for (column, (least, greatest)) in ranges {
            let Some(estimate) = (self.columns)(column) else {
                continue;
            };
            let Some((min, max)) = estimate.bounds else {
                continue;
            };
            // A range within the bounds has at least one of the values.
            let within = match greatest >= least {
                true => ((greatest - least) / (max - min)).max(1.0 / estimate.distinct),
                false => 0.0,
            };
            share *= within.min(1.0) * (1.0 - estimate.nulls);
        }
        share
    }

    fn one(&self, predicate: &Expr) -> f64 {
        match predicate {
            Expr::Literal(ScalarValue::Boolean(value), _) => {
                f64::from(u8::from(*value == Some(true)))
            }
            Expr::Alias(alias) => self.one(&alias.expr),
            Expr::Column(_) => 0.5,
            Expr::Not(inner) => 1.0 - self.one(inner),
            Expr::IsNull(inner) => self.nulls(inner),
            Expr::IsNotNull(inner) => 1.0 - self.nulls(inner),
            Expr::IsTrue(inner) | Expr::IsNotFalse(inner) => self.one(inner),
            Expr::IsFalse(inner) | Expr::IsNotTrue(inner) => 1.0 - self.one(inner),
            Expr::Between(between) => unless(between.negated, RANGE * RANGE * 2.0),
            Expr::InList(list) => {
                let each = self.equality(&list.expr, None);
                unless(list.negated, (each * list.list.len() as f64).min(1.0))
            }
            Expr::Like(like) => unless(like.negated, PATTERN),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => self.all(split_conjunction(predicate)),
                Operator::Or => {
                    let (left, right) = (
                        self.all(split_conjunction(left)),
                        self.all(split_conjunction(right)),
                    );
                    left + right - left * right
                }
                Operator::Eq | Operator::IsNotDistinctFrom => self.equality(left, Some(right)),
                Operator::NotEq | Operator::IsDistinctFrom => {
                    1.0 - self.equality(left, Some(right))
                }
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => RANGE,
                _ => OTHER,
            },
            _ => OTHER,
        }
    }

    /// The share of rows in which `left` is `right`, or some value of the same kind.
    fn equality(&self, left: &Expr, right: Option<&Expr>) -> f64 {
        let sides = [Some(left), right].into_iter().flatten();
        let column = sides.clone().find_map(column);
        let value = sides.clone().find_map(|side| match side {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        });
        if value.is_some_and(ScalarValue::is_null) {
            return 0.0;
        }
        if let (Some(column), Some(value)) = (column, value)
            && let Some((min, max)) = (self.columns)(column).and_then(|column| column.bounds)
            && as_number(value).is_some_and(|value| value < min || value > max)
        {
            return 0.0;
        }
        let distinct = sides.filter_map(|side| self.distinct(side));
        let share = distinct
            .reduce(f64::max)
            .map_or(EQUAL, |distinct| 1.0 / distinct.max(1.0));
        share * (1.0 - column.map_or(0.0, |column| self.nulls(&Expr::Column(column.clone()))))
    }

    fn nulls(&self, expression: &Expr) -> f64 {
        let estimate = column(expression).and_then(|column| (self.columns)(column));
        estimate.map_or(EQUAL, |column| column.nulls)
    }

    /// How many distinct values an expression has at most; `None` of constants and of what is not known.
    pub(super) fn distinct(&self, expression: &Expr) -> Option<f64> {
        let columns = expression.column_refs();
        let distinct = columns.iter().map(|column| {
            let estimate = (self.columns)(column)?;
            Some(estimate.distinct)
        });
        match columns.is_empty() {
            true => None,
            false => distinct.product(),
        }
    }
}

fn unless(is_negated: bool, share: f64) -> f64 {
    if is_negated { 1.0 - share } else { share }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Between, col, in_list, lit};

    use super::*;

    /// `n` has 1 to 100 without NULL, `t` 5 texts and 20 % NULLs.
    fn share(predicate: &Expr) -> f64 {
        let columns = |column: &Column| match column.name.as_str() {
            "n" => Some(ColumnEstimate {
                bounds: Some((1.0, 101.0)),
                ..ColumnEstimate::with_distinct(100.0)
            }),
            "t" => Some(ColumnEstimate {
                nulls: 0.2,
                ..ColumnEstimate::with_distinct(5.0)
            }),
            _ => None,
        };
        Rules { columns: &columns }.all(split_conjunction(predicate))
    }

    #[test]
    fn shares_follow_bounds_distinct_values_and_nulls() {
        let between = |low: i64, high: i64, negated| {
            let (low, high) = (Box::new(lit(low)), Box::new(lit(high)));
            Expr::Between(Between::new(Box::new(col("n")), negated, low, high))
        };
        for (predicate, expected) in [
            (col("n").eq(lit(7_i64)), 0.01),
            (col("n").eq(lit(700_i64)), 0.0),
            (col("n").lt(lit(51_i64)), 0.5),
            (lit(51_i64).gt(col("n")), 0.5),
            (
                col("n").gt_eq(lit(21_i64)).and(col("n").lt(lit(41_i64))),
                0.2,
            ),
            (col("n").gt(lit(50_i64)).and(col("n").lt(lit(40_i64))), 0.0),
            (between(21, 41, false), 0.2),
            (col("t").eq(lit("x")), 0.16),
            (col("t").is_null(), 0.2),
            (in_list(col("n"), vec![lit(1_i64), lit(2_i64)], false), 0.02),
            (in_list(col("n"), vec![lit(1_i64), lit(2_i64)], true), 0.98),
            (col("n").eq(lit(1_i64)).or(col("n").eq(lit(2_i64))), 0.0199),
            // A tenth of what is not NULL, which is nine tenths: nothing is known of this column.
            (col("other").eq(lit(1_i64)), EQUAL * (1.0 - EQUAL)),
            (lit(false), 0.0),
        ] {
            assert!(
                (share(&predicate) - expected).abs() < 1e-9,
                "{predicate}: {}",
                share(&predicate)
            );
        }
    }
}
