//! The order of joins: every order returns the same, and the cheap one is found.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::MemTable;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::collect;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_compat::logical::common_subplan::SharedRowsPlanner;
use skewer_compat::operators::materialized::SharedRowsExec;
use skewer_compat::session::repaired;
use skewer_optimizer::join_order::statistics::{ColumnSummary, Sample, Summaries, TableSummary};
use skewer_optimizer::join_order::{JoinOrder, Knowledge, PlannedRun, order_joins};

/// A table `name(k, v, s)` of so many rows, with NULLs: `k` has about `keys` values, `v` ten.
fn register(context: &SessionContext, name: &str, rows: i64, keys: i64) {
    let k = (0..rows).map(|row| (row % 7 != 5).then_some(row % keys));
    let v = (0..rows).map(|row| (row % 11 != 3).then_some(row * row % 10));
    let s = (0..rows).map(|row| format!("{}{}", &name[..1], row % 4));
    let columns: [(&str, ArrayRef); 3] = [
        ("k", Arc::new(Int64Array::from_iter(k))),
        ("v", Arc::new(Int64Array::from_iter(v))),
        ("s", Arc::new(StringArray::from_iter_values(s))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.map(|(name, column)| (name, column, true)),
    );
    let batch = batch.unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    context.register_table(name, Arc::new(table)).unwrap();
}

fn context() -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    let context = repaired(SessionStateBuilder::new().with_config(config));
    for (name, rows, keys) in [("a", 40, 8), ("b", 25, 6), ("c", 12, 12), ("d", 9, 3)] {
        register(&context, name, rows, keys);
    }
    context
}

async fn optimized(state: &SessionState, sql: &str) -> LogicalPlan {
    let plan = state.create_logical_plan(sql).await;
    let plan = plan.unwrap_or_else(|error| panic!("{sql}\n{error}"));
    state.optimize(&plan).unwrap()
}

async fn rows(state: &SessionState, plan: &LogicalPlan) -> (String, Vec<String>) {
    let shared = Arc::new(SharedRowsPlanner::default());
    let planner = DefaultPhysicalPlanner::with_extension_planners(vec![shared]);
    let planned = planner.create_physical_plan(plan, state).await;
    let planned = planned.unwrap_or_else(|error| panic!("{error}\n{}", plan.display_indent()));
    SharedRowsExec::link(&planned).unwrap();
    let schema = format!("{:?}", planned.schema().fields());
    let batches = collect(planned, state.task_ctx()).await.unwrap();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort();
    (schema, rows)
}

