//! A database with several workers in one process.

use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use skewer::{Database, Session};

#[path = "workers/colocation.rs"]
mod colocation;

async fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    match session.sql(sql).await {
        Ok(stream) => match stream.collect().await {
            Ok(batches) => batches,
            Err(error) => panic!("{sql}: {error}"),
        },
        Err(error) => panic!("{sql}: {error}"),
    }
}

async fn table(session: &Session, sql: &str) -> String {
    pretty_format_batches(&rows(session, sql).await)
        .unwrap()
        .to_string()
}

/// The numbers in the one column that a query returns.
async fn numbers(session: &Session, sql: &str) -> Vec<i64> {
    let batches = rows(session, sql).await;
    let column = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    batches.iter().flat_map(column).collect()
}

/// The workers on which the session's last query had operators.
async fn workers_of_the_last_query(session: &Session) -> Vec<i64> {
    let sql = "SELECT DISTINCT worker_id FROM sys.operator_stats
               WHERE query_id = last_query_id() ORDER BY worker_id";
    numbers(session, sql).await
}

/// A database whose table `t` has several segments, so that every worker owns some.
async fn filled(workers: usize) -> Session {
    let db = Database::builder()
        .workers(workers)
        .worker_threads(2)
        .build()
        .unwrap();
    let session = db.session();
    rows(
        &session,
        "CREATE TABLE t AS SELECT value AS a, value % 7 AS g, 'row ' || value AS s
         FROM generate_series(1, 1000)",
    )
    .await;
    for n in 1..=4 {
        let sql = format!(
            "INSERT INTO t SELECT value, value % 7, 'row ' || value
             FROM generate_series({n}001, {n}500)"
        );
        rows(&session, &sql).await;
    }
    rows(&session, "CREATE TABLE names (g BIGINT, name VARCHAR)").await;
    rows(
        &session,
        "INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (9, 'nine')",
    )
    .await;
    session
}

const QUERIES: &[&str] = &[
    "SELECT count(*), sum(a), min(s) FROM t",
    "SELECT g, count(*), sum(a), max(s) FROM t GROUP BY g ORDER BY g",
    "SELECT a, s FROM t WHERE a % 100 = 7 ORDER BY a DESC LIMIT 10",
    "SELECT n.name, count(*) FROM t JOIN names n ON t.g = n.g GROUP BY n.name ORDER BY 1",
    "SELECT n.name, count(t.a) FROM names n LEFT JOIN t ON t.g = n.g GROUP BY n.name ORDER BY 1",
    "SELECT x.g, count(*) FROM t x FULL JOIN t y ON x.a = y.a + 600 GROUP BY x.g ORDER BY 1",
    "SELECT count(*) FROM t WHERE g NOT IN (SELECT g FROM names)",
    "SELECT count(*) FROM t WHERE EXISTS (SELECT 1 FROM names n WHERE n.g = t.g AND n.g < t.a)",
    "SELECT count(*) FROM t a, names n WHERE a.g < n.g",
    "SELECT a, row_number() OVER (PARTITION BY g ORDER BY a DESC) AS r FROM t ORDER BY r, a LIMIT 9",
    // By columns that are equal to those that the planner would sort by, or constant.
    "SELECT count(*), sum(r), sum(c) FROM
       (SELECT rank() OVER (PARTITION BY n.g ORDER BY t.a) AS r,
               count(*) OVER (PARTITION BY n.g) AS c
        FROM t JOIN names n ON t.g = n.g)",
    "SELECT count(*), sum(s) FROM
       (SELECT sum(a) OVER (PARTITION BY g ORDER BY a) AS s FROM t WHERE g = 2)",
    "SELECT count(*), sum(s), sum(l) FROM
       (SELECT sum(a) OVER (PARTITION BY g ORDER BY a RANGE BETWEEN 50 PRECEDING AND CURRENT ROW) AS s,
               lag(a) OVER (PARTITION BY g ORDER BY a) AS l FROM t)",
    "SELECT count(*) FROM (SELECT DISTINCT g, a % 3 FROM t)",
    "SELECT g FROM t UNION SELECT g FROM names ORDER BY g",
    "SELECT a FROM t WHERE a > (SELECT avg(a) FROM t) ORDER BY a LIMIT 3",
    "SELECT count(b) FROM (SELECT nullif(a, 0) AS b FROM t LIMIT 17)",
    "SELECT g, count(*) FROM (SELECT g FROM t LIMIT 17) GROUP BY g HAVING count(*) > 100",
    "SELECT sum(c) FROM (SELECT g, count(*) AS c FROM (SELECT * FROM names LIMIT 2) GROUP BY g)",
    "SELECT approx_distinct(a) > 2000, median(a), array_agg(DISTINCT g ORDER BY g) FROM t",
    "SELECT sum(v) FROM (SELECT a AS v FROM t UNION ALL SELECT g FROM names)",
    "SELECT sum(v) FROM (SELECT a AS v FROM t UNION ALL SELECT column1 FROM (VALUES (1), (2)))",
];

