//! Predicates evaluated on a sample of a table.

use datafusion::arrow::array::AsArray;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use skewer_compat::functions::arithmetic::Arithmetic;
use skewer_compat::functions::patterns::EscapedPattern;

use super::statistics::Sample;

/// Functions that take about as long as a comparison of their arguments.
const QUICK: [&str; 23] = [
    "abs",
    "bit_length",
    "btrim",
    "ceil",
    "character_length",
    "coalesce",
    "date_part",
    "date_trunc",
    "ends_with",
    "floor",
    "left",
    "lower",
    "ltrim",
    "nullif",
    "octet_length",
    "right",
    "round",
    "rtrim",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "upper",
];

/// How many rows of a sample a predicate holds for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hits {
    pub(super) hits: usize,
    pub(super) rows: usize,
    /// How many runs of neighbouring rows have a hit.
    pub(super) runs: usize,
}

/// Whether evaluating `predicate` on a few thousand rows takes little time and always gives the same.
pub fn can_be_sampled(predicate: &Expr) -> bool {
    let other = predicate.exists(|part| {
        Ok(match part {
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::TryCast(_) => false,
            Expr::InList(list) => list.list.len() > 1_000,
            Expr::ScalarFunction(call) => {
                let inner = call.func.inner();
                let is_own = inner.is::<Arithmetic>() || inner.is::<EscapedPattern>();
                !is_own && !QUICK.contains(&call.func.name())
            }
            _ => true,
        })
    });
    let reads_columns = !predicate.column_refs().is_empty();
    reads_columns && !predicate.is_volatile() && other.is_ok_and(|other| !other)
}

/// How many rows of `sample` the `predicate` holds for, whose columns have the names that they have there.
/// Fails if it cannot be evaluated, as on a row by whose value it divides.
pub(super) fn hits(sample: &Sample, predicate: &Expr) -> Result<Hits> {
    let predicate = predicate.clone().transform(|part| {
        Ok(match part {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    })?;
    let schema = DFSchema::try_from(sample.rows.schema())?;
    let (properties, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let predicate = create_physical_expr(&predicate.data, &schema, &properties, &planning)?;
    let rows = sample.rows.num_rows();
    let values = predicate.evaluate(&sample.rows)?.into_array(rows)?;
    let Some(values) = values.as_boolean_opt() else {
        return internal_err!("a predicate is not BOOLEAN");
    };
    let run = sample.run.max(1);
    let runs = (0..rows).step_by(run).map(|first| {
        let part = values.slice(first, run.min(rows - first));
        part.iter().filter(|value| *value == Some(true)).count()
    });
    let (mut hits, mut with_hits) = (0, 0);
    for of_run in runs {
        hits += of_run;
        with_hits += usize::from(of_run > 0);
    }
    Ok(Hits {
        hits,
        rows,
        runs: with_hits,
    })
}

/// The names of the columns that `predicate` reads.
pub fn columns_of(predicate: &Expr) -> Vec<String> {
    let mut names = Vec::new();
    let applied = predicate.apply(|part| {
        if let Expr::Column(column) = part
            && !names.contains(&column.name)
        {
            names.push(column.name.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match applied {
        Ok(_) => names,
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use datafusion::arrow::record_batch::RecordBatch;
    use datafusion::functions::expr_fn::{random, repeat, upper};
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn sample() -> Sample {
        let numbers = Int64Array::from_iter_values(0..40);
        let texts = StringArray::from_iter_values((0..40).map(|n| format!("text {n}")));
        let columns: [(&str, ArrayRef); 2] = [("n", Arc::new(numbers)), ("t", Arc::new(texts))];
        Sample {
            rows: RecordBatch::try_from_iter(columns).unwrap(),
            run: 10,
        }
    }

    #[test]
    fn hits_are_counted_by_row_and_by_run() {
        for (predicate, expected, runs) in [
            (col("x.n").lt(lit(5_i64)), 5, 1),
            (col("x.t").like(lit("text 1%")), 11, 2),
            (col("n").gt(lit(100_i64)), 0, 0),
            (
                col("n").not_eq(lit(1_i64)).and(col("n").gt_eq(lit(0_i64))),
                39,
                4,
            ),
        ] {
            assert!(can_be_sampled(&predicate), "{predicate}");
            let hits = hits(&sample(), &predicate).unwrap();
            assert_eq!(
                (hits.hits, hits.rows, hits.runs),
                (expected, 40, runs),
                "{predicate}"
            );
        }
    }

    #[test]
    fn what_takes_long_or_varies_is_not_evaluated() {
        for (predicate, expected) in [
            (upper(col("t")).eq(lit("X")), true),
            (repeat(col("t"), lit(1_000)).eq(lit("X")), false),
            (random().lt(lit(0.5)), false),
            (lit(true), false),
        ] {
            assert_eq!(can_be_sampled(&predicate), expected, "{predicate}");
        }
    }

    #[test]
    fn a_predicate_that_fails_gives_no_count() {
        let predicate = (lit(1_i64) / (col("n") - lit(3_i64))).eq(lit(1_i64));
        assert!(hits(&sample(), &predicate).is_err());
    }
}
