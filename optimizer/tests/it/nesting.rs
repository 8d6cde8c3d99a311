//! Times of operators nest as the operators call each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::catalog::MemTable;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_optimizer::plan_query;
use skewer_profiling::{Level, QueryRow, Recorder, RecorderLimits, Retention, SysTables};

/// Has joins with build sides, sorts, two-step aggregation, exchanges and a merge.
const QUERY: &str = "SELECT t.k, count(*), sum(u.v), max(upper(t.s)) FROM t JOIN u ON t.k = u.k \
     WHERE t.v > 3 AND u.v IN (SELECT v FROM t WHERE k < 40) \
     GROUP BY t.k ORDER BY 3 DESC, 1";

fn table(rows: i64, partitions: usize) -> Arc<MemTable> {
    let batch = |start: i64| {
        let ids = start..(start + 200).min(rows);
        RecordBatch::try_from_iter([
            (
                "k",
                Arc::new(Int64Array::from_iter_values(ids.clone().map(|i| i % 97))) as _,
            ),
            (
                "v",
                Arc::new(Int64Array::from_iter_values(ids.clone().map(|i| i % 31))) as _,
            ),
            (
                "s",
                Arc::new(StringArray::from_iter_values(ids.map(|i| format!("s{i}")))) as _,
            ),
        ])
        .unwrap()
    };
    let mut parts = vec![vec![]; partitions];
    for (number, start) in (0..rows).step_by(200).enumerate() {
        parts[number % partitions].push(batch(start));
    }
    Arc::new(MemTable::try_new(parts[0][0].schema(), parts).unwrap())
}

async fn profile(level: Level) -> SessionContext {
    profile_query(level, QUERY).await
}

async fn profile_query(level: Level, query: &str) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(3);
    // Joins hash both sides, however small.
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.hash_join_single_partition_threshold = 0;
    optimizer.hash_join_single_partition_threshold_rows = 0;
    let context = SessionContext::new_with_config(config);
    context.register_table("t", table(6_000, 3)).unwrap();
    context.register_table("u", table(400, 2)).unwrap();
    let state = context.state();
    let logical = state.create_logical_plan(query).await.unwrap();
    let optimized = state.optimize(&logical).unwrap();
    let recorder = Recorder::new(7, level, 1.0, RecorderLimits::default());
    let plan = plan_query(&optimized, &state, &recorder).await.unwrap();
    let batches = collect(plan, state.task_ctx()).await.unwrap();
    assert!(batches.iter().any(|batch| batch.num_rows() > 0));
    let sys = SysTables::open(None, Retention::default());
    sys.finish(
        &recorder,
        QueryRow {
            sql: query.to_owned(),
            fingerprint: String::new(),
            status: "finished".to_owned(),
            error: None,
            started_at: 0,
            ended_at: Some(0),
            planning_ns: None,
            execution_ns: None,
            rows_returned: None,
            tables_read: None,
            quarantines: None,
            imported_from: None,
            first_row_at: None,
            queued_ns: None,
            user_name: None,
            trace_id: None,
            parent_span_id: None,
        },
    );
    let catalog = context.catalog("datafusion").unwrap();
    catalog
        .register_schema("sys", sys.schema_provider())
        .unwrap();
    context
}