#[tokio::test]
async fn queries_give_the_same_rows_on_three_workers_as_on_one() {
    let one = filled(1).await;
    let three = filled(3).await;
    for level in ["off", "counters", "calls", "records"] {
        for session in [&one, &three] {
            rows(session, &format!("SET profile.level = '{level}'")).await;
        }
        for sql in QUERIES {
            let (expected, given) = (table(&one, sql).await, table(&three, sql).await);
            assert_eq!(given, expected, "{level}: {sql}");
            if level != "off" {
                assert_eq!(workers_of_the_last_query(&one).await, [0], "{sql}");
                // A limit may be reached before the other workers are asked.
                if !sql.contains("LIMIT") {
                    assert_eq!(workers_of_the_last_query(&three).await, [0, 1, 2], "{sql}");
                }
                let plan = table(&three, &format!("EXPLAIN {sql}")).await;
                assert!(plan.contains("on workers 0 to 2"), "{sql}\n{plan}");
            }
        }
    }
}

#[tokio::test]
async fn the_plan_says_which_worker_reads_which_segments() {
    let session = filled(3).await;
    let plan = table(&session, "EXPLAIN SELECT g, count(*) FROM t GROUP BY g").await;
    assert!(plan.contains("fragment 0 on worker 0"), "{plan}");
    assert!(plan.contains("on workers 0 to 2"), "{plan}");
    assert!(plan.contains("NetworkShuffleExec: fragment "), "{plan}");
    for worker in 0..3 {
        let segments = format!("worker {worker}: ");
        assert!(plan.contains(&segments), "{plan}");
    }
    assert!(!plan.contains("NumberedExec"), "{plan}");
}

