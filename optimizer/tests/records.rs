//! A plan at level `records` returns what the plain plan returns, and its log says exactly
//! which base rows each result row was computed from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::compute::{cast, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::MemTable;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_exec::{IdentifiedTable, ROW_ID};
use skewer_optimizer::plan_query;
use skewer_profiling::{
    Level, LineageMode, QueryRow, Recorder, RecorderLimits, Retention, SysTables,
};

/// Tables `a(k, v, s)` and `b(k, w)`, whose row ids are 100, 101, … and 500, 501, …
fn tables(rows: i64) -> BTreeMap<&'static str, RecordBatch> {
    let a: Vec<i64> = (0..rows).collect();
    let keys = |n: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(
            a.iter().map(|i| (i % 11 != 10).then_some((i * 7) % n)),
        ))
    };
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values(
        a.iter().map(|i| ((i * 37) % 101) as f64),
    ));
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values(
        a.iter().map(|i| format!("x{},y{},z", i % 5, i % 3)),
    ));
    let b: Vec<i64> = (0..rows / 2).collect();
    let b_keys: ArrayRef = Arc::new(Int64Array::from_iter_values(b.iter().map(|i| i % 9)));
    let weights: ArrayRef = Arc::new(Int64Array::from_iter_values(b.iter().map(|i| i * i % 17)));
    BTreeMap::from([
        (
            "a",
            RecordBatch::try_from_iter_with_nullable([
                ("k", keys(7), true),
                ("v", values, true),
                ("s", strings, true),
            ])
            .unwrap(),
        ),
        (
            "b",
            RecordBatch::try_from_iter_with_nullable([("k", b_keys, true), ("w", weights, true)])
                .unwrap(),
        ),
    ])
}

fn first_id(table: &str) -> i64 {
    if table == "a" { 100 } else { 500 }
}

/// Splits a batch into partitions of small batches, so that plans have exchanges.
fn partitions(batch: &RecordBatch) -> Vec<Vec<RecordBatch>> {
    let mut partitions = vec![vec![], vec![], vec![]];
    let step = 5;
    for (number, start) in (0..batch.num_rows()).step_by(step).enumerate() {
        let rows = step.min(batch.num_rows() - start);
        partitions[number % 3].push(batch.slice(start, rows));
    }
    partitions
}

