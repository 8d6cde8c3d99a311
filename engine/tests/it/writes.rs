//! Statements that write, on several workers in one process.

use std::path::Path;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use futures::StreamExt;
use skewer::{Database, Error, Session};

fn database(path: &Path) -> Database {
    Database::builder()
        .path(path)
        .workers(3)
        .worker_threads(2)
        .build()
        .unwrap()
}

async fn run(session: &Session, sql: &str) -> Vec<RecordBatch> {
    match session.sql(sql).await {
        Ok(stream) => match stream.collect().await {
            Ok(batches) => batches,
            Err(error) => panic!("{sql}: {error}"),
        },
        Err(error) => panic!("{sql}: {error}"),
    }
}

async fn number(session: &Session, sql: &str) -> i64 {
    let batches = run(session, sql).await;
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn fails(session: &Session, sql: &str) -> Error {
    match session.sql(sql).await {
        Ok(stream) => stream.collect().await.unwrap_err(),
        Err(error) => error,
    }
}

/// Segment files of the database.
fn files(path: &Path) -> usize {
    let mut files = 0;
    for directory in std::fs::read_dir(path.join("segments")).unwrap() {
        files += std::fs::read_dir(directory.unwrap().path())
            .unwrap()
            .count();
    }
    files
}

/// How many workers had the operator that writes in the last statement.
const WRITERS: &str = "SELECT count(DISTINCT s.worker_id) FROM sys.operator_stats s
     JOIN sys.operators o ON o.query_id = s.query_id AND o.operator_id = s.operator_id
     WHERE s.query_id = last_query_id() AND o.name = 'WriteSegmentsExec'";

#[tokio::test]
async fn what_workers_make_they_write() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(directory.path());
    let session = db.session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a, value % 7 AS g FROM generate_series(1, 100000)",
    )
    .await;
    for sql in [
        "CREATE TABLE grouped AS SELECT g, count(*) AS n, sum(a) AS s FROM t GROUP BY g",
        "CREATE TABLE copied AS SELECT * FROM t",
        "INSERT INTO copied SELECT * FROM t",
        "CREATE TABLE divided PARTITION BY HASH (g) AS SELECT * FROM t",
        "CREATE TABLE sorted AS SELECT a FROM t ORDER BY a DESC",
    ] {
        run(&session, sql).await;
        assert_eq!(number(&session, WRITERS).await, 3, "{sql}");
    }
    let count = "SELECT count(*) FROM copied";
    assert_eq!(number(&session, count).await, 200_000);
    let sum = "SELECT CAST(sum(n * 1000000 + s) AS BIGINT) FROM grouped";
    let expected = 100_000 * 1_000_000 + 100_000 * 100_001 / 2;
    assert_eq!(number(&session, sum).await, expected);
    let distinct = "SELECT count(DISTINCT _row_id) FROM copied";
    assert_eq!(number(&session, distinct).await, 200_000);
    // Rows that come in an order have their ids in that order.
    let in_order = "SELECT count(*) FROM sorted WHERE a + _row_id = 100000";
    assert_eq!(number(&session, in_order).await, 100_000);
}

#[tokio::test]
async fn rows_that_enter_in_an_order_have_the_ids_that_they_have_without_workers() {
    let directory = tempfile::tempdir().unwrap();
    let csv = directory.path().join("rows.csv");
    let lines: String = (0..50_000).map(|n| format!("{n},name {n}\n")).collect();
    std::fs::write(&csv, format!("n,name\n{lines}")).unwrap();
    let db = database(&directory.path().join("db"));
    let session = db.session();
    run(&session, "CREATE TABLE t (n BIGINT, name VARCHAR)").await;
    let copy = format!("COPY t FROM '{}'", csv.display());
    run(&session, &copy).await;
    let same = "SELECT count(*) FROM t WHERE _row_id = n";
    assert_eq!(number(&session, same).await, 50_000);
    run(&session, "INSERT INTO t VALUES (50000, 'a'), (50001, 'b')").await;
    assert_eq!(number(&session, same).await, 50_002);
    assert!(
        files(&directory.path().join("db")) >= 3,
        "all on one worker"
    );
}

#[tokio::test]
async fn rows_that_are_cast_keep_the_order_that_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    for db in [
        database(&directory.path().join("three")),
        Database::builder().worker_threads(4).build().unwrap(),
    ] {
        let session = db.session();
        run(&session, "CREATE TABLE t (w VARCHAR, k INT)").await;
        let insert = "INSERT INTO t SELECT 'w' || value, value % 4000
                      FROM generate_series(1, 20000) ORDER BY 1";
        for _ in 0..4 {
            run(&session, insert).await;
            let out_of_order = "SELECT count(*) FROM
                 (SELECT w, lag(w) OVER (ORDER BY _row_id) AS before FROM t) WHERE before > w";
            assert_eq!(number(&session, out_of_order).await, 0);
            run(&session, "DELETE FROM t").await;
        }
    }
}

