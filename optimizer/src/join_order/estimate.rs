//! Estimates of rows: how many there are, and what is in their columns.

use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, Operator};

use super::selectivity::{ColumnEstimate, Range, Rules};

/// An estimate of the rows that a plan returns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Estimate {
    pub(super) rows: f64,
    /// The same if all predicates hold for many more rows than they should.
    pub(super) worst: f64,
    /// In the order of the plan's columns.
    pub(super) columns: Vec<ColumnEstimate>,
}

impl Estimate {
    pub(super) fn of_rows(rows: f64, columns: usize) -> Self {
        Self {
            rows,
            worst: rows,
            columns: vec![ColumnEstimate::with_distinct(rows); columns],
        }
    }

    /// Bytes of a row in memory.
    pub(super) fn width(&self) -> f64 {
        self.columns.iter().map(|column| column.bytes).sum()
    }

    /// The estimate of `column` in rows of `schema`.
    pub(super) fn column(&self, schema: &DFSchema, column: &Column) -> Option<ColumnEstimate> {
        let place = schema.maybe_index_of_column(column)?;
        self.columns.get(place).cloned()
    }

    /// What `keys`, expressions over rows of `schema`, have together.
    pub(super) fn keys<'a>(&self, schema: &DFSchema, keys: impl Iterator<Item = &'a Expr>) -> Keys {
        let columns = |column: &Column| self.column(schema, column);
        let rules = Rules { columns: &columns };
        let distinct = keys.map(|key| rules.distinct(key).unwrap_or(1.0));
        Keys {
            distinct: distinct.product(),
            rows: self.rows,
        }
    }

    /// The estimate after something leaves rows out: the share `kept` is left, and at worst `worst` rows.
    pub(super) fn thinned(mut self, kept: f64, worst: f64) -> Self {
        for column in &mut self.columns {
            column.distinct = distinct_after(column.distinct, self.rows, kept);
        }
        self.rows *= kept;
        self.worst = worst.max(self.rows);
        self
    }
}

/// The keys of one side of a join.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    /// How many there are if the columns of a key have nothing to do with each other.
    pub(super) distinct: f64,
    pub(super) rows: f64,
}

impl Keys {
    /// The key of a join without keys.
    pub(super) fn none(rows: f64) -> Self {
        Self {
            distinct: 1.0,
            rows,
        }
    }

    pub(super) fn at_most_rows(self) -> f64 {
        self.distinct.min(self.rows).max(1.0)
    }

    /// By how much equality of keys thins out all pairs of rows: by the number of keys of the side with more.
    ///
    /// Where the columns of a key have more values together than there are rows, they have something to do with
    /// each other: the smaller side's rows may each have a key of their own, the larger side's will not.
    pub(super) fn matching(self, other: Self) -> f64 {
        let (smaller, larger) = match self.rows <= other.rows {
            true => (self, other),
            false => (other, self),
        };
        match larger.distinct > larger.rows {
            true => smaller.at_most_rows(),
            false => smaller.at_most_rows().max(larger.at_most_rows()),
        }
    }
}

/// Distinct values that are left of `distinct` ones if the share `kept` of `rows` is, each with the same chance.
pub(super) fn distinct_after(distinct: f64, rows: f64, kept: f64) -> f64 {
    if kept >= 1.0 || distinct <= 0.0 {
        return distinct;
    }
    let of_each = (rows / distinct).max(1.0);
    (distinct * (1.0 - (1.0 - kept.max(0.0)).powf(of_each))).max(1.0)
}

/// Notes in `filtered`, of the rows of `input`, what `predicates` say of single columns.
pub(super) fn narrow(
    filtered: &mut Estimate,
    input: &Estimate,
    schema: &DFSchema,
    predicates: &[&Expr],
) {
    for predicate in predicates {
        if let Some(range) = Range::in_expression(predicate) {
            let Some(place) = schema.maybe_index_of_column(range.column) else {
                continue;
            };
            let (Some(column), Some(before)) =
                (filtered.columns.get_mut(place), input.columns.get(place))
            else {
                continue;
            };
            let Some((min, max)) = column.bounds else {
                continue;
            };
            let least = range.least.map_or(min, |bound| bound.max(min));
            let greatest = range.greatest.map_or(max, |bound| bound.min(max));
            column.bounds = Some((least, greatest.max(least)));
            if let Some((min, max)) = before.bounds
                && max > min
            {
                let share = ((greatest - least) / (max - min)).clamp(0.0, 1.0);
                column.distinct = column.distinct.min(before.distinct * share).max(1.0);
            }
            continue;
        }
        let (expression, values) = match predicate {
            Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
                match (binary.left.as_ref(), binary.right.as_ref()) {
                    (Expr::Column(column), Expr::Literal(..))
                    | (Expr::Literal(..), Expr::Column(column)) => (column, 1.0),
                    _ => continue,
                }
            }
            Expr::InList(list) if !list.negated => match list.expr.as_ref() {
                Expr::Column(column) => (column, list.list.len() as f64),
                _ => continue,
            },
            Expr::BinaryExpr(_) => match alternatives(predicate) {
                Some((column, values)) => (column, values as f64),
                None => continue,
            },
            _ => continue,
        };
        let place = schema.maybe_index_of_column(expression);
        if let Some(column) = place.and_then(|place| filtered.columns.get_mut(place)) {
            column.distinct = column.distinct.min(values.max(1.0));
        }
    }
}

/// The column and the number of constants of `a = 1 OR a = 2 OR …`.
fn alternatives(predicate: &Expr) -> Option<(&Column, usize)> {
    let (mut column, mut values) = (None, 0);
    let mut rest = vec![predicate];
    while let Some(part) = rest.pop() {
        let Expr::BinaryExpr(binary) = part else {
            return None;
        };
        match (binary.op, binary.left.as_ref(), binary.right.as_ref()) {
            (Operator::Or, left, right) => rest.extend([left, right]),
            (Operator::Eq, Expr::Column(of), Expr::Literal(..)) => {
                if *column.get_or_insert(of) != of {
                    return None;
                }
                values += 1;
            }
            _ => return None,
        }
    }
    column.map(|column| (column, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_several_columns_match_at_most_each_row_of_the_smaller_side() {
        let keys = |distinct, rows| Keys { distinct, rows };
        for (one, other, expected) in [
            // Each of 6,000,000 rows has one of 800,000 pairs, whose columns have 2 * 10^9 together.
            (keys(2e9, 6e6), keys(2e9, 8e5), 8e5),
            (keys(1.5e6, 6e6), keys(1.5e6, 1.5e6), 1.5e6),
            (keys(100.0, 1e6), keys(1e4, 1e4), 1e4),
            (keys(1.0, 10.0), keys(1.0, 10.0), 1.0),
        ] {
            assert_eq!(one.matching(other), expected);
            assert_eq!(other.matching(one), expected);
        }
    }

    #[test]
    fn fewer_rows_have_fewer_values() {
        assert_eq!(distinct_after(10.0, 1_000.0, 1.0), 10.0);
        // Each value is in a hundred rows: all are left.
        assert!(distinct_after(10.0, 1_000.0, 0.5) > 9.99);
        // Each value is in one row.
        assert_eq!(distinct_after(1_000.0, 1_000.0, 0.1).round(), 100.0);
        assert_eq!(distinct_after(1_000.0, 1_000.0, 0.0), 1.0);
    }
}
