//! Sessions from outside: many at once, cancelled, out of memory, in progress, reopened.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use futures::StreamExt;
use skewer::{Database, Error, Progress, Session};

async fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    let stream = session
        .sql(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    stream
        .collect()
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

async fn number(session: &Session, sql: &str) -> i64 {
    let batches = rows(session, sql).await;
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn text(session: &Session, sql: &str) -> String {
    let batches = rows(session, sql).await;
    ScalarValue::try_from_array(batches[0].column(0), 0)
        .unwrap()
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_fewer_row_groups_than_threads_are_dealt_out_to_all_of_them() {
    let db = Database::in_memory().unwrap();
    let session = db.session();
    // As if the file were a large one, which is cut by its bytes.
    let settings = [
        "SET threads = 5",
        "SET datafusion.optimizer.repartition_file_min_size = 1",
        "SET profile.level = 'records'",
        "CREATE TABLE t AS SELECT value AS v FROM generate_series(0, 199999)",
    ];
    for sql in settings {
        rows(&session, sql).await;
    }
    let sql = "SELECT v % 10 AS k, sum(v) AS s FROM t GROUP BY k ORDER BY k";
    let plan = text_of_plan(&session, sql).await;
    let dealt_out = "RoundRobinBatch(5), input_partitions=2";
    assert!(plan.contains(dealt_out), "{plan}");
    let sums = rows(&session, sql).await;
    let sums: Vec<i64> = sums
        .iter()
        .flat_map(|batch| {
            batch
                .column(1)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    let expected: Vec<i64> = (0..10).map(|k| 1_999_900_000 + 20_000 * k).collect();
    assert_eq!(sums, expected);
    let id = number(&session, "SELECT last_query_id()").await;
    let traced =
        format!("FROM backward_trace({id}, 3) AS trace JOIN t ON t._row_id = trace.row_id");
    let wrong = format!("SELECT count(*) {traced} WHERE v % 10 <> 3");
    assert_eq!(number(&session, &wrong).await, 0);
    let rows_traced = format!("SELECT count(DISTINCT v) {traced}");
    assert_eq!(number(&session, &rows_traced).await, 20_000);

    // With as many row groups as threads, they are cut.
    rows(&session, "SET threads = 2").await;
    let plan = text_of_plan(&session, sql).await;
    assert!(!plan.contains("RoundRobin"), "{plan}");
    assert!(plan.contains("{2 groups"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_build_sides_are_collected_where_there_are_no_workers() {
    for (workers, expected) in [(1, "2000000"), (3, "131072")] {
        let database = Database::builder().workers(workers).build().unwrap();
        let session = database.session();
        let setting = "datafusion.optimizer.hash_join_single_partition_threshold_rows";
        let show = async || {
            let shown = rows(&session, &format!("SHOW {setting}")).await;
            pretty_format_batches(&shown).unwrap().to_string()
        };
        let shown = show().await;
        assert!(shown.contains(expected), "{workers} workers: {shown}");
        // What a user sets is kept, and RESET goes back.
        rows(&session, &format!("SET {setting} = 7")).await;
        rows(&session, &format!("RESET {setting}")).await;
        assert_eq!(show().await, shown);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_partition_of_a_join_tells_its_memory() {
    let db = Database::in_memory().unwrap();
    let session = db.session();
    rows(&session, "SET threads = 4").await;
    rows(&session, "SET profile.level = 'counters'").await;
    let sql = "CREATE TABLE t AS SELECT value AS v FROM generate_series(0, 99999)";
    rows(&session, sql).await;
    for threshold in ["", "_rows"] {
        let whole = format!("datafusion.optimizer.hash_join_single_partition_threshold{threshold}");
        rows(&session, &format!("SET {whole} = 0")).await;
    }
    rows(&session, "SELECT a.v FROM t a JOIN t b ON a.v = b.v + 1").await;
    let told = "SELECT count(*) FROM sys.operator_stats AS s JOIN sys.operators AS o \
                USING (query_id, operator_id) \
                WHERE s.query_id = last_query_id() AND name = 'HashJoinExec' \
                AND s.peak_memory_bytes > 0";
    assert_eq!(number(&session, told).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_wide_rows_are_read_in_several_batches_and_by_several_threads() {
    let db = Database::in_memory().unwrap();
    let session = db.session();
    rows(&session, "SET datafusion.execution.target_partitions = 2").await;
    rows(
        &session,
        "CREATE TABLE wide AS SELECT i, repeat(i::TEXT, 50000) AS line FROM range(100, 300) r(i)",
    )
    .await;
    // Some 30 MB in 200 rows.
    let batches = rows(&session, "SELECT line FROM wide").await;
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
        200
    );
    let most = batches.iter().map(RecordBatch::num_rows).max().unwrap();
    assert!((2..=20).contains(&most), "{most} rows in a batch");
    // What is narrow of them is one batch, and how many there are is known.
    assert_eq!(rows(&session, "SELECT i FROM wide").await.len(), 1);
    let count = text_of_plan(&session, "SELECT count(*) FROM wide").await;
    assert!(!count.contains("DataSourceExec"), "{count}");

    let narrow = text_of_plan(&session, "SELECT sum(i + 1) FROM wide").await;
    assert!(!narrow.contains("RoundRobin"), "{narrow}");
    let wide = "SELECT max(character_length(replace(line, '1', '')))::BIGINT FROM wide";
    let plan = text_of_plan(&session, wide).await;
    assert!(
        plan.contains("RoundRobinBatch(2)") || plan.contains("2 groups"),
        "{plan}"
    );
    assert_eq!(number(&session, wide).await, 150_000);
}

async fn text_of_plan(session: &Session, query: &str) -> String {
    let batches = rows(session, &format!("EXPLAIN {query}")).await;
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_many_tasks_do_not_lose_each_others_rows() {
    let db = Database::in_memory().unwrap();
    let session = db.session();
    rows(&session, "CREATE TABLE t (task INT, n INT)").await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let session = db.session();
            tokio::spawn(async move {
                for n in 0..10 {
                    rows(&session, &format!("INSERT INTO t VALUES ({task}, {n})")).await;
                    let update =
                        format!("UPDATE t SET n = n + 100 WHERE task = {task} AND n < 100");
                    assert_eq!(number(&session, &update).await, 1);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(
        number(&session, "SELECT count(*) FROM t WHERE n >= 100").await,
        80
    );
    assert_eq!(
        number(&session, "SELECT count(DISTINCT _row_id) FROM t").await,
        80
    );
}

#[tokio::test]
async fn a_query_reads_what_there_was_when_it_began() {
    let session = Database::in_memory().unwrap().session();
    rows(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 100000)",
    )
    .await;
    let mut stream = session.sql("SELECT a FROM t").await.unwrap();
    let mut seen = stream.next().await.unwrap().unwrap().num_rows();
    rows(&session, "DELETE FROM t").await;
    rows(&session, "DROP TABLE t").await;
    while let Some(batch) = stream.next().await {
        seen += batch.unwrap().num_rows();
    }
    assert_eq!(seen, 100_000);
}

#[tokio::test]
async fn a_dropped_stream_cancels_its_query_and_the_session_goes_on() {
    let session = Database::in_memory().unwrap().session();
    let endless = "SELECT count(*) FROM generate_series(1, 1000000000000) AS a";
    let stream = session.sql(endless).await.unwrap();
    let id = stream.query_id().unwrap();
    drop(stream);
    let status = format!("SELECT status FROM sys.queries WHERE query_id = {id}");
    for _ in 0..1000 {
        if !rows(&session, &status).await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(text(&session, &status).await, "cancelled");
    assert_eq!(number(&session, "SELECT 1").await, 1);
}

#[tokio::test]
async fn a_dropped_statement_changes_nothing() {
    let session = Database::in_memory().unwrap().session();
    rows(&session, "CREATE TABLE t (a BIGINT)").await;
    let endless = "INSERT INTO t SELECT value FROM generate_series(1, 1000000000000)";
    let writes = async {
        while session.progress().now().rows == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        ended = session.sql(endless) => panic!("{ended:?}"),
        () = writes => {}
    }
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn the_memory_limit_makes_sorts_spill_and_fails_what_cannot() {
    let spill = tempfile::tempdir().unwrap();
    let db = Database::builder()
        .memory_limit(24 << 20)
        .temp_directory(spill.path())
        .worker_threads(2)
        .build()
        .unwrap();
    let session = db.session();
    let sorted = "SELECT value, repeat('x', 50) AS s FROM generate_series(1, 400000) \
                  ORDER BY s, value DESC";
    let mut stream = session.sql(sorted).await.unwrap();
    let mut sorted_rows = 0;
    while let Some(batch) = stream.next().await {
        sorted_rows += batch.unwrap().num_rows();
    }
    assert_eq!(sorted_rows, 400_000);
    let hungry = "SELECT array_agg(repeat('x', 100) || value) FROM generate_series(1, 1000000)";
    match session.sql(hungry).await.unwrap().collect().await {
        Err(Error::OutOfMemory(_)) => {}
        other => panic!("{:?}", other.map(|batches| batches.len())),
    }
    assert_eq!(number(&session, "SELECT 1").await, 1);
}

#[tokio::test]
async fn progress_knows_the_share_of_a_table_that_was_read() {
    let session = Database::in_memory().unwrap().session();
    rows(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 300000)",
    )
    .await;
    let mut stream = session.sql("SELECT a FROM t").await.unwrap();
    let progress = stream.progress();
    let mut last = 0.0;
    while let Some(batch) = stream.next().await {
        batch.unwrap();
        if let Some(fraction) = progress.now().fraction {
            assert!((last..=1.0).contains(&fraction), "{fraction} after {last}");
            last = fraction;
        }
    }
    assert!(last > 0.1, "{last}");
    assert_eq!(progress.now().rows, 300_000);
}

#[tokio::test]
async fn a_statement_that_has_not_begun_has_none_of_the_progress_of_the_one_before() {
    let session = Database::in_memory().unwrap().session();
    rows(&session, "CREATE TABLE t AS SELECT value FROM range(10)").await;
    let before = session.progress();
    assert_eq!(before.now().rows, 10);
    session.sql("SELEC 1").await.unwrap_err();
    assert_eq!(session.progress().now(), Progress::default());
    // Whoever looks at the one before still sees it.
    assert_eq!(before.now().rows, 10);

    // One that runs goes on being shown.
    let endless = "SELECT value FROM generate_series(1, 1000000000000)";
    let mut running = session.sql(endless).await.unwrap();
    running.next().await.unwrap().unwrap();
    session.sql("SELEC 1").await.unwrap_err();
    assert!(session.progress().now().rows > 0);
}

#[tokio::test]
async fn a_row_function_that_fails_fails_its_statement_only() {
    let session = Database::in_memory().unwrap().session();
    session.register_row_udf(
        "picky",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |args| match args[0] {
            ScalarValue::Int64(Some(7)) => Err(datafusion::common::DataFusionError::External(
                "no sevens".into(),
            )),
            ref other => Ok(other.clone()),
        },
    );
    let sum = |to: i64| format!("SELECT sum(picky(value)) FROM generate_series(1, {to})");
    assert_eq!(number(&session, &sum(6)).await, 21);
    let error = session
        .sql(&sum(8))
        .await
        .unwrap()
        .collect()
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "no sevens");
    assert_eq!(number(&session, &sum(5)).await, 15);
}

#[tokio::test]
async fn a_panic_fails_its_statement_only_and_no_result_ends_early() {
    for builder in [Database::builder(), Database::builder().workers(2)] {
        let db = builder.worker_threads(2).build().unwrap();
        let session = db.session();
        session.register_row_udf(
            "breaks_at",
            vec![DataType::Int64, DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            |args| match args {
                [
                    ScalarValue::Int64(Some(at)),
                    ScalarValue::Int64(Some(value)),
                ] => {
                    assert!(at != value, "broken at {at}");
                    Ok(ScalarValue::from(*value))
                }
                other => unreachable!("{other:?}"),
            },
        );
        rows(
            &session,
            "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 30000)",
        )
        .await;
        for level in ["off", "counters", "calls", "records"] {
            rows(&session, &format!("SET profile.level = '{level}'")).await;
            for sql in [
                // In the task that hands over rows, in tasks below it, after the first rows, while
                // it is planned.
                "SELECT breaks_at(29000, a) FROM t",
                "SELECT breaks_at(29000, a) FROM t ORDER BY 1",
                "SELECT breaks_at(29000, a) % 7 AS k, count(*) FROM t GROUP BY k",
                "SELECT a FROM t UNION ALL SELECT breaks_at(29000, a) FROM t",
                "SELECT breaks_at(29000, 29000)",
                "INSERT INTO t SELECT breaks_at(29000, a) FROM t",
            ] {
                let outcome = match session.sql(sql).await {
                    Ok(stream) => stream.collect().await,
                    Err(error) => Err(error),
                };
                let error = outcome.expect_err(sql).to_string();
                assert!(error.contains("broken at 29000"), "{level}, {sql}: {error}");
                assert_eq!(number(&session, "SELECT count(*) FROM t").await, 30_000);
            }
        }
        let failed = "SELECT count(*) FROM sys.queries \
                      WHERE status = 'failed' AND error LIKE '%broken at 29000%'";
        assert!(number(&session, failed).await > 6);
    }
}

#[tokio::test]
async fn small_inserts_are_merged_in_the_background_and_keep_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let session = db.session();
    rows(&session, "CREATE TABLE t (a INT)").await;
    for n in 0..40 {
        rows(&session, &format!("INSERT INTO t VALUES ({n})")).await;
    }
    let files = || {
        let folder = dir.path().join("db/segments");
        let tables = std::fs::read_dir(folder).unwrap();
        tables
            .flat_map(|table| std::fs::read_dir(table.unwrap().path()).unwrap())
            .count()
    };
    for _ in 0..500 {
        if files() < 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(files() < 20, "{} segments", files());
    assert_eq!(
        number(&session, "SELECT count(*) FROM t WHERE _row_id = a").await,
        40
    );
}

#[tokio::test]
async fn a_second_opening_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    match Database::open(dir.path().join("db")) {
        Err(Error::Locked(text)) => assert!(text.contains(&std::process::id().to_string())),
        other => panic!("{other:?}"),
    }
    drop(db);
    Database::open(dir.path().join("db")).unwrap();
}

#[tokio::test]
async fn a_damaged_segment_names_its_file_and_leaves_other_tables_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Database::open(&path).unwrap();
    let session = db.session();
    rows(&session, "CREATE TABLE good AS SELECT 1 AS a").await;
    rows(
        &session,
        "CREATE TABLE bad AS SELECT value AS a FROM generate_series(1, 100000)",
    )
    .await;
    drop(session);
    db.close().await.unwrap();
    let mut segments: Vec<_> = walk(&path.join("segments"));
    segments.sort_by_key(|file| std::fs::metadata(file).unwrap().len());
    let victim = segments.pop().unwrap();
    let mut bytes = std::fs::read(&victim).unwrap();
    for byte in &mut bytes[100..5000] {
        *byte ^= 0x5a;
    }
    std::fs::write(&victim, bytes).unwrap();

    let session = Database::open(&path).unwrap().session();
    let outcome = match session.sql("SELECT sum(a) FROM bad").await {
        Ok(stream) => stream.collect().await.map(|_| ()),
        Err(error) => Err(error),
    };
    match outcome {
        Err(Error::Corrupt { path, .. }) => {
            let name = victim.file_name().unwrap().to_str().unwrap();
            assert!(path.ends_with(name), "{path}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(number(&session, "SELECT a FROM good").await, 1);
    rows(&session, "DROP TABLE bad").await;
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false => vec![path],
        })
        .collect()
}

#[tokio::test]
async fn explain_profile_runs_what_it_explains() {
    let session = Database::in_memory().unwrap().session();
    rows(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 1000)",
    )
    .await;
    for level in ["counters", "calls", "records"] {
        let sql =
            format!("EXPLAIN PROFILE (LEVEL {level}) SELECT a % 10, count(*) FROM t GROUP BY 1");
        assert!(!rows(&session, &sql).await.is_empty(), "{level}");
        let recorded = "SELECT profile_level FROM sys.queries WHERE query_id = last_query_id()";
        assert_eq!(text(&session, recorded).await, level);
    }
    rows(
        &session,
        "EXPLAIN PROFILE CREATE TABLE u AS SELECT a FROM t WHERE a > 500",
    )
    .await;
    rows(&session, "EXPLAIN PROFILE INSERT INTO u SELECT a FROM t").await;
    assert_eq!(number(&session, "SELECT count(*) FROM u").await, 1500);
    // Row ids that the query itself shows are no obstacle to recording them.
    let with_ids = "EXPLAIN PROFILE SELECT _row_id, a FROM t WHERE _row_id < 10";
    assert!(!rows(&session, with_ids).await.is_empty());
}

#[tokio::test]
async fn sessions_are_futures_that_any_runtime_can_await() {
    fn is_send<T: Send + 'static>(value: T) -> T {
        value
    }
    let session = Arc::new(Database::in_memory().unwrap().session());
    let other = Arc::clone(&session);
    let handle = std::thread::spawn(move || {
        let future = is_send(async move { number(&other, "SELECT 42").await });
        futures::executor::block_on(future)
    });
    assert_eq!(handle.join().unwrap(), 42);
}
