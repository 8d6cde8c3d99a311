//! Selected rows are those for which the condition is true, whatever way each part is evaluated.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::logical_expr::{Expr, lit};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;

use super::with_own_filter;

/// A column that this program need not know the type of.
fn col(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// Batches of 1,000 rows: numbers with NULLs, and texts that repeat, short and long.
fn batches() -> Vec<RecordBatch> {
    let texts = [
        "AIR",
        "AIR REG",
        "DELIVER IN PERSON",
        "TAKE BACK RETURN",
        "",
    ];
    let batch = |batch: i64| {
        let rows = batch * 1000..(batch + 1) * 1000;
        let of_rows = |value: &dyn Fn(i64) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.clone().map(value).collect::<Int64Array>())
        };
        let text = |row: i64| (row % 7 != 3).then(|| texts[(row * 31 % 5) as usize]);
        let t: ArrayRef = Arc::new(rows.clone().map(text).collect::<StringViewArray>());
        RecordBatch::try_from_iter_with_nullable([
            (
                "a",
                of_rows(&|row| (row % 11 != 5).then_some(row * 37 % 100)),
                true,
            ),
            ("b", of_rows(&|row| Some(row * 53 % 100)), true),
            ("t", t, true),
            ("id", of_rows(&Some), true),
        ])
        .unwrap()
    };
    (0..40).map(batch).collect()
}

fn filter(condition: &Expr, batches: &[RecordBatch]) -> Result<FilterExec> {
    let schema = batches[0].schema();
    let context = SessionContext::new();
    let columns = DFSchema::try_from(Arc::clone(&schema))?;
    let condition = context.create_physical_expr(condition.clone(), &columns)?;
    let input = MemorySourceConfig::try_new_exec(&[batches.to_vec()], schema, None)?;
    FilterExec::try_new(condition, input)
}

async fn rows(plan: Arc<dyn ExecutionPlan>) -> Result<Vec<i64>> {
    let batches = collect(plan, SessionContext::new().task_ctx()).await?;
    let ids = batches.iter().flat_map(|batch| {
        let ids = batch["id"].as_primitive::<Int64Type>();
        ids.values().to_vec()
    });
    Ok(ids.collect())
}

fn conditions() -> Vec<Expr> {
    vec![
        col("a").lt(lit(30_i64)),
        col("a").lt(lit(30_i64)).and(col("b").gt_eq(lit(50_i64))),
        col("a").lt(col("b")).and(col("t").eq(lit("AIR"))),
        col("t")
            .eq(lit("DELIVER IN PERSON"))
            .and(col("a").is_not_null()),
        col("t")
            .eq(lit("AIR"))
            .or(col("t").eq(lit("TAKE BACK RETURN"))),
        col("t").in_list(vec![lit("AIR REG"), lit(""), lit("none")], false),
        col("t").in_list(vec![lit("AIR"), lit("DELIVER IN PERSON")], true),
        col("t").not_eq(lit("AIR")).and(col("a").is_null()),
        col("t").like(lit("%E%")).and(col("a").lt(lit(3_i64))),
        // The second part reads columns that are not the first ones, and sees few rows.
        col("a")
            .lt(lit(5_i64))
            .and((col("b") + col("id")).gt(lit(20_000_i64))),
        col("b")
            .gt(lit(90_i64))
            .and(col("t").like(lit("AIR%")).or(col("a").gt(lit(50_i64)))),
        lit(true).and(col("a").lt(lit(10_i64))),
        col("a").eq(lit(7_i64)).and(col("a").eq(lit(8_i64))),
    ]
}

#[tokio::test]
async fn the_rows_are_those_for_which_the_condition_holds() {
    let batches = batches();
    for condition in conditions() {
        let plan = filter(&condition, &batches).unwrap();
        let expected = rows(Arc::new(plan.clone())).await.unwrap();
        let own = with_own_filter(Arc::new(plan)).unwrap();
        assert_eq!(rows(own).await.unwrap(), expected, "{condition}");
    }
}

#[tokio::test]
async fn columns_and_the_number_of_rows_are_those_of_the_filter() {
    let batches = batches();
    let plan = filter(&col("a").lt(lit(30_i64)), &batches).unwrap();
    let plan = FilterExecBuilder::from(&plan).with_fetch(Some(1_234));
    let plan = plan
        .apply_projection(Some(vec![3, 2]))
        .unwrap()
        .build()
        .unwrap();
    let expected = rows(Arc::new(plan.clone())).await.unwrap();
    let own = with_own_filter(Arc::new(plan)).unwrap();
    let columns = own.schema();
    assert_eq!(
        [columns.field(0).name(), columns.field(1).name()],
        ["id", "t"]
    );
    let found = rows(Arc::clone(&own)).await.unwrap();
    assert_eq!(found.len(), 1_234);
    assert_eq!(found, expected);
    let metrics = own.metrics().unwrap();
    assert_eq!(metrics.output_rows(), Some(1_234));
}

#[tokio::test]
async fn an_error_of_a_part_is_the_error_of_the_filter() {
    let batches = batches();
    let condition = (lit(1000_i64) / col("b")).gt(lit(20_i64));
    let plan = filter(&condition, &batches).unwrap();
    let own = with_own_filter(Arc::new(plan)).unwrap();
    let error = rows(own).await.unwrap_err().to_string();
    assert!(error.contains("Divide by zero"), "{error}");
}

#[tokio::test]
async fn a_part_that_may_fail_sees_only_rows_for_which_those_before_it_hold() {
    let batches = batches();
    let divides = (lit(1000_i64) / col("b")).gt(lit(20_i64));
    // The same without a division.
    let multiplies = (lit(21_i64) * col("b")).lt_eq(lit(1000_i64));
    for first in [col("b").not_eq(lit(0_i64)), col("b").gt(lit(1_000_i64))] {
        let plan = filter(&first.clone().and(multiplies.clone()), &batches).unwrap();
        let expected = rows(Arc::new(plan)).await.unwrap();
        let plan = filter(&first.clone().and(divides.clone()), &batches).unwrap();
        let own = with_own_filter(Arc::new(plan)).unwrap();
        assert_eq!(rows(own).await.unwrap(), expected, "{first}");
    }
}