#[tokio::test]
async fn what_is_deleted_and_updated_is_so_on_all_workers_and_ids_stay() {
    let directory = tempfile::tempdir().unwrap();
    let session = database(directory.path()).session();
    run(
        &session,
        "CREATE TABLE t PARTITION BY HASH (a) AS
         SELECT value AS a, value % 10 AS g FROM generate_series(0, 49999)
         ORDER BY value",
    )
    .await;
    let deleted = number(&session, "DELETE FROM t WHERE g = 3").await;
    assert_eq!(deleted, 5_000);
    let updated = number(&session, "UPDATE t SET a = -a, g = 100 WHERE g = 4").await;
    assert_eq!(updated, 5_000);
    assert_eq!(number(&session, "SELECT count(*) FROM t").await, 45_000);
    let negative = "SELECT count(*) FROM t WHERE a < 0 AND g = 100 AND a % 10 = -4";
    assert_eq!(number(&session, negative).await, 5_000);
    let ids = "SELECT count(*) FROM t WHERE _row_id = abs(a)";
    assert_eq!(number(&session, ids).await, 45_000);
    assert_eq!(number(&session, "DELETE FROM t").await, 45_000);
}

#[tokio::test]
async fn a_statement_that_fails_leaves_no_rows_and_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(directory.path());
    let session = db.session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 60000)",
    )
    .await;
    run(&session, "CREATE TABLE u (a BIGINT NOT NULL)").await;
    let before = files(directory.path());

    let error = fails(&session, "INSERT INTO u VALUES (1), (2), (NULL), (4)").await;
    let Error::NotNull { table, column, row } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((table.as_str(), column.as_str(), *row), ("u", "a", 3));

    let some_null = "INSERT INTO u SELECT CASE WHEN a = 59999 THEN NULL ELSE a END FROM t";
    let error = fails(&session, some_null).await;
    assert!(matches!(error, Error::NotNull { .. }), "{error:?}");

    let divides = "INSERT INTO u SELECT 1 / (a - 59999) FROM t";
    let error = fails(&session, divides).await;
    assert!(matches!(error, Error::DivisionByZero), "{error:?}");

    assert_eq!(number(&session, "SELECT count(*) FROM u").await, 0);
    drop(session);
    db.close().await.unwrap();
    // At once, and not by the next opening.
    assert_eq!(files(directory.path()), before);
}

#[tokio::test]
async fn a_statement_that_is_cancelled_leaves_no_rows_and_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let db = database(directory.path());
    let session = db.session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 60000)",
    )
    .await;
    run(&session, "CREATE TABLE u (a BIGINT)").await;
    let before = files(directory.path());
    for sql in [
        "INSERT INTO u SELECT x.a FROM t x, t y WHERE x.a + y.a > 0",
        "INSERT INTO u SELECT value FROM generate_series(1, 10000000000)",
    ] {
        let statement = session.sql(sql);
        let limit = std::time::Duration::from_millis(700);
        let ended = tokio::time::timeout(limit, statement).await;
        assert!(ended.is_err(), "{sql} ended too early");
    }
    assert_eq!(number(&session, "SELECT count(*) FROM u").await, 0);
    drop(session);
    db.close().await.unwrap();
    let mut left = files(directory.path());
    // Writers notice when they next look.
    for _ in 0..200 {
        if left == before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        left = files(directory.path());
    }
    assert_eq!(left, before);
}

#[tokio::test]
async fn at_record_level_a_statement_that_writes_is_logged_and_written_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let session = database(directory.path()).session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 30000)",
    )
    .await;
    run(&session, "SET profile.level = 'records'").await;
    run(
        &session,
        "CREATE TABLE u AS SELECT a % 5 AS g, count(*) AS n FROM t GROUP BY a % 5",
    )
    .await;
    let logged = "SELECT count(*) FROM sys.output_records WHERE query_id = last_query_id()";
    assert_eq!(number(&session, logged).await, 5);
    assert_eq!(
        number(&session, "SELECT CAST(sum(n) AS BIGINT) FROM u").await,
        30_000
    );
}

#[tokio::test]
async fn rows_from_a_client_are_written_on_all_workers() {
    let directory = tempfile::tempdir().unwrap();
    let session = database(directory.path()).session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 40000)",
    )
    .await;
    let mut batches = session.sql("SELECT a FROM t ORDER BY a").await.unwrap();
    run(&session, "CREATE TABLE u (a BIGINT)").await;
    let mut rows = Vec::new();
    while let Some(batch) = batches.next().await {
        rows.push(batch);
    }
    let stream = Box::pin(futures::stream::iter(rows));
    let appended = session
        .append("COPY u FROM STDIN", "u", &[], stream)
        .await
        .unwrap();
    assert_eq!(appended, 40_000);
    assert_eq!(
        number(&session, "SELECT count(*) FROM u WHERE _row_id = a - 1").await,
        40_000
    );
}