/// Queries with all that an island may have in it, beside it and above it.
const QUERIES: [&str; 51] = [
    "SELECT a.v, b.s, c.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k",
    "SELECT * FROM a JOIN b ON a.k = b.k JOIN c ON c.k = a.v JOIN d ON d.k = b.v",
    "SELECT a.k FROM a, b, c, d WHERE a.k = b.k AND c.k = d.k AND b.v = d.v",
    "SELECT x.k, y.v, z.s FROM a x, a y, a z WHERE x.k = y.k AND y.v = z.k AND x.v < z.v",
    "SELECT * FROM (SELECT a.k, b.v FROM a JOIN b ON a.k = b.k) x \
     JOIN (SELECT a.k, b.v FROM a JOIN b ON a.v = b.v) y ON x.k = y.k JOIN d ON d.k = y.v",
    "WITH w AS (SELECT a.k AS one, c.v AS two FROM a JOIN c ON a.k = c.k) \
     SELECT p.one, q.two, d.s FROM w p JOIN w q ON p.one = q.two JOIN d ON d.k = p.two",
    "SELECT a.k + b.k, c.s FROM a, b, c WHERE a.k + 1 = b.k AND b.v = c.v + 0",
    "SELECT a.k, b.k, c.k FROM a, b, c WHERE a.k + b.k = c.k AND a.v = b.v",
    "SELECT a.k, b.v, d.s FROM a, b, d WHERE a.k = b.k AND (a.v = 1 AND d.k = 1 OR a.v = 4 AND d.k = 2)",
    "SELECT a.k, b.k, c.k FROM a, b, c WHERE a.k = b.k AND a.v + b.v + c.v = 12 AND b.k = c.k",
    "SELECT a.k, b.k, c.k FROM a, b, c WHERE a.k = b.k AND c.v = 9",
    "SELECT count(*) FROM c, d, c AS e",
    "SELECT a.s, b.s, d.s FROM a, b, d WHERE a.k < b.k AND b.v = d.v AND a.v > d.v",
    "SELECT a.s FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND a.v = c.v AND a.k = a.v",
    "SELECT a.k, b.v FROM a JOIN b ON a.k = b.k JOIN c ON b.v = c.v \
     WHERE a.v IN (SELECT v FROM d) AND NOT EXISTS (SELECT 1 FROM d WHERE d.k = b.v)",
    "SELECT a.k, b.v, d.s FROM a JOIN b ON a.k = b.k JOIN c ON b.v = c.v LEFT JOIN d ON d.k = c.k",
    "SELECT a.k, x.v FROM (a LEFT JOIN b ON a.k = b.k) JOIN c ON c.k = a.v JOIN d x ON x.v = c.v",
    "SELECT a.k, b.v, c.s FROM a JOIN b USING (k) JOIN c USING (k)",
    "SELECT * FROM a NATURAL JOIN b NATURAL JOIN c",
    "SELECT * FROM a JOIN b USING (k, v) JOIN c USING (k, v)",
    "SELECT a.k, count(*), sum(c.v) FROM a JOIN b ON a.k = b.k JOIN c ON b.v = c.v GROUP BY a.k",
    "SELECT a.k FROM a, b, (SELECT k, max(v) AS v FROM d GROUP BY k) m WHERE a.k = b.k AND b.v = m.v",
    "SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON b.v = c.v \
     WHERE a.v > (SELECT avg(v) FROM d) AND c.v <= (SELECT max(v) FROM d)",
    "SELECT a.k, b.k, c.k FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k JOIN c ON b.v = c.v JOIN d ON d.v = a.v",
    "SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON a.s = c.s WHERE c.k IS NULL OR b.v = 4",
    "SELECT DISTINCT a.s, b.s FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k JOIN d ON d.v = c.v",
    "SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k WHERE false",
    "SELECT (SELECT count(*) FROM b, c, d WHERE b.k = c.k AND c.v = d.v) AS n, a.k FROM a WHERE a.k < 2",
    "SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.k UNION ALL \
     SELECT c.v FROM c JOIN d ON c.k = d.k JOIN a ON a.v = d.v",
    "SELECT a.k AS x, b.k AS x2, a.v AS y FROM a, b, c, d, c AS e \
     WHERE a.k = b.k AND b.v = c.v AND c.k = d.k AND d.v = e.v AND e.k = a.v AND a.s <> b.s",
    "SELECT a.s, a.v FROM a JOIN c ON a.k = c.k WHERE c.v = 1 AND a.v < (SELECT avg(x.v) FROM a x WHERE x.k = c.k)",
    "SELECT c.k FROM c WHERE c.v < 5 AND c.k IN (SELECT k FROM a GROUP BY k HAVING count(*) > 1)",
    "SELECT c.k FROM c WHERE c.v < 5 AND NOT EXISTS (SELECT max(v) FROM a WHERE a.k = c.k GROUP BY v, k HAVING count(*) > 2)",
    "SELECT d.s, m.n FROM d LEFT JOIN (SELECT k, count(*) AS n FROM a GROUP BY k) m ON m.k = d.k JOIN c ON c.k = d.v",
    "SELECT c.s FROM c JOIN (SELECT x.k, y.v, max(x.v) AS m FROM a x JOIN b y ON x.k = y.k WHERE x.v > 1 GROUP BY x.k, y.v) g \
     ON g.k = c.k AND g.m = c.v JOIN d ON d.k = c.v",
    "SELECT a.v, d.s FROM a LEFT JOIN b ON a.k = b.k AND b.v > 2 JOIN d ON d.k = a.v WHERE b.k IS NULL",
    "SELECT a.v, b.v, c.s FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON c.k = b.v \
     JOIN d ON d.k = a.v JOIN d e ON e.v = a.k",
    "SELECT a.v, b.v, c.s FROM a LEFT JOIN b ON a.k = b.k JOIN c ON c.k = b.v JOIN d ON d.k = a.v",
    "WITH g AS (SELECT a.k, max(b.v) AS m FROM a JOIN b ON a.k = b.k GROUP BY a.k) \
     SELECT x.k, y.m FROM g x LEFT JOIN g y ON x.k = y.m UNION ALL SELECT k, m FROM g WHERE m > 2",
    "WITH g AS (SELECT a.k, max(b.v) AS m FROM a JOIN b ON a.k = b.k GROUP BY a.k), \
     h AS (SELECT c.s, sum(g.m) AS t FROM c JOIN g ON c.k = g.k GROUP BY c.s) \
     SELECT x.s, x.t, y.t, g.m FROM h x JOIN h y ON x.t >= y.t JOIN g ON g.k = x.t % 3",
    "SELECT v, count(*) FROM a JOIN c USING (k, v) GROUP BY v \
     HAVING count(*) >= (SELECT max(n) FROM (SELECT v, count(*) AS n FROM a JOIN c USING (k, v) GROUP BY v))",
    "WITH g AS (SELECT DISTINCT a.v, c.s FROM a JOIN c ON a.k = c.k) \
     SELECT count(*) FROM g WHERE v IN (SELECT v FROM g WHERE s = 'c1') AND NOT EXISTS (SELECT 1 FROM g x WHERE x.s < g.s AND x.v = g.v)",
    "WITH g AS (SELECT a.k, a.v, row_number() OVER (PARTITION BY a.k ORDER BY a.v, c.v, a.s, c.s) AS n FROM a JOIN c ON a.k = c.k) \
     SELECT x.k, x.v, y.v FROM g x JOIN g y ON x.k = y.k AND x.n = y.n + 1",
    "SELECT a.k, c.s FROM (a LEFT JOIN b ON a.k = b.k) JOIN c ON c.k = a.v \
     WHERE EXISTS (SELECT 1 FROM d WHERE d.k = a.v AND d.v < a.k)",
    "SELECT a.s, b.v FROM a RIGHT JOIN b ON a.k = b.k JOIN c ON c.v = b.v \
     WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.v = b.v + 1)",
    "SELECT a.k, a.v FROM a JOIN b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM d WHERE d.k = a.k AND d.v <> a.v)",
    "SELECT a.k, a.v FROM a JOIN b ON a.k = b.k WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.v = a.v AND c.k <> a.k)",
    "SELECT a.k, a.v, c.v FROM a JOIN c ON a.k = c.k WHERE EXISTS (SELECT 1 FROM b WHERE b.v = c.v AND b.k < a.k)",
    "SELECT a.k, a.v, c.v FROM a JOIN c ON a.k = c.k WHERE NOT EXISTS (SELECT 1 FROM a b WHERE a.v = b.v AND a.k <= b.k)",
    "SELECT a.k, c.v FROM a JOIN c ON a.k = c.k WHERE EXISTS (SELECT 1 FROM c b WHERE b.v = a.v AND b.k > c.k AND b.v = c.v)",
    "SELECT x.k, c.v FROM (SELECT a.k, a.v FROM a JOIN b ON a.k = b.k WHERE a.v + b.v > 3) x JOIN c ON c.k = x.k \
     WHERE x.v NOT IN (SELECT v FROM d WHERE v IS NOT NULL) AND x.k IN (SELECT k FROM d)",
];