fn with_ids(batch: &RecordBatch, first: i64) -> RecordBatch {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
    let mut columns = batch.columns().to_vec();
    let ids = first..first + batch.num_rows() as i64;
    columns.push(Arc::new(Int64Array::from_iter_values(ids)));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn mem_table(batch: &RecordBatch) -> Arc<MemTable> {
    Arc::new(MemTable::try_new(batch.schema(), partitions(batch)).unwrap())
}

#[derive(Clone, Copy, Default)]
struct Options {
    skip_partial: bool,
    memory: Option<usize>,
    /// Joins sort both sides and merge them.
    sort_merge: bool,
    sample_rate: Option<f64>,
    piggyback: bool,
}

impl Options {
    /// Both ways of keeping what is learned of records, with partial aggregation and without.
    fn all() -> Vec<Options> {
        let mut all = Vec::new();
        for skip_partial in [false, true] {
            for piggyback in [false, true] {
                all.push(Options {
                    skip_partial,
                    piggyback,
                    ..Options::default()
                });
            }
        }
        all
    }
}

fn context(tables: &BTreeMap<&'static str, RecordBatch>, options: Options) -> SessionContext {
    let mut config = SessionConfig::new()
        .with_target_partitions(3)
        .with_batch_size(16);
    let execution = &mut config.options_mut().execution;
    if options.skip_partial {
        execution.skip_partial_aggregation_probe_rows_threshold = 0;
        execution.skip_partial_aggregation_probe_ratio_threshold = 0.0;
    }
    if options.memory.is_some() {
        execution.sort_spill_reservation_bytes = 1024;
    }
    config.options_mut().optimizer.prefer_hash_join = !options.sort_merge;
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = options.memory {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
    }
    let context = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    for (name, batch) in tables {
        let table = IdentifiedTable::new(
            mem_table(batch),
            mem_table(&with_ids(batch, first_id(name))),
            *name,
        );
        context.register_table(*name, Arc::new(table)).unwrap();
    }
    context
}

fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

/// What a profiled run gave.
struct Profiled {
    rows: Vec<String>,
    /// For each result row, the base rows in its lineage.
    lineage: Vec<BTreeSet<(String, i64)>>,
    /// Where no lineage is kept: the base rows that result rows come from, and of how many.
    sources: BTreeMap<(String, i64), i64>,
    plan: String,
    /// The operators that have spilled.
    spilled: BTreeSet<String>,
}

async fn run_profiled(context: &SessionContext, sql: &str, options: Options) -> Profiled {
    let profiled = try_profiled(context, sql, options).await;
    profiled.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// An error if the query fails: memory may not suffice.
async fn try_profiled(
    context: &SessionContext,
    sql: &str,
    options: Options,
) -> Result<Profiled, String> {
    let state = context.state();
    let logical = state.create_logical_plan(sql).await.unwrap();
    let optimized = state.optimize(&logical).unwrap();
    let rate = options.sample_rate.unwrap_or(1.0);
    let recorder = Recorder::new(1, Level::Records, rate, RecorderLimits::default());
    if options.piggyback {
        recorder.set_lineage_mode(LineageMode::Piggyback);
    }
    let plan = plan_query(&optimized, &state, &recorder)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert_eq!(
        plan.schema().as_ref(),
        optimized.schema().as_arrow(),
        "{sql}"
    );
    let batches = collect(plan, state.task_ctx()).await;
    let batches = batches.map_err(|error| format!("{error}\n{text}"))?;
    // Tasks of exchanges end a moment after the result; nothing else may keep the recorder.
    for _ in 0..1000 {
        if Arc::strong_count(&recorder) == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(
        Arc::strong_count(&recorder),
        1,
        "{sql}: something keeps the recorder"
    );
    let sys = SysTables::open(None, Retention::default());
    sys.finish(
        &recorder,
        QueryRow {
            sql: sql.to_owned(),
            fingerprint: String::new(),
            status: "finished".to_owned(),
            error: None,
            started_at: 0,
            ended_at: Some(0),
            planning_ns: None,
            execution_ns: None,
            rows_returned: None,
            tables_read: None,
            imported_from: None,
        },
    );
    let rows = rows(&batches);
    let lineage = lineage(&sys, rows.len()).await;
    let sql = "SELECT o.name, o.operator_id FROM sys.operators o JOIN sys.operator_stats s
               ON o.operator_id = s.operator_id WHERE s.spilled_bytes > 0";
    let spilled = int_rows(&sys, sql).await.into_iter();
    let spilled = spilled.map(|(_, name)| name.unwrap()).collect();
    let sql = "SELECT table_name, row_id, outputs FROM sys.expensive_inputs WHERE query_id = 1";
    let sources = match options.piggyback {
        true => int_rows(&sys, sql).await,
        false => Vec::new(),
    };
    let sources = sources.into_iter();
    let sources = sources.map(|(numbers, table)| ((table.unwrap(), numbers[0]), numbers[1]));
    Ok(Profiled {
        rows,
        lineage,
        sources: sources.collect(),
        plan: text,
        spilled,
    })
}

async fn int_rows(sys: &Arc<SysTables>, sql: &str) -> Vec<(Vec<i64>, Option<String>)> {
    let context = SessionContext::new();
    context
        .catalog("datafusion")
        .unwrap()
        .register_schema("sys", sys.schema_provider())
        .unwrap();
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in &batches {
        let table = cast(batch.column(0), &DataType::Utf8).unwrap();
        let table = table.as_string::<i32>();
        for row in 0..batch.num_rows() {
            let numbers = batch.columns()[1..]
                .iter()
                .map(|c| c.as_primitive::<Int64Type>().value(row))
                .collect();
            let name = table.is_valid(row).then(|| table.value(row).to_owned());
            rows.push((numbers, name));
        }
    }
    rows
}

type Record = (i64, i64);

async fn lineage(sys: &Arc<SysTables>, result_rows: usize) -> Vec<BTreeSet<(String, i64)>> {
    let mut edges: BTreeMap<Record, Vec<(Record, Option<String>)>> = BTreeMap::new();
    let sql = "SELECT table_name, operator_id, output_id, input_operator_id, input_id \
               FROM sys.lineage";
    for (numbers, table) in int_rows(sys, sql).await {
        edges
            .entry((numbers[0], numbers[1]))
            .or_default()
            .push(((numbers[2], numbers[3]), table));
    }
    let mut lineage = vec![BTreeSet::new(); result_rows];
    let sql = "SELECT table_name, output_row, operator_id, record_id FROM sys.output_records \
               WHERE record_id IS NOT NULL";
    for (numbers, table) in int_rows(sys, sql).await {
        let mut open = vec![((numbers[1], numbers[2]), table)];
        while let Some((record, table)) = open.pop() {
            match table {
                Some(table) => {
                    lineage[numbers[0] as usize].insert((table, record.1));
                }
                None => open.extend(edges.get(&record).cloned().unwrap_or_default()),
            }
        }
    }
    lineage
}

async fn run_plain(context: &SessionContext, sql: &str) -> Vec<String> {
    rows(&context.sql(sql).await.unwrap().collect().await.unwrap())
}

/// The tables with only the rows of a lineage.
fn only(
    tables: &BTreeMap<&'static str, RecordBatch>,
    lineage: &BTreeSet<(String, i64)>,
) -> BTreeMap<&'static str, RecordBatch> {
    tables
        .iter()
        .map(|(name, batch)| {
            let indices: UInt64Array = lineage
                .iter()
                .filter(|(table, _)| table == name)
                .map(|(_, id)| (id - first_id(name)) as u64)
                .collect();
            (*name, take_record_batch(batch, &indices).unwrap())
        })
        .collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// Queries whose every result row is made again from its lineage alone.
const REPLAYABLE: &[&str] = &[
    "SELECT k, v + 1 FROM a WHERE v > 50",
    "SELECT upper(s), k FROM a WHERE s LIKE '%y1%'",
    "SELECT * FROM a",
    "SELECT k, sum(v), count(*) FROM a GROUP BY k",
    "SELECT k, count(DISTINCT v), avg(v) FROM a GROUP BY k",
    "SELECT k, count(DISTINCT v) FROM a GROUP BY k",
    "SELECT sum(v), min(s), count(*) FROM a",
    "SELECT upper(s) AS u, max(length(s)) FROM a GROUP BY upper(s)",
    "SELECT substr(s, 1, 2), count(*) FROM a GROUP BY 1 ORDER BY 2 DESC, 1",
    "SELECT a.k, v, w FROM a JOIN b ON a.k = b.k",
    "SELECT x.v, y.v FROM a x JOIN a y ON x.v = y.k",
    "SELECT a.k, sum(w) FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "SELECT a.k, t.total FROM a JOIN (SELECT k, sum(w) AS total FROM b GROUP BY k) t ON a.k = t.k",
    "SELECT count(*) FROM (SELECT k, sum(v) AS total FROM a GROUP BY k) t WHERE total > 10",
    "SELECT a.k, w FROM a JOIN b ON a.k < b.k AND length(s) + w > 12",
    "SELECT k, v, s FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > a.v)",
    "SELECT k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > a.v) OR v > 3",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b) OR k > 3",
    "SELECT DISTINCT k FROM a",
    "SELECT DISTINCT ON (k) k, v FROM a ORDER BY k, v",
    "SELECT k FROM a UNION ALL SELECT w FROM b",
    "SELECT k FROM a UNION SELECT w FROM b",
    "SELECT x, count(*) FROM (SELECT unnest(string_to_array(s, ',')) AS x FROM a) GROUP BY x",
    "SELECT k, unnest(string_to_array(s, ',')) FROM a",
    "SELECT k, sum(v) FILTER (WHERE v > 30) FROM a GROUP BY k HAVING count(*) > 1",
    "SELECT k, CASE WHEN s LIKE '%y2%' THEN 'two' ELSE lower(s) END FROM a ORDER BY v, k, s",
    "SELECT k, median(v) FROM a GROUP BY k",
    "WITH t AS (SELECT k, max(v) AS m FROM a GROUP BY k) SELECT t.k, m, w FROM t, b WHERE t.k = b.k",
    "WITH RECURSIVE r AS (SELECT k, v, 0 AS n FROM a UNION ALL SELECT b.w, r.v, n + 1 FROM r JOIN b ON r.k = b.k WHERE n < 3) SELECT k, v, n FROM r",
    "WITH RECURSIVE r AS (SELECT k, sum(v) AS v, 0 AS n FROM a GROUP BY k UNION ALL SELECT w, r.v + length(a.s), n + 1 FROM r JOIN b ON r.k = b.k LEFT JOIN a ON a.k = w WHERE n < 2) SELECT n, count(*), sum(v) FROM r GROUP BY n",
    "WITH RECURSIVE r AS (SELECT k, 0 AS n FROM a UNION ALL SELECT k + 1, n + 1 FROM r WHERE n < 2) SELECT r.k, n, w FROM r JOIN b ON r.k = b.k",
    "WITH RECURSIVE r AS (SELECT k, 0 AS n FROM a WHERE v > 70 UNION ALL SELECT r.k, n + 1 FROM r JOIN (SELECT w, count(*) FROM b GROUP BY w) AS g ON r.k = w WHERE n < 2) SELECT k, n FROM r",
    "WITH RECURSIVE r AS (SELECT k, n FROM (WITH RECURSIVE q AS (SELECT k, 0 AS n FROM a WHERE v > 85 UNION ALL SELECT w, n + 1 FROM q JOIN b ON q.k = b.k WHERE n < 1) SELECT k, n FROM q) AS q UNION ALL SELECT w, n + 10 FROM r JOIN b ON r.k = b.k WHERE n < 10) SELECT k, n FROM r",
    "WITH RECURSIVE r AS (SELECT k, 0 AS n FROM a WHERE v > 70 UNION ALL SELECT k + 1, n + 1 FROM r WHERE n < 3 AND k IN (SELECT w FROM b)) SELECT k, n FROM r",
    "WITH RECURSIVE r AS (SELECT k, v, 0 AS n FROM a WHERE v > 70 UNION ALL SELECT k, v + 1, n + 1 FROM r WHERE n < 3 AND EXISTS (SELECT 1 FROM b WHERE b.k = r.k AND b.w > r.n)) SELECT k, v, n FROM r",
];

/// Queries that read more than the lineage of a row holds by convention, or less.
const SAME_RESULT: &[&str] = &[
    "SELECT k, v FROM a ORDER BY v, k LIMIT 7",
    "SELECT k, v FROM a ORDER BY v DESC, k OFFSET 5 LIMIT 7",
    "SELECT a.k, v, w FROM a LEFT JOIN b ON a.k = b.k AND w > 3",
    "SELECT a.k, b.k FROM a FULL JOIN b ON a.k = b.w",
    "SELECT a.v, b.w FROM a RIGHT JOIN b ON a.k = b.w",
    "SELECT k FROM a WHERE k IN (SELECT w FROM b)",
    "SELECT k FROM a WHERE k NOT IN (SELECT w FROM b WHERE w IS NOT NULL)",
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w > 3)",
    "SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR k IN (SELECT w FROM b)",
    "SELECT k, x, d FROM (SELECT k, v * -0e0 AS x, arrow_cast(s, 'Dictionary(Int8, Utf8)') AS d FROM a) AS a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.w <> a.x)",
    "SELECT k FROM a INTERSECT SELECT w FROM b",
    "SELECT k FROM a EXCEPT SELECT w FROM b",
    "SELECT k, v, (SELECT max(w) FROM b) FROM a",
    "SELECT k, (SELECT max(w) FROM b WHERE b.k = a.k) FROM a",
    "SELECT k, v FROM a WHERE v > (SELECT avg(w) FROM b)",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY v, s) FROM a",
    "SELECT k, sum(v) OVER (PARTITION BY k) FROM a",
    "SELECT k, sum(v) FROM a GROUP BY ROLLUP (k)",
    "SELECT k, s, sum(v) FROM a GROUP BY GROUPING SETS ((k), (s), ())",
    "SELECT k, s, sum(v) FROM a GROUP BY CUBE (k, s)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i, count(v) FROM n LEFT JOIN a ON a.k = i GROUP BY i",
    "WITH RECURSIVE r AS (SELECT k FROM a UNION SELECT w FROM r JOIN b ON r.k = b.k) SELECT k FROM r",
    "WITH RECURSIVE r AS (SELECT k, 0 AS n FROM a UNION ALL SELECT k, max(n) + 1 FROM r WHERE n < 2 GROUP BY k) SELECT k, n FROM r",
    "WITH RECURSIVE r AS (SELECT k FROM a WHERE v > 50 UNION ALL SELECT k + 1 FROM r) SELECT k FROM r LIMIT 3",
    "SELECT 1 + 1",
    "SELECT count(*) FROM a WHERE false",
    "SELECT count(*) FROM a, b WHERE a.k = b.k AND s LIKE 'x%' AND a.v > b.w",
    "SELECT k, count(*) FROM a GROUP BY k LIMIT 3",
    "SELECT max(v) FROM a",
    "SELECT k, max(v) FROM a GROUP BY k ORDER BY max(v) DESC, k LIMIT 2",
    "VALUES (1, 'x'), (2, 'y')",
    "SELECT s, concat(s, s), concat(s, s) AS again FROM a WHERE concat(s, s) <> '' ORDER BY concat(s, s), k, v",
    "SELECT x.s FROM (SELECT s, k FROM a UNION ALL SELECT 'b', w FROM b) x JOIN b ON x.k = b.k",
];

