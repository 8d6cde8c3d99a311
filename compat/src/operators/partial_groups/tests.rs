//! Groups are those of DataFusion's first stage, whatever way their rows are found.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{ExecutionPlan, collect, collect_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::shared::Shared;
use super::{PartialGroupsExec, functions, with_own_partial_groups};
use crate::session::repaired;

const ROWS: i64 = 180_000;

/// Rows of a table: `sorted` has runs of three, with texts `s`; `few` and `t` repeat, `many` has 20,000 values in no order, `own`
/// differs everywhere; there are NULLs in `few`, `t` and `x`.
fn table() -> MemTable {
    let names = [
        "a",
        "twelve bytes",
        "thirteen bytes",
        "thirteen bites",
        "a text that is somewhat longer",
        "",
    ];
    let batch = |begin: i64| {
        let rows = begin..begin + 4_000;
        let numbers = |value: &dyn Fn(i64) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.clone().map(value).collect::<Int64Array>())
        };
        let text = |row: i64| (row % 13 != 4).then(|| names[(row * 7 % 6) as usize]);
        let t: StringViewArray = rows.clone().map(text).collect();
        let f: Float64Array = rows
            .clone()
            .map(|row| [0.0, -0.0, 1.5][(row % 3) as usize])
            .collect::<Vec<_>>()
            .into();
        let s = |row: i64| Some(format!("text {} of a group", row / 3 % 50));
        let s: StringViewArray = rows.clone().map(s).collect();
        let columns: [(&str, ArrayRef); 8] = [
            ("s", Arc::new(s)),
            ("sorted", numbers(&|row| Some(row / 3))),
            ("few", numbers(&|row| (row % 17 != 3).then_some(row % 5))),
            ("many", numbers(&|row| Some(row * 7_919 % 20_000))),
            ("own", numbers(&|row| Some(row))),
            ("x", numbers(&|row| (row % 19 != 2).then_some(row % 101))),
            ("t", Arc::new(t)),
            ("f", Arc::new(f)),
        ];
        RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, name != "own")),
        )
        .unwrap()
    };
    let batches: Vec<_> = (0..ROWS / 4_000).map(|n| batch(n * 4_000)).collect();
    let schema = batches[0].schema();
    let (first, second) = batches.split_at(batches.len() / 2);
    MemTable::try_new(schema, vec![first.to_vec(), second.to_vec()]).unwrap()
}

fn context(memory: Option<usize>) -> SessionContext {
    let runtime = RuntimeEnvBuilder::new();
    let runtime = match memory {
        Some(bytes) => runtime.with_memory_limit(bytes, 1.0),
        None => runtime,
    };
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_batch_size(1_000);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap());
    let context = repaired(state);
    context.register_table("r", Arc::new(table())).unwrap();
    context
}

async fn planned(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let rows = context.sql(sql).await.unwrap();
    rows.create_physical_plan().await.unwrap()
}

/// The plan with first stages replaced, and how many there are.
fn replaced(plan: Arc<dyn ExecutionPlan>) -> (Arc<dyn ExecutionPlan>, usize) {
    let mut count = 0;
    let plan = plan.transform_up(|node| {
        let own = with_own_partial_groups(node)?;
        let operator: &dyn Any = own.as_ref();
        count += usize::from(operator.is::<PartialGroupsExec>());
        Ok(Transformed::yes(own))
    });
    (plan.data().unwrap(), count)
}

async fn rows(context: &SessionContext, plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<_> = text.lines().map(str::to_owned).collect();
    rows.sort_unstable();
    rows
}

/// Aggregates whose first stage is replaced.
const QUERIES: [&str; 19] = [
    "SELECT few, count(*), sum(x), avg(x), min(t), max(x) FROM r GROUP BY few",
    "SELECT t, few, count(x), sum(x) FILTER (WHERE own % 2 = 0) FROM r GROUP BY t, few",
    "SELECT sorted, sum(x), count(*) FROM r GROUP BY sorted",
    "SELECT many, sum(x) FROM r GROUP BY many",
    "SELECT own, max(x), count(*) FROM r GROUP BY own",
    "SELECT t || 'x', sorted / 1000, count(*) FROM r GROUP BY t || 'x', sorted / 1000",
    "SELECT f, count(*) FROM r GROUP BY f",
    "SELECT few, t, f, count(*), avg(x) FROM r GROUP BY ROLLUP (few, t, f)",
    "SELECT few, t, x % 3, sum(x), grouping(t) FROM r GROUP BY CUBE (few, t, x % 3)",
    "SELECT few, t, count(*) FROM r GROUP BY GROUPING SETS ((t, few), (few), ())",
    "SELECT many, few, count(*), stddev(x) > 0 FROM r GROUP BY ROLLUP (many, few)",
    "SELECT DISTINCT t, few FROM r",
    "SELECT few, count(*) FROM r WHERE own < 0 GROUP BY ROLLUP (few)",
    "SELECT t, bool_and(x > 3), bit_or(x) FROM r GROUP BY t",
    "SELECT sorted, s, count(*), sum(x) FROM r GROUP BY sorted, s",
    "SELECT sorted, s, count(*), sum(x) FROM r GROUP BY ROLLUP (sorted, s)",
    "SELECT s, many, max(x) FROM r GROUP BY s, many",
    SHARED,
    "SELECT few, t, sum(CAST(x AS DECIMAL(9, 2))), avg(CAST(x AS DECIMAL(9, 2))), count(*),
     avg(CAST(own AS DECIMAL(12, 1))) FROM r GROUP BY ROLLUP (few, t)",
];