#[tokio::test]
async fn every_order_returns_the_same_with_the_same_schema() {
    let context = context();
    let state = context.state();
    let (mut changed, mut shared) = (0, 0);
    for sql in QUERIES {
        let plan = optimized(&state, sql).await;
        let expected = rows(&state, &plan).await;
        for seed in 0..12 {
            let order = JoinOrder::Random(seed);
            let ordered = order_joins(
                &plan,
                statistics(&Summaries::default()),
                order,
                &state,
                PlannedRun::default(),
            )
            .unwrap();
            let Some(ordered) = ordered.filter(|ordered| ordered.plan != plan) else {
                continue;
            };
            changed += 1;
            let text = ordered.plan.display_indent().to_string();
            shared += usize::from(text.contains("SharedRows"));
            assert!(
                ordered.plan.schema().iter().eq(plan.schema().iter()),
                "{sql}\n{}",
                ordered.plan.display_indent()
            );
            let found = rows(&state, &ordered.plan).await;
            assert_eq!(found, expected, "{sql}\n{}", ordered.plan.display_indent());
        }
    }
    assert!(changed > 200, "{changed} plans were put in another order");
    assert!(shared > 50, "{shared} plans share rows");
}

/// Statistics without what earlier queries counted.
fn statistics(summaries: &Summaries) -> Knowledge<'_> {
    Knowledge {
        summaries,
        known: None,
    }
}