#[tokio::test]
async fn the_result_is_the_unprofiled_one() {
    let tables = tables(60);
    for options in Options::all() {
        let context = context(&tables, options);
        for sql in REPLAYABLE.iter().chain(SAME_RESULT) {
            let expected = run_plain(&context, sql).await;
            let profiled = run_profiled(&context, sql, options).await;
            let is_carried = !sql.starts_with("WITH RECURSIVE");
            if options.piggyback && is_carried && REPLAYABLE.contains(sql) {
                let outputs: i64 = profiled.sources.values().sum();
                assert_eq!(outputs, expected.len() as i64, "{sql}: rows with a source");
            }
            if sql.contains("LIMIT 3") {
                assert_eq!(profiled.rows.len(), expected.len(), "{sql}");
                continue;
            }
            assert_eq!(
                sorted(profiled.rows),
                sorted(expected),
                "{sql}\n{}",
                profiled.plan
            );
        }
    }
}

#[tokio::test]
async fn every_result_row_is_made_again_from_its_lineage_alone() {
    let tables = tables(30);
    for options in [
        Options::default(),
        Options {
            skip_partial: true,
            ..Options::default()
        },
    ] {
        let context_of_all = context(&tables, options);
        for sql in REPLAYABLE {
            let profiled = run_profiled(&context_of_all, sql, options).await;
            for (row, lineage) in profiled.rows.iter().zip(&profiled.lineage) {
                assert!(!lineage.is_empty(), "{sql}: {row} has no lineage");
                let small = context(&only(&tables, lineage), Options::default());
                let again = run_plain(&small, sql).await;
                assert!(
                    again.contains(row),
                    "{sql}: {row} is not made from {lineage:?} but {again:?}\n{}",
                    profiled.plan
                );
            }
        }
    }
}