/// An aggregate with functions that averages compute.
const SHARED: &str = "SELECT few, sum(d), avg(d), count(d), sum(d) FILTER (WHERE own > 9), count(*), sum(e), avg(e),
     sum(x), avg(x)
     FROM (SELECT few, x, own, CAST(x AS DECIMAL(9, 2)) AS d, CAST(own AS DECIMAL(12, 1)) AS e FROM r) GROUP BY few";

#[tokio::test]
async fn groups_are_those_of_datafusion() {
    let context = context(None);
    for sql in QUERIES {
        let plan = planned(&context, sql).await;
        let expected = rows(&context, Arc::clone(&plan)).await;
        let (own, count) = replaced(plan);
        assert!(count > 0, "{sql}");
        assert_eq!(rows(&context, own).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn groups_for_which_there_is_no_memory_are_handed_on() {
    let (plenty, little) = (context(None), context(Some(1 << 20)));
    for sql in [QUERIES[3], QUERIES[10], QUERIES[14], QUERIES[16]] {
        let plan = planned(&plenty, sql).await;
        let expected = rows(&plenty, Arc::clone(&plan)).await;
        let (own, count) = replaced(plan);
        assert_eq!(count, 1, "{sql}");
        let mut first = None;
        own.apply(|node| {
            let operator: &dyn Any = node.as_ref();
            if operator.is::<PartialGroupsExec>() {
                first = Some(Arc::clone(node));
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        let first = first.unwrap();
        let groups = collect_partitioned(Arc::clone(&first), little.task_ctx())
            .await
            .unwrap();
        assert!(metric(&first, "early_flushes") > 1, "{sql}");
        // The second stage has memory.
        let groups = MemorySourceConfig::try_new_exec(&groups, first.schema(), None).unwrap();
        let merged = own.transform_up(|node| {
            let operator: &dyn Any = node.as_ref();
            Ok(match operator.is::<PartialGroupsExec>() {
                true => Transformed::yes(Arc::clone(&groups) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(node),
            })
        });
        let merged = merged.data().unwrap();
        assert_eq!(rows(&plenty, merged).await, expected, "{sql}");
    }
}

/// The metric of the first stage in `plan`.
fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let mut found = 0;
    plan.apply(|node| {
        let operator: &dyn Any = node.as_ref();
        if operator.is::<PartialGroupsExec>()
            && let Some(metrics) = node.metrics()
        {
            found = match name {
                "output_rows" => metrics.output_rows().unwrap_or_default(),
                name => metrics
                    .sum_by_name(name)
                    .map_or(0, |value| value.as_usize()),
            };
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    found
}

#[tokio::test]
async fn rows_with_groups_of_their_own_are_passed_on() {
    let context = context(None);
    context
        .sql("SET datafusion.execution.skip_partial_aggregation_probe_rows_threshold = 10000")
        .await
        .unwrap();
    for (sql, is_skipped) in [(QUERIES[4], true), (QUERIES[0], false), (QUERIES[2], false)] {
        let (own, _) = replaced(planned(&context, sql).await);
        rows(&context, Arc::clone(&own)).await;
        let skipped = metric(&own, "skipped_aggregation_rows");
        assert_eq!(skipped > 30_000, is_skipped, "{sql}: {skipped} rows");
    }
}

#[tokio::test]
async fn a_group_whose_rows_follow_each_other_is_handed_on_once() {
    let context = context(None);
    let (own, _) = replaced(planned(&context, QUERIES[2]).await);
    rows(&context, Arc::clone(&own)).await;
    // Each partition has half of 60,000 groups, and one may be in both.
    let returned = metric(&own, "output_rows");
    assert!((60_000..=60_002).contains(&returned), "{returned} groups");
    assert!(metric(&own, "early_flushes") > 1);
    // Their rows come again.
    let (own, _) = replaced(planned(&context, QUERIES[3]).await);
    rows(&context, Arc::clone(&own)).await;
    assert_eq!(metric(&own, "early_flushes"), 0);
}

#[tokio::test]
async fn what_an_average_computes_is_not_computed_again() {
    let (own, _) = replaced(planned(&context(None), SHARED).await);
    let mut found = Vec::new();
    own.apply(|node| {
        let operator: &dyn Any = node.as_ref();
        if let Some(own) = operator.downcast_ref::<PartialGroupsExec>() {
            let plan = own.inner.downcast_ref::<AggregateExec>().unwrap();
            let shared = Shared::of_functions(&functions(plan), &plan.input().schema())?;
            let names = plan.aggr_expr().iter().zip(shared);
            let names = names.filter(|(_, shared)| shared.is_some());
            found.extend(names.map(|(function, _)| function.name().to_owned()));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    let names: Vec<_> = found.iter().map(|name| name.replace("r.", "")).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for (name, part) in names.iter().zip(["sum(d", "count(d", "count(", "sum(e"]) {
        assert!(name.contains(part), "{names:?}");
    }
}

#[tokio::test]
async fn other_aggregates_stay_as_they_are() {
    let context = context(None);
    for sql in [
        "SELECT few, array_agg(x) FROM r GROUP BY few",
        "SELECT few, t, count(*) FROM r GROUP BY GROUPING SETS ((few), (t))",
        "SELECT count(*) FROM r",
    ] {
        let (_, count) = replaced(planned(&context, sql).await);
        assert_eq!(count, 0, "{sql}");
    }
}
