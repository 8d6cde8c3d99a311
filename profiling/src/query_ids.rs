//! Which queries a statement asks about, as far as its filters tell.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};
use serde::{Deserialize, Serialize};

/// The column of every table of schema `sys` that says which query a row belongs to.
pub(crate) const QUERY_ID: &str = "query_id";

/// A set of query ids that contains every query a statement asks about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum QueryIds {
    Listed(BTreeSet<i64>),
    Range(RangeInclusive<i64>),
}

impl QueryIds {
    /// Every query.
    pub(crate) const ALL: QueryIds = QueryIds::Range(i64::MIN..=i64::MAX);

    /// The queries for which all the filters may hold.
    pub(crate) fn of_filters(filters: &[Expr]) -> QueryIds {
        filters
            .iter()
            .map(QueryIds::of_filter)
            .fold(QueryIds::ALL, QueryIds::intersect)
    }

    /// The queries for which the expression may hold.
    fn of_filter(filter: &Expr) -> QueryIds {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And => QueryIds::of_filter(left).intersect(QueryIds::of_filter(right)),
                Operator::Or => QueryIds::of_filter(left).unite(QueryIds::of_filter(right)),
                _ => match (is_query_id(left), integer(right)) {
                    (true, Some(value)) => QueryIds::compared(*op, value),
                    _ => match (is_query_id(right), integer(left), op.swap()) {
                        (true, Some(value), Some(op)) => QueryIds::compared(op, value),
                        _ => QueryIds::ALL,
                    },
                },
            },
            Expr::InList(list) if !list.negated && is_query_id(&list.expr) => {
                let ids: Option<BTreeSet<i64>> = list.list.iter().map(integer).collect();
                ids.map_or(QueryIds::ALL, QueryIds::Listed)
            }
            Expr::Between(between) if !between.negated && is_query_id(&between.expr) => {
                let low = integer(&between.low).unwrap_or(i64::MIN);
                let high = integer(&between.high).unwrap_or(i64::MAX);
                QueryIds::Range(low..=high)
            }
            _ => QueryIds::ALL,
        }
    }

    fn compared(op: Operator, value: i64) -> QueryIds {
        match op {
            Operator::Eq => QueryIds::Listed([value].into()),
            Operator::Lt => QueryIds::Range(i64::MIN..=value.saturating_sub(1)),
            Operator::LtEq => QueryIds::Range(i64::MIN..=value),
            Operator::Gt => QueryIds::Range(value.saturating_add(1)..=i64::MAX),
            Operator::GtEq => QueryIds::Range(value..=i64::MAX),
            _ => QueryIds::ALL,
        }
    }

    fn intersect(self, other: QueryIds) -> QueryIds {
        match (self, other) {
            (QueryIds::Range(a), QueryIds::Range(b)) => {
                QueryIds::Range(*a.start().max(b.start())..=*a.end().min(b.end()))
            }
            (QueryIds::Listed(mut ids), other) | (other, QueryIds::Listed(mut ids)) => {
                ids.retain(|id| other.contains(*id));
                QueryIds::Listed(ids)
            }
        }
    }

    fn unite(self, other: QueryIds) -> QueryIds {
        match (self, other) {
            (QueryIds::Listed(mut a), QueryIds::Listed(b)) => {
                a.extend(b);
                QueryIds::Listed(a)
            }
            (a, b) => match (a.bounds(), b.bounds()) {
                (Some((a, b)), Some((c, d))) => QueryIds::Range(a.min(c)..=b.max(d)),
                (Some((a, b)), None) | (None, Some((a, b))) => QueryIds::Range(a..=b),
                (None, None) => QueryIds::Listed(BTreeSet::new()),
            },
        }
    }

    fn bounds(&self) -> Option<(i64, i64)> {
        match self {
            QueryIds::Listed(ids) => Some((*ids.first()?, *ids.last()?)),
            QueryIds::Range(range) => (!range.is_empty()).then(|| range.clone().into_inner()),
        }
    }

    /// Whether `query_id` is in the set.
    pub(crate) fn condition(&self, query_id: Expr) -> Expr {
        match self {
            QueryIds::Listed(ids) => {
                query_id.in_list(ids.iter().copied().map(lit).collect(), false)
            }
            QueryIds::Range(range) => query_id.between(lit(*range.start()), lit(*range.end())),
        }
    }

    /// Whether a query is in the set.
    pub(crate) fn contains(&self, id: i64) -> bool {
        match self {
            QueryIds::Listed(ids) => ids.contains(&id),
            QueryIds::Range(range) => range.contains(&id),
        }
    }

    /// Whether some query from `min` to `max` may be in the set.
    pub(crate) fn overlaps(&self, min: i64, max: i64) -> bool {
        match self {
            QueryIds::Listed(ids) => min <= max && ids.range(min..=max).next().is_some(),
            QueryIds::Range(range) => min <= *range.end() && max >= *range.start(),
        }
    }
}