#[tokio::test]
async fn a_groups_lineage_is_exactly_its_rows() {
    let tables = tables(60);
    let keys = tables["a"].column(0).as_primitive::<Int64Type>().clone();
    for options in [
        Options::default(),
        Options {
            skip_partial: true,
            ..Options::default()
        },
    ] {
        let context = context(&tables, options);
        let sql = "SELECT k, sum(v) FROM a GROUP BY k";
        let profiled = run_profiled(&context, sql, options).await;
        assert!(
            profiled.plan.contains("mode=Partial"),
            "not distributed:\n{}",
            profiled.plan
        );
        for (row, lineage) in profiled.rows.iter().zip(&profiled.lineage) {
            let key = row.split('|').next().unwrap().parse::<i64>().ok();
            let expected: BTreeSet<(String, i64)> = keys
                .iter()
                .enumerate()
                .filter(|(_, k)| *k == key)
                .map(|(i, _)| ("a".to_owned(), 100 + i as i64))
                .collect();
            assert_eq!(*lineage, expected, "{row}");
        }
    }
}

#[tokio::test]
async fn lineage_survives_spilled_groups() {
    let tables = tables(20_000);
    let options = Options {
        memory: Some(600_000),
        ..Options::default()
    };
    let context = context(&tables, options);
    let sql = "SELECT v * 1000 + k % 7 AS g, s, array_agg(k) FROM a GROUP BY 1, 2";
    let expected = run_plain(&context, sql).await.len();
    let profiled = run_profiled(&context, sql, options).await;
    assert_eq!(profiled.rows.len(), expected);
    let all: usize = profiled.lineage.iter().map(BTreeSet::len).sum();
    assert!(!profiled.spilled.is_empty(), "nothing was spilled");
    assert_eq!(all, 20_000, "every row is in the lineage of one group");
    let options = Options {
        piggyback: true,
        ..options
    };
    let profiled = run_profiled(&context, sql, options).await;
    assert_eq!(profiled.rows.len(), expected);
    assert!(!profiled.spilled.is_empty(), "nothing was spilled");
    assert!(!profiled.sources.is_empty());
}