async fn integers(context: &SessionContext, sql: &str) -> Vec<Vec<i64>> {
    let mut rows = Vec::new();
    for batch in context.sql(sql).await.unwrap().collect().await.unwrap() {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| cast(column, &DataType::Int64).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells = columns
                .iter()
                .map(|c| c.as_primitive::<Int64Type>().value(row));
            rows.push(cells.collect());
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_times_of_a_fragment_add_up_to_its_total() {
    let context = profile(Level::Counters).await;
    let sql = "WITH s AS (
            SELECT o.fragment_id, p.fragment_id AS parent_fragment, s.self_ns, s.total_ns
            FROM sys.operator_stats s
            JOIN sys.operators o ON o.operator_id = s.operator_id
            LEFT JOIN sys.operators p ON p.operator_id = o.parent_operator_id)
        SELECT fragment_id, sum(self_ns),
            sum(CASE WHEN parent_fragment IS DISTINCT FROM fragment_id THEN total_ns ELSE 0 END)
        FROM s GROUP BY fragment_id ORDER BY fragment_id";
    let fragments = integers(&context, sql).await;
    assert!(fragments.len() > 3, "{fragments:?}");
    for fragment in fragments {
        let (own, total) = (fragment[1] as f64, fragment[2] as f64);
        assert!(
            (own / total - 1.0).abs() < 0.05,
            "fragment {}: self times {own}, total {total}",
            fragment[0]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_lies_within_a_call_of_the_parent() {
    let context = profile(Level::Calls).await;
    let operators = integers(
        &context,
        "SELECT operator_id, coalesce(parent_operator_id, -1), fragment_id FROM sys.operators",
    )
    .await;
    let calls = integers(
        &context,
        "SELECT operator_id, started_at, ended_at FROM sys.operator_calls",
    )
    .await;
    let mut calls_of: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
    for call in &calls {
        calls_of
            .entry(call[0])
            .or_default()
            .push((call[1], call[2]));
    }
    let fragment_of: BTreeMap<i64, i64> = operators.iter().map(|o| (o[0], o[2])).collect();
    let mut checked = 0;
    for operator in &operators {
        let (id, parent, fragment) = (operator[0], operator[1], operator[2]);
        assert!(calls_of.contains_key(&id), "operator {id} has no call");
        if fragment_of.get(&parent) != Some(&fragment) {
            continue;
        }
        for (started, ended) in &calls_of[&id] {
            checked += 1;
            assert!(
                calls_of[&parent]
                    .iter()
                    .any(|(s, e)| s <= started && ended <= e),
                "a call of operator {id} is in no call of its parent {parent}"
            );
        }
    }
    assert!(checked > 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_out_of_an_exchange_went_into_it() {
    let context = profile(Level::Counters).await;
    let sql = "SELECT t.exchange_id, sum(t.tuples),
            (SELECT sum(s.rows_out) FROM sys.operator_stats s
             JOIN sys.operators o ON o.operator_id = s.operator_id
             WHERE o.parent_operator_id = t.exchange_id)
        FROM sys.tuples_sent t GROUP BY t.exchange_id";
    let exchanges = integers(&context, sql).await;
    assert!(exchanges.len() > 2);
    for exchange in exchanges {
        assert_eq!(exchange[1], exchange[2], "exchange {}", exchange[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_exchange_of_one_partition_sends_comes_from_that_partition() {
    let query = "SELECT k, count(*) FROM (SELECT k FROM t ORDER BY v LIMIT 5000) x GROUP BY k";
    let context = profile_query(Level::Counters, query).await;
    let sql = "SELECT o.details LIKE '%input_partitions=1', count(t.source_partition) = count(*), \
               coalesce(max(t.source_partition), -1) FROM sys.tuples_sent t \
               JOIN sys.operators o ON o.operator_id = t.exchange_id GROUP BY t.exchange_id, 1";
    let sources = integers(&context, sql).await;
    assert!(sources.contains(&vec![1, 1, 0]), "{sources:?}");
    assert!(sources.contains(&vec![0, 0, -1]), "{sources:?}");
    for source in sources {
        assert_eq!(source[0], source[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bins_of_each_operator_add_up_to_its_totals_and_fit_together() {
    for (level, most) in [(Level::Counters, 64), (Level::Calls, 1024)] {
        let context = profile(level).await;
        let sql = "SELECT s.operator_id, s.partition, s.calls - t.calls, s.rows_out - t.rows,
                s.self_ns - t.self_ns, s.input_wait_ns - t.input_wait_ns, t.widths, t.last, s.calls
            FROM sys.operator_stats s LEFT JOIN (
                SELECT fragment_id, operator_id, worker_id, partition, sum(calls) AS calls, sum(rows) AS rows,
                    sum(self_ns) AS self_ns, sum(input_wait_ns) AS input_wait_ns,
                    count(DISTINCT width_ns) AS widths, max(bin) AS last
                FROM sys.operator_timeline GROUP BY 1, 2, 3, 4) t
            ON s.fragment_id = t.fragment_id AND s.operator_id = t.operator_id
                AND s.worker_id = t.worker_id AND s.partition = t.partition";
        let tasks = integers(&context, sql).await;
        assert!(tasks.len() > 20, "{tasks:?}");
        for task in tasks {
            assert_eq!(task[2..4], [0, 0], "{task:?}");
            assert!(task[4].abs() <= 1 && task[5].abs() <= 1, "{task:?}");
            assert!(task[6] == 1 && task[7] < most, "{task:?}");
        }
        // They begin at the same moment, and are multiples of one width; no time is in two of them.
        let sql = "SELECT count(DISTINCT CAST(started_at AS BIGINT) - bin * width_ns),
                sum(CAST(width_ns & (width_ns - 1) > 0 OR width_ns < 16384 AS INT)),
                sum(CAST(self_ns + input_wait_ns > 1.01 * width_ns AS INT)),
                sum(CAST(self_ns < 0 OR input_wait_ns < 0 AS INT))
            FROM sys.operator_timeline";
        assert_eq!(integers(&context, sql).await, [[1, 0, 0, 0]]);
        // Calls are in the bins of their ends.
        if level == Level::Calls {
            let sql = "SELECT count(*), sum(CAST(b.bin IS NULL AS INT)) FROM sys.operator_calls c
                LEFT JOIN sys.operator_timeline b
                ON b.operator_id = c.operator_id AND b.partition = c.partition AND b.calls > 0
                    AND CAST(c.ended_at AS BIGINT) BETWEEN CAST(b.started_at AS BIGINT) - b.width_ns / 10
                        AND CAST(b.started_at AS BIGINT) + b.width_ns + b.width_ns / 10";
            let found = integers(&context, sql).await;
            assert!(found[0][0] > 20 && found[0][1] == 0, "{found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_task_has_its_processor_time() {
    for level in [Level::Counters, Level::Calls] {
        let context = profile(level).await;
        let sql = "SELECT t.fragment_id, t.partition, t.wall_ns, t.cpu_ns IS NULL, t.cpu_ns <= t.wall_ns,
                t.voluntary_switches IS NULL, t.started_at <= t.ended_at, s.total_ns
            FROM sys.task_stats t JOIN (
                SELECT s.fragment_id, s.partition, sum(s.total_ns) AS total_ns FROM sys.operator_stats s
                JOIN sys.operators o ON o.operator_id = s.operator_id
                LEFT JOIN sys.operators p ON p.operator_id = o.parent_operator_id
                WHERE p.fragment_id IS DISTINCT FROM o.fragment_id GROUP BY 1, 2) s
            ON s.fragment_id = t.fragment_id AND s.partition = t.partition";
        let tasks = integers(&context, sql).await;
        assert!(tasks.len() > 8, "{tasks:?}");
        let unknown = i64::from(!cfg!(target_os = "linux"));
        for task in &tasks {
            // What it took to make the streams is none of the calls.
            assert!(task[2] > 0 && task[2] <= task[7] + 1, "{task:?}");
            assert_eq!(task[3], unknown, "{task:?}");
            assert!(unknown == 1 || task[4] == 1, "{task:?}");
            let unknown = i64::from(unknown == 1 || level < Level::Calls);
            assert_eq!(task[5..7], [unknown, 1], "{task:?}");
        }
        // Every task that the fragments have, once.
        let counted = "SELECT (SELECT sum(tasks) FROM sys.fragments), count(*), \
                       count(DISTINCT (fragment_id, partition)) FROM sys.task_stats";
        let counted = integers(&context, counted).await;
        assert_eq!(counted[0], [tasks.len() as i64; 3]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_of_an_exchange_is_found_with_its_share() {
    // Of the 6,000 rows of t, those with v < 16 (about half) get the key 5000.
    let query = "SELECT count(*) FROM \
         (SELECT CASE WHEN v < 16 THEN 5000 ELSE k * 31 + v END AS k FROM t) x \
         JOIN (SELECT k * 31 + v AS k FROM u) y ON x.k = y.k";
    let context = profile_query(Level::Counters, query).await;
    let sql = "SELECT CAST(key AS BIGINT), tuples, error, exchange_id FROM sys.key_frequencies \
         WHERE input IS NULL ORDER BY tuples DESC";
    let keys = integers(&context, sql).await;
    let truth = (0..6_000).filter(|i| i % 31 < 16).count() as i64;
    assert_eq!(keys[0][0], 5000);
    assert!(keys[0][2] < truth, "{keys:?}");
    assert!(keys[1..].iter().all(|key| key[1] < truth / 10), "{keys:?}");
    assert!(
        (keys[0][1] - truth).abs() <= 2 * keys[0][2],
        "{keys:?}, not {truth}"
    );
    let exchange = integers(
        &context,
        "SELECT o.operator_id FROM sys.operators o JOIN sys.key_frequencies k
            ON o.operator_id = k.exchange_id WHERE o.name = 'RepartitionExec'",
    )
    .await;
    assert_eq!(exchange.len(), 1);
    // So is that of the join's input, which has the same rows.
    let sql = "SELECT CAST(k.key AS BIGINT), k.tuples, k.error, k.input, k.worker_id \
         FROM sys.key_frequencies k JOIN sys.operators o ON o.operator_id = k.exchange_id \
         WHERE o.name LIKE '%Join%' AND k.input IS NOT NULL ORDER BY k.tuples DESC";
    let keys = integers(&context, sql).await;
    assert_eq!(keys[0][0], 5000);
    assert!(
        (keys[0][1] - truth).abs() <= 2 * keys[0][2],
        "{keys:?}, not {truth}"
    );
}