#[tokio::test]
async fn schema_sys_tells_workers_apart_and_counts_what_crosses_exchanges() {
    let session = filled(3).await;
    let grouped = "SELECT g, count(*) FROM t GROUP BY g";
    for level in ["counters", "calls"] {
        rows(&session, &format!("SET profile.level = '{level}'")).await;
        rows(&session, grouped).await;
        // Each worker reads its own share of the 3000 rows.
        let read = numbers(
            &session,
            "SELECT sum(s.rows_out) FROM sys.operator_stats s JOIN sys.operators o
               ON s.query_id = o.query_id AND s.operator_id = o.operator_id
             WHERE s.query_id = last_query_id() AND o.name = 'DataSourceExec'
             GROUP BY s.worker_id ORDER BY s.worker_id",
        )
        .await;
        assert_eq!(read.len(), 3, "{read:?}");
        assert_eq!(read.iter().sum::<i64>(), 3000);
        assert!(read.iter().all(|rows| *rows > 0), "{read:?}");
        // Every sender and every receiver of the shuffle, and as many rows as the consumer got.
        let pairs = numbers(
            &session,
            "SELECT count(DISTINCT t.source_worker * 3 + t.destination_worker)
             FROM sys.tuples_sent t JOIN sys.operators o
               ON t.query_id = o.query_id AND t.exchange_id = o.operator_id
             WHERE t.query_id = last_query_id() AND o.name = 'NetworkShuffleExec'",
        )
        .await;
        assert_eq!(pairs, [9]);
        let lost = numbers(
            &session,
            "SELECT sum(sent.tuples) - sum(received.rows) FROM
               (SELECT exchange_id, sum(tuples) AS tuples FROM sys.tuples_sent
                WHERE query_id = last_query_id() GROUP BY exchange_id) sent
             JOIN
               (SELECT operator_id, sum(rows_out) AS rows FROM sys.operator_stats
                WHERE query_id = last_query_id() GROUP BY operator_id) received
             ON sent.exchange_id = received.operator_id",
        )
        .await;
        assert_eq!(lost, [0]);
        // What is gathered came from the partition that it names.
        let others = numbers(
            &session,
            "SELECT count(*) FROM
               (SELECT query_id, exchange_id, source_worker, source_partition, sum(tuples) AS tuples
                FROM sys.tuples_sent WHERE query_id = last_query_id() GROUP BY 1, 2, 3, 4) t
             JOIN sys.operators o ON t.query_id = o.query_id AND t.exchange_id = o.operator_id
             JOIN sys.operators c ON c.query_id = o.query_id AND c.parent_operator_id = o.operator_id
             LEFT JOIN sys.operator_stats s
               ON s.query_id = c.query_id AND s.operator_id = c.operator_id
                 AND s.worker_id = t.source_worker AND s.partition = t.source_partition
             WHERE o.name = 'NetworkCoalesceExec' AND s.rows_out IS DISTINCT FROM t.tuples",
        )
        .await;
        assert_eq!(others, [0]);
        // Bins of all workers fit together, and add up to the totals of all operators.
        let bins = numbers(
            &session,
            "SELECT count(DISTINCT CAST(started_at AS BIGINT) - bin * width_ns)
             FROM sys.operator_timeline WHERE query_id = last_query_id()
             UNION ALL SELECT count(DISTINCT worker_id)
             FROM sys.operator_timeline WHERE query_id = last_query_id()
             UNION ALL SELECT sum(t.self_ns) - (SELECT sum(self_ns) FROM sys.operator_stats
               WHERE query_id = last_query_id())
             FROM sys.operator_timeline t WHERE t.query_id = last_query_id()
             UNION ALL SELECT count(DISTINCT worker_id)
             FROM sys.task_stats WHERE query_id = last_query_id()",
        )
        .await;
        assert_eq!(bins.len(), 4);
        for expected in [0, 1, 3] {
            assert!(bins.contains(&expected), "{bins:?}");
        }
        // Partitions of a fragment are numbered over all workers.
        let twice = numbers(
            &session,
            "SELECT count(*) FROM (SELECT 1 FROM sys.operator_stats
             WHERE query_id = last_query_id() GROUP BY operator_id, partition HAVING count(*) > 1)",
        )
        .await;
        assert_eq!(twice, [0]);
        // Workers name themselves once.
        let workers = numbers(
            &session,
            "SELECT worker_id FROM sys.workers WHERE query_id = last_query_id() ORDER BY 1",
        )
        .await;
        assert_eq!(workers, [0, 1, 2]);
    }
    let calls = numbers(
        &session,
        "SELECT DISTINCT worker_id FROM sys.operator_calls WHERE query_id = last_query_id()
         ORDER BY 1",
    )
    .await;
    assert_eq!(calls, [0, 1, 2]);
}

#[tokio::test]
async fn self_times_of_a_fragment_add_up_to_its_total_on_every_worker() {
    let session = filled(3).await;
    let sql = "SELECT n.name, count(*) FROM t JOIN names n ON t.g = n.g GROUP BY n.name";
    rows(&session, sql).await;
    // The root of each fragment on each worker: what it took is what its operators took.
    let off = numbers(
        &session,
        "SELECT count(*) FROM
           (SELECT fragment_id, worker_id, sum(self_ns) AS self_ns FROM sys.operator_stats
            WHERE query_id = last_query_id() GROUP BY fragment_id, worker_id) parts
         JOIN
           (SELECT o.fragment_id, s.worker_id, sum(s.total_ns) AS total_ns
            FROM sys.operator_stats s JOIN sys.operators o
              ON s.query_id = o.query_id AND s.operator_id = o.operator_id
            LEFT JOIN sys.operators p
              ON p.query_id = o.query_id AND p.operator_id = o.parent_operator_id
            WHERE s.query_id = last_query_id()
              AND (p.fragment_id IS NULL OR p.fragment_id <> o.fragment_id)
            GROUP BY o.fragment_id, s.worker_id) whole
         ON parts.fragment_id = whole.fragment_id AND parts.worker_id = whole.worker_id
         WHERE abs(parts.self_ns - whole.total_ns) > 0.01 * whole.total_ns + 1000",
    )
    .await;
    assert_eq!(off, [0]);
}