/// Runs a query with less and less memory, until an operator spills.
async fn spilling(
    tables: &BTreeMap<&'static str, RecordBatch>,
    options: Options,
    (operator, sql): (&str, &str),
) -> Profiled {
    let mut bytes = 4 << 20;
    let mut last = String::new();
    while bytes > 4 << 10 {
        let options = Options {
            memory: Some(bytes),
            ..options
        };
        match try_profiled(&context(tables, options), sql, options).await {
            Ok(profiled) if profiled.spilled.contains(operator) => return profiled,
            Ok(profiled) => last = profiled.plan,
            Err(error) => last = error,
        }
        bytes -= bytes / 8;
    }
    panic!("{sql}: {operator} does not spill, {last}");
}

#[tokio::test]
async fn lineage_is_the_same_where_sorts_joins_windows_and_groups_spill() {
    let tables = tables(6_000);
    let join = "a JOIN b ON a.k = b.k AND a.v = b.w";
    let (sort, merge, group) = ("SortExec", "SortMergeJoinExec", "AggregateExec");
    for (operator, sql) in [
        (sort, "SELECT k, v, s FROM a ORDER BY s, v, k"),
        (
            sort,
            "SELECT s, k, v, count(*) OVER (PARTITION BY s, k, v) FROM a",
        ),
        (sort, &format!("SELECT a.v, a.s, b.w FROM {join}")),
        (merge, &format!("SELECT a.v, a.s, b.w FROM {join}")),
        (
            group,
            "SELECT s, k, v, array_agg(s || v) FROM a GROUP BY s, k, v",
        ),
        (
            sort,
            &format!("SELECT s, count(*) FROM (SELECT s, w FROM {join}) AS j GROUP BY s"),
        ),
    ] {
        let options = Options {
            sort_merge: true,
            ..Options::default()
        };
        let whole = run_profiled(&context(&tables, options), sql, options).await;
        assert!(whole.spilled.is_empty());
        let spilled = spilling(&tables, options, (operator, sql)).await;
        let [whole, spilled] = [whole, spilled].map(|profiled| {
            let mut rows: Vec<_> = profiled.rows.into_iter().zip(profiled.lineage).collect();
            assert!(rows.iter().all(|(_, lineage)| !lineage.is_empty()), "{sql}");
            rows.sort();
            rows
        });
        assert!(whole == spilled, "{sql}: another lineage where it spills");
    }
}