/// Statistics of all tables that `plan` scans: by name, their rows and the distinct values of `k` and of `v`.
fn summaries(plan: &LogicalPlan, tables: &[(&str, u64, f64, f64)]) -> Summaries {
    let mut summaries = Summaries::default();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some((_, rows, k, v)) = tables
                .iter()
                .find(|table| table.0 == scan.table_name.table())
        {
            let column = |distinct: f64| ColumnSummary {
                distinct: Some(distinct),
                nulls: Some(0),
                min: Some(ScalarValue::from(0_i64)),
                max: Some(ScalarValue::from(distinct as i64 - 1)),
                bytes: Some(8.0),
            };
            let text = ColumnSummary {
                distinct: Some(1_000.0),
                ..ColumnSummary::default()
            };
            let columns = [("k", column(*k)), ("v", column(*v)), ("s", text)];
            let texts =
                StringArray::from_iter_values((0..4_000).map(|row| format!("a{}", row % 100)));
            let sample = Sample {
                rows: RecordBatch::try_from_iter([("s", Arc::new(texts) as ArrayRef)]).unwrap(),
                run: 256,
            };
            let summary = TableSummary {
                version: None,
                rows: *rows,
                columns: columns
                    .map(|(name, column)| (name.to_owned(), column))
                    .into(),
                sample: Some(sample),
            };
            summaries.insert(scan, Arc::new(summary));
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    summaries
}

/// The joins of `plan` in parentheses, the side that a table is built of first.
fn joins(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::Join(join) => format!("({} {})", joins(&join.left), joins(&join.right)),
        LogicalPlan::TableScan(scan) => scan.table_name.table().to_owned(),
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().to_owned(),
        other => {
            let inputs: Vec<_> = other.inputs().into_iter().map(joins).collect();
            inputs.join(" ")
        }
    }
}

/// `a` is large, `b` and `c` are smaller, `d` is small.
const SIZES: [(&str, u64, f64, f64); 4] = [
    ("a", 10_000_000, 1_000_000.0, 1_000.0),
    ("b", 1_000_000, 1_000_000.0, 1_000.0),
    ("c", 1_000, 1_000.0, 10.0),
    ("d", 10, 10.0, 10.0),
];