#[tokio::test]
async fn functions_of_the_session_and_settings_reach_the_workers() {
    let session = filled(3).await;
    session.register_row_udf(
        "twice",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |args| {
            let ScalarValue::Int64(value) = &args[0] else {
                return Ok(ScalarValue::Int64(None));
            };
            Ok(ScalarValue::Int64(value.map(|value| 2 * value)))
        },
    );
    rows(
        &session,
        "SET datafusion.execution.time_zone = 'Asia/Tokyo'",
    )
    .await;
    let sum = numbers(&session, "SELECT sum(twice(a)) FROM t WHERE twice(g) > 2").await;
    assert_eq!(workers_of_the_last_query(&session).await, [0, 1, 2]);
    let expected = numbers(&session, "SELECT sum(2 * a) FROM t WHERE g > 1").await;
    assert_eq!(sum, expected);
}

#[tokio::test]
async fn an_error_on_a_worker_is_the_users_as_on_one() {
    let (one, three) = (filled(1).await, filled(3).await);
    let sql = "SELECT sum(10 / (a - 77)) FROM t";
    let mut messages = Vec::new();
    for session in [&one, &three] {
        let outcome = match session.sql(sql).await {
            Ok(stream) => stream.collect().await.map(|_| ()),
            Err(error) => Err(error),
        };
        messages.push(outcome.unwrap_err().to_string());
    }
    assert_eq!(messages[0], messages[1]);
    assert_eq!(numbers(&three, "SELECT count(*) FROM t").await, [3000]);
}

#[tokio::test]
async fn queries_of_what_only_this_process_has_are_not_distributed() {
    let session = filled(3).await;
    for sql in [
        "SELECT count(*) FROM t, generate_series(1, 3)",
        "SELECT count(*) FROM information_schema.tables, t",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3)
         SELECT count(*) FROM r JOIN t ON t.a = r.n",
        "VALUES (1), (2)",
    ] {
        rows(&session, sql).await;
        assert_eq!(workers_of_the_last_query(&session).await, [0], "{sql}");
    }
}