/// Whether an expression says something about query ids and nothing about other columns.
pub(crate) fn concerns_only_query_ids(filter: &Expr) -> bool {
    let columns = filter.column_refs();
    !columns.is_empty() && columns.iter().all(|column| column.name == QUERY_ID)
}

fn is_query_id(expression: &Expr) -> bool {
    match expression {
        Expr::Column(column) => column.name == QUERY_ID,
        Expr::Cast(cast) => is_query_id(&cast.expr),
        _ => false,
    }
}

fn integer(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(value, _) => match value {
            ScalarValue::Int64(value) => *value,
            ScalarValue::Int32(value) => value.map(i64::from),
            ScalarValue::Int16(value) => value.map(i64::from),
            ScalarValue::Int8(value) => value.map(i64::from),
            ScalarValue::UInt64(value) => value.and_then(|value| i64::try_from(value).ok()),
            ScalarValue::UInt32(value) => value.map(i64::from),
            ScalarValue::UInt16(value) => value.map(i64::from),
            ScalarValue::UInt8(value) => value.map(i64::from),
            _ => None,
        },
        Expr::Cast(cast) => integer(&cast.expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{col, lit};

    fn ids_of(filter: Expr) -> QueryIds {
        QueryIds::of_filters(&[filter])
    }

    #[test]
    fn equality_and_lists_name_single_queries() {
        assert_eq!(
            ids_of(col("query_id").eq(lit(7))),
            QueryIds::Listed([7].into())
        );
        assert_eq!(
            ids_of(lit(7_i64).eq(col("query_id"))),
            QueryIds::Listed([7].into())
        );
        let listed = QueryIds::Listed([3, 9].into());
        assert_eq!(
            ids_of(col("query_id").in_list(vec![lit(9), lit(3)], false)),
            listed
        );
        assert_eq!(
            ids_of(col("query_id").eq(lit(3)).or(col("query_id").eq(lit(9)))),
            listed
        );
    }

    #[test]
    fn comparisons_narrow_each_other() {
        let filter = col("query_id")
            .gt(lit(3))
            .and(col("query_id").lt_eq(lit(9)));
        assert_eq!(ids_of(filter), QueryIds::Range(4..=9));
        let filter = col("query_id")
            .gt(lit(3))
            .and(col("query_id").in_list(vec![lit(1), lit(5)], false));
        assert_eq!(ids_of(filter), QueryIds::Listed([5].into()));
        assert_eq!(
            ids_of(col("query_id").between(lit(2), lit(4))),
            QueryIds::Range(2..=4)
        );
    }

    #[test]
    fn other_filters_exclude_no_query() {
        for filter in [
            col("operator_id").eq(lit(7)),
            col("query_id").not_eq(lit(7)),
            col("query_id").in_list(vec![lit(1)], true),
            col("query_id").eq(lit(7)).or(col("operator_id").eq(lit(1))),
        ] {
            assert_eq!(ids_of(filter), QueryIds::ALL);
        }
    }

    #[test]
    fn files_are_kept_if_a_wanted_query_may_be_in_them() {
        let listed = QueryIds::Listed([5, 50].into());
        assert!(listed.overlaps(40, 60) && !listed.overlaps(6, 49));
        let range = ids_of(col("query_id").gt_eq(lit(10)));
        assert!(range.overlaps(0, 10) && !range.overlaps(0, 9));
        assert!(QueryIds::ALL.overlaps(i64::MIN, i64::MAX));
    }
}