#[tokio::test]
async fn a_sample_traces_the_same_records_every_time_and_no_others() {
    let tables = tables(400);
    let options = Options {
        sample_rate: Some(0.2),
        ..Options::default()
    };
    let context = context(&tables, options);
    let sql = "SELECT k, count(*) FROM a GROUP BY k";
    let mut seen = Vec::new();
    for _ in 0..2 {
        let profiled = run_profiled(&context, sql, options).await;
        assert_eq!(
            sorted(profiled.rows),
            sorted(run_plain(&context, sql).await)
        );
        let records: BTreeSet<_> = profiled.lineage.into_iter().flatten().collect();
        assert!((40..140).contains(&records.len()), "{}", records.len());
        seen.push(records);
    }
    assert_eq!(seen[0], seen[1]);
    let options = Options {
        piggyback: true,
        ..options
    };
    let profiled = run_profiled(&context, sql, options).await;
    assert!(!profiled.sources.is_empty());
    assert!(
        profiled
            .sources
            .keys()
            .all(|source| seen[0].contains(source))
    );
}

/// The joins of a plan, in order: their modes and types.
fn joins(plan: &str) -> Vec<String> {
    let lines = plan.lines().map(str::trim);
    let joins = lines.filter(|line| line.starts_with("HashJoinExec"));
    joins
        .map(|line| line.split(", on=").next().unwrap_or(line).to_owned())
        .collect()
}

#[tokio::test]
async fn what_is_timed_below_a_join_does_not_change_how_the_join_is_done() {
    let tables = tables(400);
    let context = context(&tables, Options::default());
    let sql = "SELECT count(*) FROM a JOIN b ON a.k = b.k WHERE a.s LIKE '%1%'";
    let plain = context.sql(sql).await.unwrap();
    let plain = plain.create_physical_plan().await.unwrap();
    let plain = joins(&displayable(plain.as_ref()).indent(false).to_string());
    let profiled = run_profiled(&context, sql, Options::default()).await;
    assert!(profiled.plan.contains("TimedEvaluationExec"));
    assert_eq!(joins(&profiled.plan), plain);
    assert!(plain[0].contains("CollectLeft"), "{plain:?}");
}