#[tokio::test]
async fn the_same_record_is_isolated_on_three_workers_as_on_one() {
    let slow = |session: &Session| {
        session.register_row_udf(
            "checked",
            vec![DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            |args| {
                if args[0] == ScalarValue::Int64(Some(3_215)) {
                    std::thread::sleep(std::time::Duration::from_millis(60));
                }
                Ok(args[0].clone())
            },
        );
    };
    let mut found = Vec::new();
    for workers in [1, 3] {
        let session = filled(workers).await;
        slow(&session);
        rows(&session, "SET profile.level = 'records'").await;
        let sql = "SELECT g, sum(checked(a)) FROM t GROUP BY g";
        rows(&session, sql).await;
        let ran_on = workers_of_the_last_query(&session).await;
        assert_eq!(ran_on.len(), workers);
        let row = numbers(
            &session,
            "SELECT row_id FROM sys.expensive_inputs
             WHERE query_id = last_query_id() AND rank = 1",
        )
        .await;
        let record = format!("SELECT a FROM t WHERE _row_id = {}", row[0]);
        assert_eq!(numbers(&session, &record).await, [3_215]);
        let traced = numbers(
            &session,
            "SELECT count(*) FROM sys.output_records o, sys.queries q
             WHERE o.query_id = last_query_id() AND q.query_id = o.query_id",
        )
        .await;
        found.push(traced);
    }
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn a_query_that_is_dropped_ends_on_all_workers() {
    let session = filled(3).await;
    session.register_row_udf(
        "slow",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |args| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Ok(args[0].clone())
        },
    );
    rows(&session, "SET datafusion.execution.batch_size = 8").await;
    for level in ["off", "counters", "records"] {
        rows(&session, &format!("SET profile.level = '{level}'")).await;
        // 15 seconds, if it went on.
        let stream = session
            .sql("SELECT g, sum(slow(a)) FROM t GROUP BY g")
            .await;
        let started = std::time::Instant::now();
        drop(stream.unwrap());
        let status = "SELECT status FROM sys.queries WHERE query_id = last_query_id()";
        loop {
            let text = table(&session, status).await;
            if text.contains("cancelled") {
                break;
            }
            assert!(started.elapsed().as_secs() < 12, "{level}: {text}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(numbers(&session, "SELECT count(*) FROM t").await, [3000]);
    }
}

#[tokio::test]
async fn what_workers_recorded_is_there_when_the_database_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        Database::builder()
            .path(directory.path())
            .workers(3)
            .build()
    };
    let db = open().unwrap();
    let session = db.session();
    for n in 0..3 {
        let table = if n == 0 {
            "CREATE TABLE t AS"
        } else {
            "INSERT INTO t"
        };
        let sql = format!("{table} SELECT value AS a FROM generate_series(1, 100)");
        rows(&session, &sql).await;
    }
    rows(&session, "SET profile.level = 'records'").await;
    rows(&session, "SELECT a % 5, count(*) FROM t GROUP BY 1").await;
    let query_id = session.last_query_id().unwrap();
    let recorded = [
        ("operator_stats", "worker_id, operator_id, partition"),
        ("lineage", "worker_id, operator_id, output_id, input_id"),
        ("queries", "query_id"),
    ];
    let ask = async |session: &Session| {
        let mut found = Vec::new();
        for (name, columns) in recorded {
            let sql = format!(
                "SELECT {columns} FROM sys.{name} WHERE query_id = {query_id} ORDER BY {columns}"
            );
            found.push(table(session, &sql).await);
        }
        found
    };
    let before = ask(&session).await;
    drop(session);
    db.close().await.unwrap();
    let after = ask(&open().unwrap().session()).await;
    assert_eq!(before, after);
    assert!(after[1].contains("| 2 "), "{}", after[1]);
}

#[tokio::test]
async fn the_number_of_partitions_of_each_worker_does_not_matter() {
    let (one, three) = (filled(1).await, filled(3).await);
    for partitions in [1, 4] {
        let set = format!("SET datafusion.execution.target_partitions = {partitions}");
        rows(&three, &set).await;
        rows(&three, "SET datafusion.execution.batch_size = 100").await;
        for sql in QUERIES {
            let (expected, given) = (table(&one, sql).await, table(&three, sql).await);
            assert_eq!(given, expected, "{partitions} partitions: {sql}");
        }
    }
}

#[tokio::test]
async fn windows_that_cannot_run_on_workers_run_on_one() {
    let (one, three) = (filled(1).await, filled(3).await);
    for sql in [
        "SELECT sum(s) FROM
           (SELECT sum(a) FILTER (WHERE a % 3 = 0) OVER (PARTITION BY g ORDER BY a) AS s FROM t)",
        "SELECT sum(l) FROM
           (SELECT lag(nullif(a % 5, 0)) IGNORE NULLS OVER (PARTITION BY g ORDER BY a) AS l FROM t)",
        // The upper window does not know that its column is equal to the one that rows are sorted by.
        "SELECT CAST(sum(r + s) AS BIGINT) FROM
           (SELECT rank() OVER (PARTITION BY n.g ORDER BY t.a) AS r,
                   sum(t.a) OVER (PARTITION BY t.g ORDER BY t.a) AS s
            FROM t JOIN names n ON t.g = n.g)",
    ] {
        assert_eq!(numbers(&three, sql).await, numbers(&one, sql).await, "{sql}");
        assert_eq!(workers_of_the_last_query(&three).await, [0], "{sql}");
    }
}

/// Their values have the numbers of their order wherever they are made: workers share no rows.
#[tokio::test(flavor = "multi_thread")]
async fn lists_in_subqueries_are_read_on_all_workers() {
    let (one, three) = (filled(1).await, filled(3).await);
    let lists = "(SELECT a, range(0, a % 5) AS list FROM t) AS l";
    for sql in [
        format!("SELECT count(*) FROM {lists} LEFT JOIN LATERAL unnest(l.list) AS u(x) ON x > 1"),
        format!("SELECT sum((SELECT sum(x * a) FROM unnest(l.list) AS u(x))) FROM {lists}"),
        format!(
            "SELECT sum(y) FROM {lists}, \
             LATERAL (SELECT x + a AS y FROM unnest(l.list) AS u(x) ORDER BY x DESC LIMIT 2) AS t"
        ),
    ] {
        let on_all = numbers(&three, &sql).await;
        let workers = workers_of_the_last_query(&three).await;
        assert_eq!(on_all, numbers(&one, &sql).await, "{sql}");
        assert!(workers.len() == 3, "{sql}: {workers:?}");
    }
}

#[tokio::test]
async fn a_window_over_a_constant_runs_on_one_worker() {
    let session = filled(3).await;
    let sql = "SELECT sum(7) OVER (PARTITION BY k) FROM (SELECT 0.5 AS k FROM t) LIMIT 1";
    assert_eq!(numbers(&session, sql).await, [21_000]);
    assert_eq!(workers_of_the_last_query(&session).await, [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_of_several_workers_are_compared() {
    let session = filled(3).await;
    rows(&session, "SET profile.level = 'records'").await;
    let (mut ids, mut workers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        rows(&session, "SELECT g, count(*) FROM t GROUP BY g").await;
        workers = workers_of_the_last_query(&session).await;
        let newest = "SELECT max(query_id) FROM sys.queries";
        ids.extend(numbers(&session, newest).await);
    }
    assert!(workers.len() > 1, "{workers:?}");
    let sql = format!("EXPLAIN PROFILE (FORMAT json) DIFF {}, {}", ids[0], ids[1]);
    let batches = rows(&session, &sql).await;
    let lines = batches.iter().flat_map(|batch| {
        let lines = batch.column(0).as_string::<i32>();
        lines.iter().flatten().collect::<Vec<_>>()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["same_plan"], true);
    let compared = json["workers"].as_array().unwrap();
    let numbers: Vec<_> = compared.iter().map(|w| w["worker_id"].as_i64()).collect();
    assert_eq!(numbers, workers.into_iter().map(Some).collect::<Vec<_>>());
    for worker in compared {
        let busy = &worker["busy_ns"];
        assert!(
            busy["before"].is_i64() && busy["after"].is_i64(),
            "{worker}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_go_from_worker_to_worker_without_a_copy() {
    let session = filled(3).await;
    // They are kept, so that nothing else can be where they are.
    let made: Arc<Mutex<Vec<Int64Array>>> = Arc::default();
    let keep = Arc::clone(&made);
    session.register_udf(create_udf(
        "twice",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(move |arguments| {
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let numbers = arrays[0].as_primitive::<Int64Type>();
            let twice: Int64Array = numbers.unary(|number| 2 * number);
            keep.lock().unwrap().push(twice.clone());
            Ok(ColumnarValue::Array(Arc::new(twice)))
        }),
    ));
    let batches = rows(&session, "SELECT twice(a) FROM t").await;
    let workers = workers_of_the_last_query(&session).await;
    assert!(workers.len() > 1, "{workers:?}");
    let made = made.lock().unwrap();
    let mut found = 0;
    for batch in &batches {
        let returned = batch.column(0).as_primitive::<Int64Type>().values();
        let is_of = |array: &Int64Array| array.values().as_ptr_range().contains(&returned.as_ptr());
        assert!(made.iter().any(is_of), "a batch is not where it was made");
        found += returned.len();
    }
    assert_eq!(found, 3000);
}