#[tokio::test]
async fn the_cheapest_order_by_statistics_is_taken() {
    let context = context();
    let state = context.state();
    for (sql, expected) in [
        // A small table reduces the largest one first.
        (
            "SELECT a.s FROM a JOIN b ON a.k = b.k JOIN c ON a.v = c.k WHERE c.v = 3",
            Some("(((c) a) b)"),
        ),
        // A predicate that only the sample knows: one text of a hundred.
        (
            "SELECT a.s FROM a JOIN c ON a.v = c.k JOIN b ON a.k = b.k WHERE b.s = 'a7'",
            Some("(c (b a))"),
        ),
        // A small table leaves rows out before a left join.
        (
            "SELECT a.s FROM a LEFT JOIN b ON a.k = b.k JOIN c ON a.v = c.k WHERE b.k IS NULL AND c.v = 3",
            Some("((a c) b)"),
        ),
        // A semi join looks for partners of one side's rows, which are fewer.
        (
            "SELECT a.s FROM b JOIN a ON a.k = b.k WHERE b.v IN (SELECT v FROM d)",
            Some("((b __correlated_sq_1) a)"),
        ),
        // What is joined has fewer rows.
        (
            "SELECT a.s FROM a JOIN c ON a.v = c.k WHERE c.v = 3 AND a.k IN (SELECT k FROM b)",
            None,
        ),
        // The order of the text is right already.
        (
            "SELECT a.s FROM d JOIN c ON d.k = c.v JOIN a ON a.v = c.k",
            None,
        ),
        // Nothing is known of the table.
        (
            "SELECT a.s FROM a JOIN b ON a.k = b.k JOIN e ON a.v = e.k WHERE e.v = 3",
            None,
        ),
    ] {
        if !context.table_exist("e").unwrap() {
            register(&context, "e", 5, 5);
        }
        let state = match sql.contains(" e ") {
            true => context.state(),
            false => state.clone(),
        };
        let plan = optimized(&state, sql).await;
        let written = joins(&plan);
        let summaries = summaries(&plan, &SIZES);
        let ordered = order_joins(
            &plan,
            statistics(&summaries),
            JoinOrder::Cost,
            &state,
            PlannedRun::default(),
        )
        .unwrap();
        let found = ordered.map_or(written.clone(), |ordered| joins(&ordered.plan));
        let plain = |text: &str| {
            text.replace(['(', ')'], " ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        match expected {
            Some(expected) => {
                assert_eq!(
                    plain(&found),
                    plain(expected),
                    "{sql}: {found}, written {written}"
                );
            }
            None => assert_eq!(found, written, "{sql}"),
        }
    }
}

/// Below an aggregate of many groups, a semi join leaves out those that a join above it has no use for.
#[tokio::test]
async fn an_aggregate_makes_only_groups_that_are_asked_for() {
    let state = context().state();
    let groups = "(SELECT v, max(k) AS m FROM a GROUP BY v) g";
    let nested = "(SELECT x.v, max(x.k) AS m FROM a x JOIN b y ON x.k = y.k GROUP BY x.v) g";
    for (sql, is_reduced) in [
        (format!("SELECT c.s FROM c JOIN {groups} ON g.v = c.k WHERE c.v = 3"), true),
        (format!("SELECT c.s FROM c JOIN {nested} ON g.v = c.k WHERE c.v = 3"), true),
        (format!("SELECT c.s, g.m FROM c LEFT JOIN {groups} ON g.v = c.k WHERE c.v = 3"), true),
        ("SELECT s FROM c WHERE v = 3 AND k IN (SELECT v FROM a GROUP BY v HAVING max(k) > 2)".to_owned(), true),
        // All groups are asked for.
        (format!("SELECT c.s FROM c JOIN {groups} ON g.v = c.k"), false),
        (format!("SELECT c.s, g.m FROM {groups} LEFT JOIN c ON g.v = c.k AND c.v = 3"), false),
        // By something that is not a key of the groups.
        (format!("SELECT c.s FROM c JOIN {groups} ON g.m = c.k WHERE c.v = 3"), false),
        ("SELECT c.s FROM c JOIN (SELECT v, max(k) AS m FROM a GROUP BY ROLLUP (v)) g ON g.v = c.k WHERE c.v = 3".to_owned(), false),
        // The keys may be others when they are read again.
        (format!("SELECT c.s FROM c JOIN {groups} ON g.v = c.k WHERE c.v < random() * 3"), false),
    ] {
        let plan = optimized(&state, &sql).await;
        let summaries = summaries(&plan, &SIZES);
        let ordered = order_joins(&plan, statistics(&summaries), JoinOrder::Cost, &state, PlannedRun::default()).unwrap();
        let text = match &ordered {
            Some(ordered) => ordered.plan.display_indent().to_string(),
            None => plan.display_indent().to_string(),
        };
        let below = text.split_once("Aggregate:").map(|(_, below)| below);
        let found = below.is_some_and(|below| below.contains("LeftSemi Join"));
        assert_eq!(found, is_reduced, "{sql}\n{text}");
    }
}

/// Least and greatest values pay where a key has many rows on both sides.
#[tokio::test]
async fn a_semi_join_compares_a_row_with_two_values_if_its_key_has_many_rows() {
    let state = context().state();
    let query = |left: &str, condition: &str| {
        format!(
            "SELECT x.s FROM {left} x WHERE EXISTS (SELECT 1 FROM a y WHERE y.k = x.k AND {condition})"
        )
    };
    let not_exists =
        "SELECT x.s FROM a x WHERE NOT EXISTS (SELECT 1 FROM a y WHERE y.k = x.k AND y.v >= x.v)";
    let run = PlannedRun::default();
    let traced = PlannedRun {
        traces_records: true,
        ..run
    };
    for (sql, run, aggregates) in [
        (
            query("a", "y.v <> x.v"),
            run,
            "min(y.v) AS __skewer_least, max(y.v) AS __skewer_greatest",
        ),
        (
            query("a", "x.v < y.v"),
            run,
            "max(y.v) AS __skewer_greatest",
        ),
        (query("a", "x.v > y.v"), run, "min(y.v) AS __skewer_least"),
        (not_exists.to_owned(), run, "max(y.v) AS __skewer_greatest"),
        (query("a", "y.v <> x.v"), traced, ""),
        // Few rows look for a partner.
        (query("c", "y.v <> x.v"), run, ""),
        (query("a", "y.s <> x.s"), run, ""),
        (
            query("a", "y.v <> x.v AND y.v < 900"),
            run,
            "min(y.v) AS __skewer_least, max(y.v) AS __skewer_greatest",
        ),
        (query("a", "y.v <> x.v AND y.s <> x.s"), run, ""),
        (query("a", "y.v + 1 <> x.v"), run, ""),
    ] {
        let plan = optimized(&state, &sql).await;
        let summaries = summaries(&plan, &SIZES);
        let ordered = order_joins(&plan, statistics(&summaries), JoinOrder::Cost, &state, run);
        let plan = ordered.unwrap().map_or(plan, |ordered| ordered.plan);
        let text = plan.display_indent().to_string();
        let text = (1..20).fold(text, |text, number| {
            text.replace(&format!("__correlated_sq_{number}."), "y.")
        });
        let found = text
            .split_once("aggr=[[")
            .and_then(|(_, rest)| rest.split_once("]]"));
        assert_eq!(
            found.map_or("", |(found, _)| found),
            aggregates,
            "{sql}\n{text}"
        );
    }
}

/// Estimates are not exact: a semi join goes below a join that leaves out a few rows, but not below one that leaves out more.
#[tokio::test]
async fn a_semi_join_goes_below_a_join_of_about_as_many_rows() {
    let state = context().state();
    let sql = "SELECT a.s FROM a JOIN b ON a.k = b.k WHERE a.v IN (SELECT k FROM c)";
    let plan = optimized(&state, sql).await;
    let below = |kept: f64| {
        let mut sizes = SIZES;
        sizes[1] = (
            "b",
            (1_000_000.0 * kept) as u64,
            1_000_000.0 * kept,
            1_000.0,
        );
        let summaries = summaries(&plan, &sizes);
        let ordered = order_joins(
            &plan,
            statistics(&summaries),
            JoinOrder::Cost,
            &state,
            PlannedRun::default(),
        );
        let plan = ordered
            .unwrap()
            .map_or(plan.clone(), |ordered| ordered.plan);
        let text = plan.display_indent().to_string();
        let [inner, semi] = ["Inner Join", "LeftSemi Join"].map(|join| text.find(join).unwrap());
        inner < semi
    };
    for (kept, is_below) in [(1.0, true), (0.97, true), (0.9, false)] {
        assert_eq!(below(kept), is_below, "{kept} of the rows have a partner");
    }
}

#[tokio::test]
async fn the_text_decides_if_it_is_asked_to() {
    let state = context().state();
    let plan = optimized(&state, QUERIES[0]).await;
    let summaries = summaries(&plan, &SIZES);
    let ordered = order_joins(
        &plan,
        statistics(&summaries),
        JoinOrder::Text,
        &state,
        PlannedRun::default(),
    )
    .unwrap();
    assert!(ordered.is_none());
}
